//! Files that tools on the host obey, by name: the one list of them.
//!
//! A row says which files, which tool, what kind of file that is for a reviewer,
//! and whether the tool acts without being asked. Such files are refused by
//! `sluice apply` unless a person names them; the others are shown as what they
//! are. Directories that git takes for a repository are recognised by content,
//! in [`super::git_trees`]. The list in `docs/sandbox.md` is checked against
//! this one.
//!
//! Names are compared without regard to case, because some file systems do so.

use files::TreePath;

use super::highlights::Highlight;

/// When a tool acts on a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Acts {
    /// When somebody builds, installs, commits or runs something.
    WhenInvoked,
    /// When somebody enters the directory, opens it, or asks for its status.
    Unasked,
}

/// Files that one tool, or one kind of tool, obeys.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToolFiles {
    /// Separated by spaces. `name` is a file anywhere, `dir/name` such a file in
    /// such a directory, `dir/` everything below such a directory. `*` stands for
    /// any characters of one name.
    pub(super) patterns: &'static str,
    pub(super) tool: &'static str,
    pub(super) kind: Highlight,
    pub(super) acts: Acts,
}

/// Every row that names `path`.
pub(super) fn naming(path: &TreePath) -> impl Iterator<Item = &'static ToolFiles> {
    let parts: Vec<String> =
        path.parts().map(|part| String::from_utf8_lossy(part).to_ascii_lowercase()).collect();
    TABLE.iter().filter(move |row| row.names(&parts))
}

/// The tool that acts on `path` without being asked, if there is one.
///
/// A link counts as well where its name is the directory of a row: a link
/// `.claude` makes another directory's `settings.json` the one that is obeyed.
pub(super) fn acting_unasked(path: &TreePath, is_link: bool) -> Option<&'static ToolFiles> {
    let unasked = |row: &&ToolFiles| row.acts == Acts::Unasked;
    if let Some(row) = naming(path).find(unasked) {
        return Some(row);
    }
    let name = String::from_utf8_lossy(path.name()?).to_ascii_lowercase();
    TABLE.iter().filter(unasked).find(|row| is_link && row.is_directory_of_some(&name))
}

impl ToolFiles {
    fn names(&self, parts: &[String]) -> bool {
        self.patterns.split_ascii_whitespace().any(|pattern| {
            let wanted: Vec<&str> = pattern.trim_end_matches('/').split('/').collect();
            let found = |window: &[String]| {
                window.iter().zip(&wanted).all(|(part, wanted)| matches(wanted, part))
            };
            if pattern.ends_with('/') {
                // Everything below, and nothing for the directory itself.
                let above = parts.get(..parts.len().saturating_sub(1)).unwrap_or_default();
                above.windows(wanted.len()).any(found)
            } else {
                let start = parts.len().checked_sub(wanted.len());
                start.and_then(|start| parts.get(start..)).is_some_and(found)
            }
        })
    }

    fn is_directory_of_some(&self, name: &str) -> bool {
        self.patterns.split_ascii_whitespace().any(|pattern| {
            let (directories, _file) = pattern.rsplit_once('/').unwrap_or_default();
            directories.split('/').any(|directory| matches(directory, name))
        })
    }
}

