//! Without a sandbox: only where the policy says so, and never in silence.

use crate::people;

const PERMITTED: &str = "version: 1\noverrides: {no_sandbox: true}\n";

#[test]
fn no_sandbox_needs_a_policy_that_permits_it_in_so_many_words() {
    let Some(person) = people().into_iter().next() else { return };
    let run = ["run", "--no-sandbox", "--", "echo", "ran"];
    let none = person.sluice(&run);
    assert_eq!((none.code, none.stdout.as_str()), (2, ""), "{}", none.stderr);
    assert!(none.stderr.contains("overrides: {no_sandbox: true}"), "{}", none.stderr);

    let policy = person.policy("version: 1\n");
    let silent = person.sluice(&[&["run", "--policy", &policy], &run[1..]].concat());
    assert_eq!((silent.code, silent.stdout.as_str()), (2, ""), "{}", silent.stderr);
}

#[test]
fn a_run_without_a_sandbox_is_loud_recorded_and_sealed() {
    let Some(person) = people().into_iter().next() else { return };
    let policy = person.policy(PERMITTED);
    let script = "echo out; echo err >&2; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 7";
    let run = ["run", "--policy", &policy, "--no-sandbox", "--", "sh", "-c", script];
    let ran = person.sluice(&run);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.outcome()), (7, "out\n", "exited"));
    assert!(ran.stderr.starts_with("NO SANDBOX: `sh -c"), "{}", ran.stderr);
    assert_eq!(ran.record["plan"]["backend"], "none");
    assert_eq!(ran.record["isolation"], serde_json::json!([]));
    assert!(ran.record["usage"]["cpu_nanoseconds"].as_u64().is_some());

    let transcript = person.evidence().unwrap().join("transcript.cast");
    assert!(std::fs::read_to_string(transcript).unwrap().contains("out"));
    let folder = person.evidence().unwrap();
    let log = std::fs::read_to_string(folder.join("audit.jsonl")).unwrap();
    assert!(log.contains(r#""sluice.action":"no_sandbox""#), "{log}");
    let verified = person.sluice(&["audit", "verify", folder.to_str().unwrap()]);
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);

    let slow = ["run", "--policy", &policy, "--no-sandbox", "--timeout", "1s", "--"];
    let ran = person.sluice(&[&slow[..], &["sh", "-c", "sleep 60 & sleep 60"]].concat());
    assert_eq!((ran.code, ran.outcome()), (124, "timeout"), "{}", ran.stderr);
}
