//! G6: floods.

use std::time::Duration;

use tests::memory::{MIB, resident};
use tests::{Line, Reply, Way, World, answering_http2, code, until, within};
use tokio::time;

/// G6.
#[tokio::test]
async fn clients_that_dribble_are_cut_off_and_nobody_waits_for_them() {
    let limits = "opening: 1s, header: 1s";
    let world = World::new().limits(limits).start().await;
    let mut lines: Vec<Line> = Vec::new();
    for _ in 0..20 {
        // Before the head is complete, in the clear and inside TLS; before the
        // hello is; and before SOCKS has said where.
        let mut proxy = world.sandbox.proxy().await;
        proxy.send("CONNECT allowed.te").await;
        let mut captured = world.sandbox.captured_http().await;
        captured.send("GET / HTTP/1.1\r\nHost: allo").await;
        let mut hello = world.sandbox.captured_https().await;
        hello.send([0x16, 3, 1, 2]).await;
        let mut socks = world.sandbox.socks().await;
        socks.send([5, 200]).await;
        let mut inside = world.sandbox.tls(Way::Proxy, "allowed.test", &[]).await.unwrap();
        inside.send("GET / HTTP/1.1\r\nX-a: b\r\n").await;
        lines.extend([proxy, captured, hello, socks, inside]);
    }
    world.assert_still_serves().await;
    // One byte at a time does not buy more time.
    for _ in 0..4 {
        time::sleep(Duration::from_millis(300)).await;
        for line in &mut lines {
            line.try_send(b"a").await.ok();
        }
    }
    for mut line in lines {
        line.rest().await;
    }
    let timeouts = || {
        let connections = world.audit.of_kind("connection").into_iter();
        let all = connections.chain(world.audit.of_kind("request"));
        all.filter(|record| code(record) == "opening_timeout").count()
    };
    until("a hundred records", || (timeouts() >= 100).then_some(())).await;
    world.upstream("allowed.test").assert_not_contacted_beyond(1);
    world.assert_still_serves().await;
    world.end().await;
}

/// What is refused is recorded, and refusals are free to ask for: the disk must
/// not be theirs to fill.
#[tokio::test]
async fn a_flood_of_refusals_does_not_fill_the_disk() {
    let world = World::new().limits("audit: 128KiB").start_program().await;
    world.assert_still_serves().await;
    let long = format!("https://allowed.test/{}", "a".repeat(7000));
    let spent = async {
        while world.sandbox.ask("DELETE", &long).send().await.code() != "audit_unavailable" {}
    };
    within("the log to have its size", spent).await;
    // And nothing passes any more, whatever it is.
    world.sandbox.get("https://allowed.test/").await.assert_refused(503, "audit_unavailable");
    let log = world.end_cut().await;
    let bytes: usize = log.iter().map(|event| event.to_string().len()).sum();
    assert!(bytes < 256 * 1024, "{bytes}");
    assert!(log.iter().any(|event| event["sluice.limit.name"] == "audit"), "it says so itself");
}

/// G6: an idle tunnel costs little, and others do not notice.
#[tokio::test]
async fn idle_tunnels_are_cheap() {
    let world = World::new().start_program().await;
    world.assert_still_serves().await;
    let before = resident(world.pid());
    let mut lines = Vec::new();
    for _ in 0..300 {
        let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
        line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
        line.reply().await.assert_relayed(200);
        lines.push(line);
    }
    let grown = resident(world.pid()).saturating_sub(before);
    assert!(grown < 300 * 200 * 1024, "300 idle tunnels took {} KiB", grown / 1024);
    world.assert_still_serves().await;
    drop(lines);
    world.end().await;
}

/// G6: beyond the bound a connection waits outside, and gets in when one leaves.
#[tokio::test]
async fn no_more_connections_than_there_is_room_for() {
    let world = World::new().limits("connections: 8").start().await;
    let mut inside = Vec::new();
    for _ in 0..8 {
        inside.push(world.sandbox.tls(Way::Proxy, "allowed.test", &[]).await.unwrap());
    }
    let mut outside = world.sandbox.proxy().await;
    outside.send("CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n").await;
    let answer = time::timeout(Duration::from_millis(300), outside.head()).await;
    assert!(answer.is_err(), "there was no room: {answer:?}");

    drop(inside.pop());
    assert_eq!(outside.reply_to("CONNECT").await.status, 200);
    drop(inside);
    drop(outside);
    world.assert_still_serves().await;
    world.end().await;
}

/// G6.
#[tokio::test]
async fn a_flood_of_headers_is_refused_before_it_is_kept() {
    let world = World::new().start().await;
    let many = "X-Filler: a\r\n".repeat(10_000);
    let long = format!("X-Filler: {}\r\n", "a".repeat(1024 * 1024));
    for filler in [&many, &long] {
        for inside in [false, true] {
            let mut line = match inside {
                true => world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap(),
                false => world.sandbox.captured_http().await,
            };
            line.send(format!("GET / HTTP/1.1\r\nHost: allowed.test\r\n{filler}\r\n")).await;
            let reply = line.reply().await;
            assert!([400, 431].contains(&reply.status), "{}", reply.text());
            line.assert_ends().await;
        }
    }
    // Few bytes and many headers.
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send(format!("GET / HTTP/1.1\r\nHost: allowed.test\r\n{}\r\n", "a:\r\n".repeat(2000)))
        .await;
    let reply = line.reply().await;
    assert!([400, 431].contains(&reply.status), "{}", reply.text());
    drop(line);
    world.upstream("allowed.test").assert_never_contacted();
    world.assert_still_serves().await;
    world.end().await;
}

