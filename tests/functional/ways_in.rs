//! Every way in leads to the same answer.

use hickory_proto::rr::{RData, RecordType};
use tests::{Plan, Reply, SocksName, Way, World, answering_http2};

#[tokio::test]
async fn what_is_allowed_gets_through_by_every_way() {
    let world = World::new().start().await;
    for way in Way::ALL {
        for url in ["https://allowed.test/a?b=c", "http://allowed.test/a?b=c"] {
            let reply = world.sandbox.ask("GET", url).by(way).send().await;
            reply.assert_relayed(200);
            assert_eq!(reply.text(), "GET /a?b=c at allowed.test, 0 bytes", "{way:?} {url}");
        }
    }
    world.assert_nobody_was_contacted();
    world.end().await;
}

#[tokio::test]
async fn what_is_allowed_gets_through_over_http2_by_every_way() {
    let plan = answering_http2(|asked| Reply {
        status: 200,
        headers: vec![("x-seen".into(), asked.header("x-sent").unwrap_or_default().into())],
        body: format!("{} {}", asked.method, asked.target).into(),
        ..Reply::default()
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    for way in Way::ALL {
        let ask = world.sandbox.ask("POST", "https://allowed.test/a?b=c").by(way).over_http2();
        let reply = ask.header("x-sent", "yes").body("hello").send().await;
        reply.assert_relayed(200);
        assert_eq!(reply.text(), "POST https://allowed.test/a?b=c", "{way:?}");
        assert_eq!(reply.header("x-seen"), Some("yes"));
    }
    world.end().await;
}

/// The same refusal, member for member, whatever the way and the version; only
/// the id differs.
#[tokio::test]
async fn what_is_refused_is_refused_in_the_same_words_everywhere() {
    let world = World::new().start().await;
    let mut told: Vec<(String, serde_json::Value)> = Vec::new();
    for way in Way::ALL {
        for http2 in [false, true] {
            let mut ask = world.sandbox.ask("GET", "https://evil.test/a").by(way);
            // A refused CONNECT has no inside to speak HTTP/2 in.
            if http2 && way != Way::Proxy {
                ask = ask.over_http2();
            }
            let reply = ask.send().await;
            reply.assert_refused(403, "no_rule");
            let record = world.assert_denied("evil.test", "no_rule").await;
            let mut problem = reply.problem();
            let id = problem["request_id"].take();
            assert_eq!(id, record["id"], "the reply names its record");
            assert_eq!(reply.header("cache-control"), Some("no-store"));
            told.push((format!("{way:?} {http2}"), problem));
        }
    }
    let inside: Vec<_> = told.iter().filter(|(how, _)| !how.starts_with("Proxy")).collect();
    for (how, problem) in &inside {
        assert_eq!(problem, &inside[0].1, "{how}");
    }
    for (how, problem) in &told {
        assert_eq!(problem["title"], "Refused by policy", "{how}");
        let hint = problem["hint"].as_str().unwrap();
        assert!(hint.contains("evil.test") && hint.contains("net.allow"), "{how}: {hint}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_refused_connect_says_so_beside_its_status() {
    let world = World::new().start().await;
    let refused = world.sandbox.connect("evil.test:443").await.unwrap_err();
    refused.assert_refused(403, "no_rule");
    assert_eq!(refused.reason, "Refused by policy (no_rule)");
    world.assert_denied("evil.test", "no_rule").await;
    world.end().await;
}

#[tokio::test]
async fn socks_takes_names_and_addresses_and_says_no_with_a_number() {
    let world =
        World::allowing(&["{host: allowed.test}", "{host: raw.test, protocol: tcp, port: 5432}"])
            .upstream(
                "raw.test",
                Plan::scripted(|mut peer| async move {
                    let hello = peer.line.take(5).await;
                    peer.line.send([b"got ", hello.as_slice()].concat()).await;
                }),
            )
            .start()
            .await;
    let mut line = world.sandbox.socks_to(SocksName::Host("raw.test".into()), 5432).await.unwrap();
    line.send("hello").await;
    assert_eq!(line.take(9).await, b"got hello");
    line.assert_ends().await;
    drop(line);

    for (name, port) in [
        (SocksName::Host("raw.test".into()), 5433),
        (SocksName::Host("evil.test".into()), 22),
        (SocksName::Address("203.0.113.7".parse().unwrap()), 22),
        (SocksName::Address("2001:db8::7".parse().unwrap()), 22),
    ] {
        assert_eq!(world.sandbox.socks_to(name, port).await.unwrap_err(), 2);
    }
    // Who insists on a password is told that there is none, and SOCKS4 that it
    // is not spoken.
    let mut line = world.sandbox.socks().await;
    line.send([5, 1, 2]).await;
    assert_eq!(line.take(2).await, [5, 0xff]);
    line.assert_ends().await;
    let mut line = world.sandbox.socks().await;
    line.send([4, 1, 0, 80, 1, 2, 3, 4, 0]).await;
    assert_eq!(line.take(2).await, [0, 91]);
    drop(line);
    world.upstream("evil.test").assert_never_contacted();
    world.end().await;
}

#[tokio::test]
async fn every_name_leads_to_the_gateway() {
    let world = World::new().start().await;
    for name in ["allowed.test", "evil.test", "no.such.name.example"] {
        let answer = world.sandbox.look_up(name, RecordType::A).await;
        assert_eq!(answer.answers.len(), 1);
        assert!(matches!(answer.answers[0].data, RData::A(a) if a.0.is_loopback()));
        let tcp = world.sandbox.look_up_over_tcp(name, RecordType::A).await;
        assert_eq!(tcp.answers, answer.answers);
    }
    let records = || {
        let records = world.audit.of_kind("dns");
        (records.len() == 6).then_some(records)
    };
    let records = tests::until("one record per question", records).await;
    for record in &records {
        let allowed = record["sluice.verdict"] != "deny";
        assert_eq!(allowed, record["dns.question.name"] == "allowed.test", "{record}");
    }
    let over_tcp = records.iter().filter(|record| record["network.transport"] == "tcp").count();
    assert_eq!(over_tcp, 3, "{records:?}");
    world.resolver.assert_never_asked();
    world.end().await;
}

/// A proxy for proxies' sake: a plain web server's request is told what to do.
#[tokio::test]
async fn the_proxy_port_says_what_it_is() {
    let world = World::new().start().await;
    let mut line = world.sandbox.proxy().await;
    line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    let reply = line.reply().await;
    reply.assert_refused(400, "malformed");
    assert!(reply.text().contains("this is a proxy"), "{}", reply.text());
    world.upstream("allowed.test").assert_never_contacted();
    world.end().await;
}

/// A connection in the clear may be for somebody else with every request, and
/// each is judged by itself.
#[tokio::test]
async fn requests_in_the_clear_are_judged_one_by_one() {
    let world = World::allowing(&[
        "{host: allowed.test}",
        "{host: one.test, protocol: http}",
        "{host: two.test, protocol: http}",
    ])
    .upstream("one.test", Plan::echoing())
    .upstream("two.test", Plan::echoing())
    .start()
    .await;
    let mut proxy = world.sandbox.proxy().await;
    let mut captured = world.sandbox.captured_http().await;
    for (host, allowed) in
        [("one.test", true), ("evil.test", false), ("two.test", true), ("one.test", true)]
    {
        for (line, target) in
            [(&mut proxy, format!("http://{host}/x")), (&mut captured, "/x".to_owned())]
        {
            line.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
            let reply = line.reply().await;
            if allowed {
                assert_eq!(reply.text(), format!("GET /x at {host}, 0 bytes"));
            } else {
                reply.assert_refused(403, "no_rule");
                world.audit.refused(host, "no_rule").await;
            }
        }
    }
    drop((proxy, captured));
    world.upstream("evil.test").assert_never_contacted();
    world.end().await;
}

/// A client need not wait to be told that it may go on.
#[tokio::test]
async fn what_is_sent_ahead_is_not_lost() {
    let world = World::new().start().await;
    let request = "GET /ahead HTTP/1.1\r\nHost: allowed.test\r\n\r\n";
    let mut line = world.sandbox.proxy().await;
    line.send(format!(
        "CONNECT allowed.test:80 HTTP/1.1\r\nHost: allowed.test:80\r\n\r\n{request}"
    ))
    .await;
    assert_eq!(line.reply_to("CONNECT").await.status, 200);
    assert_eq!(line.reply().await.text(), "GET /ahead at allowed.test, 0 bytes");

    let mut socks = world.sandbox.socks().await;
    let name = b"allowed.test";
    let negotiation = [&[5, 1, 0, 5, 1, 0, 3, 12][..], name, &[0, 80], request.as_bytes()].concat();
    socks.send(negotiation).await;
    assert_eq!(socks.take(2).await, [5, 0]);
    assert_eq!(socks.take(10).await[1], 0);
    assert_eq!(socks.reply().await.text(), "GET /ahead at allowed.test, 0 bytes");
    drop((line, socks));
    world.end().await;
}
