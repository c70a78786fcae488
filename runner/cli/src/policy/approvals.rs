//! What a person has approved, and where that is remembered.
//!
//! A project's policy is obeyed for its content: its own file and every file it
//! extends, each in its place. What was approved is kept outside of the project,
//! where only its owner can write, with the texts, so that a change can be shown.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use audit::Digest;
use engine::spec::ReadPolicyFile;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::console::Tone;

/// What is approved: the texts of one policy, as they were read.
#[derive(Clone, Debug)]
pub(super) struct Content {
    /// The policy as it is found: a link stays a link here.
    pub(super) policy: PathBuf,
    files: Vec<ReadPolicyFile>,
}

/// What is remembered of an approval.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Approved {
    pub(super) policy: String,
    pub(super) at: Timestamp,
    sha256: Digest,
    files: Vec<ApprovedFile>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct ApprovedFile {
    path: String,
    text: String,
}

/// Whether a policy is obeyed as it is.
#[derive(Clone, Debug)]
pub(super) enum ApprovalStatus {
    Approved,
    /// Something else was approved under this name.
    Changed(Approved),
    Unknown,
}

impl ApprovalStatus {
    pub(super) fn state(&self) -> ApprovalState {
        match self {
            Self::Approved => ApprovalState::Approved,
            Self::Changed(_) => ApprovalState::Changed,
            Self::Unknown => ApprovalState::Unapproved,
        }
    }
}

/// How a policy stands, in one word.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ApprovalState {
    Approved,
    Changed,
    /// It was approved, and there is no such file any more.
    Gone,
    Unapproved,
}

impl ApprovalState {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Changed => "changed",
            Self::Gone => "gone",
            Self::Unapproved => "unapproved",
        }
    }

    pub(super) fn tone(self) -> Tone {
        match self {
            Self::Approved => Tone::Good,
            Self::Changed | Self::Gone | Self::Unapproved => Tone::Warn,
        }
    }
}

/// Where approvals are kept.
#[derive(Clone, Debug)]
pub(super) struct Approvals {
    folder: PathBuf,
}

impl Content {
    pub(super) fn of(policy: &Path, files: Vec<ReadPolicyFile>) -> Result<Self, anyhow::Error> {
        let policy = found_at(policy)?;
        let mut files = files;
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Self { policy, files })
    }

    /// Whether some of it is the project's word.
    pub(super) fn has_projects(&self) -> bool {
        self.files.iter().any(|file| file.is_projects)
    }

    /// The digest of every place and text. Each has its length before it, so that
    /// no text can pass for the beginning of the next.
    pub(super) fn digest(&self) -> Digest {
        let mut all = b"a policy and what it extends, 1\n".to_vec();
        let own = self.policy.as_os_str().as_bytes();
        let files = self
            .files
            .iter()
            .flat_map(|file| [file.path.as_os_str().as_bytes(), file.text.as_bytes()]);
        for part in std::iter::once(own).chain(files) {
            all.extend_from_slice(format!("{}\n", part.len()).as_bytes());
            all.extend_from_slice(part);
        }
        Digest::of(&all)
    }

    /// Each file by its path, with its text now and as it was approved.
    pub(super) fn compared<'c>(
        &'c self,
        approved: Option<&'c Approved>,
    ) -> Vec<(String, Option<&'c str>, Option<&'c str>)> {
        let name = |file: &ReadPolicyFile| file.path.to_string_lossy().into_owned();
        let before = approved.map_or(&[][..], |approved| &approved.files);
        let now = self.files.iter().map(|file| {
            let known = before.iter().find(|known| known.path == name(file));
            (name(file), known.map(|known| &*known.text), Some(&*file.text))
        });
        let gone = before.iter().filter(|known| self.files.iter().all(|it| name(it) != known.path));
        now.chain(gone.map(|known| (known.path.clone(), Some(&*known.text), None))).collect()
    }
}

impl Approvals {
    pub(super) fn below(state: &Path) -> Self {
        Self { folder: state.join("approved") }
    }

    /// How `content` stands.
    pub(super) fn standing(&self, content: &Content) -> ApprovalStatus {
        match self.find(&content.policy) {
            Some(approved) if approved.sha256 == content.digest() => ApprovalStatus::Approved,
            Some(approved) => ApprovalStatus::Changed(approved),
            None => ApprovalStatus::Unknown,
        }
    }

    /// What was approved of the policy at this place.
    pub(super) fn find(&self, policy: &Path) -> Option<Approved> {
        read(&self.kept_at(policy))
    }

