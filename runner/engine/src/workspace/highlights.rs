//! What a reviewer should look at first.
//!
//! Some files do things when nobody reads them: a CI job, a hook, an install
//! script, a shell profile. A change there is named, with the reason. The list
//! is about what runs or is trusted later, not about what is large.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::changes::{Change, Node};
use super::tool_files;

/// Why a change deserves a second look.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Highlight {
    /// Instructions that other agents will follow.
    AgentInstructions,
    /// Settings of agents, which start programs.
    AgentSettings,
    /// What runs on the machine that builds.
    BuildScript,
    /// What runs in CI, with CI's credentials.
    Ci,
    /// What a container is made of.
    Container,
    /// `fs.deny` names it.
    Denied,
    /// Settings of an editor, which may start programs.
    Editor,
    /// Credentials are usually kept there.
    Environment,
    /// It can be run now, and could not before or did not exist.
    Executable,
    /// Repository settings.
    Git,
    /// Part of a directory that git takes for a repository.
    GitTree,
    /// What version control runs by itself.
    Hook,
    /// Somebody else's code, by name and hash.
    LockFile,
    /// It configures this program.
    OurOwn,
    /// Scripts that run when a package is installed.
    PackageScripts,
    /// What a shell runs when it starts.
    ShellProfile,
    /// It runs with its owner's rights, whoever starts it.
    SetId,
    /// A pipe, a socket or a device.
    Special,
    /// It chooses which programs are run.
    ToolVersion,
    /// A tool obeys it without being asked, so `apply` wants it named.
    Unasked,
    /// A link that leads out of the project.
    WayOut,
}

impl fmt::Display for Highlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AgentInstructions => "instructions for agents",
            Self::AgentSettings => "settings of agents, which start programs",
            Self::BuildScript => "runs when it is built",
            Self::Ci => "runs in CI",
            Self::Container => "container recipe",
            Self::Denied => "denied by policy",
            Self::Editor => "editor settings",
            Self::Environment => "environment and credentials",
            Self::Executable => "executable",
            Self::Git => "git settings",
            Self::GitTree => "git takes its directory for a repository",
            Self::Hook => "runs on commit, checkout or status",
            Self::LockFile => "pins dependencies",
            Self::OurOwn => "configures sluice",
            Self::PackageScripts => "package scripts",
            Self::ShellProfile => "shell profile",
            Self::SetId => "runs with its owner's rights",
            Self::Special => "not a file",
            Self::ToolVersion => "chooses which programs are run",
            Self::Unasked => "obeyed unasked: apply wants it named with --accept",
            Self::WayOut => "link out of the project",
        })
    }
}

/// What there is to say about a change.
pub(super) fn of(change: &Change, denied: bool) -> Vec<Highlight> {
    let mut found: Vec<_> = tool_files::naming(&change.path).map(|row| row.kind).collect();
    let is_link = matches!(change.after, Some(Node::Link { .. }));
    if change.after.is_some() && tool_files::acting_unasked(&change.path, is_link).is_some() {
        found.push(Highlight::Unasked);
    }
    if denied {
        found.push(Highlight::Denied);
    }
    match &change.after {
        Some(Node::File { mode, .. }) => {
            let could = |node: &Node| node.mode().is_some_and(|mode| mode & 0o111 != 0);
            let did = change.before.as_ref().is_some_and(|before| {
                could(&before.node) && matches!(before.node, Node::File { .. })
            });
            if mode & 0o111 != 0 && !did {
                found.push(Highlight::Executable);
            }
            if mode & 0o6000 != 0 {
                found.push(Highlight::SetId);
            }
        }
        Some(Node::Link { target }) if files::leads_out(&change.path, &target.0) => {
            found.push(Highlight::WayOut);
        }
        Some(Node::Special { .. }) => found.push(Highlight::Special),
        Some(Node::Directory { .. } | Node::Link { .. }) | None => {}
    }
    let node = change.after.as_ref().or(change.before.as_ref().map(|before| &before.node));
    if node.is_some_and(Node::is_directory) {
        // A directory of its own runs nothing; what comes in it is named itself.
        found.retain(|highlight| matches!(highlight, Highlight::Denied | Highlight::Git));
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn what_runs_by_itself_is_named() {
        let mut told = String::new();
        for path in [
            ".github/workflows/ci.yml",
            "web/package.json",
            "Cargo.lock",
            ".gitattributes",
            "home/.bashrc",
            ".env.local",
            "AGENTS.md",
            ".vscode/tasks.json",
            "src/main.rs",
        ] {
            let path = files::TreePath::parse(path.as_bytes()).unwrap();
            let words: Vec<String> =
                tool_files::naming(&path).map(|row| row.kind.to_string()).collect();
            told.push_str(&format!("{path}: {}\n", words.join(", ")));
        }
        expect![[r#"
            .github/workflows/ci.yml: runs in CI
            web/package.json: package scripts
            Cargo.lock: pins dependencies
            .gitattributes: git settings
            home/.bashrc: shell profile
            .env.local: environment and credentials
            AGENTS.md: instructions for agents
            .vscode/tasks.json: editor settings, editor settings
            src/main.rs: 
        "#]]
        .assert_eq(&told);
    }
}
