//! B: who is really contacted.

use std::fs;
use std::sync::Arc;

use http::Request;
use rustls::ClientConfig;
use rustls::client::{EchGreaseConfig, EchMode};
use rustls::crypto::aws_lc_rs::{self, hpke};
use rustls::crypto::hpke::HpkePublicKey;
use rustls::pki_types::ServerName;
use tests::sandbox::read_http2;
use tests::websocket::Frame;
use tests::world::policy;
use tests::{
    Http2, Plan, Reply, Sandbox, SocksName, Way, World, answering_http2, code, until, within,
};

/// B1: where a captured connection was going says nothing; only what the gateway
/// looked up for the name does.
#[tokio::test]
async fn a_captured_connection_leads_where_the_name_leads_and_nowhere_else() {
    let world = World::allowing(&[
        "{host: allowed.test}",
        "{host: allowed.test, protocol: http}",
        "{host: moved.test}",
        "{host: moved.test, protocol: http}",
    ])
    .start()
    .await;
    // The attacker's address is 127.0.0.1, where the connection was captured; the
    // name's is one that may not be dialled. Were the first one used, there
    // would be an answer.
    world.resolver.answer("moved.test", &["10.1.2.3"]);
    for url in ["http://moved.test/", "https://moved.test/"] {
        let reply = world.sandbox.ask("GET", url).by(Way::Captured).send().await;
        reply.assert_refused(403, "destination_forbidden");
        world.audit.refused("moved.test", "destination_forbidden").await;
    }
    for url in ["http://allowed.test/", "https://allowed.test/"] {
        world.sandbox.ask("GET", url).by(Way::Captured).send().await.assert_relayed(200);
    }
    assert_eq!(world.upstream("allowed.test").connections(), 2);
    world.upstream("evil.test").assert_never_contacted();
    world.end().await;
}

/// B2.
#[tokio::test]
async fn a_tunnel_to_one_name_is_not_a_handshake_with_another() {
    let world = World::new().start().await;
    for way in [Way::Proxy, Way::Socks] {
        let line = world.sandbox.tunnel(way, "allowed.test", 443).await.unwrap();
        let mut line = world.sandbox.handshake(line, "evil.test", &["http/1.1"]).await.unwrap();
        line.send("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n").await;
        line.reply().await.assert_refused(421, "name_mismatch");
        world.upstream("evil.test").assert_never_contacted();
        world.audit.refused("allowed.test", "name_mismatch").await;
    }
    // In HTTP/2, and with the tunnel's name inside.
    let line = world.sandbox.connect("allowed.test:443").await.unwrap();
    let line = world.sandbox.handshake(line, "evil.test", &["h2"]).await.unwrap();
    let mut session = Http2::open(line).await;
    session.get("https://allowed.test/").await.assert_refused(421, "name_mismatch");

    world.upstream("allowed.test").assert_never_contacted();
    world.assert_denied("allowed.test", "name_mismatch").await;
    world.end().await;
}

/// B3.
#[tokio::test]
async fn a_host_header_does_not_redirect_an_admitted_connection() {
    let world = World::new().start().await;
    for way in Way::ALL {
        let mut line = world.sandbox.tls(way, "allowed.test", &["http/1.1"]).await.unwrap();
        line.send("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n").await;
        line.reply().await.assert_refused(421, "name_mismatch");
        let record = world.audit.refused("allowed.test", "name_mismatch").await;
        assert!(record.to_string().contains("evil.test"), "the record says what was tried");
    }
    // Another port is another destination.
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: allowed.test:8443\r\n\r\n").await;
    line.reply().await.assert_refused(421, "name_mismatch");
    world.upstream("allowed.test").assert_never_contacted();
    world.assert_denied("allowed.test", "name_mismatch").await;
    world.end().await;
}

