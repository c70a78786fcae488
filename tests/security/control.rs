//! G: the operator's side, other sandboxes, and floods.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Duration;

use tests::memory::{MIB, resident};
use tests::world::policy;
use tests::{Certificate, Line, Plan, Sandbox, SocksName, Way, World, code, until};
use tokio::time;

/// G1.
#[tokio::test]
async fn the_control_socket_is_not_among_what_a_sandbox_can_reach() {
    let world = World::new().start().await;
    let socket = fs::metadata(&world.control.socket).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    let folder = fs::metadata(world.folder()).unwrap();
    assert_eq!(folder.mode() & 0o077, 0, "nobody else can enter its folder");

    // The words it understands are not understood at the doors.
    let doors = world.sandbox.doors.clone();
    for door in [doors.proxy, doors.http, doors.socks, doors.https] {
        let mut line = tests::sandbox::open(door).await;
        line.send("POST /reload HTTP/1.1\r\nHost: control\r\nContent-Length: 0\r\n\r\n").await;
        let reply = line.reply_or_end().await;
        assert!(reply.is_none_or(|reply| [400, 403].contains(&reply.status)));
    }
    // The gateway's own doors and this machine are no destination, whatever
    // they are called.
    for door in [doors.proxy, doors.http, doors.dns] {
        for host in ["127.0.0.1", "0.0.0.0", "[::1]", "localhost", "0"] {
            let refused = world.sandbox.connect(&format!("{host}:{}", door.port())).await;
            assert_eq!(refused.unwrap_err().status, 403, "{host}");
            let name = SocksName::Host(host.trim_matches(['[', ']']).replace("::1", "127.0.0.1"));
            let refused = world.sandbox.socks_to(name, door.port()).await;
            assert_eq!(refused.unwrap_err(), 2, "not allowed: {host}");
        }
    }
    let before = world.audit.of_kind("operator").len();
    assert_eq!(before, 0, "nobody reached it");
    world.resolver.assert_never_asked();
    world.assert_still_serves().await;
    world.end().await;
}

/// G1: not even a rule leads to the machine itself.
#[tokio::test]
async fn a_rule_for_localhost_leads_nowhere() {
    let world = World::new().start().await;
    let port = world.sandbox.doors.proxy.port();
    let rules = [
        "{host: allowed.test}".to_owned(),
        format!("{{host: localhost, protocol: http, port: {port}, addresses: [127.0.0.0/8]}}"),
        format!("{{host: here.test, protocol: http, port: {port}, addresses: [127.0.0.0/8]}}"),
    ];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let reloaded = world.reload(&policy(&rules)).await;
    if reloaded.status == 200 {
        world.resolver.answer("localhost", &["127.0.0.1"]);
        world.resolver.answer("here.test", &["127.0.0.1", "::1"]);
        for host in ["localhost", "here.test"] {
            let reply = world.sandbox.get(&format!("http://{host}:{port}/")).await;
            reply.assert_refused(403, "destination_forbidden");
            world.audit.refused(host, "destination_forbidden").await;
        }
    } else {
        assert_eq!(reloaded.status, 422, "{}", reloaded.text());
    }
    world.assert_still_serves().await;
    world.end().await;
}

/// G4.
#[tokio::test]
async fn one_sandboxs_authority_is_nothing_to_another() {
    let (one, other) = tokio::join!(World::new().start(), World::new().start());
    let [ca, other_ca] = [one.control.get("/ca.pem").await, other.control.get("/ca.pem").await];
    assert_ne!(ca.text(), other_ca.text());
    assert!(!ca.text().contains("PRIVATE"), "the key never leaves");

    // Who trusts one gateway does not believe the other.
    let crossed = Sandbox::new(other.sandbox.doors.clone(), &ca.text());
    let line = crossed.connect("allowed.test:443").await.unwrap();
    let failed = crossed.handshake(line, "allowed.test", &[]).await.unwrap_err();
    assert!(failed.to_string().contains("certificate"), "{failed}");
    other.audit.refused("allowed.test", "handshake_failed").await;

    // And what one was asked is not in the other's log.
    one.sandbox.get("https://evil.test/").await.assert_refused(403, "no_rule");
    one.assert_denied("evil.test", "no_rule").await;
    assert!(other.audit.events().iter().all(|event| event["server.address"] != "evil.test"));
    other.assert_still_serves().await;
    one.end().await;
    other.end().await;
}

