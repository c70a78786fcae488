//! What does not go out.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};

use super::*;
use crate::limits::Bounds;

async fn ok((_, mut respond): Asked) {
    respond.send_response(Response::new(()), true).unwrap();
}

const ANY: &str = "{host: allowed.test, methods: [GET, POST, HEAD], paths: [/ok/**]}";

/// B4.
#[tokio::test]
async fn a_stream_for_another_host_is_refused_and_the_connection_stays() {
    let mut world = Http2World::new(&policy(ANY), ok).await;
    assert_eq!(world.send(get("/ok/1")).await.status(), 200);

    let evil = Request::get("https://evil.test/ok/2").body(()).unwrap();
    let refused = world.send(evil).await;
    assert_eq!(refused.status(), 421);
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    assert_eq!(body_of(refused).await["code"], "name_mismatch");

    assert_eq!(world.send(get("/ok/3")).await.status(), 200);
    let events = world.hang_up().await;
    assert_eq!(events.len(), 3);
    assert_eq!(events[1]["sluice.outcome"], "refused");
    assert_eq!(events[1]["sluice.reason"], "name_mismatch");
}

#[tokio::test]
async fn a_request_that_no_rule_allows_is_refused_and_nothing_is_dialled() {
    let mut world = Http2World::new(&policy(ANY), ok).await;
    let refused = world.send(get("/secret")).await;
    assert_eq!(refused.status(), 403);
    let body = body_of(refused).await;
    assert_eq!(body["code"], "no_rule");
    assert!(body["hint"].as_str().unwrap().contains("/secret"), "{body}");
    assert_eq!(world.upstream.accepted(), 0);
}

#[tokio::test]
async fn a_refusal_of_head_has_no_body() {
    let mut world = Http2World::new(&policy(ANY), ok).await;
    let mut request = get("/secret");
    *request.method_mut() = Method::HEAD;
    let refused = world.send(request).await;
    assert_eq!(refused.status(), 403);
    assert!(refused.body().is_end_stream());
}

/// A client that is still sending must not wait for the rest to be read.
#[tokio::test]
async fn a_refusal_does_not_wait_for_the_body() {
    let mut world = Http2World::new(&policy(ANY), ok).await;
    let (response, mut body) = world.open(post("/secret"), false);
    body.send_data(Bytes::from_static(&[0; 1024]), false).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), 403);
    assert_eq!(body_of(response).await["code"], "no_rule");
    assert_eq!(world.upstream.accepted(), 0);
}

#[tokio::test]
async fn a_grpc_client_is_refused_with_a_status_of_its_own() {
    let mut world = Http2World::new(&policy(ANY), ok).await;
    let mut request = post("/pkg.Service/Method");
    request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    request.headers_mut().insert("te", "trailers".parse().unwrap());
    let refused = world.send(request).await;
    assert_eq!(refused.status(), 200);
    assert_eq!(refused.headers()["grpc-status"], "7");
    assert_eq!(refused.headers()["x-sluice-code"], "no_rule");
    assert!(refused.body().is_end_stream());
}

/// B10.
#[tokio::test]
async fn a_tunnel_inside_the_connection_is_refused() {
    let mut world = Http2World::new(&policy(ANY), ok).await;
    let connect = Request::connect("evil.test:443").body(()).unwrap();
    let (response, _body) = world.open(connect, false);
    assert_eq!(response.await.unwrap().status(), 403);
    assert_eq!(world.upstream.accepted(), 0);
}

#[tokio::test]
async fn another_scheme_is_ambiguous() {
    let mut world = Http2World::new(&policy(ANY), ok).await;
    let request = Request::get("http://allowed.test/ok/1").body(()).unwrap();
    let refused = world.send(request).await;
    assert_eq!(refused.status(), 400);
    assert_eq!(body_of(refused).await["code"], "ambiguous");
    assert_eq!(world.upstream.accepted(), 0);
}

#[tokio::test]
async fn a_host_header_that_says_something_else_is_ambiguous() {
    let mut world = Http2World::new(&policy(ANY), ok).await;
    let mut request = get("/ok/1");
    request.headers_mut().insert("host", "evil.test".parse().unwrap());
    let refused = world.send(request).await;
    assert_eq!(refused.status(), 400);
    assert_eq!(body_of(refused).await["code"], "ambiguous");
}

#[tokio::test]
async fn a_head_with_too_many_headers_is_refused_and_the_connection_stays() {
    let mut world = Http2World::new(&policy(ANY), ok).await;
    let mut request = get("/ok/1");
    for n in 0..200 {
        let name: http::HeaderName = format!("x-{n}").parse().unwrap();
        request.headers_mut().insert(name, "v".parse().unwrap());
    }
    let refused = world.send(request).await;
    assert_eq!(refused.status(), 431);
    assert_eq!(body_of(refused).await["code"], "head_too_large");
    assert_eq!(world.send(get("/ok/1")).await.status(), 200);
}

#[tokio::test]
async fn a_body_beyond_its_limit_is_refused_before_it_is_sent() {
    let bounds = Bounds { body: Some(1000), ..Bounds::default() };
    let mut world = Http2World::with_bounds(&policy(ANY), bounds, ok).await;
    let mut request = post("/ok/1");
    request.headers_mut().insert("content-length", 1001.into());
    let (response, _body) = world.open(request, false);
    let refused = response.await.unwrap();
    assert_eq!(refused.status(), 413);
    assert_eq!(body_of(refused).await["code"], "body_too_large");
    assert_eq!(world.upstream.accepted(), 0);
}

#[tokio::test]
async fn a_body_that_grows_beyond_its_limit_is_cut_off() {
    async fn read(asked: Asked) {
        let (request, mut respond) = asked;
        // Cancelled before it is all there.
        if read_all(&mut request.into_body()).await.is_ok() {
            respond.send_response(Response::new(()), true).ok();
        }
    }
    let bounds = Bounds { body: Some(1000), ..Bounds::default() };
    let mut world = Http2World::with_bounds(&policy(ANY), bounds, read).await;
    let (response, mut body) = world.open(post("/ok/1"), false);
    body.send_data(Bytes::from_static(&[0; 800]), false).unwrap();
    body.send_data(Bytes::from_static(&[0; 800]), false).unwrap();
    let refused = response.await.unwrap();
    assert_eq!(refused.status(), 413);
    assert_eq!(body_of(refused).await["code"], "body_too_large");
    let events = world.hang_up().await;
    assert_eq!(events[0]["sluice.outcome"], "refused");
}

#[tokio::test]
async fn an_upstream_that_never_answers_is_a_timeout() {
    async fn never(asked: Asked) {
        std::future::pending::<()>().await;
        drop(asked);
    }
    let bounds = Bounds { idle: Duration::from_millis(100), ..Bounds::default() };
    let mut world = Http2World::with_bounds(&policy(ANY), bounds, never).await;
    let refused = world.send(get("/ok/1")).await;
    assert_eq!(refused.status(), 504);
    assert_eq!(body_of(refused).await["code"], "upstream_timeout");
}

#[tokio::test]
async fn an_upstream_that_is_not_believed_is_named_with_the_reason() {
    let mut world = Http2World::with_upstream(&policy(ANY), Bounds::default(), |stream| async {
        drop(stream);
    })
    .await;
    // Closed right after the handshake.
    let refused = world.send(get("/ok/1")).await;
    assert_eq!(refused.status(), 502);
    assert_eq!(body_of(refused).await["code"], "upstream_unreachable");
}
