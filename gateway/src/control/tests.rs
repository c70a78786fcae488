//! The control socket from a caller's side.

use std::path::PathBuf;
use std::sync::Arc;

use policies::Destination;
use protocol::control::{RefusedAction, Reloaded, Status};

use super::*;
use crate::phase::{DrainPhase, reached};
use crate::policy_file::PolicyFile;
use crate::testing::{ALLOWED_TEST, Stage};

/// A gateway with its control socket, and a caller.
struct ControlScene {
    stage: Stage,
    controller: Arc<Controller>,
    socket: PathBuf,
    policy: PathBuf,
}

impl ControlScene {
    fn new() -> Self {
        let stage = Stage::new(ALLOWED_TEST);
        let policy = stage.directory.path().join("p.yaml");
        std::fs::write(&policy, ALLOWED_TEST).expect("a file can be written");
        let file = PolicyFile::at(policy.clone());
        let controller = Arc::new(Controller::new(Arc::clone(&stage.gateway), file, Vec::new()));
        let path = stage.directory.path().join("run/control.sock");
        let socket = ControlSocket::bind(&path).expect("it can be made");
        tokio::spawn(serve(socket, Arc::clone(&controller)));
        Self { stage, controller, socket: path, policy }
    }

    async fn get(&self, path: &str) -> String {
        let (code, body) = ask(&self.socket, "GET", path, "").await.expect("it answers");
        assert_eq!(code, 200, "{body}");
        body
    }

    async fn status(&self) -> Status {
        status(&self.socket).await.expect("it answers")
    }

    async fn drain(&self) {
        let (code, body) = ask(&self.socket, "POST", "/drain", "").await.expect("it answers");
        assert_eq!(code, 202, "{body}");
    }

    /// What came of it, or with which code and why it was refused.
    async fn reload(&self, text: &str) -> Result<Reloaded, (u16, RefusedAction)> {
        let (code, body) = ask(&self.socket, "POST", "/reload", text).await.expect("it answers");
        match code {
            200 => Ok(serde_json::from_str(&body).expect("it is JSON")),
            _ => Err((code, serde_json::from_str(&body).expect("it is JSON"))),
        }
    }

    fn admits(&self, host: &str) -> bool {
        let to = Destination::parse(&format!("{host}:443")).expect("it is a destination");
        let loaded = self.stage.gateway.policy.load();
        !matches!(loaded.policy.admit(&to), policies::Admission::Deny(_))
    }

    /// The kinds of the log's lines, without its own.
    async fn kinds(&self) -> Vec<String> {
        let events = self.stage.events().await;
        let kinds = events.iter().filter_map(|event| event["kind"].as_str());
        kinds.filter(|kind| !kind.starts_with("log_")).map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn the_status_says_which_policy_is_in_force_and_whether_it_can_be_recorded() {
    let scene = ControlScene::new();
    let status = scene.status().await;
    assert_eq!((status.run.as_str(), status.ready, status.draining), ("test", true, false));
    assert_eq!((status.policy.name.as_str(), status.policy.generation), ("stage", 1));
    assert_eq!((status.policy.rules, status.policy.observing), (1, false));
    assert!(status.audit.available);

    scene.stage.gateway.log.close().await.expect("the log can be ended");
    let status = scene.status().await;
    assert_eq!((status.ready, status.audit.available), (false, false));
    assert_eq!(status.audit.why_not.as_deref(), Some("the audit log is closed"));
}

#[tokio::test]
async fn a_reload_takes_the_file_as_it_is_now() {
    let scene = ControlScene::new();
    assert!(scene.admits("allowed.test") && !scene.admits("other.test"));
    std::fs::write(&scene.policy, ALLOWED_TEST.replace("allowed.test", "other.test"))
        .expect("the file can be written");
    let reloaded = scene.reload("").await.expect("the policy is good");
    assert_eq!((reloaded.name.as_str(), reloaded.generation), ("stage", 2));
    assert!(scene.admits("other.test") && !scene.admits("allowed.test"));
    assert_eq!(scene.kinds().await, ["operator", "policy_loaded"]);
}

// ATTACKS G5.
#[tokio::test]
async fn a_policy_with_any_problem_is_refused_whole_and_the_old_one_stays() {
    let scene = ControlScene::new();
    for (text, problems) in [
        ("version: 1\nnet: {enabled: true, allow: [a.test], dney: []}\nfoo: 1\n", 2),
        ("version: 9\n", 1),
        ("[]", 1),
        ("version: 1\nnet: {allow: ['*']}\n", 1),
    ] {
        let refused = scene.reload(text).await.expect_err("it is broken");
        let (422, RefusedAction { code, problems: said, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((code.as_str(), said.len()), ("policy_refused", problems), "{text}: {said:?}");
        assert!(scene.admits("allowed.test") && !scene.admits("a.test"));
    }
    std::fs::remove_file(&scene.policy).expect("it is there");
    let refused = scene.reload("").await.expect_err("the file is gone");
    let (422, RefusedAction { detail, problems, .. }) = refused else { panic!("{refused:?}") };
    assert!(detail.contains("and the one before it stays: cannot read the policy"), "{detail}");
    assert_eq!(problems.len(), 1);
    assert!(scene.admits("allowed.test"));
    assert_eq!(scene.stage.gateway.policy.load().generation, 1);

    let kinds = scene.kinds().await;
    assert_eq!(kinds.len(), 10);
    assert!(kinds.chunks(2).all(|pair| pair == ["policy_refused", "operator"]), "{kinds:?}");
}

#[tokio::test]
async fn an_empty_allow_list_is_a_policy_and_denies_everything() {
    let scene = ControlScene::new();
    let text = "version: 1\nnet: {enabled: true, allow: []}\n";
    scene.reload(text).await.expect("it is a policy");
    assert!(!scene.admits("allowed.test"));
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_done() {
    let scene = ControlScene::new();
    scene.stage.gateway.log.close().await.expect("the log can be ended");
    let (code, _) = scene.reload("").await.expect_err("it cannot be recorded");
    assert_eq!(code, 503);
    assert_eq!(scene.stage.gateway.policy.load().generation, 1);
}

#[tokio::test]
async fn a_drain_is_recorded_with_who_asked_and_takes_no_policy_any_more() {
    let scene = ControlScene::new();
    let mut phases = scene.controller.phases();
    scene.drain().await;
    scene.drain().await;
    reached(&mut phases, DrainPhase::Draining).await;
    assert!(scene.status().await.draining);
    let (code, _) = scene.reload("").await.expect_err("it is stopping");
    assert_eq!(code, 409);

    let events = scene.stage.events_of("operator").await;
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(
        (&event["sluice.action"], &event["sluice.accepted"]),
        (&"drain".into(), &true.into())
    );
    assert!(event["user.name"].as_str().is_some_and(|user| user.starts_with("uid:")));
}

#[tokio::test]
async fn the_certificate_is_handed_out_and_the_key_is_not() {
    let scene = ControlScene::new();
    let pem = scene.get("/ca.pem").await;
    assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"), "{pem}");
    assert!(!pem.contains("PRIVATE"));
    assert!(scene.get("/holds").await.contains(r#""holds": []"#));
    let metrics = scene.get("/metrics").await;
    assert!(metrics.contains("sluice_policy_generation 1\n"), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"));
}

#[tokio::test]
async fn somebody_else_is_turned_away_and_recorded() {
    let scene = ControlScene::new();
    scene.controller.record_rejected_caller(4711);
    let events = scene.stage.events_of("operator").await;
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(event["user.name"], "uid:4711");
    assert_eq!(event["sluice.accepted"], false);
}
