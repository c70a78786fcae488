//! No byte of an answer reaches a client before a record of its request is written.

use tokio::net::TcpStream;

use super::world::{OK, Script, World, ask, read_answer, read_head, read_rest, send};
use crate::limits::Bounds;
use crate::listen::ListenerKind;

const ANY: &str = "{host: plain.test, protocol: http, methods: [GET]}";
const GET: &str = "GET / HTTP/1.1\r\nHost: plain.test\r\n\r\n";

/// Longer than what is gathered before the first write.
static LONG: [u8; 60_000 + HEAD.len()] = {
    let mut whole = [b'x'; 60_000 + HEAD.len()];
    let mut at = 0;
    while at < HEAD.len() {
        whole[at] = HEAD[at];
        at += 1;
    }
    whole
};
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n";

/// Nothing has arrived, and what is under way had every chance to.
async fn assert_silent(stream: &TcpStream) {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let mut byte = [0];
    let heard = stream.try_read(&mut byte).unwrap_err();
    assert_eq!(heard.kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn no_answer_is_sent_while_its_record_cannot_be_written() {
    let scripts: [Script; 3] = [|_| OK, |_| b"HTTP/1.1 204 No Content\r\n\r\n", |_| &LONG];
    for script in scripts {
        let world = World::answering(ANY, script).await;
        let mut stream = world.tunnel("plain.test:80").await;
        ask(&mut stream, GET).await;
        world.stage.requests_are_recorded(1).await;
        world.stage.fill_disk(true);
        send(&mut stream, GET).await;
        // Its line is what there is no room for, whatever the upstream does.
        world.stage.no_room_was_found().await;
        while world.heard().len() < 2 {
            tokio::task::yield_now().await;
        }
        assert_silent(&stream).await;

        world.stage.fill_disk(false);
        let status = read_answer(&mut stream).await.status();
        assert!(matches!(status, 200 | 204), "{status}");
        drop(stream);
        assert_eq!(world.requests().await.len(), 2);
    }
}

#[tokio::test]
async fn a_short_answer_has_one_line_and_a_long_one_two() {
    let script = |head: &str| if head.contains("/long") { &LONG[..] } else { OK };
    let world = World::answering(ANY, script).await;
    let mut stream = world.tunnel("plain.test:80").await;
    for path in ["/first", "/short", "/long"] {
        ask(&mut stream, &format!("GET {path} HTTP/1.1\r\nHost: plain.test\r\n\r\n")).await;
    }
    drop(stream);
    let path = |event: &serde_json::Value| event["url.path"].as_str().unwrap().to_owned();
    let opened: Vec<_> = world.stage.events_of("opened").await.iter().map(path).collect();
    assert_eq!(opened, ["/first", "/long"]);
    let closed = world.stage.events_of("request").await;
    assert_eq!(closed.iter().map(path).collect::<Vec<_>>(), ["/first", "/short", "/long"]);
    assert!(closed.iter().all(|event| event["http.response.status_code"] == 200));
    // What is recorded before it is sent is recorded in full.
    assert_eq!(closed[1]["sluice.bytes.received"], closed[0]["sluice.bytes.received"]);
    assert!(closed[2]["sluice.bytes.received"].as_u64().unwrap() > 60_000);
}

#[tokio::test]
async fn answers_that_come_at_once_are_all_recorded_and_sent() {
    const CLIENTS: usize = 16;
    let world = World::answering(ANY, |head| if head.contains("/long") { &LONG } else { OK }).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(world.tunnel("plain.test:80").await);
    }
    for (round, path) in ["/", "/", "/long"].into_iter().enumerate() {
        for stream in &mut clients {
            send(stream, &format!("GET {path} HTTP/1.1\r\nHost: plain.test\r\n\r\n")).await;
        }
        for stream in &mut clients {
            assert_eq!(read_answer(stream).await.status(), 200);
        }
        // Heard, so recorded: at least one line each.
        let written = world.gateway().log.health().written;
        assert!(written >= ((round + 1) * CLIENTS) as u64, "{written}");
    }
    drop(clients);
    while world.gateway().in_flight.here().get() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.requests().await.len(), 3 * CLIENTS);
}

#[tokio::test]
async fn an_interim_answer_waits_for_a_record_too() {
    let world = World::with_upstream(ANY, Bounds::default(), |mut stream| async move {
        for _ in 0..2 {
            read_head(&mut stream).await;
            send(&mut stream, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").await;
        }
        read_rest(&mut stream).await;
    })
    .await;
    let mut first = world.connect(ListenerKind::Proxy).await;
    let get = "GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\n";
    send(&mut first, get).await;
    assert!(read_head(&mut first).await.starts_with("HTTP/1.1 103 "));

    let mut second = world.connect(ListenerKind::Proxy).await;
    world.stage.fill_disk(true);
    send(&mut second, get).await;
    world.stage.no_room_was_found().await;
    assert_silent(&second).await;
    world.stage.fill_disk(false);
    assert!(read_head(&mut second).await.starts_with("HTTP/1.1 103 "));
}

#[tokio::test]
async fn a_refusal_waits_for_its_record() {
    let world = World::new(ANY).await;
    let mut stream = world.connect(ListenerKind::Proxy).await;
    let denied = "GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\n\r\n";
    let malformed = "GET /not-a-url HTTP/1.1\r\nHost: plain.test\r\n\r\n";
    for request in [denied, malformed] {
        world.stage.fill_disk(true);
        send(&mut stream, request).await;
        world.stage.no_room_was_found().await;
        assert_silent(&stream).await;
        world.stage.fill_disk(false);
        let status = read_answer(&mut stream).await.status();
        assert!(matches!(status, 400 | 403), "{status}");
        while world.gateway().log.health().unavailable.is_some() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_refused_tunnel_waits_for_its_record() {
    let world = World::new(ANY).await;
    let mut stream = world.connect(ListenerKind::Proxy).await;
    world.stage.fill_disk(true);
    send(&mut stream, "CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test:443\r\n\r\n").await;
    world.stage.no_room_was_found().await;
    assert_silent(&stream).await;
    world.stage.fill_disk(false);
    assert_eq!(read_answer(&mut stream).await.status(), 403);
    drop(stream);
    assert_eq!(world.connections().await[0].get("sluice.outcome"), "refused");
}

#[tokio::test]
async fn what_comes_while_there_is_no_room_is_refused_at_once() {
    let world = World::new(ANY).await;
    let mut waiting = world.tunnel("plain.test:80").await;
    let mut other = world.tunnel("plain.test:80").await;
    ask(&mut waiting, GET).await;
    ask(&mut other, GET).await;
    world.stage.requests_are_recorded(2).await;
    world.stage.fill_disk(true);
    send(&mut waiting, GET).await;
    world.stage.no_room_was_found().await;
    assert_eq!(ask(&mut other, GET).await.refusal(), "503 audit_unavailable");
    world.stage.fill_disk(false);
    assert_eq!(read_answer(&mut waiting).await.status(), 200);
    while world.gateway().log.health().unavailable.is_some() {
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(&mut other, GET).await.status(), 200, "and it goes on by itself");
    drop((waiting, other));
    let resumed = world.stage.events_of("log_resumed").await;
    assert_eq!(resumed.len(), 1);
    assert_eq!(resumed[0]["sluice.log.refused"], 1);
    assert_eq!(world.requests().await.len(), 4, "what was begun is recorded, the rest counted");
}
