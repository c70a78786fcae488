//! Why nothing can be recorded, and therefore nothing may pass.

use std::io;

use crate::text::Text;

/// The log cannot take a record.
///
/// [`Unavailable::Full`] passes when entries close, and [`Unavailable::NoRoom`]
/// when there is room on the disk; the others are for good.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unavailable {
    #[error("the audit log is closed")]
    Closed,
    #[error("the audit log cannot {step}: {why}")]
    Failed { step: WriterStep, why: Text<256> },
    #[error("the audit log has no place left: {places} are taken by open entries and queued lines")]
    Full { places: u32 },
    #[error("the audit log waits for room on its disk: {why}")]
    NoRoom { why: Text<256> },
    #[error("the audit log has reached its size of {bytes} bytes")]
    Spent { bytes: u64 },
}

impl Unavailable {
    pub(super) fn failed(step: WriterStep, err: &io::Error) -> Self {
        Self::Failed { step, why: format_args!("{err}").into() }
    }

    /// Whoever wrote has panicked.
    pub(super) fn writer_stopped() -> Self {
        Self::Failed { step: WriterStep::Run, why: Text::constant("its writer has stopped") }
    }
}

/// What the writer was doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WriterStep {
    #[error("begin the next segment")]
    Rotate,
    /// The writer thread is gone without having said why.
    #[error("be written any more")]
    Run,
    #[error("sync to disk")]
    Sync,
    #[error("write")]
    Write,
}

/// Why the writer cannot go on as it is.
#[derive(Debug)]
pub(super) enum WriteFailure {
    /// For good.
    Failed(Unavailable),
    /// Until there is room.
    NoRoom(Text<256>),
}

impl WriteFailure {
    /// A disk or a quota that is full may have room again, and nothing is in
    /// doubt until then: what was not written is known to the byte.
    pub(super) fn of(step: WriterStep, err: &io::Error) -> Self {
        match err.kind() {
            io::ErrorKind::QuotaExceeded | io::ErrorKind::StorageFull => {
                Self::NoRoom(format_args!("{err}").into())
            }
            _ => Self::Failed(Unavailable::failed(step, err)),
        }
    }
}

impl From<Unavailable> for WriteFailure {
    fn from(why: Unavailable) -> Self {
        Self::Failed(why)
    }
}
