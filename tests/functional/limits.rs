//! How much a sandbox may take.

use std::time::Duration;
use std::{fs, thread};

use futures_util::future::join_all;
use tests::world::policy;
use tests::{Answer, Peer, Plan, Reply, Setup, Way, World, answering_http2, until};

/// A world whose policy has these limits.
fn limited(limits: &str) -> Setup {
    let rules = policy(&["{host: allowed.test, methods: [GET, HEAD, POST, PUT]}"]);
    World::new().policy(&format!("{rules}  limits: {{{limits}}}\n"))
}

#[tokio::test]
async fn a_minute_has_so_many_requests() {
    let world = limited("requests_per_minute: 5").start().await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    for index in 0..7 {
        line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
        let reply = line.reply().await;
        if index < 5 {
            reply.assert_relayed(200);
        } else {
            reply.assert_refused(429, "rate_limited");
            let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=65).contains(&wait), "{wait}");
            world.audit.refused("allowed.test", "rate_limited").await;
        }
    }
    assert_eq!(world.upstream("allowed.test").requests().len(), 5);
    drop(line);
    world.end().await;
}

/// The program serves on several threads, which share nothing but what is
/// counted.
#[tokio::test]
async fn threads_count_together() {
    let world = limited("requests_per_minute: 20").start_program().await;
    let asked = (0..32).map(|_| world.sandbox.get("https://allowed.test/"));
    let replies = join_all(asked).await;
    let relayed = replies.iter().filter(|reply| reply.status == 200).count();
    let refused = replies.iter().filter(|reply| reply.status == 429).count();
    assert_eq!((relayed, refused), (20, 12));
    assert_eq!(world.upstream("allowed.test").requests().len(), 20);

    let threads = format!("/proc/{}/task", world.pid());
    let workers = fs::read_dir(threads).unwrap().filter(|thread| {
        let name = fs::read_to_string(thread.as_ref().unwrap().path().join("comm")).unwrap();
        name.starts_with("worker-")
    });
    let processors = thread::available_parallelism().unwrap().get().min(8);
    assert_eq!(workers.count() + 1, processors, "the first is the program itself");
    world.end().await;
}

#[tokio::test]
async fn a_body_has_an_end() {
    let world = limited("body: 1KiB").start().await;
    let long = "x".repeat(2000);
    // It says how long it is: nothing is sent.
    let ask = world.sandbox.ask("POST", "https://allowed.test/").body(&long);
    ask.send().await.assert_refused(413, "body_too_large");
    world.audit.refused("allowed.test", "body_too_large").await;
    assert!(world.upstream("allowed.test").requests().is_empty());

    // It does not say: it is cut where the limit is.
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1000));
    line.send(format!(
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"
    ))
    .await;
    line.reply().await.assert_refused(413, "body_too_large");
    world.audit.refused("allowed.test", "body_too_large").await;
    assert!(world.upstream("allowed.test").requests().is_empty(), "no request was complete");

    let ask = world.sandbox.ask("POST", "https://allowed.test/").body("x".repeat(1024));
    ask.send().await.assert_relayed(200);
    drop(line);
    world.end().await;
}

#[tokio::test]
async fn a_body_has_an_end_in_http2_too() {
    let world = limited("body: 1KiB")
        .upstream("allowed.test", answering_http2(|_| Reply { status: 200, ..Reply::default() }))
        .start()
        .await;
    let long = "x".repeat(2000);
    let ask = world.sandbox.ask("POST", "https://allowed.test/").over_http2().body(&long);
    ask.send().await.assert_refused(413, "body_too_large");
    world.audit.refused("allowed.test", "body_too_large").await;
    world.end().await;
}

#[tokio::test]
async fn an_upload_budget_is_spent_once_and_for_all() {
    let world = limited("upload: 10KiB").start().await;
    let mut sent = 0;
    let refused = loop {
        let ask = world.sandbox.ask("POST", "https://allowed.test/").body("x".repeat(3000));
        let reply = ask.send().await;
        match reply.status {
            200 => sent += 1,
            _ => break reply,
        }
        assert!(sent < 4, "more went out than there was");
    };
    assert_eq!(sent, 3);
    refused.assert_refused(403, "budget_spent");
    assert!(refused.problem()["hint"].as_str().unwrap().contains("upload"), "{}", refused.text());
    world.audit.refused("allowed.test", "budget_spent").await;
    let arrived = world.upstream("allowed.test").received_in_all();
    assert!(arrived <= 10 * 1024, "{arrived} bytes arrived");

    // A reload is no way to a fresh one.
    let rules = policy(&["{host: allowed.test, methods: [GET, POST]}"]);
    let reloaded = world.reload(&format!("{rules}  limits: {{upload: 10KiB}}\n")).await;
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    let ask = world.sandbox.ask("POST", "https://allowed.test/").body("x".repeat(3000));
    ask.send().await.assert_refused(403, "budget_spent");
    world.audit.refused("allowed.test", "budget_spent").await;
    let wider = world.reload(&format!("{rules}  limits: {{upload: 100KiB}}\n")).await;
    assert_eq!(wider.status, 200);
    let ask = world.sandbox.ask("POST", "https://allowed.test/").body("x".repeat(3000));
    ask.send().await.assert_relayed(200);
    world.end().await;
}

