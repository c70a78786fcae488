//! No byte of an answer reaches a client before a record of its request is written.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use http::{Request, Response};

use super::world::{Asked, Http2World};

const POLICY: &str = "version: 1\nname: test\nnet:\n  enabled: true\n  \
    allow: [allowed.test]\n  deny: [{host: allowed.test, paths: [/denied]}]\n";

/// Short answers, and under `/long` one whose end never comes.
async fn answer((request, mut respond): Asked) {
    if request.uri().path() != "/long" {
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), true).unwrap();
        return;
    }
    let mut hint = Response::new(());
    *hint.status_mut() = http::StatusCode::EARLY_HINTS;
    respond.send_informational(hint).unwrap();
    let mut body = respond.send_response(Response::new(()), false).unwrap();
    body.send_data(Bytes::from_static(b"hello"), false).unwrap();
    poll_fn(|cx| body.poll_reset(cx)).await.ok();
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("https://allowed.test{path}")).body(()).unwrap()
}

#[tokio::test]
async fn no_answer_is_sent_while_its_record_cannot_be_written() {
    for path in ["/short", "/long", "/denied"] {
        let mut world = Http2World::new(POLICY, answer).await;
        assert_eq!(world.send(get("/first")).await.status(), 200);
        world.stage().requests_are_recorded(1).await;
        world.stage().fill_disk(true);
        let (mut response, _) = world.open(get(path), true);
        world.stage().no_room_was_found().await;
        for _ in 0..100 {
            let polled =
                poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut response).poll(cx))).await;
            assert!(polled.is_pending(), "{path}");
            tokio::task::yield_now().await;
        }
        world.stage().fill_disk(false);
        let status = response.await.unwrap().status();
        assert_eq!(status, if path == "/denied" { 403 } else { 200 });
    }
}
