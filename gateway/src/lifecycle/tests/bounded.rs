//! What ends a connection from outside: budgets, time, a new policy, a log that
//! cannot be written.

use std::sync::Arc;
use std::time::Duration;

use policies::{NoFiles, Policy, Source};
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;

use super::world::{World, ask, policy, read_head, read_rest, send};
use crate::limits::Bounds;
use crate::listen::ListenerKind;
use crate::phase::DrainPhase;

const ANY: &str = "{host: plain.test, protocol: http, methods: [GET, POST]}, \
                   {host: plain.test, protocol: http, websocket: true}";
const GET: &str = "GET / HTTP/1.1\r\nHost: plain.test\r\n\r\n";

fn parsed(allow: &str) -> Policy {
    policies::read(&Source::new("test.policy.yaml", policy(allow)), &NoFiles).unwrap()
}

#[tokio::test]
async fn a_body_that_is_announced_too_long_is_refused_before_any_of_it_leaves() {
    let bounds = Bounds { body: Some(10), ..Bounds::default() };
    let world = World::with_bounds(ANY, bounds, |_| super::world::OK).await;
    let mut stream = world.tunnel("plain.test:80").await;
    let answer =
        ask(&mut stream, "POST / HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 11\r\n\r\n").await;
    assert_eq!(answer.refusal(), "413 body_too_large");
    assert_eq!(world.dialled(), 0);
}

#[tokio::test]
async fn a_body_that_grows_too_long_is_cut_off() {
    let bounds = Bounds { body: Some(10), ..Bounds::default() };
    let world = World::with_upstream(ANY, bounds, |mut stream| async move {
        let mut all = Vec::new();
        drop(stream.read_to_end(&mut all).await);
        assert!(!all.ends_with(b"0\r\n\r\n"), "it must not look complete");
    })
    .await;
    let mut stream = world.tunnel("plain.test:80").await;
    send(&mut stream, "POST / HTTP/1.1\r\nHost: plain.test\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    send(&mut stream, "8\r\n12345678\r\n").await;
    let answer = ask(&mut stream, "8\r\n12345678\r\n0\r\n\r\n").await;
    assert_eq!(answer.refusal(), "413 body_too_large");
}

#[tokio::test]
async fn a_spent_upload_budget_refuses_what_would_exceed_it() {
    let bounds = Bounds { upload: Some(120), ..Bounds::default() };
    let world = World::with_bounds(ANY, bounds, |_| super::world::OK).await;
    let mut stream = world.tunnel("plain.test:80").await;
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(ask(&mut stream, GET).await);
    }
    let refused = answers.iter().position(|answer| answer.status() != 200).unwrap();
    assert_eq!(refused, 3, "three heads of 36 bytes fit into 120");
    assert_eq!(answers[refused].refusal(), "403 budget_spent");
    drop(stream);
    assert_eq!(world.requests().await[3].verdict(), "refused deny budget_spent");
}

