//! What is done after a command has ended: bounded, and ended when somebody says so.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use tests::boxes::{Person, wait_for};

use crate::people;

fn json(person: &Person, name: &str) -> Value {
    let bytes = fs::read(person.evidence().unwrap().join(name)).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// What `changes.json` says of one file after the run.
fn after(person: &Person, path: &str) -> Value {
    let changes = json(person, "changes.json");
    let all = changes["changes"].as_array().unwrap();
    all.iter().find(|change| change["path"] == path).unwrap()["after"].clone()
}

#[test]
fn a_file_of_one_large_hole_is_listed_and_not_hashed() {
    for person in people() {
        person.own_project();
        let script = "truncate -s 8G hole; echo one >real";
        let ran = person.sluice(&["run", "--disk", "16GiB", "--", "sh", "-c", script]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let hole = after(&person, "hole");
        assert_eq!(hole["unhashed"], "too_large", "{hole}");
        assert_eq!(hole["sha256"], Value::Null, "{hole}");
        let real = after(&person, "real");
        assert_eq!(real["unhashed"], Value::Null, "{real}");
        assert!(real["sha256"].is_string(), "{real}");
        let diff = person.sluice(&["diff", "--stat", ran.run()]);
        assert!(diff.stdout.contains("not hashed: too large"), "{}", diff.stdout);
        let applied = person.sluice(&["apply", ran.run(), "real"]);
        assert_eq!(applied.code, 0, "{}", applied.stderr);
        let refused = person.sluice(&["apply", ran.run(), "hole"]);
        assert_eq!(refused.code, 1, "{}", refused.stderr);
        assert!(refused.stderr.contains("its content was not recorded"), "{}", refused.stderr);
    }
}

/// Hashing nearly 4 GiB of zeros takes seconds on any machine. It is stopped in
/// the midst of it; the outcome is the command's, and the evidence is sealed.
#[test]
fn a_signal_after_the_command_ends_the_work_at_once_and_the_evidence_is_sealed() {
    for person in people() {
        person.own_project();
        let script = "truncate -s 4000M a-hole; echo kept >b; exit 7";
        let mut running = person.start(&["run", "--disk", "16GiB", "--", "sh", "-c", script]);
        wait_for("the command's end", || {
            let transcript = person.evidence()?.join("transcript.cast");
            let text = fs::read_to_string(transcript).ok()?;
            text.lines().last()?.contains(r#""x""#).then_some(())
        });
        let code = wait_for("the end of the work after it", || {
            running.signal("TERM");
            std::thread::sleep(Duration::from_millis(20));
            running.child.try_wait().unwrap()
        });
        assert_eq!(code.code(), Some(7));
        let record = json(&person, "run.json");
        assert_eq!(record["outcome"]["kind"], "exited", "{record}");
        let not_done = record["not_done"].as_array().unwrap();
        let changes = not_done.iter().find(|part| part["part"] == "changes");
        assert_eq!(changes.map(|part| &part["reason"]), Some(&"stopped".into()), "{not_done:?}");
        let changes = json(&person, "changes.json");
        assert!(changes["incomplete"].to_string().contains("stopped by signal 15"), "{changes}");
        let folder = person.evidence().unwrap();
        let verified = person.sluice(&["audit", "verify", "--sealed", folder.to_str().unwrap()]);
        assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    }
}
