//! Both halves of the handshake.

use tests::{Answer, Peer, Plan, World};

use super::{ACCEPT, KEY, asking, connected, number, world};

/// B18: an upstream cannot turn a request for a WebSocket into a tunnel for
/// something else.
#[tokio::test]
async fn no_answer_is_relayed_that_is_not_a_websocket() {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let accept = format!("Sec-WebSocket-Accept: {ACCEPT}\r\n");
    let good = format!("{upgrade}{accept}");
    let cases = [
        ("no accept", upgrade.to_owned()),
        ("an empty accept", format!("{upgrade}Sec-WebSocket-Accept: \r\n")),
        (
            "the accept of another key",
            format!("{upgrade}Sec-WebSocket-Accept: {}=\r\n", "A".repeat(27)),
        ),
        ("the key itself", format!("{upgrade}Sec-WebSocket-Accept: {KEY}\r\n")),
        ("another case", format!("{upgrade}Sec-WebSocket-Accept: {}\r\n", ACCEPT.to_lowercase())),
        ("two accepts", format!("{good}{accept}")),
        ("a right and a wrong accept", format!("{good}Sec-WebSocket-Accept: x\r\n")),
        ("an accept that is for us alone", format!("{good}Connection: sec-websocket-accept\r\n")),
        ("no upgrade", format!("Connection: Upgrade\r\n{accept}")),
        ("another protocol", format!("Connection: Upgrade\r\nUpgrade: h2c\r\n{accept}")),
        (
            "a list of protocols",
            format!("Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n{accept}"),
        ),
        ("two upgrades", format!("{good}Upgrade: websocket\r\n")),
        ("no connection", format!("Upgrade: websocket\r\n{accept}")),
        ("another connection", format!("Connection: close\r\nUpgrade: websocket\r\n{accept}")),
        ("a subprotocol nobody offered", format!("{good}Sec-WebSocket-Protocol: other\r\n")),
        ("two subprotocols", format!("{good}Sec-WebSocket-Protocol: chat, more\r\n")),
        (
            "two lines of subprotocols",
            format!("{good}Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: more\r\n"),
        ),
        ("an empty subprotocol", format!("{good}Sec-WebSocket-Protocol: \r\n")),
        ("another case of a subprotocol", format!("{good}Sec-WebSocket-Protocol: CHAT\r\n")),
        (
            "an extension nobody offered",
            format!("{good}Sec-WebSocket-Extensions: permessage-bzip2\r\n"),
        ),
        ("an extension nobody knows", format!("{good}Sec-WebSocket-Extensions: x-tunnel\r\n")),
        (
            "an extension twice",
            format!("{good}Sec-WebSocket-Extensions: permessage-deflate, permessage-deflate\r\n"),
        ),
        (
            "a parameter nobody knows",
            format!("{good}Sec-WebSocket-Extensions: permessage-deflate; raw\r\n"),
        ),
        (
            "a window nobody offered",
            format!(
                "{good}Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=9\r\n"
            ),
        ),
        (
            "a window that is none",
            format!(
                "{good}Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=7\r\n"
            ),
        ),
        ("a length", format!("{good}Content-Length: 5\r\n")),
        ("a coding", format!("{good}Transfer-Encoding: chunked\r\n")),
    ];
    let answers = cases.clone().map(|(_, fields)| fields);
    let plan = Plan::scripted(move |mut peer: Peer| {
        let answers = answers.clone();
        async move {
            let Some(asked) = peer.request().await else { return };
            let fields = &answers[number(&asked.target)];
            peer.line.send(format!("HTTP/1.1 101 Switching\r\n{fields}\r\nraw bytes")).await;
            peer.line.rest().await;
        }
    });
    let world = world(plan).await;
    let offers = "Sec-WebSocket-Protocol: chat, more\r\n\
                  Sec-WebSocket-Extensions: permessage-deflate, x-tunnel\r\n";
    let mut passed = Vec::new();
    for (index, (case, _)) in cases.iter().enumerate() {
        let mut line = connected(&world).await;
        line.send(asking(&format!("/{index}"), offers)).await;
        let reply = line.reply().await;
        if reply.status != 502 || reply.code() != "upstream_malformed" {
            passed.push((*case, reply.status));
            continue;
        }
        world.audit.refused("ws.test", "upstream_malformed").await;
    }
    assert_eq!(passed, []);
    world.end().await;
}

