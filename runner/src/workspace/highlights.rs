//! What a reviewer should look at first.
//!
//! Some files do things when nobody reads them: a CI job, a hook, an install
//! script, a shell profile. A change there is named, with the reason. The list
//! is about what runs or is trusted later, not about what is large.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::changes::{Change, Node};
use super::path::TreePath;

/// Why a change deserves a second look.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Highlight {
    /// Instructions that other agents will follow.
    AgentInstructions,
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
    /// Repository settings and hooks.
    Git,
    /// Somebody else's code, by name and hash.
    LockFile,
    /// Scripts that run when a package is installed.
    PackageScripts,
    /// What a shell runs when it starts.
    ShellProfile,
    /// It runs with its owner's rights, whoever starts it.
    SetId,
    /// A pipe, a socket or a device.
    Special,
    /// A link that leads out of the project.
    WayOut,
}

impl fmt::Display for Highlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AgentInstructions => "instructions for agents",
            Self::BuildScript => "runs when it is built",
            Self::Ci => "runs in CI",
            Self::Container => "container recipe",
            Self::Denied => "denied by policy",
            Self::Editor => "editor settings",
            Self::Environment => "environment and credentials",
            Self::Executable => "executable",
            Self::Git => "git settings or hooks",
            Self::LockFile => "pins dependencies",
            Self::PackageScripts => "package scripts",
            Self::ShellProfile => "shell profile",
            Self::SetId => "runs with its owner's rights",
            Self::Special => "not a file",
            Self::WayOut => "link out of the project",
        })
    }
}