    /// Remembers `content` as approved.
    pub(super) fn record(&self, content: &Content) -> Result<(), anyhow::Error> {
        let file = |file: &ReadPolicyFile| ApprovedFile {
            path: file.path.to_string_lossy().into_owned(),
            text: file.text.to_string(),
        };
        let approved = Approved {
            policy: content.policy.to_string_lossy().into_owned(),
            at: Timestamp::now(),
            sha256: content.digest(),
            files: content.files.iter().map(file).collect(),
        };
        let text = serde_json::to_vec_pretty(&approved)?;
        let path = self.kept_at(&content.policy);
        write(&path, &text)
            .with_context(|| format!("cannot save the approval in {}", path.display()))
    }

    /// Forgets what was approved of the policy at this place; whether anything was.
    pub(super) fn forget(&self, policy: &Path) -> Result<bool, anyhow::Error> {
        let path = self.kept_at(policy);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(err) => Err(err).with_context(|| format!("cannot remove {}", path.display())),
        }
    }

    /// Everything that was approved, by name.
    pub(super) fn all(&self) -> Vec<Approved> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut all: Vec<Approved> = entries.filter_map(|entry| read(&entry.path())).collect();
        all.sort_by(|one, other| one.policy.cmp(&other.policy));
        all
    }

    fn kept_at(&self, policy: &Path) -> PathBuf {
        self.folder.join(format!("{}.json", Digest::of(policy.as_os_str().as_bytes())))
    }
}

/// The policy's place: its directory without links, and its own name in there.
pub(super) fn found_at(policy: &Path) -> Result<PathBuf, anyhow::Error> {
    let whole = std::path::absolute(policy)?;
    let (Some(directory), Some(name)) = (whole.parent(), whole.file_name()) else {
        anyhow::bail!("{} is not a file", policy.display());
    };
    let directory = directory.canonicalize();
    Ok(directory.with_context(|| format!("cannot find {}", policy.display()))?.join(name))
}

/// An approval that somebody else could have written is none.
fn read(path: &Path) -> Option<Approved> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(no_follow).open(path).ok()?;
    let found = file.metadata().ok()?;
    let is_ours = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_file() || !is_ours || found.mode() & 0o022 != 0 {
        return None;
    }
    let mut text = Vec::new();
    file.take(MAX_APPROVAL_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Whole or not at all, and for nobody else to read.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    audit::write_whole_file(path, text)
}

/// More than all files of a policy together, as JSON.
const MAX_APPROVAL_BYTES: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn content(files: &[(&str, &str)]) -> Content {
        let file = |(path, text): &(&str, &str)| ReadPolicyFile {
            path: PathBuf::from(path),
            text: (*text).into(),
            is_projects: true,
        };
        Content { policy: "/p/sandbox.policy.yaml".into(), files: files.iter().map(file).collect() }
    }

    #[test]
    fn no_two_contents_have_one_digest() {
        let contents = [
            content(&[("/p/a", "1")]),
            content(&[("/p/a", "2")]),
            content(&[("/p/b", "1")]),
            content(&[("/p/a", "1"), ("/p/b", "")]),
            content(&[("/p/a", ""), ("/p/b", "1")]),
            content(&[("/p/a", "14\n/p/b0\n")]),
        ];
        for (number, one) in contents.iter().enumerate() {
            for other in contents.iter().skip(number + 1) {
                assert_ne!(one.digest(), other.digest(), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn what_was_approved_is_remembered_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let approvals = Approvals::below(dir.path());
        let (one, other) = (content(&[("/p/a", "1")]), content(&[("/p/a", "2")]));
        assert!(matches!(approvals.standing(&one), ApprovalStatus::Unknown));
        approvals.record(&one).unwrap();
        assert!(matches!(approvals.standing(&one), ApprovalStatus::Approved));
        let ApprovalStatus::Changed(before) = approvals.standing(&other) else {
            panic!("it changed")
        };
        let compared = other.compared(Some(&before));
        assert_eq!(compared, [("/p/a".to_owned(), Some("1"), Some("2"))]);
        approvals.record(&other).unwrap();
        assert!(matches!(approvals.standing(&one), ApprovalStatus::Changed(_)));
        assert_eq!(approvals.all().len(), 1);
        assert!(approvals.forget(&other.policy).unwrap());
        assert!(!approvals.forget(&other.policy).unwrap());
        assert!(matches!(approvals.standing(&other), ApprovalStatus::Unknown));
    }
}
