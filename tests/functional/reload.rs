//! A new policy while things run.

use tests::world::{ONE_HOST, policy};
use tests::{Plan, Way, World};

#[tokio::test]
async fn a_reload_takes_effect_at_once_and_is_recorded() {
    let world = World::new().upstream("new.test", Plan::echoing()).start().await;
    world.sandbox.get("https://new.test/").await.assert_refused(403, "no_rule");
    let wider = policy(&["{host: allowed.test}", "{name: new, host: new.test}"]);
    let reloaded = world.reload(&wider).await;
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    let reloaded: serde_json::Value = serde_json::from_slice(&reloaded.body).unwrap();
    assert_eq!(reloaded["generation"], 2);

    world.sandbox.get("https://new.test/").await.assert_relayed(200);
    let loaded = world.audit.of_kind("policy_loaded");
    assert_eq!(loaded.len(), 2);
    let record = world
        .audit
        .find("the record", |event| event["kind"] == "request" && event["sluice.rule"] == "new")
        .await;
    assert_eq!(record["sluice.policy.hash"], reloaded["hash"]);
    let operator = world.audit.of_kind("operator").pop().unwrap();
    assert!(operator.to_string().contains("reload"), "{operator}");
    world.end().await;
}

/// The policy may come with the order instead of from the file.
#[tokio::test]
async fn a_policy_can_be_sent_with_the_order() {
    let world = World::new().upstream("new.test", Plan::echoing()).start().await;
    let wider = policy(&["{host: allowed.test}", "{host: new.test}"]);
    let reloaded = world.control.post("/reload", &wider).await;
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    world.sandbox.get("https://new.test/").await.assert_relayed(200);
    world.end().await;
}

/// Who is allowed before and after does not notice.
#[tokio::test]
async fn a_reload_disturbs_nobody_who_is_still_allowed() {
    let world = World::new().start().await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    for _ in 0..5 {
        line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
        line.reply().await.assert_relayed(200);
        assert_eq!(world.reload(ONE_HOST).await.status, 200);
    }
    world.upstream("allowed.test").assert_not_contacted_beyond(1);
    drop(line);
    world.end().await;
}