/// What there is to say about a change.
pub(super) fn of(change: &Change, denied: bool) -> Vec<Highlight> {
    let mut found = by_name(&change.path);
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
        Some(Node::Link { target }) if leads_out(&change.path, &target.0) => {
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

/// Whether a link at `path` points out of the tree, as far as its own words say.
/// What it points to may be a link again; nothing here follows either.
pub fn leads_out(path: &TreePath, target: &[u8]) -> bool {
    if target.first() == Some(&b'/') {
        return true;
    }
    let mut depth = path.depth().saturating_sub(1);
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if depth == 0 => return true,
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    false
}

fn by_name(path: &TreePath) -> Vec<Highlight> {
    // Names that tools compare without regard to case on some systems.
    let text = path.lossy().to_ascii_lowercase();
    let name = text.rsplit('/').next().unwrap_or_default();
    let parts: Vec<&str> = text.split('/').collect();
    let holds = |part: &str| parts.contains(&part);
    let mut found = Vec::new();

    if parts.first() == Some(&".github") && holds("workflows")
        || holds(".circleci")
        || holds(".buildkite")
        || holds(".gitea")
        || holds(".forgejo")
        || holds(".woodpecker")
        || holds(".teamcity")
        || text.starts_with(".github/actions/")
        || lists(CI, name)
        || name.starts_with(".gitlab-ci")
        || name.starts_with("azure-pipelines")
    {
        found.push(Highlight::Ci);
    }
    if holds(".git") || lists(GIT, name) || holds(".husky") || holds(".githooks") || holds("hooks")
    {
        found.push(Highlight::Git);
    }
    if lists(PACKAGES, name) {
        found.push(Highlight::PackageScripts);
    }
    if lists(BUILD, name)
        || holds("scripts")
        || text.starts_with(".cargo/")
        || name.ends_with(".mk")
    {
        found.push(Highlight::BuildScript);
    }
    if lists(LOCKS, name) || (name.starts_with("requirements") && name.ends_with(".txt")) {
        found.push(Highlight::LockFile);
    }
    if lists(SHELLS, name) {
        found.push(Highlight::ShellProfile);
    }
    if name == ".env"
        || name.starts_with(".env.")
        || lists(CREDENTIALS, name)
        || holds(".ssh")
        || holds(".aws")
        || holds(".gnupg")
        || holds(".kube")
        || name.ends_with(".pem")
        || name.ends_with(".key")
    {
        found.push(Highlight::Environment);
    }
    if holds(".vscode")
        || holds(".idea")
        || holds(".devcontainer")
        || name == ".editorconfig"
        || name == ".nvimrc"
        || name == ".exrc"
    {
        found.push(Highlight::Editor);
    }
    if name.starts_with("dockerfile")
        || name.ends_with(".dockerfile")
        || name.starts_with("containerfile")
        || name.starts_with("docker-compose")
        || name == "compose.yaml"
        || name == "compose.yml"
    {
        found.push(Highlight::Container);
    }
    if lists(AGENTS, name)
        || holds(".claude")
        || holds(".cursor")
        || text == ".github/copilot-instructions.md"
        || name == "sandbox.policy.yaml"
        || name.ends_with(".policy.yaml")
    {
        found.push(Highlight::AgentInstructions);
    }
    found
}

fn lists(names: &str, name: &str) -> bool {
    names.split_ascii_whitespace().any(|listed| listed == name)
}

const CI: &str = "\
    .travis.yml .drone.yml appveyor.yml .appveyor.yml jenkinsfile bitbucket-pipelines.yml \
    cloudbuild.yaml buildspec.yml .pre-commit-config.yaml .pre-commit-hooks.yaml \
    lefthook.yml dependabot.yml renovate.json codeowners";
const GIT: &str = ".gitattributes .gitmodules .gitconfig .gitignore .lfsconfig .mailmap";
const PACKAGES: &str = "\
    package.json .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs setup.py setup.cfg pyproject.toml \
    conftest.py sitecustomize.py usercustomize.py pip.conf composer.json gemfile rakefile \
    pom.xml build.gradle build.gradle.kts cargo.toml go.mod tox.ini noxfile.py deno.json";
const BUILD: &str = "\
    makefile gnumakefile justfile taskfile.yml build.rs configure cmakelists.txt sconstruct \
    meson.build build.bazel workspace.bazel gradlew mvnw vagrantfile .envrc .tool-versions \
    rust-toolchain rust-toolchain.toml gulpfile.js gruntfile.js";
const LOCKS: &str = "\
    cargo.lock package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lockb \
    bun.lock poetry.lock pipfile.lock uv.lock pdm.lock gemfile.lock composer.lock go.sum \
    flake.lock gradle.lockfile deno.lock";
const SHELLS: &str = "\
    .bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zshenv .zprofile .zlogin \
    .kshrc .cshrc .tcshrc config.fish .inputrc .xprofile .xinitrc";
const CREDENTIALS: &str = "\
    .netrc .pgpass .git-credentials credentials credentials.json id_rsa id_ed25519 id_ecdsa \
    .pypirc .dockercfg authorized_keys known_hosts";
const AGENTS: &str = "agents.md claude.md gemini.md .cursorrules .mcp.json .windsurfrules";

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
            "sub/.git/hooks/pre-commit",
            ".gitattributes",
            "home/.bashrc",
            ".env.local",
            "AGENTS.md",
            ".vscode/tasks.json",
            "src/main.rs",
        ] {
            let found = by_name(&TreePath::parse(path.as_bytes()).unwrap());
            let words: Vec<String> = found.iter().map(Highlight::to_string).collect();
            told.push_str(&format!("{path}: {}\n", words.join(", ")));
        }
        expect![[r#"
            .github/workflows/ci.yml: runs in CI
            web/package.json: package scripts
            Cargo.lock: pins dependencies
            sub/.git/hooks/pre-commit: git settings or hooks
            .gitattributes: git settings or hooks
            home/.bashrc: shell profile
            .env.local: environment and credentials
            AGENTS.md: instructions for agents
            .vscode/tasks.json: editor settings
            src/main.rs: 
        "#]]
        .assert_eq(&told);
    }

    #[test]
    fn a_link_out_is_told_from_a_link_within() {
        let at = |path: &str| TreePath::parse(path.as_bytes()).unwrap();
        assert!(!leads_out(&at("a/b"), b"../c") && !leads_out(&at("a"), b"b/../c"));
        assert!(leads_out(&at("a/b"), b"../../c") && leads_out(&at("a"), b"/etc/passwd"));
        assert!(leads_out(&at("a"), b"b/../../c"));
    }
}