/// And neither in another version of HTTP, nor with another status.
#[tokio::test]
async fn only_a_101_of_http_1_1_becomes_a_websocket() {
    let fields =
        format!("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {ACCEPT}\r\n");
    let plan = Plan::sending(format!("HTTP/1.0 101 Switching\r\n{fields}\r\nraw"));
    let world = world(plan).await;
    let mut line = connected(&world).await;
    line.send(asking("/", "")).await;
    line.reply().await.assert_refused(502, "upstream_malformed");
    world.audit.refused("ws.test", "upstream_malformed").await;
    world.end().await;

    let answer = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 2\r\n\r\nok");
    let world = self::world(Plan::sending(answer)).await;
    let mut line = connected(&world).await;
    line.send(asking("/", "")).await;
    let reply = line.reply().await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "ok"));
    assert_eq!(reply.header("upgrade"), None, "it did not become one: {reply:?}");
    // What comes next is a request, and is judged.
    line.send("GET / HTTP/1.1\r\nHost: ws.test\r\n\r\n").await;
    line.reply().await.assert_refused(403, "no_rule");
    drop(line);
    world.end().await;
}

/// B18: a client cannot ask for something else under that name.
#[tokio::test]
async fn no_request_leaves_that_asks_for_half_a_websocket() {
    let with = |fields: &str| {
        format!(
            "GET / HTTP/1.1\r\nHost: ws.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{fields}\r\n"
        )
    };
    let version = "Sec-WebSocket-Version: 13\r\n";
    let key = format!("Sec-WebSocket-Key: {KEY}\r\n");
    let keyed = |value: &str| with(&format!("{version}Sec-WebSocket-Key: {value}\r\n"));
    let cases = [
        ("no key", with(version)),
        ("an empty key", keyed("")),
        ("a short key", keyed("c2hvcnQ=")),
        ("a long key", keyed("dGhlIHNhbXBsZSBub25jZSBpcyBsb25n")),
        ("a key without its end", keyed("dGhlIHNhbXBsZSBub25jZQ")),
        ("a key with bits left over", keyed("dGhlIHNhbXBsZSBub25jZR==")),
        ("a key in another alphabet", keyed("dGhlIHNhbXBsZSBub25j_Q==")),
        ("two keys", with(&format!("{version}{key}{key}"))),
        ("a list of keys", keyed(&format!("{KEY}, {KEY}"))),
        ("no version", with(&key)),
        ("an old version", with(&format!("{key}Sec-WebSocket-Version: 8\r\n"))),
        ("two versions", with(&format!("{key}{version}{version}"))),
        ("a list of versions", with(&format!("{key}Sec-WebSocket-Version: 13, 8\r\n"))),
        ("a version in another spelling", with(&format!("{key}Sec-WebSocket-Version: 013\r\n"))),
        (
            "a key that is for us alone",
            with(&format!("{version}{key}Connection: Sec-WebSocket-Key\r\n")),
        ),
        (
            "a version that is for us alone",
            with(&format!("{version}{key}Connection: sec-websocket-version\r\n")),
        ),
        ("an accept", with(&format!("{version}{key}Sec-WebSocket-Accept: {ACCEPT}\r\n"))),
        (
            "an extension that is none",
            with(&format!("{version}{key}Sec-WebSocket-Extensions: a b\r\n")),
        ),
        (
            "a subprotocol that is none",
            with(&format!("{version}{key}Sec-WebSocket-Protocol: a b\r\n")),
        ),
    ];
    let world = world(Plan::websocket_echo()).await;
    let mut passed = Vec::new();
    for (case, request) in &cases {
        let mut line = connected(&world).await;
        line.send(request).await;
        let reply = line.reply().await;
        if reply.status != 400 || reply.code() != "malformed" {
            passed.push((*case, reply.status));
            continue;
        }
        assert!(reply.text().to_lowercase().contains("websocket"), "{case}: {}", reply.text());
        world.audit.refused("ws.test", "malformed").await;
    }
    assert_eq!(passed, []);
    world.upstream("ws.test").assert_never_contacted();
    world.end().await;
}

