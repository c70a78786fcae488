//! What is in an evidence folder.
//!
//! Nothing in it is trusted: artifacts are what an agent left. A link is
//! recorded by where it points and never followed, and what is neither file nor
//! link is recorded without being opened, since opening a pipe may never return.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::SEAL;
use crate::digest::Digest;

/// One file, by its name within the folder.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SealedFile {
    pub path: PathName,
    #[serde(flatten)]
    pub content: FileContent,
}

/// What a file holds, or what else it is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FileContent {
    File {
        size: u64,
        sha256: Digest,
    },
    Link {
        target: PathName,
    },
    /// A socket, a pipe or a device.
    Special,
}

/// A path. One that is not UTF-8 is written in base64, so that every name an
/// agent can give a file can be sealed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(untagged)]
pub enum PathName {
    Bytes { base64: String },
    Text(String),
}

impl PathName {
    fn new(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes { base64: BASE64.encode(path.as_os_str().as_bytes()) },
        }
    }

    /// As a path. Bytes that are no base64 give a name no file has.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Bytes { base64 } => {
                let bytes = BASE64.decode(base64).unwrap_or_default();
                PathBuf::from(OsStr::from_bytes(&bytes))
            }
            Self::Text(text) => PathBuf::from(text),
        }
    }
}

/// A file that could not be read.
#[derive(Debug)]
pub(crate) struct ReadError {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

/// Files whose content is known, by their path within the folder.
pub type KnownDigests = BTreeMap<PathBuf, (u64, Digest)>;

/// Every file below `dir` but the seal, sorted by the bytes of its path.
pub(crate) fn list(dir: &Path, known: &KnownDigests) -> Result<Vec<SealedFile>, ReadError> {
    paths(dir)?
        .into_iter()
        .map(|path| {
            let content = match known.get(&path) {
                Some((size, sha256)) if is_file_of(&dir.join(&path), *size) => {
                    FileContent::File { size: *size, sha256: *sha256 }
                }
                Some(_) | None => content(&dir.join(&path))
                    .map_err(|source| ReadError { path: dir.join(&path), source })?,
            };
            Ok(SealedFile { path: PathName::new(&path), content })
        })
        .collect()
}

/// The paths of all files below `dir`, relative to it and sorted.
pub(crate) fn paths(dir: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::new()];
    while let Some(inside) = left.pop() {
        let here = dir.join(&inside);
        let failed = |source| ReadError { path: here.clone(), source };
        for item in fs::read_dir(&here).map_err(failed)? {
            let item = item.map_err(failed)?;
            let path = inside.join(item.file_name());
            if item.file_type().map_err(failed)?.is_dir() {
                left.push(path);
            } else if path != Path::new(SEAL) {
                found.push(path);
            }
        }
    }
    found.sort_by(|a, b| by_bytes(a, b));
    Ok(found)
}

fn is_file_of(path: &Path, size: u64) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() == size)
}

/// What stands at `path`, without following a link.
pub(crate) fn content(path: &Path) -> io::Result<FileContent> {
    let kind = path.symlink_metadata()?.file_type();
    if kind.is_symlink() {
        return Ok(FileContent::Link { target: PathName::new(&fs::read_link(path)?) });
    }
    if !kind.is_file() {
        return Ok(FileContent::Special);
    }
    let (sha256, size) = Digest::of_reader(File::open(path)?)?;
    Ok(FileContent::File { size, sha256 })
}

/// The order `LC_ALL=C sort` gives.
pub(crate) fn by_bytes(a: &Path, b: &Path) -> Ordering {
    a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes())
}