#[tokio::test]
async fn a_download_budget_cuts_what_would_exceed_it() {
    let plan = Plan::answering(|_| Answer::new(200, "x".repeat(6000)));
    let world = limited("download: 10KiB").upstream("allowed.test", plan).start().await;
    world.sandbox.get("https://allowed.test/").await.assert_relayed(200);
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    let rest = line.rest().await;
    assert!(rest.len() < 6000, "{} bytes came", rest.len());
    world.audit.refused("allowed.test", "budget_spent").await;
    world.end().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_long_request_ended() {
    let ticks = Plan::scripted(|mut peer: Peer| async move {
        peer.request().await;
        peer.line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        while peer.line.try_send(b"1\r\nx\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let world = World::allowing(&["{host: allowed.test}", "{host: ticks.test}"])
        .limits("idle: 1s, total: 2s")
        .upstream("ticks.test", ticks)
        .start()
        .await;
    let mut idle = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    idle.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    idle.reply().await.assert_relayed(200);
    let mut long = world.sandbox.tls(Way::Proxy, "ticks.test", &["http/1.1"]).await.unwrap();
    long.send("GET / HTTP/1.1\r\nHost: ticks.test\r\n\r\n").await;

    idle.assert_ends().await;
    let rest = long.rest().await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "it did not look complete");
    world.audit.refused("ticks.test", "cap_reached").await;
    world.end().await;
}

/// A policy can be stricter than the settings, and never looser.
#[tokio::test]
async fn the_stricter_of_settings_and_policy_counts() {
    let rules = policy(&["{host: allowed.test, methods: [POST]}"]);
    for (settings, in_policy) in [("body: 1KiB", "body: 1MiB"), ("body: 1MiB", "body: 1KiB")] {
        let world = World::new()
            .limits(settings)
            .policy(&format!("{rules}  limits: {{{in_policy}}}\n"))
            .start()
            .await;
        let ask = world.sandbox.ask("POST", "https://allowed.test/").body("x".repeat(2000));
        ask.send().await.assert_refused(413, "body_too_large");
        world.end().await;
    }
}

/// Questions beyond the bound are dropped and counted, and the rest is answered.
#[tokio::test]
async fn a_flood_of_questions_is_bounded() {
    use hickory_proto::rr::RecordType;
    let world = World::new().settings("dns: {queries_per_second: 20}").start().await;
    let question = world.sandbox.look_up("allowed.test", RecordType::A).await;
    let mut asked = question.clone();
    asked.answers.clear();
    let bytes = {
        let mut query = hickory_proto::op::Message::query();
        query.add_query(question.queries[0].clone());
        query.to_vec().unwrap()
    };
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for _ in 0..500 {
        socket.send_to(&bytes, world.sandbox.doors.dns).await.unwrap();
    }
    let limit = until("a record of what was dropped", || {
        world.audit.events().into_iter().find(|event| event["kind"] == "limit")
    });
    let limit = limit.await;
    assert!(limit.to_string().contains("dns.queries_per_second"), "{limit}");
    let answered = world.audit.of_kind("dns").len();
    assert!(answered < 200, "{answered} of 500 were answered");
    world.end().await;
}

/// Bytes that nobody looks into are counted all the same.
#[tokio::test]
async fn a_tunnel_is_cut_where_its_budget_ends() {
    let rules = policy(&["{host: allowed.test}", "{host: raw.test, protocol: tcp, port: 7000}"]);
    let sink =
        Plan::scripted(|mut peer: Peer| async move { while !peer.line.some().await.is_empty() {} });
    let world = World::new()
        .policy(&format!("{rules}  limits: {{upload: 100KiB}}\n"))
        .upstream("raw.test", sink)
        .start()
        .await;
    let mut line = world.sandbox.connect("raw.test:7000").await.unwrap();
    let mut sent = 0;
    while sent < 1000 && line.try_send(&[b'x'; 4096]).await.is_ok() {
        sent += 1;
    }
    line.rest().await;
    world.audit.refused("raw.test", "budget_spent").await;
    // The gateway may be done with it before the upstream has accepted it.
    let seen = tests::until("the upstream to be told that it is over", || {
        world.upstream("raw.test").seen().pop().filter(tests::upstream::ReceivedBytes::ended)
    });
    let arrived = seen.await.total();
    assert!(arrived <= 100 * 1024, "{arrived} bytes arrived");
    drop(line);
    world.end().await;
}
