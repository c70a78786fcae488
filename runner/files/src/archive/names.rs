//! Names that do not fit into a tar header.
//!
//! They come in an entry of their own, before the one they name: GNU's long
//! names, or POSIX's extended headers. Nothing says how long such an entry is,
//! so we do. Of the extended headers only the names are read; one that changes
//! what follows (its length, holes in it) is refused, since then two readers of
//! one archive could see two different things.

use std::io::Read;

use tar::{Entry, EntryType, PaxExtensions};

use super::{ArchiveError, tar_failed};

/// Longer than any path the kernel takes, with room for the header's words.
const MAX_NAME_BYTES: u64 = 64 * 1024;

/// What the next entry is called, where its header does not say it all.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
}

impl Names {
    /// Reads the entry if it is about the next one; whether it was.
    pub(super) fn take<R: Read>(
        &mut self,
        kind: EntryType,
        entry: &mut Entry<'_, R>,
    ) -> Result<bool, ArchiveError> {
        match kind {
            EntryType::GNULongName => self.path = Some(until_nul(read(entry)?)),
            EntryType::GNULongLink => self.link = Some(until_nul(read(entry)?)),
            EntryType::XHeader => self.extended(&read(entry)?)?,
            // About the archive as a whole: a comment, usually.
            EntryType::XGlobalHeader => drop(read(entry)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn extended(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        for record in PaxExtensions::new(bytes) {
            let record = record.map_err(tar_failed)?;
            let value = record.value_bytes().to_vec();
            match record.key_bytes() {
                b"path" => self.path = Some(value),
                b"linkpath" => self.link = Some(value),
                key if key == b"size" || key.starts_with(b"GNU.sparse") => {
                    return Err(ArchiveError::Header);
                }
                // Times and owners, which are not ours to restore.
                _ => {}
            }
        }
        Ok(())
    }
}

fn read<R: Read>(entry: &mut Entry<'_, R>) -> Result<Vec<u8>, ArchiveError> {
    if entry.size() > MAX_NAME_BYTES {
        return Err(ArchiveError::Header);
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(tar_failed)?;
    Ok(bytes)
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}
