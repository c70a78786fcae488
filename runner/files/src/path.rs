//! Paths inside a tree, in the one form everything here compares and stores.
//!
//! A [`TreePath`] is relative, has no empty part, no `.` and no `..`, so joining
//! one to a directory cannot leave it by name (that no link leads out is
//! [`crate::workspace::tree`]'s promise). It is bytes: an agent may call a file
//! anything. It is shown without control characters, and stored as text where it
//! is text and in base64 where it is not.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

use crate::printable::Printable;

/// A path inside a tree; the empty one is the tree's root.
#[derive(Clone, Default, Eq, Hash, PartialEq)]
pub struct TreePath(Vec<u8>);

/// The bytes are not a path inside a tree.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{written}` is not a path inside the workspace: write it relative, without `..`")]
pub struct NotInside {
    written: String,
}

impl TreePath {
    pub const ROOT: Self = Self(Vec::new());

    /// Reads a path as a person, an archive or a stored record wrote it.
    ///
    /// ```
    /// use files::TreePath;
    ///
    /// assert_eq!(TreePath::parse(b"./src/main.rs")?.to_string(), "src/main.rs");
    /// assert_eq!(
    ///     TreePath::parse(b"../x").unwrap_err().to_string(),
    ///     "`../x` is not a path inside the workspace: write it relative, without `..`",
    /// );
    /// # Ok::<(), files::NotInside>(())
    /// ```
    pub fn parse(written: &[u8]) -> Result<Self, NotInside> {
        let not_inside = || NotInside { written: Quoted(written).to_string() };
        if written.first() == Some(&b'/') || written.contains(&0) {
            return Err(not_inside());
        }
        let mut path = Self::ROOT;
        for part in written.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err(not_inside()),
                part => path.push(part),
            }
        }
        Ok(path)
    }

    /// The path of `name` in this directory. The name comes from the kernel or
    /// from a constant of ours, so it is one part.
    pub fn join(&self, name: &[u8]) -> Self {
        let mut path = self.clone();
        path.push(name);
        path
    }

    fn push(&mut self, part: &[u8]) {
        if !self.0.is_empty() {
            self.0.push(b'/');
        }
        self.0.extend_from_slice(part);
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its parts, outermost first.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|part| !part.is_empty())
    }

    /// The last part; none for the root.
    pub fn name(&self) -> Option<&[u8]> {
        self.parts().next_back()
    }

    /// The directory that holds it; none for the root.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let end = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        Some(Self(self.0.get(..end).unwrap_or_default().to_vec()))
    }

    /// Whether it is `other` or inside it.
    pub fn is_within(&self, other: &Self) -> bool {
        match self.0.strip_prefix(other.as_bytes()) {
            Some(rest) => other.is_root() || rest.is_empty() || rest.first() == Some(&b'/'),
            None => false,
        }
    }

    pub fn depth(&self) -> usize {
        self.parts().count()
    }

    pub fn to_path(&self) -> PathBuf {
        Path::new(OsStr::from_bytes(&self.0)).to_owned()
    }

    /// For patterns, which are text: what is no text is compared as `U+FFFD`,
    /// so a wildcard covers it and a literal does not.
    pub fn lossy(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl Ord for TreePath {
    /// A directory comes right before what it holds.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.parts().cmp(other.parts())
    }
}

impl PartialOrd for TreePath {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Quoted(&self.0).fmt(f)
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

/// Bytes from outside, shown so that they cannot act on a terminal and can be
/// told apart: `\` itself is doubled.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for (number, piece) in chunk.valid().split('\\').enumerate() {
                if number > 0 {
                    f.write_str("\\\\")?;
                }
                Printable(piece).fmt(f)?;
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

/// Any bytes that are usually text: names, and where links point.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    pub fn to_path(&self) -> PathBuf {
        PathBuf::from(std::ffi::OsString::from_vec(self.0.clone()))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Quoted(&self.0).fmt(f)
    }
}

impl From<&Path> for Bytes {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

/// How bytes are stored: the same form as in a seal.
#[derive(serde::Deserialize, serde::Serialize)]
#[serde(untagged)]
enum Stored {
    Base64 { base64: String },
    Text(String),
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => Stored::Text(text.to_owned()),
            Err(_) => Stored::Base64 { base64: BASE64.encode(&self.0) },
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Stored::deserialize(deserializer)? {
            Stored::Base64 { base64 } => BASE64.decode(base64).map(Self).map_err(de::Error::custom),
            Stored::Text(text) => Ok(Self(text.into_bytes())),
        }
    }
}

impl Serialize for TreePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Bytes(self.0.clone()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TreePath {
    /// A stored path is checked again: the record may have been touched.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Bytes(bytes) = Bytes::deserialize(deserializer)?;
        Self::parse(&bytes).map_err(de::Error::custom)
    }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(written: &str) -> TreePath {
        TreePath::parse(written.as_bytes()).unwrap()
    }

    #[test]
    fn nothing_that_leads_out_is_a_path() {
        for bad in ["/", "/etc", "..", "a/../b", "a/..", "../a", "a\0b"] {
            assert!(TreePath::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert_eq!(path("a//./b/"), path("a/b"));
        assert!(path(".").is_root() && path("").is_root());
    }

    #[test]
    fn inside_means_by_whole_parts() {
        assert!(path("a/b").is_within(&path("a")) && path("a").is_within(&path("a")));
        assert!(path("a").is_within(&TreePath::ROOT));
        assert!(!path("ab").is_within(&path("a")) && !path("a").is_within(&path("a/b")));
        assert_eq!(path("a/b").parent(), Some(path("a")));
        assert_eq!(path("a").parent(), Some(TreePath::ROOT));
        assert_eq!(TreePath::ROOT.parent(), None);
    }

    #[test]
    fn a_name_cannot_act_on_a_terminal() {
        let hostile = TreePath::parse(b"a\n\x1b[2J\\\xff").unwrap();
        assert_eq!(hostile.to_string(), r"a\n\u{1b}[2J\\\xff");
    }

    #[test]
    fn a_link_out_is_told_from_a_link_within() {
        let at = |path: &str| TreePath::parse(path.as_bytes()).unwrap();
        assert!(!leads_out(&at("a/b"), b"../c") && !leads_out(&at("a"), b"b/../c"));
        assert!(leads_out(&at("a/b"), b"../../c") && leads_out(&at("a"), b"/etc/passwd"));
        assert!(leads_out(&at("a"), b"b/../../c"));
    }

    proptest! {
        #[test]
        fn any_path_can_be_stored_and_read_back(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(path) = TreePath::parse(&bytes) {
                let json = serde_json::to_string(&path).unwrap();
                prop_assert_eq!(&serde_json::from_str::<TreePath>(&json).unwrap(), &path);
                prop_assert!(path.parts().all(|part| part != b".." && part != b"."));
                prop_assert!(!path.to_string().chars().any(char::is_control));
            }
        }
    }
}
