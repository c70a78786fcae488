//! C7, C8 and C17: paths and methods that two servers would read differently.

use tests::world::policy;
use tests::{Answer, Plan, Reply, Way, World, answering_http2};

/// C7.
#[tokio::test]
async fn a_path_that_servers_read_differently_is_refused() {
    let world = World::new()
        .policy(&policy(&["{host: allowed.test, paths: [\"/repos/ok/**\", /still-here]}"]))
        .upstream("allowed.test", Plan::answering(|_| Answer::new(200, "served")))
        .start()
        .await;
    for path in [
        "/repos/ok/../../gists",
        "/repos/ok/..%2f..%2fgists",
        "/repos/ok/%2e%2e/%2e%2e/gists",
        "/repos/ok/.%2e/gists",
        "/repos/ok/%252e%252e/gists",
        "/repos/ok/%252e%252e%252fgists",
        "/repos//ok/../gists",
        "//gists",
        "/repos/ok//x",
        "/repos/ok/;x/../../gists",
        "/repos/ok/..;/gists",
        "/repos/ok/\\..\\..\\gists",
        "/repos/ok/%5c..%5cgists",
        "/repos/ok/%00/x",
        "/repos/ok/x%00.txt",
        "/repos/ok/%c0%ae%c0%ae/gists",
        "/repos/ok/%e0%80%ae/gists",
        "/repos/ok/%ff",
        "/repos/ok/%zz",
        "/repos/ok/%",
        "/repos/ok/./x",
        "/repos/ok/x/.",
        "/repos/ok/..",
        "/repos/ok/%0d%0aX-Injected:%201",
        "/repos/ok/#/../../gists",
        "/repos/%6fk/../gists",
        "/gists",
        "/REPOS/ok/x",
        "/repos/ok",
    ] {
        let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
        line.send(format!("GET {path} HTTP/1.1\r\nHost: allowed.test\r\n\r\n")).await;
        let reply = line.reply().await;
        let refused = match reply.code().as_str() {
            "ambiguous" | "malformed" => reply.status == 400,
            "no_rule" => reply.status == 403,
            _ => false,
        };
        // The rule `/repos/ok/**` may or may not take in `/repos/ok` itself.
        assert!(refused || path == "/repos/ok", "{path}: {}", reply.text());
        if refused {
            world.audit.refused("allowed.test", &reply.code()).await;
        }
    }
    assert!(!world.upstream("allowed.test").received().contains("gists"));
    world.upstream("allowed.test").assert_never_contacted();
    world.end().await;
}

