//! Merging adds rules and loosens nothing.

use proptest::prelude::*;

use crate::read::tests::Files;
use crate::{Mode, Policy, SampleRequest, ScanAction, Size, Source, Verdict, Workspace, read};

#[test]
fn the_strictest_limit_of_all_layers_counts() {
    let policy = extended(
        "proc: {memory: 2GiB, pids: 100}\nscan: {patterns: off}\nfs: {workspace: direct, protect: [tools]}\nnet: {enabled: true, mode: observe, limits: {upload: 5MiB}}",
        "proc: {memory: 1GiB, timeout: 5m}\nscan: {patterns: deny}\nfs: {workspace: readonly, deny: ['**/.env']}\nnet: {mode: enforce, limits: {upload: 9MiB, connections: 3}}",
    );
    assert_eq!(policy.proc.memory, Size::parse("1GiB").ok());
    assert_eq!(policy.proc.pids, Some(100));
    assert!(policy.proc.timeout.is_some() && policy.proc.cpus.is_none());
    assert_eq!((policy.scan.secrets, policy.scan.patterns), (ScanAction::Deny, ScanAction::Deny));
    assert_eq!(policy.fs.workspace, Workspace::Readonly);
    let protected: Vec<&str> = policy.fs.protect.iter().map(|path| path.as_str()).collect();
    assert_eq!(protected, [".git", "scripts", "tools"]);
    assert_eq!(policy.fs.deny.len(), 1);
    assert_eq!(policy.net.mode, Mode::Enforce);
    assert_eq!(policy.net.limits.upload, Size::parse("5MiB").ok());
    assert_eq!(policy.net.limits.connections, Some(3));
}

#[test]
fn history_and_scripts_are_protected_whatever_is_written() {
    let policy = extended("fs: {workspace: direct, protect: []}", "net: {}");
    assert!(policy.fs.protect.iter().any(|path| path.as_str() == ".git"));
    assert!(policy.fs.protect.iter().any(|path| path.as_str() == "scripts"));
}

#[test]
fn a_switch_that_anybody_turned_off_stays_off() {
    for (own, base, on) in [
        ("enabled: true", "", true),
        ("", "enabled: true", true),
        ("enabled: true", "enabled: false", false),
        ("enabled: false", "enabled: true", false),
        ("", "", false),
    ] {
        let policy = extended(&format!("net: {{{own}}}"), &format!("net: {{{base}}}"));
        assert_eq!(policy.net.enabled, on, "{own:?} over {base:?}");
    }
}

#[test]
fn rights_to_override_narrow_each_other() {
    let policy = extended(
        "overrides: {allow: ['*.example.com', other.example], max: {memory: 8GiB}, no_sandbox: true, observe: true}",
        "overrides: {allow: [a.example.com], max: {memory: 4GiB}, no_sandbox: false}",
    );
    let allow: Vec<String> = policy.overrides.allow.iter().map(ToString::to_string).collect();
    assert_eq!(allow, ["a.example.com"]);
    assert_eq!(policy.overrides.max.memory, Size::parse("4GiB").ok());
    assert!(!policy.overrides.no_sandbox && policy.overrides.observe);
}

proptest! {
    /// What the merged policy allows, one of its parts allows and none denies;
    /// what it asks, none denies.
    #[test]
    fn merging_never_widens(own in net(), base in net()) {
        let merged = extended(&own, &base);
        let (own, base) = (alone(&own), alone(&base));
        for host in HOSTS {
            let asked = SampleRequest::new("GET", &format!("https://{host}/")).unwrap();
            let verdict = |policy: &Policy| {
                let decision = policy.decide(&asked.question());
                (decision.verdict, decision.rule.is_some())
            };
            let (mine, theirs) = (verdict(&own), verdict(&base));
            let denied = mine == (Verdict::Deny, true) || theirs == (Verdict::Deny, true);
            match verdict(&merged).0 {
                Verdict::Allow => {
                    prop_assert!(!denied);
                    prop_assert!(mine.0 == Verdict::Allow || theirs.0 == Verdict::Allow);
                    prop_assert!(mine.0 != Verdict::Ask && theirs.0 != Verdict::Ask);
                }
                Verdict::Ask => prop_assert!(!denied),
                Verdict::Deny => {}
            }
        }
    }
}

const HOSTS: [&str; 4] = ["a.example.com", "b.example.com", "example.org", "x.example.org"];

fn net() -> impl Strategy<Value = String> {
    let host = proptest::sample::select(vec![
        "a.example.com",
        "'*.example.com'",
        "example.org",
        "'*.example.org'",
    ]);
    let list = proptest::collection::vec(host, 0..3);
    (list.clone(), list.clone(), list).prop_map(|(allow, ask, deny)| {
        format!(
            "net: {{enabled: true, allow: [{}], ask: [{}], deny: [{}]}}",
            allow.join(", "),
            ask.join(", "),
            deny.join(", ")
        )
    })
}

fn alone(body: &str) -> Policy {
    extended(body, "net: {}")
}

/// A policy that extends one other.
fn extended(own: &str, base: &str) -> Policy {
    let files = Files(vec![("./base.yaml", format!("version: 1\n{base}\n"))]);
    let text = format!("version: 1\nextends: [./base.yaml]\n{own}\n");
    read(&Source::new("p", text), &files).unwrap_or_else(|err| panic!("{err}"))
}

#[test]
fn a_policy_without_a_name_is_called_as_its_file() {
    for (file, name) in [
        ("team.policy.yaml", "team"),
        ("a/b/team.yaml", "team"),
        (".hidden", ".hidden"),
        ("a/.yaml", ".yaml"),
    ] {
        let policy = read(&Source::new(file, "version: 1\n"), &Files(Vec::new())).unwrap();
        assert_eq!(&*policy.name, name);
    }
    let named =
        read(&Source::new("x.yaml", "version: 1\nname: own\n"), &Files(Vec::new())).unwrap();
    assert_eq!(&*named.name, "own");
}
