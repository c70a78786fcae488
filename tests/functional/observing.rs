//! Looking before leaping: what no rule names passes and is recorded.

use tests::{Plan, Way, World};

const OBSERVING: &str = "\
version: 1
net:
  enabled: true
  mode: observe
  allow:
    - {name: allowed, host: allowed.test}
  deny:
    - {name: never, host: denied.test}
";

#[tokio::test]
async fn what_no_rule_names_passes_and_is_recorded() {
    let world = World::new()
        .policy(OBSERVING)
        .upstream("new.test", Plan::echoing())
        .upstream("denied.test", Plan::echoing())
        .start()
        .await;
    for way in Way::ALL {
        let ask = world.sandbox.ask("POST", "https://new.test/x").by(way).body("hi");
        ask.send().await.assert_relayed(200);
    }
    let record = world
        .audit
        .find("the record", |event| {
            event["kind"] == "request" && event["server.address"] == "new.test"
        })
        .await;
    assert_eq!(record["sluice.verdict"], "would_deny");
    assert_eq!(record["sluice.reason"], "no_rule");
    assert_eq!(record["sluice.outcome"], "relayed");

    // A rule that is there is a rule.
    world.sandbox.get("https://denied.test/").await.assert_refused(403, "denied");
    let record = world.audit.refused("denied.test", "denied").await;
    assert_eq!(record["sluice.rule"], "never");
    world.upstream("denied.test").assert_never_contacted();
    world.end().await;
}

#[tokio::test]
async fn observing_reaches_no_further_than_the_internet() {
    let world = World::new().policy(OBSERVING).start().await;
    for (name, address) in
        [("inside.test", "10.0.0.1"), ("meta.test", "169.254.169.254"), ("self.test", "127.0.0.1")]
    {
        world.resolver.answer(name, &[address]);
        let reply = world.sandbox.get(&format!("https://{name}/")).await;
        reply.assert_refused(403, "destination_forbidden");
        world.audit.refused(name, "destination_forbidden").await;
    }
    for literal in ["169.254.169.254", "127.0.0.1", "10.0.0.1", "[::1]"] {
        let reply = world.sandbox.get(&format!("http://{literal}/")).await;
        assert_eq!(reply.status, 403, "{literal}: {}", reply.text());
        world.audit.refused(literal, &reply.code()).await;
    }
    world.assert_still_serves().await;
    world.end().await;
}
