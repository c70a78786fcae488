//! The repository that a project comes from, without asking git.
//!
//! `.git/config` is read as text: running git would carry out whatever the
//! repository configures. A remote that cannot be written plainly into a policy
//! is as good as none.

use std::path::{Path, PathBuf};

use policies::GitRepository;

use super::project_scan;

/// The remote of the repository around `dir`: `origin`, else the first.
pub(super) fn find(dir: &Path) -> Option<GitRepository> {
    let dir = dir.canonicalize().ok()?;
    let text =
        dir.ancestors().find_map(|dir| project_scan::text(&config_of(&dir.join(".git"))?))?;
    let remotes = remotes(&text);
    let origin = remotes.iter().find(|(name, _)| name == "origin");
    repository(&origin.or_else(|| remotes.first())?.1)
}

/// Where the configuration of the repository is that `git` stands for.
fn config_of(git: &Path) -> Option<PathBuf> {
    if git.symlink_metadata().ok()?.is_dir() {
        return Some(git.join("config"));
    }
    // A worktree or a submodule: the file says where its own directory is, and
    // that one says where the shared one is.
    let pointer = project_scan::text(git)?;
    let own = git.parent()?.join(pointer.strip_prefix("gitdir:")?.trim());
    match project_scan::text(&own.join("commondir")) {
        Some(common) => Some(own.join(common.trim()).join("config")),
        None => Some(own.join("config")),
    }
}

/// Names and addresses of all remotes, in the order of the file.
fn remotes(config: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut remote = None;
    for line in config.lines().map(str::trim) {
        if let Some(heading) = line.strip_prefix('[') {
            remote = heading
                .strip_prefix("remote \"")
                .and_then(|rest| rest.split_once("\"]"))
                .map(|(name, _)| name.to_owned());
            continue;
        }
        let (Some(name), Some((key, value))) = (&remote, line.split_once('=')) else { continue };
        let first = !found.iter().any(|(known, _)| known == name);
        if first && key.trim().eq_ignore_ascii_case("url") {
            found.push((name.clone(), value.trim().trim_matches('"').to_owned()));
        }
    }
    found
}

/// Reads `https://host/path`, `ssh://user@host:22/path` or `user@host:path`.
fn repository(url: &str) -> Option<GitRepository> {
    let (authority, path) = match url.split_once("://") {
        Some(("https" | "http" | "ssh" | "git" | "git+ssh", rest)) => rest.split_once('/')?,
        Some(_) => return None,
        None => url.split_once(':').filter(|(host, _)| !host.contains('/'))?,
    };
    let host = authority.rsplit('@').next()?.split(':').next()?;
    let path = path.trim_matches('/');
    let plain = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte))
    };
    // A name with a dot: `localhost` and ssh's nicknames are no place policy knows.
    if !plain(host) || !plain(path) || !host.contains('.') {
        return None;
    }
    GitRepository::parse(&format!("{host}/{path}")).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_spelling_of_a_remote_is_one_repository() {
        let spellings = [
            "https://github.com/acme/widgets.git",
            "https://tok:en@github.com/acme/widgets",
            "http://github.com/acme/widgets/",
            "ssh://git@github.com:22/acme/widgets.git",
            "git://github.com/acme/widgets.git",
            "git@github.com:acme/widgets.git",
            "github.com:acme/widgets",
        ];
        for url in spellings {
            let read = repository(url).map(|found| found.to_string());
            assert_eq!(read.as_deref(), Some("github.com/acme/widgets"), "{url}");
        }
    }

    #[test]
    fn what_is_not_plain_is_no_remote() {
        let wrong = [
            "/srv/git/widgets.git",
            "file:///srv/git/widgets.git",
            "ext::sh -c touch% /tmp/pwned",
            "https://github.com/acme/*",
            "https://github.com/acme/a\"}, {host: evil.example",
            "https://github.com/acme/a#b",
            "work:acme/widgets",
            "https://localhost/acme/widgets",
            "https://github.com",
            "",
        ];
        for url in wrong {
            assert!(repository(url).is_none(), "{url}");
        }
    }

    #[test]
    fn origin_comes_before_the_others() {
        let config = "[core]\n\turl = x\n[remote \"fork\"]\n\turl = git@github.com:me/widgets\n[remote \"origin\"]\n\turl = git@github.com:acme/widgets\n\turl = git@github.com:other/x\n[branch \"main\"]\n\turl = y\n";
        let (dir, expected) = (tempfile::tempdir().unwrap(), "github.com/acme/widgets");
        fs::create_dir_all(dir.path().join(".git")).unwrap();
        fs::create_dir_all(dir.path().join("deep/er")).unwrap();
        fs::write(dir.path().join(".git/config"), config).unwrap();
        assert_eq!(find(dir.path()).unwrap().to_string(), expected);
        assert_eq!(find(&dir.path().join("deep/er")).unwrap().to_string(), expected);
    }

    #[test]
    fn a_worktree_leads_to_the_shared_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("main/.git/worktrees/side");
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(dir.path().join("side")).unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        let config = "[remote \"origin\"]\n\turl = https://git.example.com/acme/widgets\n";
        fs::write(dir.path().join("main/.git/config"), config).unwrap();
        fs::write(dir.path().join("side/.git"), "gitdir: ../main/.git/worktrees/side\n").unwrap();
        let found = find(&dir.path().join("side")).unwrap();
        assert_eq!(found.to_string(), "git.example.com/acme/widgets");
    }

    #[test]
    fn a_configuration_that_is_a_link_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(".git")).unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::write(&elsewhere, "[remote \"origin\"]\nurl = https://git.example.com/a/b\n").unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.path().join(".git/config")).unwrap();
        assert!(find(dir.path()).is_none());
    }

    proptest! {
        #[test]
        fn no_configuration_makes_the_reader_panic(config: String, url: String) {
            remotes(&config);
            if let Some(repository) = repository(&url) {
                let written = repository.to_string();
                prop_assert!(!written.contains(['"', '\n', '#', '{', ' ', '*']), "{}", written);
            }
        }
    }
}