#[tokio::test]
async fn a_spent_download_budget_breaks_the_answer_off() {
    let bounds = Bounds { download: Some(200), ..Bounds::default() };
    let world = World::with_upstream(ANY, bounds, |mut stream| async move {
        read_head(&mut stream).await;
        send(&mut stream, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n").await;
        let filler = "x".repeat(100);
        for _ in 0..10 {
            send(&mut stream, &filler).await;
            tokio::task::yield_now().await;
        }
        let mut all = Vec::new();
        drop(stream.read_to_end(&mut all).await);
    })
    .await;
    let mut stream = world.tunnel("plain.test:80").await;
    send(&mut stream, GET).await;
    let got = read_rest(&mut stream).await;
    assert!(got.len() <= 200, "{}", got.len());
    drop(stream);
    assert_eq!(world.requests().await[0].verdict(), "refused deny budget_spent");
}

#[tokio::test]
async fn too_many_requests_are_told_when_to_come_back() {
    let bounds = Bounds { requests_per_minute: Some(1), ..Bounds::default() };
    let world = World::with_bounds(ANY, bounds, |_| super::world::OK).await;
    let mut stream = world.tunnel("plain.test:80").await;
    assert_eq!(ask(&mut stream, GET).await.status(), 200);
    let answer = ask(&mut stream, GET).await;
    assert_eq!(answer.refusal(), "429 rate_limited");
    assert!(answer.header("retry-after").is_some());
}

#[tokio::test]
async fn a_head_that_dribbles_in_is_given_up() {
    let bounds = Bounds { header: Duration::from_millis(50), ..Bounds::default() };
    let world = World::with_bounds(ANY, bounds, |_| super::world::OK).await;
    let mut stream = world.tunnel("plain.test:80").await;
    let answer = ask(&mut stream, "GET / HTTP/1.1\r\nHost: pl").await;
    assert_eq!(answer.refusal(), "408 opening_timeout");
    assert_eq!(read_rest(&mut stream).await, "");
}

#[tokio::test]
async fn a_connection_that_never_says_what_it_wants_is_closed() {
    let bounds = Bounds { opening: Duration::from_millis(50), ..Bounds::default() };
    let world = World::with_bounds(ANY, bounds, |_| super::world::OK).await;
    for kind in [ListenerKind::Proxy, ListenerKind::CapturedHttps, ListenerKind::Socks] {
        let mut stream = world.connect(kind.clone()).await;
        assert_eq!(read_rest(&mut stream).await, "", "{kind:?}");
    }
    let mut stream = world.tunnel("plain.test:80").await;
    assert_eq!(read_rest(&mut stream).await, "", "a tunnel");
    for connection in world.connections().await {
        assert_eq!(connection.get("sluice.reason"), "opening_timeout");
    }
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let bounds = Bounds { header_bytes: 10_000, ..Bounds::default() };
    let world = World::with_bounds(ANY, bounds, |_| super::world::OK).await;
    let mut stream = world.tunnel("plain.test:80").await;
    let head = format!("GET / HTTP/1.1\r\nHost: plain.test\r\nX: {}\r\n\r\n", "y".repeat(10_000));
    assert_eq!(ask(&mut stream, &head).await.refusal(), "431 head_too_large");
}

#[tokio::test]
async fn an_upstream_that_is_silent_for_too_long_is_given_up() {
    let bounds = Bounds { idle: Duration::from_millis(50), ..Bounds::default() };
    let world = World::with_upstream(ANY, bounds, |mut stream| async move {
        let mut all = Vec::new();
        drop(stream.read_to_end(&mut all).await);
    })
    .await;
    let mut stream = world.tunnel("plain.test:80").await;
    assert_eq!(ask(&mut stream, GET).await.refusal(), "504 upstream_timeout");
}

#[tokio::test]
async fn a_client_that_does_not_go_on_with_its_body_is_told_that_it_was_the_one() {
    let bounds = Bounds { idle: Duration::from_millis(50), ..Bounds::default() };
    let world = World::with_upstream(ANY, bounds, |mut stream| async move {
        let mut all = Vec::new();
        drop(stream.read_to_end(&mut all).await);
    })
    .await;
    let mut stream = world.tunnel("plain.test:80").await;
    let begun = "POST / HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 9\r\n\r\nabc";
    assert_eq!(ask(&mut stream, begun).await.refusal(), "408 idle");
}

#[tokio::test]
async fn a_request_that_lasts_too_long_in_all_is_cut_off_however_busy() {
    let bounds = Bounds { total: Some(Duration::from_millis(80)), ..Bounds::default() };
    let world = World::with_upstream(ANY, bounds, |mut stream| async move {
        read_head(&mut stream).await;
        send(&mut stream, "HTTP/1.1 200 OK\r\n\r\n").await;
        let mut tick = tokio::time::interval(Duration::from_millis(5));
        loop {
            tick.tick().await;
            if tokio::io::AsyncWriteExt::write_all(&mut stream, b".").await.is_err() {
                return;
            }
        }
    })
    .await;
    let mut stream = world.tunnel("plain.test:80").await;
    send(&mut stream, GET).await;
    read_rest(&mut stream).await;
    drop(stream);
    assert_eq!(world.requests().await[0].verdict(), "refused deny cap_reached");
}

#[tokio::test]
async fn a_new_policy_judges_the_next_request_of_an_old_connection() {
    let world = World::new(ANY).await;
    let mut stream = world.tunnel("plain.test:80").await;
    assert_eq!(ask(&mut stream, GET).await.status(), 200);
    let narrower = "{host: plain.test, protocol: http, paths: [/only]}";
    world.gateway().load_policy(parsed(narrower), "second");
    assert_eq!(ask(&mut stream, GET).await.refusal(), "403 no_rule");
    drop(stream);
    let requests = world.requests().await;
    assert_eq!(requests[0].get("sluice.policy.hash"), "hash");
    assert_eq!(requests[1].get("sluice.policy.hash"), "second");
}

#[tokio::test]
async fn a_new_policy_closes_idle_connections_it_does_not_admit() {
    let world = World::new("plain.test, {host: plain.test, protocol: http}").await;
    let mut stream = world.tunnel("plain.test:80").await;
    assert_eq!(ask(&mut stream, GET).await.status(), 200);
    world.gateway().load_policy(parsed("allowed.test"), "second");
    assert_eq!(read_rest(&mut stream).await, "");
}

#[tokio::test]
async fn a_new_policy_closes_tunnels_and_websockets_it_does_not_allow() {
    let rule = "{host: tcp.test, port: 5432, protocol: tcp}";
    let allow = format!("{ANY}, {rule}");
    let world = World::with_upstream(&allow, Bounds::default(), |mut stream| async move {
        let head = "HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        send(&mut stream, head).await;
        let mut all = Vec::new();
        drop(stream.read_to_end(&mut all).await);
    })
    .await;
    let mut tcp = world.tunnel("tcp.test:5432").await;
    read_head(&mut tcp).await;
    let mut websocket = world.tunnel("plain.test:80").await;
    let upgrade = "GET / HTTP/1.1\r\nHost: plain.test\r\nConnection: Upgrade\r\n\
                   Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    send(&mut websocket, upgrade).await;
    read_head(&mut websocket).await;

    // One that changes nothing for them leaves them alone.
    world.gateway().load_policy(parsed(&format!("{allow}, other.test")), "second");
    send(&mut tcp, "still here").await;
    world.gateway().load_policy(parsed("{host: plain.test, protocol: http}"), "third");
    assert_eq!(read_rest(&mut tcp).await, "");
    assert_eq!(read_rest(&mut websocket).await, "");
    drop((tcp, websocket));
    assert_eq!(world.requests().await[0].verdict(), "refused deny no_rule");
    let connections = world.connections().await;
    assert!(connections.iter().any(|c| c.verdict() == "refused deny no_rule"), "{connections:?}");
}

#[tokio::test]
async fn a_drain_closes_idle_connections_and_lets_the_others_finish() {
    let world = World::with_upstream(ANY, Bounds::default(), |mut stream| async move {
        read_head(&mut stream).await;
        // The head comes before the drain, the body after it.
        send(&mut stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n").await;
        let mut word = [0; 1];
        stream.read_exact(&mut word).await.unwrap();
        send(&mut stream, "ok").await;
    })
    .await;
    let mut idle = world.tunnel("plain.test:80").await;
    send(&mut idle, "").await;
    let mut busy = world.tunnel("plain.test:80").await;
    send(&mut busy, "POST / HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 1\r\n\r\n").await;
    read_head(&mut busy).await;
    world.gateway().drain();
    send(&mut busy, "!").await;
    assert_eq!(read_rest(&mut busy).await, "ok");
}

#[tokio::test]
async fn a_log_that_cannot_be_written_stops_traffic() {
    let world = World::new(ANY).await;
    let mut stream = world.tunnel("plain.test:80").await;
    assert_eq!(ask(&mut stream, GET).await.status(), 200);
    // No new entries from now on; the connection's own is still open.
    let closing = world.gateway().log.clone();
    let closed = tokio::spawn(async move { closing.close().await });
    while world.gateway().log.health().unavailable.is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(&mut stream, GET).await.refusal(), "503 audit_unavailable");
    assert_eq!(world.heard().len(), 1);
    let mut other = world.connect(ListenerKind::Proxy).await;
    let answer = super::world::read_answer(&mut other).await;
    assert_eq!(answer.refusal(), "503 audit_unavailable");
    drop(stream);
    closed.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_mutating_request_is_in_the_log_before_it_leaves() {
    let world = World::new(ANY).await;
    let mut stream = world.tunnel("plain.test:80").await;
    for request in [GET, GET, "POST / HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 0\r\n\r\n"] {
        ask(&mut stream, request).await;
    }
    drop(stream);
    let opened = world.stage.events_of("opened").await;
    let methods: Vec<_> =
        opened.iter().map(|e| e["http.request.method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["GET", "POST"], "the first to a destination, and what mutates");
}

#[tokio::test]
async fn a_task_that_is_dropped_leaves_its_records() {
    let world = World::with_upstream(ANY, Bounds::default(), |mut stream| async move {
        let mut all = Vec::new();
        drop(stream.read_to_end(&mut all).await);
    })
    .await;
    let (mut stream, serving) = world.connect_task(ListenerKind::Proxy).await;
    send(&mut stream, "GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\n").await;
    while world.dialled() == 0 {
        tokio::task::yield_now().await;
    }
    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled());
    assert_eq!(world.requests().await[0].verdict(), "abandoned allow allowed");
    assert_eq!(world.connections().await[0].get("sluice.outcome"), "abandoned");
}

#[tokio::test]
async fn a_connections_task_is_small() {
    let world = World::new(ANY).await;
    let (_stream, accepted) = world.accepted(ListenerKind::Proxy).await;
    let gateway = world.gateway();
    let serving = Box::pin(crate::lifecycle::serve(accepted, Arc::clone(gateway)));
    // Ten thousand idle tunnels are ten thousand of these.
    assert!(size_of_val(&*serving) <= 8 * 1024, "{}", size_of_val(&*serving));
    let (_phase, phases) = watch::channel(DrainPhase::Serving);
    let slot = gateway.limits.connection_slot().await;
    let task = crate::listen::serve_until_cut(serving, slot, phases);
    assert!(size_of_val(&task) <= 1024, "{}", size_of_val(&task));
}
