//! G: the operator's side, other sandboxes, and (in [`floods`]) floods.

mod floods;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use tests::world::policy;
use tests::{Certificate, Plan, Sandbox, SocksName, Way, World};

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
