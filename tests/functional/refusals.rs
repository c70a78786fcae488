//! A refusal is for reading.

use tests::{Plan, Reply, Way, World, answering_http2};

#[tokio::test]
async fn a_deny_names_its_rule_and_its_reason() {
    let text = "\
version: 1
net:
  enabled: true
  allow:
    - {name: all, host: allowed.test, methods: [GET, POST]}
  ask:
    - {name: careful, host: allowed.test, methods: [POST], paths: [/ask]}
  deny:
    - {name: no-admin, host: allowed.test, paths: [\"/admin/**\"], reason: admin is for people}
";
    let world = World::new().policy(text).start().await;
    let reply = world.sandbox.get("https://allowed.test/admin/users").await;
    reply.assert_refused(403, "denied");
    assert_eq!(reply.problem()["rule"], "no-admin");
    assert_eq!(reply.header("x-sluice-rule"), Some("no-admin"));
    assert!(reply.text().contains("admin is for people"), "{}", reply.text());
    let record = world.audit.refused("allowed.test", "denied").await;
    assert_eq!(record["sluice.rule"], "no-admin");

    // An ask without anybody to ask is a no.
    let reply = world.sandbox.ask("POST", "https://allowed.test/ask").body("x").send().await;
    reply.assert_refused(403, "not_approved");
    assert_eq!(reply.problem()["rule"], "careful");
    let record = world.audit.refused("allowed.test", "not_approved").await;
    assert_eq!(record["sluice.verdict"], "ask");

    let reply = world.sandbox.ask("PUT", "https://allowed.test/x").body("x").send().await;
    reply.assert_refused(403, "no_rule");
    let hint = reply.problem()["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains("PUT") && hint.contains("/x"), "what a person could add: {hint}");
    assert!(world.upstream("allowed.test").requests().is_empty());
    world.end().await;
}

/// What cannot be done yet is not done by half.
#[tokio::test]
async fn a_secret_that_is_not_at_hand_is_not_left_out() {
    let text = "\
version: 1
net:
  enabled: true
  allow:
    - {name: plain, host: allowed.test}
    - {name: with-key, host: key.test, secret: KEY}
secrets:
  KEY: {from: {env: SLUICE_TEST_NO_SUCH_KEY}, hosts: [key.test], header: authorization}
";
    let world = World::new().policy(text).upstream("key.test", Plan::echoing()).start().await;
    let reply = world.sandbox.get("https://key.test/").await;
    assert_eq!(reply.status, 403, "{}", reply.text());
    world.upstream("key.test").assert_never_contacted();
    world.assert_denied("key.test", &reply.code()).await;
    world.end().await;
}

/// A gRPC client offers nothing but HTTP/2, and still wants to know why.
#[tokio::test]
async fn a_client_that_speaks_only_http2_is_told_why_its_upstream_fails() {
    let untrusted = answering_http2(|_| Reply { status: 200, ..Reply::default() })
        .certificate(tests::Certificate::SelfSigned);
    let world = World::allowing(&[
        "{host: allowed.test}",
        "{host: untrusted.test}",
        "{host: inside.test}",
        "{host: nowhere.test}",
    ])
    .upstream("untrusted.test", untrusted)
    .start()
    .await;
    world.resolver.answer("inside.test", &["10.0.0.1"]);
    for (host, status, code) in [
        ("untrusted.test", 502, "upstream_untrusted"),
        ("inside.test", 403, "destination_forbidden"),
        ("nowhere.test", 502, "upstream_unresolved"),
    ] {
        let mut session = world.sandbox.http2(Way::Proxy, host).await;
        session.get(&format!("https://{host}/")).await.assert_refused(status, code);
        world.audit.refused(host, code).await;
    }
    world.end().await;
}

/// HEAD gets the same refusal without its body, and the connection goes on.
#[tokio::test]
async fn a_refused_head_has_no_body_and_the_connection_stays() {
    let world = World::allowing(&["{host: allowed.test, paths: [/ok, /still-here]}"]).start().await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send("HEAD /no HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    let reply = line.reply_to("HEAD").await;
    assert_eq!((reply.status, reply.header("x-sluice-code")), (403, Some("no_rule")));
    line.send("GET /ok HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    line.reply().await.assert_relayed(200);
    drop(line);
    world.assert_denied("allowed.test", "no_rule").await;
    world.end().await;
}

/// A refusal comes before the body, and a body that is sent anyway is not taken
/// for the next request.
#[tokio::test]
async fn a_refused_body_is_not_the_next_request() {
    let world =
        World::allowing(&["{host: allowed.test, methods: [GET, POST], paths: [/ok, /still-here]}"])
            .start()
            .await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    let hidden = "GET /ok HTTP/1.1\r\nHost: allowed.test\r\n\r\n";
    let length = hidden.len();
    line.send(format!(
        "POST /no HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: {length}\r\n\r\n{hidden}"
    ))
    .await;
    line.reply().await.assert_refused(403, "no_rule");
    line.assert_ends().await;
    world.upstream("allowed.test").assert_never_contacted();
    drop(line);
    world.assert_denied("allowed.test", "no_rule").await;
    world.end().await;
}