/// B4.
#[tokio::test]
async fn each_stream_of_an_http2_connection_is_judged_by_its_own_authority() {
    let world = World::new().upstream(
        "allowed.test",
        answering_http2(|asked| Reply {
            status: 200,
            body: asked.target.clone().into(),
            ..Reply::default()
        }),
    );
    let world = world.start().await;
    let mut session = world.sandbox.http2(Way::Proxy, "allowed.test").await;

    session.get("https://allowed.test/one").await.assert_relayed(200);
    session.get("https://evil.test/two").await.assert_refused(421, "name_mismatch");
    session.get("https://allowed.test/three").await.assert_relayed(200);

    // Both at once, and a Host header that disagrees with the authority.
    let both = Request::get("https://allowed.test/").header("host", "evil.test").body(()).unwrap();
    let (response, _) = session.begin(both, true).await;
    let reply = read_http2(response).await.unwrap();
    assert_eq!(reply.status, 400, "{}", reply.text());
    world.audit.refused("allowed.test", &reply.code()).await;
    session.get("https://allowed.test/four").await.assert_relayed(200);

    world.upstream("evil.test").assert_never_contacted();
    world.resolver.assert_never_asked();
    world.audit.refused("allowed.test", "name_mismatch").await;
    assert_eq!(world.upstream("allowed.test").requests().len(), 3);
    world.end().await;
}

/// B6.
#[tokio::test]
async fn a_request_that_names_two_hosts_is_for_neither() {
    let world = World::new().start().await;
    for (head, code) in [
        ("GET http://allowed.test/ HTTP/1.1\r\nHost: evil.test", "ambiguous"),
        ("GET http://evil.test/ HTTP/1.1\r\nHost: allowed.test", "no_rule"),
        ("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nHost: evil.test", "ambiguous"),
        (
            "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nHost: allowed.test",
            "ambiguous",
        ),
        ("GET http://allowed.test/ HTTP/1.1\r\nHost: ", "bad_authority"),
        ("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test, evil.test", "bad_authority"),
        ("GET http://allowed.test/ HTTP/1.1\r\nX: y", "malformed"),
        ("CONNECT allowed.test:443 HTTP/1.1\r\nHost: evil.test:443", "ambiguous"),
    ] {
        let mut line = world.sandbox.proxy().await;
        line.send(format!("{head}\r\n\r\n")).await;
        let reply = line.reply().await;
        assert_eq!(reply.code(), code, "{head}");
        assert!([400, 403].contains(&reply.status), "{head}: {}", reply.status);
    }
    for head in [
        "GET / HTTP/1.1\r\nHost: allowed.test\r\nHost: evil.test",
        "GET / HTTP/1.1\r\nHost: evil.test\r\nHost: allowed.test",
        "GET / HTTP/1.1\r\nHost:",
        "GET / HTTP/1.1\r\nX: y",
        "GET http://evil.test/ HTTP/1.1\r\nHost: allowed.test",
        "GET http://allowed.test/ HTTP/1.1\r\nHost: evil.test",
    ] {
        let mut captured = world.sandbox.captured_http().await;
        captured.send(format!("{head}\r\n\r\n")).await;
        let reply = captured.reply().await;
        assert!([400, 403].contains(&reply.status), "{head}: {}", reply.text());

        let mut inside = world.sandbox.tls(Way::Proxy, "allowed.test", &[]).await.unwrap();
        inside.send(format!("{head}\r\n\r\n")).await;
        let reply = inside.reply().await;
        assert!([400, 421].contains(&reply.status), "{head}: {}", reply.text());
    }
    world.upstream("allowed.test").assert_never_contacted();
    world.assert_nobody_was_contacted();
    world.assert_still_serves().await;
    world.end().await;
}

