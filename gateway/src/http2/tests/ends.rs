//! How streams and connections end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::Response;

use super::*;
use crate::limits::Bounds;

const ANY: &str = "{host: allowed.test, methods: [GET, POST], paths: [\"/**\"]}";

async fn ok((_, mut respond): Asked) {
    respond.send_response(Response::new(()), true).unwrap();
}

/// Begins an answer and waits to be cancelled; then says so to the log.
async fn hang((_, mut respond): Asked) {
    let mut send = respond.send_response(Response::new(()), false).unwrap();
    send.send_data(Bytes::from_static(b"begun"), false).unwrap();
    let reason = std::future::poll_fn(|cx| send.poll_reset(cx)).await;
    CANCELLED.fetch_add(usize::from(reason.ok() == Some(Reason::CANCEL)), Ordering::SeqCst);
}

static CANCELLED: AtomicUsize = AtomicUsize::new(0);

#[tokio::test]
async fn a_client_that_cancels_cancels_the_upstream() {
    let mut world = Http2World::new(&policy(ANY), hang).await;
    let (response, mut send) = world.open(get("/"), true);
    let mut response = response.await.unwrap();
    assert_eq!(response.body_mut().data().await.unwrap().unwrap(), "begun");
    send.send_reset(Reason::CANCEL);
    while CANCELLED.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    drop((response, send));
    let events = world.hang_up().await;
    assert_eq!(events[0]["sluice.outcome"], "failed");
    assert_eq!(events[0]["error.type"], "client_gone");
}

#[tokio::test]
async fn a_client_that_vanishes_leaves_one_closing_record_per_request() {
    async fn never(asked: Asked) {
        std::future::pending::<()>().await;
        drop(asked);
    }
    let mut world = Http2World::new(&policy(ANY), never).await;
    let open: Vec<_> = (0..5).map(|_| world.open(get("/"), true)).collect();
    while world.upstream.accepted() == 0 {
        tokio::task::yield_now().await;
    }
    drop(open);
    let events = world.hang_up().await;
    assert_eq!(events.len(), 5);
    assert!(events.iter().all(|event| event["sluice.outcome"] == "failed"), "{events:#?}");
}

#[tokio::test]
async fn an_upstream_that_breaks_off_reaches_the_client_with_its_own_reason() {
    async fn break_off((request, mut respond): Asked) {
        let mut send = respond.send_response(Response::new(()), false).unwrap();
        send.send_data(Bytes::from_static(b"half"), false).unwrap();
        // Until the client has it.
        read_all(&mut request.into_body()).await.unwrap();
        send.send_reset(Reason::ENHANCE_YOUR_CALM);
    }
    let mut world = Http2World::new(&policy(ANY), break_off).await;
    let (response, mut body) = world.open(post("/"), false);
    let mut response = response.await.unwrap();
    assert_eq!(response.body_mut().data().await.unwrap().unwrap(), "half");
    body.send_data(Bytes::new(), true).unwrap();
    let err = read_all(response.body_mut()).await.unwrap_err();
    assert_eq!(err.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    let events = world.hang_up().await;
    assert_eq!(events[0]["sluice.outcome"], "failed");
    assert_eq!(events[0]["error.type"], "upstream_unreachable");
}

#[tokio::test]
async fn an_upstream_that_answers_early_is_heard_though_it_does_not_read_the_rest() {
    async fn early((_, mut respond): Asked) {
        let response = Response::builder().status(413).body(()).unwrap();
        respond.send_response(response, true).unwrap();
    }
    let mut world = Http2World::new(&policy(ANY), early).await;
    let (response, mut body) = world.open(post("/"), false);
    body.send_data(Bytes::from_static(b"some"), false).unwrap();
    assert_eq!(response.await.unwrap().status(), 413);
    // It is told that nobody reads on.
    let reason = std::future::poll_fn(|cx| body.poll_reset(cx)).await.unwrap();
    assert_eq!(reason, Reason::NO_ERROR);
    drop(body);
    let events = world.hang_up().await;
    assert_eq!(events[0]["sluice.outcome"], "relayed");
}

/// What an upstream does about a request that it does not answer.
#[derive(Clone, Copy)]
enum Failure {
    Break,
    Refuse,
}

/// An upstream that counts what it is asked, fails so many times and answers the rest.
async fn failing(failure: Failure, times: usize) -> (Http2World, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let world = Http2World::with_upstream(&policy(ANY), Bounds::default(), move |stream| {
        let seen = Arc::clone(&seen);
        async move {
            let Ok(mut connection) = h2::server::handshake(stream).await else { return };
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let fails = seen.fetch_add(1, Ordering::SeqCst) < times;
                match failure {
                    Failure::Break if fails => return,
                    Failure::Refuse if fails => respond.send_reset(Reason::REFUSED_STREAM),
                    Failure::Break | Failure::Refuse => {
                        let mut send = respond.send_response(Response::new(()), false).unwrap();
                        send.send_data(Bytes::from_static(b"done"), true).unwrap();
                    }
                }
            }
        }
    })
    .await;
    (world, asked)
}

#[tokio::test]
async fn a_request_the_upstream_did_not_look_at_is_sent_again_once() {
    let (mut world, asked) = failing(Failure::Refuse, 1).await;
    let mut response = world.send(post("/")).await;
    assert_eq!(read_all(response.body_mut()).await.unwrap(), b"done");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(world.hang_up().await.len(), 1);
}

