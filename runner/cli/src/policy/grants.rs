//! What a policy grants, in a few lines, for a person who is asked to approve it.
//!
//! The text of a policy says everything, and is long; what matters most stands
//! here, last, where nothing can push it off the screen.

use policies::{Mode, MountMode, Policy, ProcLimits, Rule, Verdict, Workspace, presets};

/// One line for each thing that is more than nothing.
pub(super) fn grants(policy: &Policy) -> Vec<String> {
    let mut lines = network(policy);
    lines.push(match policy.fs.workspace {
        Workspace::Direct => "files: it changes the project itself, at once".to_owned(),
        Workspace::None => "files: it does not see the project".to_owned(),
        Workspace::Overlay => "files: it sees the project; changes are kept apart".to_owned(),
        Workspace::Readonly => "files: it sees the project and cannot change it".to_owned(),
    });
    for mount in &policy.fs.mounts {
        let how = if mount.mode == MountMode::Rw { "reads and WRITES" } else { "reads" };
        lines.push(format!("files: it {how} {} at {}", mount.source, mount.target.as_str()));
    }
    for shown in &policy.fs.show {
        let shown = shown.as_str();
        lines.push(format!("files: it sees {shown}, though such files hold credentials"));
    }
    for (name, secret) in &policy.secrets {
        let hosts: Vec<String> = secret.hosts.iter().map(ToString::to_string).collect();
        lines.push(format!("secrets: {name} may go to {}", hosts.join(", ")));
    }
    lines.extend(beyond(policy));
    let own = |finding: &policies::LintFinding| presets::find(&finding.source).is_none();
    for finding in policy.lint().into_iter().filter(own) {
        lines.push(format!("look at: {}", finding.message));
    }
    lines
}

fn network(policy: &Policy) -> Vec<String> {
    if !policy.net.enabled {
        return vec!["network: none".to_owned()];
    }
    let mut lines = Vec::new();
    if policy.net.mode == Mode::Observe {
        lines.push("network: EVERYTHING that no rule names, recorded".to_owned());
    }
    let lets_pass = |rule: &&Rule| rule.verdict() != Verdict::Deny;
    for rule in policy.rules().filter(lets_pass) {
        let source = &rule.location().source;
        let preset = presets::find(source).map(|_| format!(" (preset {source})"));
        let asks = if rule.verdict() == Verdict::Ask { ", if a person agrees" } else { "" };
        let ranges: Vec<String> = rule.reach().ranges().iter().map(ToString::to_string).collect();
        let reach = match ranges.is_empty() {
            true => String::new(),
            false => format!(", also at {}", ranges.join(", ")),
        };
        let preset = preset.unwrap_or_default();
        lines.push(format!("network: {}{reach}{asks}{preset}", rule.summary()));
    }
    if lines.is_empty() {
        lines.push("network: on, and nothing is allowed".to_owned());
    }
    lines
}

/// What a person may add to a run under it.
fn beyond(policy: &Policy) -> Vec<String> {
    let overrides = &policy.overrides;
    let mut lines = Vec::new();
    if overrides.no_sandbox {
        lines.push("a run may go without a SANDBOX (--no-sandbox)".to_owned());
    }
    if overrides.observe {
        lines.push("a run may let everything pass (--observe)".to_owned());
    }
    if !overrides.allow.is_empty() {
        let hosts: Vec<String> = overrides.allow.iter().map(ToString::to_string).collect();
        lines.push(format!("a run may add hosts: {}", hosts.join(", ")));
    }
    if overrides.max != ProcLimits::default() {
        lines.push("a run may ask for more memory, time or processes".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use policies::{NoFiles, Source};

    use super::*;

    fn told(text: &str) -> Vec<String> {
        grants(&policies::read(&Source::new("p.yaml", text), &NoFiles).unwrap())
    }

    #[test]
    fn what_is_more_than_nothing_is_said() {
        let text = "version: 1
extends: [github-read]
net:
  enabled: true
  mode: observe
  allow: [docs.example.com, {host: db.example, port: 5432, protocol: tcp, addresses: [10.0.0.0/8]}]
  ask: [{host: ask.example, methods: [POST]}]
  passthrough: [pinned.example]
fs: {workspace: direct, mounts: [{source: ./deps, target: /deps, mode: rw}], show: [.env.test]}
secrets: {KEY: {hosts: [a.example], header: x}}
overrides: {no_sandbox: true, allow: [more.example], max: {memory: 1GiB}}
";
        let told = told(text).join("\n");
        for line in [
            "network: EVERYTHING that no rule names, recorded",
            "network: docs.example.com",
            "network: tcp://db.example:5432, also at 10.0.0.0/8",
            "network: POST ask.example, if a person agrees",
            "(preset github-read)",
            "files: it changes the project itself, at once",
            "files: it reads and WRITES ./deps at /deps",
            "files: it sees .env.test",
            "secrets: KEY may go to a.example",
            "a run may go without a SANDBOX",
            "a run may add hosts: more.example",
            "look at: TLS is not opened",
        ] {
            assert!(told.contains(line), "{line}:\n{told}");
        }
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        assert_eq!(
            told("version: 1\n"),
            ["network: none", "files: it sees the project; changes are kept apart"]
        );
    }
}
