//! Checks a log or a whole evidence folder, and names the first break.
//!
//! The chain is checked first, because it can say which line; then the seal,
//! who signed it and how far it says the log went; then every other file. A
//! chain alone cannot show that its last lines are missing or that its very last
//! line was changed: only a seal can, which is why [`Verified::seal`] says
//! whether there was one.

mod fault;
mod walk;

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::path::Path;

use crate::chain::ChainHead;
use crate::key::PublicKey;
use crate::seal::{self, Seal, Signed};
use crate::segment::{CURRENT_SEGMENT, Segment};
use crate::time::Time;
pub use fault::{Break, Fault, VerifyError};
pub(crate) use walk::WalkedChain;

/// What was checked and found whole.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Verified {
    /// The log, unless the run had none.
    pub log: Option<VerifiedLog>,
    /// Who vouches for it, if anyone.
    pub seal: Option<VerifiedSeal>,
}

/// A chain without a break.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VerifiedLog {
    pub head: ChainHead,
    pub segments: u64,
    /// It ended with `log_closed`.
    pub closed: bool,
    /// How often a torn last line was cut off.
    pub recovered: u64,
    /// Entries that were opened and have no closing line: a crash left them.
    pub unclosed: u64,
}

/// A seal by a key that is trusted, true in every point.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VerifiedSeal {
    pub key: PublicKey,
    pub time: Time,
    pub files: u64,
}

/// Checks what is at `path`: an evidence folder, a log's folder, or one file of
/// lines that begins a log.
pub fn verify(path: &Path, trusted: &[PublicKey]) -> Result<Verified, VerifyError> {
    if !path.is_dir() {
        let walked = walk::file(path, None)?;
        return Ok(Verified { log: Some(walked.into()), seal: None });
    }
    let read = |source| VerifyError::Read { path: path.join(seal::SEAL), source };
    let signed = Signed::read(path, trusted).map_err(read)?;

    // A claim about the last line helps to tell which of two lines was changed,
    // but only if it comes from somebody we trust.
    let sealed_head = match &signed {
        Some(Ok(signed)) => signed.seal.log,
        Some(Err(_)) | None => None,
    };
    let walked = loop {
        let segments = list(path)?;
        let walked = walk::segments(&segments, sealed_head);
        // A log that went on to its next file meanwhile is no broken one.
        if list(path)? == segments {
            break walked?;
        }
    };

    let Some(signed) = signed else {
        return match walked {
            Some(walked) => Ok(Verified { log: Some(walked.into()), seal: None }),
            None => Err(VerifyError::NoLog { path: path.to_owned() }),
        };
    };
    let signed = signed.map_err(|fault| Break::of_file(seal::SEAL, Fault::Seal(fault)))?;
    reaches_the_sealed_line(&signed.seal, walked.as_ref())?;
    files_are_as_sealed(path, &signed.seal)?;
    let seal = VerifiedSeal {
        key: signed.key,
        time: signed.seal.time,
        files: signed.seal.files.len() as u64,
    };
    Ok(Verified { log: walked.map(VerifiedLog::from), seal: Some(seal) })
}

/// Walks the chain in `dir`; nothing if there is no log.
pub(crate) fn chain(dir: &Path) -> Result<Option<WalkedChain>, VerifyError> {
    walk::segments(&list(dir)?, None)
}

fn list(dir: &Path) -> Result<Vec<Segment>, VerifyError> {
    Segment::list(dir).map_err(|source| VerifyError::Read { path: dir.to_owned(), source })
}

/// The log ends where the seal says it ended.
fn reaches_the_sealed_line(seal: &Seal, walked: Option<&WalkedChain>) -> Result<(), Break> {
    let Some(sealed) = seal.log else {
        // A log that came later is an extra file.
        return Ok(());
    };
    let Some(walked) = walked else {
        return Err(Break::of_file(CURRENT_SEGMENT, Fault::MissingFile));
    };
    let found = walked.head;
    let fault = match found.seq.cmp(&sealed.seq) {
        Ordering::Equal if found.hash == sealed.hash => return Ok(()),
        Ordering::Equal => Fault::Edited { why: None },
        Ordering::Greater => Fault::Appended { sealed: sealed.seq },
        Ordering::Less => Fault::Truncated { last: found.seq, sealed: sealed.seq },
    };
    Err(Break { file: walked.last_file.clone(), place: Some(walked.last_place), fault })
}

/// Both lists are sorted, so one pass finds what is missing, extra or changed,
/// in the order of names.
fn files_are_as_sealed(dir: &Path, seal: &Seal) -> Result<(), VerifyError> {
    let read = |err: seal::ReadError| VerifyError::Read { path: err.path, source: err.source };
    let mut present = seal::paths(dir).map_err(read)?.into_iter().peekable();
    for sealed in &seal.files {
        let path = sealed.path.path();
        if let Some(extra) = present.next_if(|found| seal::by_bytes(found, &path).is_lt()) {
            return Err(Break::of_file(extra, Fault::ExtraFile).into());
        }
        if present.next_if_eq(&path).is_none() {
            return Err(Break::of_file(path, Fault::MissingFile).into());
        }
        let full = dir.join(&path);
        let found =
            seal::content(&full).map_err(|source| VerifyError::Read { path: full, source })?;
        if found != sealed.content {
            return Err(Break::of_file(path, Fault::Changed).into());
        }
    }
    match present.next() {
        Some(extra) => Err(Break::of_file(extra, Fault::ExtraFile).into()),
        None => Ok(()),
    }
}

impl From<WalkedChain> for VerifiedLog {
    fn from(walked: WalkedChain) -> Self {
        Self {
            head: walked.head,
            segments: walked.segments,
            closed: walked.closed,
            recovered: walked.recovered,
            unclosed: walked.open.len() as u64,
        }
    }
}