/// A client that speaks before it has its answer may be speaking of something
/// else.
#[tokio::test]
async fn frames_that_come_before_the_answer_go_nowhere() {
    let world = world(Plan::websocket_echo()).await;
    let mut line = connected(&world).await;
    let early = tests::websocket::Frame::text("early").bytes(true);
    line.send([asking("/", "").into_bytes(), early].concat()).await;
    line.reply().await.assert_refused(400, "malformed");
    let arrived = world.upstream("ws.test").seen()[0].bytes();
    assert!(arrived.ends_with(b"\r\n\r\n"), "{}", String::from_utf8_lossy(&arrived));
    drop(line);
    world.end().await;
}

/// B12: nobody asked for a WebSocket, so there is none.
#[tokio::test]
async fn an_upgrade_that_nobody_asked_for_is_not_relayed() {
    let answer = format!(
        "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {ACCEPT}\r\n\r\n"
    );
    let world = World::allowing(&["{host: allowed.test}", "{host: ws.test}"])
        .upstream("ws.test", Plan::sending(answer))
        .start()
        .await;
    let asking = [
        "GET / HTTP/1.1\r\nHost: ws.test\r\n\r\n".to_owned(),
        // The key alone asks for nothing.
        format!("GET / HTTP/1.1\r\nHost: ws.test\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"),
        // An upgrade that is not of this connection is not one.
        format!(
            "GET / HTTP/1.1\r\nHost: ws.test\r\nUpgrade: websocket\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
        ),
    ];
    for request in asking {
        let mut line = connected(&world).await;
        line.send(request).await;
        line.reply().await.assert_refused(502, "upstream_malformed");
        world.audit.refused("ws.test", "upstream_malformed").await;
    }
    world.end().await;
}

/// What is offered and agreed on goes through as it is.
#[tokio::test]
async fn what_both_sides_agree_on_is_relayed() {
    let fields = format!(
        "Connection: keep-alive, upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Accept: {ACCEPT}\r\n\
         Sec-WebSocket-Protocol: more\r\n\
         Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; \
         client_max_window_bits=12\r\n"
    );
    let plan = Plan::sending(format!("HTTP/1.1 101 Switching\r\n{fields}\r\n"));
    let world = world(plan).await;
    let mut line = connected(&world).await;
    let offers = "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: more\r\n\
                  Sec-WebSocket-Extensions: x-other, permessage-deflate; client_max_window_bits\r\n";
    line.send(asking("/", offers)).await;
    let reply = line.reply().await;
    assert_eq!(reply.status, 101, "{}", reply.text());
    assert_eq!(reply.header("sec-websocket-protocol"), Some("more"));
    let agreed = "permessage-deflate; server_no_context_takeover; client_max_window_bits=12";
    assert_eq!(reply.header("sec-websocket-extensions"), Some(agreed));
    drop(line);
    world.end().await;
}

/// A server that declines says why in plain HTTP, and that is relayed.
#[tokio::test]
async fn an_upstream_that_declines_is_heard() {
    let plan = Plan::answering(|_| Answer::new(403, "members only"));
    let world = world(plan).await;
    let mut line = connected(&world).await;
    line.send(asking("/", "")).await;
    let reply = line.reply().await;
    assert_eq!((reply.status, reply.text().as_str()), (403, "members only"));
    drop(line);
    world.end().await;
}