/// G6: every name costs a leaf, and leaves are not kept for ever.
#[tokio::test]
async fn hundreds_of_hosts_do_not_fill_the_memory() {
    let world = World::new().start_program().await;
    world.assert_still_serves().await;
    let before = resident(world.pid());
    for index in 0..500 {
        let host = format!("host-{index}.evil.test");
        let mut line = world.sandbox.captured_https().await;
        line = world.sandbox.handshake(line, &host, &["http/1.1"]).await.unwrap();
        line.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        line.reply().await.assert_refused(403, "no_rule");
    }
    let grown = resident(world.pid()).saturating_sub(before);
    assert!(grown < 64 * MIB, "500 hosts took {} MiB", grown / MIB);
    world.resolver.assert_never_asked();
    world.assert_still_serves().await;
    world.end().await;
}

/// G6: streams that are opened and given up by the thousand.
#[tokio::test]
async fn a_storm_of_resets_disturbs_nobody_else() {
    let plan = answering_http2(|_| Reply { status: 200, ..Reply::default() });
    let world = World::allowing(&["{host: allowed.test}", "{host: two.test}"])
        .upstream("two.test", plan)
        .start_program()
        .await;
    let mut calm = world.sandbox.http2(Way::Proxy, "two.test").await;
    calm.get("https://two.test/").await.assert_relayed(200);
    let before = resident(world.pid());
    let storm = world.sandbox.http2(Way::Proxy, "two.test").await;
    for index in 0..3000 {
        let sender = storm.sender.clone();
        let Ok(Ok(mut sender)) = time::timeout(Duration::from_secs(1), sender.ready()).await else {
            break;
        };
        let request = http::Request::get(format!("https://two.test/{index}")).body(()).unwrap();
        match sender.send_request(request, true) {
            Ok((response, mut stream)) => {
                stream.send_reset(h2::Reason::CANCEL);
                drop(response);
            }
            Err(_) => break,
        }
        if index % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
    calm.get("https://two.test/after").await.assert_relayed(200);
    drop((storm, calm));
    let grown = resident(world.pid()).saturating_sub(before);
    assert!(grown < 64 * MIB, "the storm took {} MiB", grown / MIB);
    world.assert_still_serves().await;
    world.end().await;
}

/// G6: a connection that agreed to speak HTTP/2 and says nothing.
#[tokio::test]
async fn a_silent_http2_client_is_cut_off() {
    let plan = answering_http2(|_| Reply { status: 200, ..Reply::default() });
    let world = World::allowing(&["{host: allowed.test}", "{host: two.test}"])
        .limits("opening: 1s, header: 1s, idle: 2s")
        .upstream("two.test", plan)
        .start()
        .await;
    let mut nothing = world.sandbox.tls(Way::Proxy, "two.test", &["h2"]).await.unwrap();
    let mut half = world.sandbox.tls(Way::Proxy, "two.test", &["h2"]).await.unwrap();
    half.send("PRI * HTTP/2.0\r\n\r\nSM\r\n").await;
    let mut no_head = world.sandbox.tls(Way::Proxy, "two.test", &["h2"]).await.unwrap();
    no_head.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    for line in [&mut nothing, &mut half, &mut no_head] {
        line.rest().await;
    }
    world.assert_still_serves().await;
    world.end().await;
}

/// G6: HTTP/2 heads that never end.
#[tokio::test]
async fn a_head_that_goes_on_for_ever_is_cut_off() {
    let plan = answering_http2(|_| Reply { status: 200, ..Reply::default() });
    let world = World::allowing(&["{host: allowed.test}", "{host: two.test}"])
        .upstream("two.test", plan)
        .start_program()
        .await;
    world.assert_still_serves().await;
    let before = resident(world.pid());
    let mut line = world.sandbox.tls(Way::Proxy, "two.test", &["h2"]).await.unwrap();
    line.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    // HEADERS without END_HEADERS, then CONTINUATION after CONTINUATION, each
    // with a literal header that is not indexed.
    let field = [&[0x00, 0x01, b'a', 0x7f, 0x81, 0x7e][..], &[b'x'; 16_384 - 6]].concat();
    let frame = |kind: u8| [&[0, 0x40, 0, kind, 0, 0, 0, 0, 1][..], &field].concat();
    line.send(frame(1)).await;
    let mut sent = 0;
    while sent < 4000 && line.try_send(&frame(9)).await.is_ok() {
        sent += 1;
    }
    assert!(sent < 4000, "64 MiB of one head were taken");
    let grown = resident(world.pid()).saturating_sub(before);
    assert!(grown < 32 * MIB, "it took {} MiB", grown / MIB);
    drop(line);
    world.assert_still_serves().await;
    world.end().await;
}