/// B7.
#[tokio::test]
async fn an_address_does_not_become_a_name_by_saying_so_in_the_handshake() {
    let world = World::new().start().await;
    let evil = world.upstream("evil.test").at;

    let refused = world.sandbox.connect(&evil.to_string()).await.unwrap_err();
    refused.assert_refused(403, "no_rule");
    world.assert_denied("127.0.0.1", "no_rule").await;

    // SOCKS to 443 is opened to say no in words; the words are still no.
    let address = "203.0.113.7".parse().unwrap();
    let line = world.sandbox.socks_to(SocksName::Address(address), 443).await.unwrap();
    let mut line = world.sandbox.handshake(line, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    let reply = line.reply().await;
    assert!([403, 421].contains(&reply.status), "{}", reply.text());
    world.upstream("allowed.test").assert_not_contacted_beyond(1);
    world.assert_denied("203.0.113.7", &reply.code()).await;
    world.end().await;
}

/// B8, where TLS is opened.
#[tokio::test]
async fn a_handshake_without_a_name_is_the_tunnels_or_nobodys() {
    let world = World::new().start().await;
    let mut nameless = world.sandbox.client_config(&["http/1.1"]);
    nameless.enable_sni = false;
    let nameless = Arc::new(nameless);
    let name = ServerName::try_from("allowed.test").unwrap();

    let line = world.sandbox.connect("allowed.test:443").await.unwrap();
    let mut line = line.tls(&name, &nameless).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    line.reply().await.assert_relayed(200);

    let line = world.sandbox.captured_https().await;
    let failed = within("a handshake", line.tls(&name, &nameless)).await.unwrap_err();
    assert!(failed.to_string().contains("UnrecognisedName"), "an alert says why: {failed}");
    world.assert_denied("", "no_server_name").await;

    // A name that is encrypted is not looked for: the one in the clear counts.
    let sealed = Arc::new(with_encrypted_hello(&world.sandbox));
    let line = world.sandbox.captured_https().await;
    let mut line = within("a handshake", line.tls(&name, &sealed)).await.unwrap();
    line.send("GET /ech HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    line.reply().await.assert_relayed(200);
    world.end().await;
}

/// B8, where TLS is passed on.
#[tokio::test]
async fn what_is_passed_on_unopened_says_its_name_in_the_clear() {
    let world = World::new()
        .policy(&format!("{}  passthrough: [pass.test]\n", policy(&["{host: allowed.test}"])))
        .upstream("pass.test", Plan::echoing())
        .start()
        .await;
    let roots = fs::read_to_string(world.folder().join("upstreams.pem")).unwrap();
    let sandbox = Sandbox::new(world.sandbox.doors.clone(), &roots);
    let pass = ServerName::try_from("pass.test").unwrap();

    let mut nameless = sandbox.client_config(&[]);
    nameless.enable_sni = false;
    let sealed = with_encrypted_hello(&sandbox);
    for config in [nameless, sealed] {
        let line = sandbox.connect("pass.test:443").await.unwrap();
        let failed = within("a handshake", line.tls(&pass, &Arc::new(config))).await.unwrap_err();
        assert!(failed.to_string().contains("AccessDenied"), "{failed}");
        world.upstream("pass.test").assert_never_contacted();
        world.assert_denied("pass.test", "sealed_name_unreadable").await;
    }
    // Another name than the tunnel's, and no TLS at all.
    let line = sandbox.connect("pass.test:443").await.unwrap();
    let failed = sandbox.handshake(line, "evil.test", &[]).await.unwrap_err();
    assert!(failed.to_string().contains("AccessDenied"), "{failed}");
    world.assert_denied("pass.test", "name_mismatch").await;
    let mut line = sandbox.connect("pass.test:443").await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: pass.test\r\n\r\n").await;
    line.assert_ends().await;
    world.upstream("pass.test").assert_never_contacted();
    world.assert_denied("pass.test", "sealed_name_unreadable").await;

    // With its name it is passed on, and the certificate is the upstream's own.
    for way in Way::ALL {
        let mut line = sandbox.tls(way, "pass.test", &[]).await.unwrap();
        line.send("GET / HTTP/1.1\r\nHost: pass.test\r\n\r\n").await;
        line.reply().await.assert_relayed(200);
    }
    world.end().await;
}

/// A client that sends an encrypted ClientHello beside the one in the clear.
fn with_encrypted_hello(sandbox: &Sandbox) -> ClientConfig {
    let key = HpkePublicKey(vec![9; 32]);
    let grease = EchGreaseConfig::new(hpke::DH_KEM_X25519_HKDF_SHA256_AES_128, key);
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_ech(EchMode::Grease(grease))
        .unwrap()
        .with_root_certificates(sandbox.roots())
        .with_no_client_auth()
}

/// B9: under a wildcard the client chooses the name, and the name itself is what
/// leaves, through the name server.
#[tokio::test]
async fn names_under_a_wildcard_are_paid_for_out_of_the_upload_budget() {
    const BUDGET: usize = 2048;
    for alpn in [["http/1.1", "http/1.0"], ["h2", "http/1.1"]] {
        let limits = format!("  limits: {{upload: {BUDGET}B}}\n");
        let rules = policy(&["{host: allowed.test}", "\"*.wild.test\""]);
        let world = World::new().policy(&(rules + &limits)).start().await;
        let mut spent = false;
        for index in 0..64 {
            let name = format!("{index:063x}.wild.test");
            world.resolver.answer(&name, &["10.0.0.1"]);
            let reply = match world.sandbox.tls(Way::Proxy, &name, &alpn).await {
                Ok(line) if line.alpn.as_deref() == Some(b"h2") => {
                    Http2::open(line).await.get(&format!("https://{name}/")).await
                }
                Ok(mut line) => {
                    line.send(format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n")).await;
                    line.reply().await
                }
                Err(refused) => refused,
            };
            match reply.code().as_str() {
                "destination_forbidden" => assert!(!spent, "a budget does not come back"),
                "budget_spent" => spent = true,
                other => panic!("{other}"),
            }
        }
        assert!(spent, "{alpn:?}: 64 names of 73 bytes fitted into {BUDGET}");
        let leaked: usize = world.resolver.asked().iter().map(String::len).sum();
        assert!(leaked <= BUDGET, "{alpn:?}: {leaked} bytes of names left");
        world.end().await;
    }
}

/// B10.
#[tokio::test]
async fn a_tunnel_cannot_be_asked_for_inside_a_tunnel() {
    let world = World::new().start().await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send("CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n").await;
    line.reply().await.assert_refused(403, "denied");
    world.assert_nobody_was_contacted();
    world.assert_still_serves().await;

    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send("CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n").await;
    line.reply().await.assert_refused(403, "denied");
    world
        .audit
        .find("the record", |event| event["kind"] == "request" && code(event) == "denied")
        .await;

    // In the clear, after a request that was allowed.
    let mut line = world.sandbox.proxy().await;
    line.send("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    line.reply().await.assert_relayed(200);
    line.send("CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n").await;
    let reply = line.reply().await;
    assert_eq!(reply.status, 403, "{}", reply.text());
    let record = world.audit.find("the record of it", |event| {
        event["kind"] == "request" && event.to_string().contains("evil.test")
    });
    assert_eq!(code(&record.await), "denied");
    world.assert_nobody_was_contacted();
    world.end().await;
}

/// B10, in HTTP/2, where CONNECT has a form of its own.
#[tokio::test]
async fn a_tunnel_cannot_be_asked_for_in_a_stream() {
    let plan = answering_http2(|_| Reply { status: 200, ..Reply::default() });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut session = world.sandbox.http2(Way::Proxy, "allowed.test").await;
    for to in ["evil.test:443", "allowed.test:443"] {
        let connect = Request::connect(to).body(()).unwrap();
        let (response, stream) = session.begin(connect, false).await;
        drop(stream);
        let reply = read_http2(response).await.unwrap();
        assert_eq!(reply.status, 403, "{}", reply.text());
        assert_eq!(reply.code(), "denied");
    }
    session.get("https://allowed.test/").await.assert_relayed(200);
    world.upstream("evil.test").assert_never_contacted();
    assert_eq!(world.upstream("allowed.test").requests().len(), 1);
    world.end().await;
}

/// B12.
#[tokio::test]
async fn http2_in_the_clear_is_no_way_past_the_judge() {
    let world = World::new().start().await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let mut lines = vec![world.sandbox.proxy().await, world.sandbox.captured_http().await];
    lines.push(world.sandbox.connect("allowed.test:443").await.unwrap());
    lines.push(world.sandbox.tunnel(Way::Socks, "allowed.test", 80).await.unwrap());
    for mut line in lines {
        line.send(preface).await;
        let reply = line.reply().await;
        assert_eq!(reply.status, 400, "{}", reply.text());
        line.assert_ends().await;
    }
    world.upstream("allowed.test").assert_never_contacted();

    // An upgrade is not passed on, so nothing is upgraded.
    let reply = world
        .sandbox
        .ask("GET", "http://allowed.test/")
        .header("Connection", "Upgrade, HTTP2-Settings")
        .header("Upgrade", "h2c")
        .header("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA")
        .send()
        .await;
    reply.assert_relayed(200);
    let received = world.upstream("allowed.test").requests().pop().unwrap();
    for hidden in ["upgrade", "http2-settings"] {
        assert_eq!(received.header(hidden), None, "{hidden} went through");
    }
    assert!(received.header("connection").is_none_or(|value| !value.contains("pgrade")));
    world.end().await;
}

/// B12, with an upstream that switches without having been asked.
#[tokio::test]
async fn an_upstream_that_upgrades_by_itself_is_not_believed() {
    let plan = Plan::sending(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nblind",
    );
    let world = World::new().upstream("allowed.test", plan).start().await;
    for headers in ["", "Connection: Upgrade\r\nUpgrade: h2c\r\n"] {
        let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &[]).await.unwrap();
        line.send(format!("GET / HTTP/1.1\r\nHost: allowed.test\r\n{headers}\r\n")).await;
        line.reply().await.assert_refused(502, "upstream_malformed");
        world.audit.refused("allowed.test", "upstream_malformed").await;
    }
    world.end().await;
}

/// B14.
#[tokio::test]
async fn every_pipelined_request_is_judged() {
    let world = World::allowing(&["{host: allowed.test, paths: [/ok, /still-here]}"]).start().await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send(
        "GET /ok HTTP/1.1\r\nHost: allowed.test\r\n\r\n\
         GET /secret HTTP/1.1\r\nHost: allowed.test\r\n\r\n\
         GET /ok HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
    )
    .await;
    line.reply().await.assert_relayed(200);
    line.reply().await.assert_refused(403, "no_rule");
    line.reply().await.assert_relayed(200);
    assert!(!world.upstream("allowed.test").received().contains("/secret"));
    let record = world.assert_denied("allowed.test", "no_rule").await;
    assert_eq!(record["url.path"], "/secret");
    world.end().await;
}

/// B14: the policy of that moment, also for a connection that was there before.
#[tokio::test]
async fn a_reload_reaches_connections_that_are_open() {
    let world = World::allowing(&["{host: allowed.test, paths: [\"/**\"]}", "{host: gone.test}"])
        .upstream("gone.test", Plan::echoing())
        .start()
        .await;
    let mut kept = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    kept.send("GET /a HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    kept.reply().await.assert_relayed(200);
    let mut idle = world.sandbox.tls(Way::Proxy, "gone.test", &["http/1.1"]).await.unwrap();
    idle.send("GET /a HTTP/1.1\r\nHost: gone.test\r\n\r\n").await;
    idle.reply().await.assert_relayed(200);

    let narrower = policy(&["{host: allowed.test, paths: [/b, /still-here]}"]);
    assert_eq!(world.reload(&narrower).await.status, 200);

    kept.send("GET /a HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    kept.reply().await.assert_refused(403, "no_rule");
    kept.send("GET /b HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    kept.reply().await.assert_relayed(200);
    // What the policy no longer admits is closed without being asked.
    idle.assert_ends().await;
    let refused = world.sandbox.connect("gone.test:443").await.unwrap_err();
    refused.assert_refused(403, "no_rule");
    assert_eq!(world.upstream("gone.test").requests().len(), 1);
    let gone = world.upstream("gone.test").seen();
    until("its upstream connection to close", || gone[0].ended().then_some(())).await;
    world.end().await;
}

/// B14: a stream that began under the old policy does not outlive it.
#[tokio::test]
async fn a_reload_ends_what_is_under_way_and_no_longer_allowed() {
    let endless = Plan::scripted(|mut peer| async move {
        peer.request().await;
        peer.line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        while peer.line.try_send(b"4\r\ntick\r\n").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    let world = World::allowing(&["{host: allowed.test}", "{host: ticks.test}"])
        .upstream("ticks.test", endless)
        .start()
        .await;
    let mut line = world.sandbox.tls(Way::Proxy, "ticks.test", &["http/1.1"]).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: ticks.test\r\n\r\n").await;
    line.read_through(b"tick").await;

    assert_eq!(world.reload(&policy(&["{host: allowed.test}"])).await.status, 200);

    let rest = line.rest().await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "it did not look complete");
    let record = world.audit.refused("ticks.test", "no_rule").await;
    assert_eq!(record["http.response.status_code"], 200, "it had begun");
    world.assert_still_serves().await;
    world.end().await;
}

/// B15: a WebSocket can carry anything, so a rule for requests is no rule for it.
#[tokio::test]
async fn a_websocket_needs_a_rule_of_its_own() {
    let world = World::allowing(&["{host: allowed.test}", "{host: ws.test, websocket: true}"])
        .upstream("allowed.test", Plan::websocket_echo())
        .upstream("ws.test", Plan::websocket_echo())
        .start()
        .await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send(upgrade("allowed.test")).await;
    line.reply().await.assert_refused(403, "no_rule");
    world.upstream("allowed.test").assert_never_contacted();
    world.audit.refused("allowed.test", "no_rule").await;

    // And the other way round: its rule lets no plain request through.
    world.sandbox.get("https://ws.test/").await.assert_refused(403, "no_rule");
    world.upstream("ws.test").assert_never_contacted();
    world.audit.refused("ws.test", "no_rule").await;

    let mut line = world.sandbox.tls(Way::Proxy, "ws.test", &["http/1.1"]).await.unwrap();
    line.send(upgrade("ws.test")).await;
    assert_eq!(line.reply().await.status, 101);
    drop(line);
    world.end().await;
}

/// B15: and what it carries is counted and timed.
#[tokio::test]
async fn a_websocket_has_an_end() {
    let rules = policy(&["{host: allowed.test}", "{host: ws.test, websocket: true}"]);
    for (limits, reason) in [
        ("upload: 8KiB", "budget_spent"),
        ("download: 8KiB", "budget_spent"),
        ("total: 1s", "cap_reached"),
        ("idle: 1s", "idle"),
    ] {
        let world = World::new()
            .policy(&format!("{rules}  limits: {{{limits}}}\n"))
            .upstream("ws.test", Plan::websocket_echo())
            .start()
            .await;
        let mut line = world.sandbox.tls(Way::Proxy, "ws.test", &["http/1.1"]).await.unwrap();
        line.send(upgrade("ws.test")).await;
        assert_eq!(line.reply().await.status, 101);
        let mut echoed = 0;
        let frame = Frame::text(&"x".repeat(1000));
        // With an idle limit nothing is sent; else until nobody answers.
        while !limits.starts_with("idle") && echoed < 2000 {
            if line.try_send(&frame.bytes(true)).await.is_err() {
                break;
            }
            let some = line.some().await;
            if some.is_empty() {
                break;
            }
            echoed += 1;
            if limits.starts_with("total") {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
        line.rest().await;
        let record = world.audit.refused("ws.test", reason).await;
        assert_eq!(code(&record), reason);
        if limits.contains("load") {
            assert!(echoed < 10, "{limits}: {echoed} messages went through");
        }
        world.end().await;
    }
}

fn upgrade(host: &str) -> String {
    format!(
        "GET /chat HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}
