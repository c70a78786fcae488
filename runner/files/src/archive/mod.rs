//! Files in and out of a sandbox, as tar.
//!
//! An archive from a sandbox is hostile: `..`, an absolute name, a link that
//! leads out, a device, a hard link to something of ours. One such entry refuses
//! the whole archive, and since it is first unpacked beside its place, a refused
//! one leaves nothing. An archive we make holds only what is below its root: no
//! link is followed, and a link that leads out is refused by name.

mod copy;
mod names;
mod pack;
#[cfg(test)]
mod tests;
mod unpack;

use std::io;
use std::path::PathBuf;

use crate::{NotInside, TreePath};
pub use copy::{receive, send};
pub use pack::pack;
pub use unpack::unpack;

/// How much may go through.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveLimits {
    pub entries: u64,
    pub bytes: u64,
    pub depth: usize,
}

impl Default for ArchiveLimits {
    fn default() -> Self {
        Self { entries: 200_000, bytes: 16 << 30, depth: 128 }
    }
}

/// What went through.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Moved {
    pub entries: u64,
    pub bytes: u64,
}

impl Moved {
    /// Counts one more entry of `bytes`, or says that it is too much.
    fn count(&mut self, bytes: u64, limits: &ArchiveLimits) -> Result<(), ArchiveError> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.entries > limits.entries {
            return Err(ArchiveError::Many { limit: limits.entries });
        }
        if self.bytes > limits.bytes {
            return Err(ArchiveError::Large { limit: limits.bytes });
        }
        Ok(())
    }
}

/// Why files were not moved.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("cannot {step} {path}")]
    Disk { step: &'static str, path: TreePath, source: io::Error },
    #[error("the archive has an extended header that we do not read")]
    Header,
    #[error("{path} is a {what}, which is not copied")]
    Kind { path: TreePath, what: &'static str },
    #[error("the archive holds something else than the one file or directory that was asked for")]
    Extra,
    #[error("there are more than {limit} bytes to copy")]
    Large { limit: u64 },
    #[error("{path} is a link to {target}, which leads out")]
    LinkOut { path: TreePath, target: String },
    #[error("there are more than {limit} files to copy")]
    Many { limit: u64 },
    #[error("{path} is nested too deep")]
    Nested { path: TreePath },
    #[error("there is no directory {} to copy into", path.display())]
    NoPlace { path: PathBuf, source: io::Error },
    #[error("{} is no file or directory that can be copied", path.display())]
    Nameless { path: PathBuf },
    #[error(transparent)]
    NotInside(#[from] NotInside),
    #[error("there is something else at {path} already")]
    Occupied { path: TreePath },
    #[error("the archive cannot be read or written")]
    Tar { source: io::Error },
}

fn disk<'p>(step: &'static str, path: &'p TreePath) -> impl Fn(io::Error) -> ArchiveError + 'p {
    move |source| ArchiveError::Disk { step, path: path.clone(), source }
}

fn tar_failed(source: io::Error) -> ArchiveError {
    ArchiveError::Tar { source }
}