#[tokio::test]
async fn a_request_whose_connection_breaks_is_sent_again_if_it_changes_nothing() {
    let (mut world, asked) = failing(Failure::Break, 1).await;
    assert_eq!(world.send(get("/")).await.status(), 200);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(world.hang_up().await.len(), 1);

    let (mut world, asked) = failing(Failure::Break, 1).await;
    // It may have been carried out.
    assert_eq!(world.send(post("/")).await.status(), 502);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_request_the_upstream_keeps_refusing_is_an_upstream_failure() {
    let (mut world, asked) = failing(Failure::Refuse, usize::MAX).await;
    let response = world.send(get("/")).await;
    assert_eq!(response.status(), 502);
    assert_eq!(body_of(response).await["code"], "upstream_unreachable");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_drain_says_goodbye_and_lets_open_streams_finish() {
    async fn slow((request, mut respond): Asked) {
        let mut send = respond.send_response(Response::new(()), false).unwrap();
        // Until the client says so.
        read_all(&mut request.into_body()).await.unwrap();
        send.send_data(Bytes::from_static(b"finished"), true).unwrap();
    }
    let mut world = Http2World::new(&policy(ANY), slow).await;
    let (response, mut body) = world.open(post("/"), false);
    let mut response = response.await.unwrap();
    world.gateway().drain();
    // The goodbye has arrived when no stream can be opened any more.
    while std::future::poll_fn(|cx| world.client.poll_ready(cx)).await.is_ok() {
        tokio::task::yield_now().await;
    }
    body.send_data(Bytes::new(), true).unwrap();
    assert_eq!(read_all(response.body_mut()).await.unwrap(), b"finished");
    let events = world.hang_up().await;
    assert_eq!(events[0]["sluice.outcome"], "relayed");
}

#[tokio::test]
async fn a_policy_that_no_longer_allows_a_stream_ends_it_and_its_connection() {
    let mut world = Http2World::new(&policy(ANY), hang).await;
    let mut response = world.send(get("/")).await;
    assert_eq!(response.body_mut().data().await.unwrap().unwrap(), "begun");
    let text = policy("other.test");
    let source = policies::Source::new("next.yaml", text.as_str());
    let next = policies::read(&source, &policies::NoFiles).unwrap();
    world.gateway().load_policy(next, "next");
    let err = response.body_mut().data().await.unwrap().unwrap_err();
    assert_eq!(err.reason(), Some(Reason::CANCEL));
    while std::future::poll_fn(|cx| world.client.poll_ready(cx)).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let events = world.hang_up().await;
    assert_eq!(events[0]["sluice.outcome"], "refused");
    assert_eq!(events[0]["sluice.reason"], "no_rule");
}

#[tokio::test]
async fn a_grpc_stream_that_is_cut_off_ends_in_a_status() {
    // Long enough for a busy machine to come to the answer's beginning.
    let bounds = Bounds { idle: Duration::from_millis(500), ..Bounds::default() };
    let mut world = Http2World::with_bounds(&policy(ANY), bounds, hang).await;
    let mut request = post("/pkg.Service/Method");
    request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    let mut response = world.send(request).await;
    assert_eq!(response.body_mut().data().await.unwrap().unwrap(), "begun");
    assert!(response.body_mut().data().await.is_none());
    let trailers = response.body_mut().trailers().await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "4");
    assert_eq!(trailers["x-sluice-code"], "idle");
}

#[tokio::test]
async fn a_connection_without_streams_is_closed_after_a_while() {
    // Long enough for a busy machine to answer the only request.
    let bounds = Bounds { idle: Duration::from_millis(500), ..Bounds::default() };
    let mut world = Http2World::with_bounds(&policy(ANY), bounds, ok).await;
    assert_eq!(world.send(get("/")).await.status(), 200);
    while std::future::poll_fn(|cx| world.client.poll_ready(cx)).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_client_that_cancels_does_not_wait_for_the_dial() {
    // Accepts and never shakes hands.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = crate::dial::testing::TestAuthority::new();
    let dialer = authority.dialer(&[("allowed.test", listener.local_addr().unwrap())]);
    let stage = crate::testing::Stage::with_dialer(&policy(ANY), Bounds::default(), dialer);
    let (wire, serving) = super::world::plug_in(&stage.gateway);
    let (mut client, connection) = h2::client::handshake(wire).await.unwrap();
    let connection = tokio::spawn(connection);
    let (response, mut send) = client.send_request(get("/"), true).unwrap();
    let dialled = listener.accept().await.unwrap();
    send.send_reset(Reason::CANCEL);
    drop((response, send, client));
    connection.await.unwrap().unwrap();
    serving.await.unwrap().unwrap();
    drop(dialled);
    let events = stage.events_of("request").await;
    assert_eq!(events[0]["error.type"], "client_gone");
}

#[tokio::test]
async fn a_connection_that_asks_nothing_is_closed() {
    let bounds = Bounds { header: Duration::from_millis(50), ..Bounds::default() };
    let mut world = Http2World::with_bounds(&policy(ANY), bounds, ok).await;
    while std::future::poll_fn(|cx| world.client.poll_ready(cx)).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
