//! What can be wrong with a log or a folder of evidence.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::line_reader::LinePosition;
use crate::seal::SealFault;

/// Why something is not verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Broken(#[from] Break),
    #[error("there is no audit log in {}", path.display())]
    NoLog { path: PathBuf },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
}

/// The first place at which something is not as it was written.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub struct Break {
    /// Relative to the folder that was checked.
    pub file: PathBuf,
    /// The line, where the break is in a log.
    pub place: Option<LinePosition>,
    pub fault: Fault,
}

impl Break {
    pub(super) fn of_file(file: impl Into<PathBuf>, fault: Fault) -> Self {
        Self { file: file.into(), place: None, fault }
    }
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Escaped: the name may be an agent's.
        write!(f, "{}", self.file.display().to_string().escape_debug())?;
        if let Some(LinePosition { line, offset }) = self.place {
            write!(f, ", line {line} (byte {offset})")?;
        }
        write!(f, ": {}", self.fault)
    }
}

/// What is wrong there.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fault {
    #[error("lines were added after the seal, which ends at seq {sealed}")]
    Appended { sealed: u64 },
    #[error("not the file that was sealed")]
    Changed,
    #[error("lines were deleted before this one: expected seq {expected}, found {found}")]
    Deleted { expected: u64, found: u64 },
    #[error("a line was put in: seq {seq} was there already")]
    Duplicated { seq: u64 },
    #[error("this line was changed{}", why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    Edited { why: Option<String> },
    #[error("not in the seal")]
    ExtraFile,
    #[error("missing")]
    MissingFile,
    #[error("lines were reordered: expected seq {expected}, found {found}")]
    Reordered { expected: u64, found: u64 },
    #[error("{0}")]
    Seal(SealFault),
    #[error("the last line has no end: {bytes} bytes were left by a crash or a cut")]
    TornTail { bytes: u64 },
    #[error("lines are missing at the end: it ends at seq {last}, the seal at {sealed}")]
    Truncated { last: u64, sealed: u64 },
}
