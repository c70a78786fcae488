//! What a command printed, written where the sandbox cannot reach it.
//!
//! The host opened the file, for appending and nothing else, and handed it to us.
//! No other process of the sandbox can have it: we are not dumpable, so
//! `/proc/1/fd` is closed to everybody with our user.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use protocol::init::TerminalSize;
use protocol::spool::{SpoolEnd, SpoolEvent};

/// The spool of one command.
#[derive(Debug)]
pub(super) struct Spool {
    file: Mutex<File>,
    begun: Instant,
}

impl Spool {
    pub(super) fn new(file: OwnedFd) -> Self {
        Self { file: Mutex::new(file.into()), begun: Instant::now() }
    }

    pub(super) fn output(&self, is_error: bool, bytes: &[u8]) -> io::Result<()> {
        let bytes = bytes.to_vec();
        self.write(&if is_error { SpoolEvent::Error(bytes) } else { SpoolEvent::Output(bytes) })
    }

    pub(super) fn resized(&self, size: TerminalSize) -> io::Result<()> {
        self.write(&SpoolEvent::Resized(size))
    }

    pub(super) fn ended(&self, end: SpoolEnd) -> io::Result<()> {
        self.write(&SpoolEvent::Ended(end))
    }

    fn write(&self, event: &SpoolEvent) -> io::Result<()> {
        let frame = event.frame(self.begun.elapsed());
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = file.metadata()?.len();
        // What a full disk took of it goes again: nobody could read what comes after.
        file.write_all(&frame).inspect_err(|_| drop(file.set_len(whole)))
    }
}
