//! What is written down, and what happens when nothing can be.

use serde_json::Value;
use tests::{Plan, Way, World, until};

#[tokio::test]
async fn a_request_is_recorded_with_all_that_is_known_of_it() {
    let world = World::new().start().await;
    let ask = world.sandbox.ask("POST", "https://allowed.test/a/b?c=d").body("hello");
    ask.header("Authorization", "Bearer topsecret").send().await.assert_relayed(200);
    let record = world.audit.find("the record", |event| event["kind"] == "request").await;
    for (field, value) in [
        ("http.request.method", Value::from("POST")),
        ("http.response.status_code", Value::from(200)),
        ("url.scheme", Value::from("https")),
        ("url.path", Value::from("/a/b")),
        ("url.query", Value::from("c=d")),
        ("server.address", Value::from("allowed.test")),
        ("server.port", Value::from(443)),
        ("network.peer.address", Value::from("127.0.0.1")),
        ("network.protocol.version", Value::from("1.1")),
        ("sluice.verdict", Value::from("allow")),
        ("sluice.rule", Value::from("allowed")),
        ("sluice.outcome", Value::from("relayed")),
        ("sluice.way_in", Value::from("proxy")),
        ("tls.protocol.version", Value::from("1.3")),
        ("run", Value::from("world")),
    ] {
        assert_eq!(record[field], value, "{field} in {record}");
    }
    for timing in ["total", "decide", "resolve", "connect", "tls", "first_byte"] {
        let timing = format!("sluice.timing.{timing}_ms");
        assert!(record[&timing].as_f64().is_some(), "{timing} in {record}");
    }
    let connection = record["sluice.connection"].clone();
    let fits = |event: &Value| event["kind"] == "connection" && event["id"] == connection;
    let connection = world.audit.find("the connection's record", fits).await;
    assert_eq!(connection["sluice.requests"], 1);
    assert_eq!(connection["tls.client.server_name"], "allowed.test");
    let opened = world.audit.of_kind("opened");
    assert_eq!(opened.len(), 1, "it was in the log before it left");
    assert_eq!(opened[0]["id"], record["id"]);
    let log = world.audit.events().iter().map(Value::to_string).collect::<String>();
    assert!(!log.contains("topsecret") && !log.contains("hello"), "no header, no body");
    world.end().await;
}

/// A task that is dropped leaves its record too: a client that goes away in the
/// middle of everything.
#[tokio::test]
async fn a_client_that_goes_away_leaves_its_record() {
    let endless = Plan::scripted(|mut peer| async move {
        peer.request().await;
        peer.line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        while peer.line.try_send(b"4\r\ntick\r\n").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    let world =
        World::allowing(&["{host: allowed.test}", "{host: ticks.test, methods: [GET, POST]}"])
            .upstream("ticks.test", endless)
            .start()
            .await;
    for request in [
        "GET / HTTP/1.1\r\nHost: ticks.test\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: ticks.test\r\nContent-Length: 100\r\n\r\nhalf",
    ] {
        let mut line = world.sandbox.tls(Way::Proxy, "ticks.test", &["http/1.1"]).await.unwrap();
        line.send(request).await;
        if request.starts_with("GET") {
            line.read_through(b"tick").await;
        }
        drop(line);
    }
    let seen = || {
        let records = world.audit.of_kind("request").into_iter();
        let records: Vec<Value> =
            records.filter(|record| record["server.address"] == "ticks.test").collect();
        (records.len() == 2).then_some(records)
    };
    for record in until("two records", seen).await {
        assert_eq!(record["sluice.outcome"], "failed", "{record}");
        assert_eq!(tests::code(&record), "client_gone", "{record}");
    }
    let connections = world.upstream("ticks.test").seen();
    until("the upstream to hear of it", || {
        connections.iter().all(|seen| seen.ended()).then_some(())
    })
    .await;
    world.end().await;
}

/// A full disk stops traffic: what cannot be recorded does not happen. The disk
/// is a limit on the size of files, which any user may set for themselves.
#[tokio::test]
async fn a_log_that_cannot_be_written_stops_traffic() {
    let world = World::new()
        .upstream("allowed.test", Plan::echoing())
        // In units of 512 bytes; the signal would end the program instead.
        .start_program_after("trap '' XFSZ; ulimit -f 128")
        .await;
    let mut answered = 0;
    let refused = loop {
        let reply = world.sandbox.get(&format!("https://allowed.test/{answered}")).await;
        match reply.status {
            200 => answered += 1,
            _ => break reply,
        }
        assert!(answered < 5000, "64 KiB held {answered} records");
    };
    assert!(answered > 10, "{}", refused.text());
    refused.assert_refused(503, "audit_unavailable");
    let before = world.upstream("allowed.test").requests().len();
    for way in Way::ALL {
        for url in ["https://allowed.test/", "http://allowed.test/"] {
            if let Some(reply) = try_get(&world, way, url).await {
                assert_eq!(reply.status, 503, "{way:?} {url}: {}", reply.text());
            }
        }
    }
    assert_eq!(world.upstream("allowed.test").requests().len(), before, "nothing left");
    let status: Value = serde_json::from_slice(&world.control.get("/status").await.body).unwrap();
    assert_eq!(status["ready"], false);
    assert_eq!(status["audit"]["available"], false);
    // Its policy stays as it is, and it still stops when it is told to.
    assert_eq!(world.control.post("/reload", "").await.status, 503);
    world.end_broken().await;
}

/// One request on a way that may be closed without a word.
async fn try_get(world: &World, way: Way, url: &str) -> Option<tests::Reply> {
    let mut line = match (way, url.starts_with("https")) {
        (Way::Proxy, true) => {
            let mut line = world.sandbox.proxy().await;
            line.send("CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n").await;
            return line.reply_or_end().await;
        }
        (Way::Proxy, false) => world.sandbox.proxy().await,
        (Way::Captured, false) => world.sandbox.captured_http().await,
        (Way::Captured, true) => world.sandbox.captured_https().await,
        (Way::Socks, _) => world.sandbox.socks().await,
    };
    line.send("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    line.reply_or_end().await
}

/// Labels of metrics are rules and codes: a sandbox chooses host names, and each
/// would be a series of its own.
#[tokio::test]
async fn metrics_count_by_rule_and_code_and_never_by_host() {
    let world = World::new().start().await;
    world.sandbox.get("https://allowed.test/").await.assert_relayed(200);
    for way in Way::ALL {
        let ask = world.sandbox.ask("GET", "https://evil.test/").by(way);
        ask.send().await.assert_refused(403, "no_rule");
        world.audit.refused("evil.test", "no_rule").await;
    }
    let metrics = world.control.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    let text = metrics.text();
    assert!(text.contains("no_rule"), "{text}");
    assert!(text.contains("rule=\"allowed\""), "{text}");
    assert!(!text.contains("evil.test") && !text.contains("allowed.test"), "{text}");
    world.end().await;
}
