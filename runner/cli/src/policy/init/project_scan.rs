//! What a directory looks like from outside.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use policies::{GitRepository, PlainName};

use super::{node, python, remote};

/// A file that tells what a project is made of is smaller than this.
const MAX_SCANNED_BYTES: u64 = 4 * 1024 * 1024;

/// More names than this make no policy that anyone reads.
const MAX_PACKAGE_NAMES: usize = 400;

/// What was seen. Everything in it was accepted by the policy language.
#[derive(Debug, Default)]
pub(super) struct Sight {
    pub(super) name: Option<PlainName>,
    pub(super) remote: Option<GitRepository>,
    pub(super) python: Option<Packages>,
    pub(super) node: Option<Packages>,
    pub(super) rust: bool,
}

/// A language's mark, and the packages that were named.
#[derive(Debug, Default)]
pub(super) struct Packages {
    /// The file that told.
    pub(super) told_by: String,
    pub(super) names: BTreeSet<String>,
    /// How many were named beyond those.
    pub(super) left_out: usize,
}

impl Packages {
    pub(super) fn new(told_by: &str, mut names: BTreeSet<String>) -> Self {
        let kept: BTreeSet<String> = names.iter().take(MAX_PACKAGE_NAMES).cloned().collect();
        names.retain(|name| !kept.contains(name));
        Self { told_by: told_by.to_owned(), names: kept, left_out: names.len() }
    }
}

pub(super) fn look(dir: &Path) -> Sight {
    let own_name = dir.canonicalize().ok().and_then(|dir| {
        dir.file_name().and_then(|name| name.to_str()).and_then(|name| PlainName::parse(name).ok())
    });
    Sight {
        name: own_name,
        remote: remote::find(dir),
        python: python::look(dir),
        node: node::look(dir),
        rust: is_file(&dir.join("Cargo.toml")),
    }
}

impl Sight {
    /// What was seen, one sentence each.
    pub(super) fn in_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(remote) = &self.remote {
            words.push(format!("git remote {remote}"));
        }
        for (language, packages) in [("Python", &self.python), ("Node", &self.node)] {
            if let Some(Packages { told_by, names, .. }) = packages {
                words.push(format!("{language} ({told_by}), {} packages named", names.len()));
            }
        }
        if self.rust {
            words.push("Rust (Cargo.toml)".to_owned());
        }
        words
    }
}

/// The text of a file of the project.
///
/// Links are not followed: one to somebody's credentials would put words of
/// theirs into a policy that the sandbox can read.
pub(super) fn text(path: &Path) -> Option<String> {
    if !is_file(path) {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_SCANNED_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

pub(super) fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file())
}