/// G5.
#[tokio::test]
async fn a_policy_that_cannot_be_read_changes_nothing() {
    let world = World::new().start().await;
    let before = world.control.get("/status").await.text();
    for (text, problem) in [
        ("version: 1\nnet: {enabled: true, alow: []}\n", "alow"),
        ("version: 2\nnet: {enabled: true}\n", "version"),
        ("version: 1\nnet:\n  enabled: true\n  allow: [\"*\"]\n", "*"),
        ("version: 1\nversion: 1\n", "version"),
        ("{", ""),
        ("", ""),
        ("version: 1\nextends: [no-such-preset]\n", "no-such-preset"),
    ] {
        let reply = world.reload(text).await;
        assert_eq!(reply.status, 422, "{text:?}: {}", reply.text());
        assert!(reply.text().contains(problem), "{text:?}: {}", reply.text());
        world.assert_still_serves().await;
        world.sandbox.get("https://evil.test/").await.assert_refused(403, "no_rule");
        world.assert_denied("evil.test", "no_rule").await;
    }
    fs::remove_file(world.folder().join("sandbox.policy.yaml")).unwrap();
    let reply = world.control.post("/reload", "").await;
    assert_eq!(reply.status, 422, "{}", reply.text());
    world.assert_still_serves().await;
    let refused = world.audit.of_kind("policy_refused");
    assert_eq!(refused.len(), 8, "each attempt is recorded");
    let hash = |status: &str| {
        let status: serde_json::Value = serde_json::from_str(status).unwrap();
        status["policy"]["hash"].clone()
    };
    assert_eq!(hash(&before), hash(&world.control.get("/status").await.text()));
    world.end().await;
}

/// G5: nothing allowed is not everything allowed.
#[tokio::test]
async fn an_empty_list_denies_all() {
    for text in [
        "version: 1\nnet: {enabled: true, allow: []}\n",
        "version: 1\nnet: {enabled: true}\n",
        "version: 1\nnet: {enabled: false, allow: [{host: allowed.test}]}\n",
        "version: 1\n",
    ] {
        let world = World::new().policy(text).start().await;
        for way in Way::ALL {
            for url in ["https://allowed.test/", "http://allowed.test/"] {
                let reply = world.sandbox.ask("GET", url).by(way).send().await;
                assert_eq!(reply.status, 403, "{text}: {}", reply.text());
                world.audit.refused("allowed.test", &reply.code()).await;
            }
        }
        world.upstream("allowed.test").assert_never_contacted();
        world.assert_nobody_was_contacted();
        world.end().await;
    }
}

/// G5.
#[tokio::test]
async fn without_a_policy_nothing_starts() {
    for (text, missing) in [(Some("version: 1\nnet: {alow: []}\n"), "alow"), (None, "policy")] {
        let refused = World::new().start_without_policy(text).await;
        assert!(refused.contains(missing), "{refused}");
    }
}

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

/// G9.
#[tokio::test]
async fn an_upstream_that_cannot_prove_its_name_is_not_spoken_to() {
    for (certificate, reason) in [
        (Certificate::Expired, "expired"),
        (Certificate::NotYetValid, "not valid yet"),
        (Certificate::OtherName("other.test".into()), "name"),
        (Certificate::SelfSigned, "issue"),
        (Certificate::ForeignAuthority, "issue"),
    ] {
        let plan = Plan::echoing().certificate(certificate.clone());
        let world =
            World::allowing(&["{host: allowed.test}", "{host: forged.test, methods: [GET, POST]}"])
                .upstream("forged.test", plan)
                .start()
                .await;
        let ask = world.sandbox.ask("POST", "https://forged.test/").body("secret");
        let reply = ask.send().await;
        reply.assert_refused(502, "upstream_untrusted");
        assert!(reply.text().contains(reason), "{certificate:?}: {}", reply.text());
        let record = world.audit.refused("forged.test", "upstream_untrusted").await;
        assert!(record.to_string().contains(reason), "{certificate:?}: {record}");
        let forged = world.upstream("forged.test");
        assert!(!forged.received().contains("secret"), "{certificate:?}");
        assert!(forged.requests().is_empty());
        world.assert_still_serves().await;
        world.end().await;
    }
}
