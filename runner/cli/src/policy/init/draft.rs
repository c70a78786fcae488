//! The policy's text.
//!
//! A policy is read by people, so it is written as one would write it: every
//! section says why it is there and what to change.

use std::collections::BTreeSet;

use policies::{GitRepository, Source, presets};
use serde_json::Value;

use super::project_scan::{Packages, Sight};

/// A policy for what was seen.
pub(super) fn write(sight: &Sight) -> String {
    let mut text = String::from(HEAD);
    if let Some(name) = &sight.name {
        text.push_str(&format!("name: {}\n", quoted(name.as_str())));
    }
    text.push_str(&extends(sight));
    text.push_str(FILES_AND_LIMITS);
    text.push_str(&net(sight));
    text.push_str(&tests(sight));
    text
}

const HEAD: &str = "\
# yaml-language-server: $schema=./sandbox.policy.schema.json
# $schema: ./sandbox.policy.schema.json
#
# What an agent may do in this project. What no rule allows is denied.
#   sluice policy check     is it valid?
#   sluice policy test      does it keep the promises below?
#   sluice policy explain sandbox.policy.yaml GET https://example.com/
#   sluice policy schema > sandbox.policy.schema.json     help in editors
version: 1
";

const FILES_AND_LIMITS: &str = r#"
fs:
  workspace: overlay            # changes are kept apart until you apply them
  deny: ["**/.env*", "**/*.pem", "**/*.key"]   # not even readable

proc:
  pids: 1024
  timeout: 1h
  # memory: 4GiB                # demanded once it stands here: where it cannot be kept, nothing starts
"#;

fn extends(sight: &Sight) -> String {
    let mut text = String::from(
        "\n# Presets add their rules to those below; `sluice policy presets` lists them.\nextends:\n",
    );
    let mut add = |name: &str, why: &str| text.push_str(&format!("  - {name:<17} # {why}\n"));
    add("no-exfiltration", "paste sites, request bins, tunnels: denied whatever else is allowed");
    if sight.remote.as_ref().is_some_and(is_on_github) {
        add("github-read", "the remote is on GitHub: pages, files and the API, read only");
    }
    if let Some(Packages { told_by, .. }) = &sight.python {
        add("python-dev", &format!("{told_by}: documentation and the usual tools"));
    }
    if let Some(Packages { told_by, .. }) = &sight.node {
        add("node-dev", &format!("{told_by}: documentation and the usual tools"));
    }
    text.push_str(
        "  # - llm-anthropic   # the Messages API, with a key that only the gateway knows\n",
    );
    text
}

fn net(sight: &Sight) -> String {
    let mut rules = String::new();
    if let Some(remote) = &sight.remote {
        rules.push_str(&format!(
            "    # The repository this comes from, to fetch. To let an agent push its own branches, add\n\
             \x20   # `access: push, refs: [\"refs/heads/agent/*\"]`.\n\
             \x20   - {{name: origin, git: {}}}\n",
            quoted(&remote.to_string())
        ));
    }
    if let Some(packages) = &sight.python {
        rules.push_str(&package_rule("pip", "python-packages", "python-dev", packages));
    }
    if let Some(packages) = &sight.node {
        rules.push_str(&package_rule("npm", "node-packages", "node-dev", packages));
    }
    if sight.rust {
        rules.push_str(
            "    # Rust's documentation. Crates come from the registry that cargo is set up to use: add its\n\
             \x20   # hosts here, or vendor the crates.\n\
             \x20   - doc.rust-lang.org\n\
             \x20   - docs.rs\n",
        );
    }
    let allow = match rules.is_empty() {
        true => {
            "  allow: []                           # write entries below instead of []\n".to_owned()
        }
        false => format!("  allow:\n{rules}"),
    };
    format!(
        "\nnet:\n  enabled: true\n{allow}\
         \x20   # - docs.example.com                # one host: https, and only reading\n\
         \x20   # - {{host: api.example.com, methods: [GET, POST], paths: [\"/v1/**\"]}}\n\
         \x20 limits: {{upload: 50MiB}}            # what a run may send in all\n"
    )
}

/// Columns that a list of names takes before it goes on in the next line.
const WIDEST_LIST: usize = 96;

/// A rule for the packages that the preset does not name already.
fn package_rule(manager: &str, name: &str, preset: &str, packages: &Packages) -> String {
    let known = named_in(preset, manager);
    let names: Vec<String> = packages
        .names
        .iter()
        .filter(|name| !known.contains(*name))
        .map(|name| quoted(name))
        .collect();
    if names.is_empty() {
        return String::new();
    }
    let mut rule = format!(
        "    # Packages that {} names; what they need in turn must be named too.\n\
         \x20   - name: {name}\n\
         \x20     {manager}: [",
        packages.told_by
    );
    let mut width = 0;
    for (number, name) in names.iter().enumerate() {
        width += name.len() + 2;
        if width > WIDEST_LIST {
            rule.push_str("\n            ");
            width = name.len() + 2;
        }
        let after = if number + 1 == names.len() { "]\n" } else { ", " };
        rule.push_str(&format!("{name}{after}"));
    }
    let mut rule = rule.replace(", \n", ",\n");
    if packages.left_out > 0 {
        rule.push_str(&format!("      # {} more were left out\n", packages.left_out));
    }
    rule
}

/// The packages that a preset's own rules name.
fn named_in(preset: &str, manager: &str) -> BTreeSet<String> {
    let read = |source: Source| policies::yaml::read::<Value>(&source).ok();
    let Some(document) = presets::find(preset).and_then(read) else { return BTreeSet::new() };
    let rules = document.pointer("/net/allow").and_then(Value::as_array).into_iter().flatten();
    rules
        .filter_map(|rule| rule.get(manager)?.as_array())
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}

fn tests(sight: &Sight) -> String {
    let mut text = String::from(
        "\n# Promises that `sluice policy test` checks.\ntests:\n  - {request: POST https://pastebin.com/api, expect: deny}\n  - {request: GET https://example.com/, expect: deny}\n",
    );
    if let Some(remote) = &sight.remote {
        let mut add = |service: &str, expect: &str| {
            let request = format!("POST https://{remote}.git/{service}");
            text.push_str(&format!("  - {{request: {}, expect: {expect}}}\n", quoted(&request)));
        };
        add("git-upload-pack", "allow");
        add("git-receive-pack", "deny");
    }
    if sight.rust {
        text.push_str("  - {request: GET https://doc.rust-lang.org/std/, expect: allow}\n");
    }
    text
}

fn is_on_github(remote: &GitRepository) -> bool {
    remote.host().as_str() == "github.com"
}

/// Plain where YAML reads plain text as that text, else in quotes. What comes
/// here is printable ASCII without quotes or backslashes.
fn quoted(text: &str) -> String {
    let begins_plainly = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./".contains(&b);
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    if begins_plainly && text.bytes().all(plain) && !word {
        text.to_owned()
    } else {
        format!("\"{text}\"")
    }
}