/// C17: what some server would make of a path is judged, too.
#[tokio::test]
async fn a_path_is_judged_as_whatever_a_server_takes_it_for() {
    let rules = "version: 1
net:
  enabled: true
  allow:
    - {host: allowed.test, paths: [/v1/*, '/wide/**', '/@acme%2Fui']}
  deny:
    - {host: allowed.test, paths: ['/wide/admin/**']}
";
    let world = World::new()
        .policy(rules)
        .upstream("allowed.test", Plan::answering(|_| Answer::new(200, "served")))
        .start()
        .await;
    for (path, code) in [
        ("/v1/a%2Fadmin", "no_rule"),
        ("/v1/a%EF%BC%8Fadmin", "no_rule"),
        ("/v1;x/a", "no_rule"),
        ("/@acme/ui", "no_rule"),
        ("/wide/admin%2Fusers", "denied"),
        ("/wide%2Fadmin/users", "denied"),
        ("/wide/admin;x/users", "denied"),
        ("/wide/%61dmin%3Bx/users", "denied"),
        ("/wide/%20admin/users", "denied"),
        ("/wide/admin%20/users", "denied"),
        ("/wide/%EF%BD%81dmin/users", "denied"),
        ("/wide/;x/admin/users", "ambiguous"),
        ("/v1/%EF%B8%B0/admin", "ambiguous"),
        ("/v1/%EF%B9%92%EF%B9%92/admin", "ambiguous"),
        ("/v1/a%EF%BC%BCadmin", "ambiguous"),
    ] {
        let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
        line.send(format!("GET {path} HTTP/1.1\r\nHost: allowed.test\r\n\r\n")).await;
        let reply = line.reply().await;
        assert_eq!(reply.code(), code, "{path}: {}", reply.text());
        world.audit.refused("allowed.test", code).await;
    }
    world.upstream("allowed.test").assert_never_contacted();
    for path in ["/@acme%2Fui", "/v1/a;b", "/wide/a%2Fb", "/wide/administer%20x"] {
        world.sandbox.get(&format!("https://allowed.test{path}")).await.assert_relayed(200);
        let received = world.upstream("allowed.test").requests().pop().unwrap();
        assert_eq!(received.target, path, "sent as it was judged");
    }
    world.end().await;
}

/// C7: the bytes that were judged are the bytes that leave.
#[tokio::test]
async fn a_path_leaves_as_it_was_judged() {
    let world = World::new()
        .policy(&policy(&["{host: allowed.test, paths: [\"/@acme%2Fui\", \"/repos/ok/**\"]}"]))
        .start()
        .await;
    for (asked, left) in [
        ("/@acme%2fui", "/@acme%2fui"),
        ("/repos/ok/a%20b", "/repos/ok/a%20b"),
        ("/repos/ok/x?q=../../gists&r=%2e%2e", "/repos/ok/x?q=../../gists&r=%2e%2e"),
        ("/repos/ok/x;v=1", "/repos/ok/x;v=1"),
        ("/repos/ok/trailing/", "/repos/ok/trailing/"),
    ] {
        world.sandbox.get(&format!("https://allowed.test{asked}")).await.assert_relayed(200);
        let received = world.upstream("allowed.test").requests().pop().unwrap();
        assert_eq!(received.target.to_ascii_lowercase(), left, "{asked}");
    }
    // Needless escapes are gone before the judge sees the path, and so is what
    // an upstream could decode differently.
    world.sandbox.get("https://allowed.test/repos/%6fk/%78").await.assert_relayed(200);
    let received = world.upstream("allowed.test").requests().pop().unwrap();
    assert_eq!(received.target, "/repos/ok/x");
    world.end().await;
}

/// C8.
#[tokio::test]
async fn a_method_is_judged_as_what_the_server_takes_it_for() {
    let world = World::allowing(&[
        "{host: allowed.test, methods: [GET, POST]}",
        "{host: allowed.test, protocol: http, methods: [GET, POST]}",
    ])
    .start()
    .await;
    for method in
        ["get", "Get", "DELETE", "TRACE", "FROBNICATE", "G\u{0}T", "CONNECT", "GET\u{b}", "PRI"]
    {
        let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
        line.send(format!("{method} / HTTP/1.1\r\nHost: allowed.test\r\n\r\n")).await;
        let reply = line.reply().await;
        assert!([400, 403].contains(&reply.status), "{method:?}: {}", reply.text());
        world.audit.refused("allowed.test", &reply.code()).await;
    }
    for (name, value) in [
        ("X-HTTP-Method-Override", "DELETE"),
        ("X-HTTP-Method-Override", "delete"),
        ("X-HTTP-Method", "PUT"),
        ("X-Method-Override", " PATCH"),
        ("x-http-method-override", "TRACE"),
        ("X-HTTP-Method-Override", "FROBNICATE"),
    ] {
        let ask = world.sandbox.ask("POST", "https://allowed.test/").header(name, value);
        let reply = ask.body("x").send().await;
        assert_eq!(reply.status, 403, "{name}: {value}: {}", reply.text());
        if value == "DELETE" {
            // POST alone is allowed, and a reader has to see what was not.
            let told = reply.text();
            assert!(
                told.contains("which a header or a parameter turns into DELETE, is not allowed"),
                "{told}"
            );
            assert!(told.contains("methods: [POST, DELETE]"), "{told}");
        }
        world.audit.refused("allowed.test", &reply.code()).await;
    }
    let two = world
        .sandbox
        .ask("POST", "https://allowed.test/")
        .header("X-HTTP-Method-Override", "GET")
        .header("X-Method-Override", "DELETE")
        .send()
        .await;
    two.assert_refused(400, "ambiguous");
    world.upstream("allowed.test").assert_never_contacted();

    let allowed = world
        .sandbox
        .ask("POST", "https://allowed.test/")
        .header("X-HTTP-Method-Override", "GET")
        .send()
        .await;
    allowed.assert_relayed(200);
    world.end().await;
}

/// C7, in HTTP/2 and in absolute form: the same reading.
#[tokio::test]
async fn a_path_is_read_alike_however_it_is_sent() {
    let two = answering_http2(|asked| Reply {
        status: 200,
        body: asked.target.clone().into(),
        ..Reply::default()
    });
    let world = World::allowing(&[
        "{host: allowed.test}",
        "{host: two.test, paths: [\"/repos/ok/**\"]}",
        "{host: one.test, protocol: http, paths: [\"/repos/ok/**\"]}",
    ])
    .upstream("two.test", two)
    .upstream("one.test", Plan::echoing())
    .start()
    .await;
    let mut session = world.sandbox.http2(Way::Proxy, "two.test").await;
    for path in [
        "/repos/ok/../../gists",
        "/repos/ok/..%2f..%2fgists",
        "/repos/ok/%2e%2e/gists",
        "/repos/ok/%252e%252e/gists",
        "//gists",
        "/repos/ok/%5c..%5cgists",
        "/repos/ok/%00",
        "/gists",
    ] {
        let reply = session.get(&format!("https://two.test{path}")).await;
        assert!([400, 403].contains(&reply.status), "{path}: {}", reply.text());
        world.audit.refused("two.test", &reply.code()).await;
        let reply = world.sandbox.get(&format!("http://one.test{path}")).await;
        assert!([400, 403].contains(&reply.status), "{path}: {}", reply.text());
        // A target that cannot be read names nobody.
        let host = if reply.status == 403 { "one.test" } else { "" };
        world.audit.refused(host, &reply.code()).await;
    }
    session.get("https://two.test/repos/ok/a%2Fb?c=d").await.assert_relayed(200);
    let received = world.upstream("two.test").requests();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].target, "https://two.test/repos/ok/a%2Fb?c=d");
    world.upstream("one.test").assert_never_contacted();
    drop(session);
    world.end().await;
}

/// C8, in HTTP/2.
#[tokio::test]
async fn a_method_is_judged_alike_in_http2() {
    let plan = answering_http2(|_| Reply { status: 200, ..Reply::default() });
    let world = World::allowing(&["{host: allowed.test, methods: [GET, POST]}"])
        .upstream("allowed.test", plan)
        .start()
        .await;
    let mut session = world.sandbox.http2(Way::Proxy, "allowed.test").await;
    for method in ["get", "DELETE", "TRACE", "FROBNICATE"] {
        let reply = session.ask(method, "https://allowed.test/", &[], Vec::new()).await;
        assert_eq!(reply.status, 403, "{method}: {}", reply.text());
        world.audit.refused("allowed.test", &reply.code()).await;
    }
    let override_header = [("x-http-method-override".to_owned(), "DELETE".to_owned())];
    let reply = session.ask("POST", "https://allowed.test/", &override_header, Vec::new()).await;
    assert_eq!(reply.status, 403, "{}", reply.text());
    world.audit.refused("allowed.test", &reply.code()).await;
    assert!(world.upstream("allowed.test").requests().is_empty());
    drop(session);
    world.end().await;
}
