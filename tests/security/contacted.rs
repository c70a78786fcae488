//! B: who is really contacted.
//!
//! [`sealed`] is about names that cannot be read, [`inside`] about what could be
//! carried in something that is allowed, [`moment`] about the policy of the
//! moment.

mod inside;
mod moment;
mod sealed;

use http::Request;
use tests::sandbox::read_http2;
use tests::{Http2, Plan, Reply, SocksName, Way, World, answering_http2, within};

/// What every other test here relies on: were it allowed, the attacker would be
/// reached by every way, and the name server asked.
#[tokio::test]
async fn nothing_but_policy_stands_between_the_sandbox_and_the_attacker() {
    let world = World::allowing(&[
        "{host: evil.test}",
        "{host: evil.test, protocol: http}",
        "{host: leak.test}",
    ])
    .start()
    .await;
    for way in Way::ALL {
        for url in ["https://evil.test/", "http://evil.test/"] {
            world.sandbox.ask("GET", url).by(way).send().await.assert_relayed(200);
        }
    }
    assert!(world.upstream("evil.test").connections() >= 2);
    world.sandbox.get("https://leak.test/").await.assert_refused(502, "upstream_unresolved");
    assert_eq!(world.resolver.asked(), ["leak.test"]);
    world.end().await;
}

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

/// B3, the other way round: the handshake decides whom a captured connection is
/// for, and a Host header does not undo that.
#[tokio::test]
async fn an_allowed_host_header_does_not_whitewash_a_captured_connection() {
    let world = World::new().start().await;
    let mut line = world.sandbox.tls(Way::Captured, "evil.test", &["http/1.1"]).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    line.reply().await.assert_refused(403, "no_rule");
    drop(line);
    world.upstream("allowed.test").assert_never_contacted();
    world.assert_denied("evil.test", "no_rule").await;
    world.end().await;
}

/// Two names that lead to one address are still two: a connection that was made
/// for one is not used for the other.
#[tokio::test]
async fn a_kept_connection_is_not_shared_between_names() {
    let shared = Plan::echoing().start("shared", &tests::authority::Authority::new()).await;
    let world = World::allowing(&[
        "{host: allowed.test}",
        "{host: one.test, protocol: http}",
        "{host: two.test, protocol: http}",
    ])
    .pin("one.test", shared.at)
    .pin("two.test", shared.at)
    .start()
    .await;
    // An answer may be at home before its connection is, so the first to be kept
    // may be a later one.
    let kept = async {
        while shared.requests().len() <= shared.connections() {
            for host in ["one.test", "two.test"] {
                let reply = world.sandbox.get(&format!("http://{host}/")).await;
                assert_eq!(reply.text(), format!("GET / at {host}, 0 bytes"));
            }
        }
    };
    within("a connection to be kept", kept).await;
    for seen in shared.seen() {
        let hosts: Vec<_> =
            seen.requests().iter().map(|r| r.header("host").map(str::to_owned)).collect();
        assert!(hosts.windows(2).all(|pair| pair[0] == pair[1]), "{hosts:?}");
    }
    world.end().await;
}

/// The scheme is part of whom a request is for.
#[tokio::test]
async fn a_target_with_another_scheme_is_another_destination() {
    let world = World::allowing(&["{host: allowed.test}"]).start().await;
    let mut inside = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    inside.send("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    let reply = inside.reply().await;
    assert!([400, 421].contains(&reply.status), "{}", reply.text());
    for target in
        ["ftp://allowed.test/", "file:///etc/passwd", "gopher://allowed.test/", "allowed.test"]
    {
        let mut line = world.sandbox.proxy().await;
        line.send(format!("GET {target} HTTP/1.1\r\nHost: allowed.test\r\n\r\n")).await;
        let reply = line.reply().await;
        assert_eq!(reply.status, 400, "{target}: {}", reply.text());
    }
    // Plain http has no rule here.
    world.sandbox.get("http://allowed.test/").await.assert_refused(403, "no_rule");
    let line = world.sandbox.tunnel(Way::Proxy, "allowed.test", 443).await.unwrap();
    let mut plain = line;
    plain.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    plain.reply().await.assert_refused(403, "no_rule");
    drop((inside, plain));
    world.upstream("allowed.test").assert_never_contacted();
    world.assert_still_serves().await;
    world.end().await;
}