/// Whether a pattern with at most two `*` means this name.
fn matches(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Whether a file system that folds names takes this one for `.git`: by case,
/// as NTFS shortens and trims it, as HFS+ leaves characters out.
pub(super) fn is_dot_git(name: &[u8]) -> bool {
    let text = String::from_utf8_lossy(name);
    let seen: String = text.chars().filter(|c| !is_ignorable(*c)).collect();
    let seen = seen.to_ascii_lowercase();
    let stem = seen.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
    stem == ".git" || stem == "git~1"
}

fn is_ignorable(character: char) -> bool {
    matches!(
        character,
        '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
    )
}

const fn unasked(tool: &'static str, kind: Highlight, patterns: &'static str) -> ToolFiles {
    ToolFiles { patterns, tool, kind, acts: Acts::Unasked }
}

const fn invoked(tool: &'static str, kind: Highlight, patterns: &'static str) -> ToolFiles {
    ToolFiles { patterns, tool, kind, acts: Acts::WhenInvoked }
}

pub(super) const TABLE: &[ToolFiles] = &[
    unasked(
        "sluice",
        Highlight::OurOwn,
        "sandbox.policy.yaml sandbox.policy.yml *.policy.yaml *.policy.yml sluice/config.yaml \
         sluice/approved/ sluice/keys/",
    ),
    unasked(
        "git hooks",
        Highlight::Hook,
        ".husky/ .githooks/ .git-hooks/ githooks/ hooks/applypatch-msg hooks/commit-msg hooks/fsmonitor-* \
         hooks/post-* hooks/pre-applypatch hooks/pre-auto-gc hooks/pre-commit hooks/pre-merge-commit \
         hooks/pre-push hooks/pre-rebase hooks/pre-receive hooks/prepare-commit-msg \
         hooks/proc-receive hooks/push-to-checkout hooks/reference-transaction \
         hooks/sendemail-validate hooks/update",
    ),
    unasked(
        "other version control",
        Highlight::Hook,
        ".hg/ .jj/ .sl/ .svn/ .bzr/ _darcs/ .pijul/ .fslckout _fossil_",
    ),
    unasked(
        "directory environments",
        Highlight::ShellProfile,
        ".envrc .envrc.* .autoenv .autoenv.zsh .autoenv_leave .autoenv_leave.zsh mise.toml .mise.toml \
         mise.*.toml .mise.*.toml .mise/ mise/config.toml .rtx.toml .devbox/ .lando.yml .dirrc",
    ),
    unasked(
        "editors",
        Highlight::Editor,
        ".vscode/settings.json .vscode/tasks.json .vscode/launch.json *.code-workspace \
         .idea/workspace.xml .idea/runconfigurations/ .idea/externaltools.xml .idea/watchertasks.xml \
         .zed/settings.json .zed/tasks.json .fleet/ *.sublime-project *.sublime-workspace .exrc .nexrc \
         .vimrc _vimrc .gvimrc .nvimrc .nvim.lua .lvimrc .local.vimrc .dir-locals.el \
         .dir-locals-2.el .kakrc .helix/ .netbeans/ nbproject/private/",
    ),
    unasked(
        "agents' settings",
        Highlight::AgentSettings,
        ".mcp.json mcp.json mcp_config.json .claude/settings.json .claude/settings.*.json \
         .claude/hooks/ .claude/plugins/ .claude.json .cursor/mcp.json .cursor/hooks.json .cursor/hooks/ \
         .cursor/environment.json .cursor/cli.json .codex/config.toml .codex/hooks* .codex/hooks/ \
         .gemini/settings.json .gemini/extensions/ .qwen/settings.json .windsurf/hooks.json \
         .roo/mcp.json .amazonq/mcp.json .kiro/settings/ .kiro/hooks/ .aider.conf.yml .continue/config* \
         .continue/mcpservers/ .opencode/ opencode.json opencode.jsonc crush.json .crush.json \
         .crush/ .goose/config.yaml .factory/ .copilot/mcp-config.json",
    ),
    invoked(
        "git",
        Highlight::Git,
        ".gitattributes .gitmodules .gitconfig .gitignore .lfsconfig .mailmap .git-blame-ignore-revs \
         hooks/ .gitreview",
    ),
    invoked(
        "commit checks",
        Highlight::Hook,
        ".pre-commit-config.yaml .pre-commit-hooks.yaml lefthook.yml .lefthook.yml lefthook.yaml \
         .lefthook/ .overcommit.yml .overcommit/ .lintstagedrc* lint-staged.config.* commitlint.config.* \
         .commitlintrc* .czrc .huskyrc*",
    ),
    invoked(
        "CI",
        Highlight::Ci,
        ".github/workflows/ .github/actions/ .gitea/ .forgejo/ .circleci/ .buildkite/ .woodpecker/ \
         .woodpecker.yml .teamcity/ .gitlab-ci* .gitlab/ .travis.yml .drone.yml appveyor.yml \
         .appveyor.yml jenkinsfile* bitbucket-pipelines.yml azure-pipelines* .azure-pipelines/ \
         cloudbuild.yaml cloudbuild.yml buildspec.yml codemagic.yaml .cirrus.yml .semaphore/ \
         .build.yml .builds/ dependabot.yml renovate.json renovate.json5 .renovaterc* codeowners \
         .mergify.yml .goreleaser.y*ml .releaserc* netlify.toml vercel.json fly.toml render.yaml \
         procfile app.yaml .platform.app.yaml",
    ),
    invoked(
        "agents' instructions",
        Highlight::AgentInstructions,
        "agents.md agents.override.md agent.md claude.md claude.local.md gemini.md qwen.md warp.md \
         copilot-instructions.md .github/instructions/ .github/prompts/ .github/agents/ .github/chatmodes/ \
         .cursorrules .cursor/ .claude/ .codex/ .gemini/ .qwen/ .windsurfrules .windsurf/ .clinerules \
         .clinerules/ .roorules* .roomodes .roo/ .kiro/ .amazonq/ .junie/ .trae/ .augment/ .goosehints \
         .continue/ .continuerules .rules .aider* conventions.md llms.txt skill.md",
    ),
    invoked(
        "editors",
        Highlight::Editor,
        ".vscode/ .idea/ .zed/ .devcontainer/ .devcontainer.json .editorconfig .gitpod.yml \
         .project .settings/",
    ),
    invoked(
        "package managers",
        Highlight::PackageScripts,
        "package.json package.json5 package.yaml .npmrc .yarnrc .yarnrc.yml .yarn/releases/ \
         .yarn/plugins/ .pnpmfile.cjs .pnpmfile.mjs pnpm-workspace.yaml bunfig.toml deno.json deno.jsonc \
         lerna.json .npmignore setup.py setup.cfg pyproject.toml pip.conf pip.ini .pypirc \
         pipfile uv.toml poetry.toml hatch.toml pdm.toml pixi.toml environment.yml conftest.py \
         sitecustomize.py usercustomize.py *.pth tox.ini noxfile.py cargo.toml go.mod go.work \
         composer.json auth.json gemfile *.gemspec rakefile .bundle/ pom.xml build.gradle* \
         settings.gradle* gradle.properties init.gradle* package.swift mix.exs rebar.config shard.yml \
         *.cabal stack.yaml cabal.project* dune-project *.opam *.nimble *.rockspec vcpkg.json conanfile.* \
         *.csproj *.fsproj *.vbproj *.sln *.targets *.props nuget.config global.json",
    ),
    invoked(
        "build tools",
        Highlight::BuildScript,
        "makefile gnumakefile makefile.* *.mk justfile .justfile *.just taskfile.y*ml taskfile.dist.y*ml \
         build.rs .cargo/ configure configure.ac *.cmake cmakelists.txt cmakepresets.json \
         cmakeuserpresets.json sconstruct sconscript meson.build meson_options.txt wscript waf \
         build.bazel build.bzl *.bzl workspace workspace.bazel module.bazel .bazelrc tools/bazel buck \
         .buckconfig* pants pants.toml gradlew gradlew.bat gradle/wrapper/ mvnw mvnw.cmd .mvn/ \
         build.xml build.sbt project/plugins.sbt vagrantfile earthfile tiltfile skaffold.yaml \
         magefile.go magefiles/ xtask/ gulpfile.* gruntfile.* *.config.js *.config.cjs *.config.mjs \
         *.config.ts *.config.mts *.config.cts .eslintrc* .prettierrc* .babelrc* .stylelintrc* \
         .mocharc* .swcrc turbo.json nx.json angular.json tsconfig*.json .pylintrc .flake8 mypy.ini \
         pytest.ini .coveragerc .rubocop.yml .rspec phpunit.xml* .clang-tidy .clangd \
         compile_flags.txt compile_commands.json .watchmanconfig nodemon.json *.tf *.tfvars .terraformrc \
         pulumi.yaml serverless.yml ansible.cfg scripts/ *.desktop autorun.inf",
    ),
    invoked(
        "version managers",
        Highlight::ToolVersion,
        "rust-toolchain rust-toolchain.toml .tool-versions .python-version .ruby-version .node-version \
         .nvmrc .java-version .go-version .terraform-version .sdkmanrc .bazelversion .swift-version \
         .php-version .perl-version .crystal-version .zigversion flake.nix shell.nix default.nix \
         devenv.nix devenv.yaml devbox.json .volta.json",
    ),
    invoked(
        "containers",
        Highlight::Container,
        "dockerfile* *.dockerfile containerfile* docker-compose* compose.y*ml compose.*.y*ml \
         docker-bake.* .dockerignore chart.yaml kustomization.y*ml",
    ),
    invoked(
        "package managers, which install what these name",
        Highlight::LockFile,
        "cargo.lock package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lockb bun.lock \
         poetry.lock pipfile.lock uv.lock pdm.lock pixi.lock gemfile.lock composer.lock go.sum \
         flake.lock gradle.lockfile deno.lock mix.lock package.resolved requirements*.txt \
         constraints*.txt",
    ),
    invoked(
        "shells and other programs that read a file when they start",
        Highlight::ShellProfile,
        ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile \
         .zlogin .zlogout .kshrc .mkshrc .cshrc .tcshrc .login config.fish conf.d/*.fish .xonshrc \
         .inputrc .xprofile .xinitrc .xsession .pam_environment .gdbinit .lldbinit .pdbrc .pythonrc* \
         .irbrc .pryrc .psqlrc .sqliterc .my.cnf .curlrc .wgetrc .screenrc .tmux.conf .ssh/config \
         .ssh/rc",
    ),
    invoked(
        "programs that look for credentials",
        Highlight::Environment,
        ".env .env.* *.env .netrc _netrc .pgpass .git-credentials credentials credentials.json \
         id_rsa* id_ed25519* id_ecdsa* id_dsa* .dockercfg authorized_keys known_hosts .ssh/ .aws/ .gnupg/ \
         .kube/ .azure/ *.pem *.key *.p12 *.pfx *.jks",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_acts_unasked_is_found_wherever_it_is_and_however_it_is_spelt() {
        for obeyed in [
            "sandbox.policy.yaml",
            "deep/down/Sandbox.Policy.YAML",
            "team.policy.yml",
            ".envrc",
            "a/.EnvRC",
            ".vscode/tasks.json",
            "packages/a/.vscode/settings.json",
            ".exrc",
            ".husky/pre-commit",
            ".husky/_/husky.sh",
            "tools/hooks/post-checkout",
            ".claude/settings.local.json",
            ".claude/hooks/any.sh",
            ".mcp.json",
            ".hg/hgrc",
            "mise.local.toml",
        ] {
            assert!(acting_unasked(&path(obeyed), false).is_some(), "{obeyed}");
        }
    }

    #[test]
    fn what_only_looks_similar_is_not_refused() {
        for harmless in [
            "src/hooks/use-state.ts",
            "README.md",
            "docs/settings.json",
            "claude/settings.json",
            "policy.yaml",
            ".vscode",
            "src/vscode/tasks.json",
            "envrc",
            "CLAUDE.md",
            "package.json",
        ] {
            assert!(acting_unasked(&path(harmless), false).is_none(), "{harmless}");
        }
    }

    #[test]
    fn a_link_in_place_of_an_obeyed_directory_is_obeyed() {
        assert!(acting_unasked(&path(".claude"), true).is_some());
        assert!(acting_unasked(&path("a/.vscode"), true).is_some());
        assert!(acting_unasked(&path(".vscode"), false).is_none());
        assert!(acting_unasked(&path("src"), true).is_none());
    }

    #[test]
    fn every_spelling_that_some_file_system_takes_for_git_is_known() {
        for name in
            [".git", ".GIT", "GIT~1", ".git.", ".git ", ".g\u{200c}it", ".Git::$INDEX_ALLOCATION"]
        {
            assert!(is_dot_git(name.as_bytes()), "{name:?}");
        }
        for name in [".gitignore", "git", ".github", "x.git", "git~2"] {
            assert!(!is_dot_git(name.as_bytes()), "{name:?}");
        }
    }

    #[test]
    fn the_documentation_lists_every_row() {
        let page = include_str!("../../../../docs/sandbox.md");
        for row in TABLE {
            let files: Vec<String> =
                row.patterns.split_ascii_whitespace().map(|file| format!("`{file}`")).collect();
            let line = format!("| {} | {} | {} |", row.tool, row.kind, files.join(" "));
            assert!(page.contains(&line), "docs/sandbox.md has no line:\n{line}");
        }
    }

    #[test]
    fn patterns_are_written_as_they_are_compared() {
        for row in TABLE {
            assert_eq!(row.patterns, row.patterns.to_ascii_lowercase(), "{}", row.tool);
        }
    }
}
