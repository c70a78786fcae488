//! What a run changed in its workspace, as it is stored and shown.
//!
//! These types are the format of `changes.json`. It says everything a review and
//! an `apply` need, so both work from the sealed record and not from what
//! somebody may have made of the tree since: what was there before, by a stamp
//! that shows whether the host has moved on; what is there after, by its hash.

use std::collections::BTreeSet;
use std::fmt;

use audit::Digest;
use files::tree::FileStat;
use files::{Bytes, TreePath};
use jiff::Timestamp;
use policies::{FileGlob, RelativePath};
use serde::{Deserialize, Serialize};

use super::highlights::Highlight;

/// The version of the format of `changes.json`.
pub const FORMAT: u32 = 1;

/// Everything a run changed, sorted by path.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Changes {
    pub format: u32,
    /// The project on the host.
    pub project: Bytes,
    /// When the sandbox began. What the host changed after that is in the way.
    pub started: Timestamp,
    /// What may never be applied: protected and hidden paths.
    #[serde(serialize_with = "crate::record_format::as_written")]
    pub protect: BTreeSet<RelativePath>,
    #[serde(serialize_with = "crate::record_format::as_written")]
    pub deny: Vec<FileGlob>,
    /// Why this list is not the whole of it; none when it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<String>,
    pub changes: Vec<Change>,
}

/// One path that is not as it was.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub path: TreePath,
    pub change: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Node>,
    /// The host's own copy changed while the run was going.
    #[serde(default, skip_serializing_if = "is_false")]
    pub moved: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub highlights: Vec<Highlight>,
    /// Its part of `changes.patch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Section>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Added,
    Changed,
    Deleted,
    /// Only the permissions differ.
    Mode,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Deleted => "deleted",
            Self::Mode => "mode",
        })
    }
}

/// What was there, and how to tell that it still is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Before {
    pub node: Node,
    pub stamp: Stamp,
}

/// What stands at a path.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Node {
    Directory {
        mode: u32,
    },
    File {
        mode: u32,
        size: u64,
        /// Of the whole content, holes as the zeros they read as.
        sha256: Option<Digest>,
        /// Why there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unhashed: Option<Unhashed>,
    },
    Link {
        target: Bytes,
    },
    /// A pipe, a socket or a device.
    Special {
        what: String,
    },
}

/// Why the content of a file is not recorded.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unhashed {
    /// The policy hides it.
    Hidden,
    /// The time for hashing was over.
    NotInTime,
    /// It has another size than what came in its place, so it differs anyway.
    OtherSize,
    /// Somebody stopped the work.
    Stopped,
    /// It, or what was read before it, is more than is hashed.
    TooLarge,
    /// It could not be read, or changed meanwhile.
    Unreadable,
}

impl fmt::Display for Unhashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hidden => "hidden",
            Self::NotInTime => "not hashed in time",
            Self::OtherSize => "not hashed: its size differs",
            Self::Stopped => "not hashed: stopped",
            Self::TooLarge => "not hashed: too large",
            Self::Unreadable => "not hashed: unreadable",
        })
    }
}

impl Node {
    /// Whether the two are known to be the same. Two files that nobody read are
    /// not, whatever their size.
    pub fn is_same(&self, other: &Self) -> bool {
        !matches!(self, Self::File { sha256: None, .. }) && self == other
    }

    pub fn mode(&self) -> Option<u32> {
        match self {
            Self::Directory { mode } | Self::File { mode, .. } => Some(*mode),
            Self::Link { .. } | Self::Special { .. } => None,
        }
    }

    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }

    /// Whether the two differ in their permissions at most.
    pub fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Directory { .. }, Self::Directory { .. }) => true,
            (
                Self::File { size, sha256: Some(hash), .. },
                Self::File { size: other_size, sha256: Some(other_hash), .. },
            ) => size == other_size && hash == other_hash,
            // Two files that nobody read are not known to be the same.
            (Self::File { .. }, Self::File { .. }) => false,
            (Self::Link { .. }, Self::Link { .. })
            | (Self::Special { .. }, Self::Special { .. }) => self == other,
            _ => false,
        }
    }
}

/// What the kernel says about a file, and no writer can keep from changing.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    pub inode: u64,
    pub size: u64,
    pub mtime: Nanos,
    pub ctime: Nanos,
}

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Nanos(pub i64, pub u32);

impl From<&FileStat> for Stamp {
    #[allow(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "the fields' types differ between architectures"
    )]
    fn from(seen: &FileStat) -> Self {
        let stat = seen.stat();
        Self {
            inode: stat.st_ino as u64,
            size: seen.size(),
            mtime: Nanos(stat.st_mtime as i64, stat.st_mtime_nsec as u32),
            ctime: Nanos(stat.st_ctime as i64, stat.st_ctime_nsec as u32),
        }
    }
}

impl From<Timestamp> for Nanos {
    fn from(time: Timestamp) -> Self {
        let nanos = time.as_nanosecond();
        let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(i64::MAX);
        Self(seconds, u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or_default())
    }
}

/// A part of `changes.patch`, in bytes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    pub offset: u64,
    pub length: u64,
    /// Lines that came and lines that went; none where there are no lines.
    pub lines: Option<(u64, u64)>,
}

impl Changes {
    /// The changes at or below one of `paths`; all if there are none.
    pub fn within<'c>(&'c self, paths: &'c [TreePath]) -> impl Iterator<Item = &'c Change> {
        self.changes.iter().filter(move |change| {
            paths.is_empty() || paths.iter().any(|path| change.path.is_within(path))
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}
