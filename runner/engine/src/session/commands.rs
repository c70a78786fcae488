//! The commands of a session, each with its place in the evidence:
//! `commands/<n>/{command.json,transcript.cast}`.
//!
//! Whoever starts a command writes it down, and holds a lock while it does, so
//! that the evidence is not sealed under its hands.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use protocol::init::TerminalSize;

use crate::evidence::{RunFolder, SPOOL};
use crate::outcome::{Outcome, Usage};
use crate::record::{CommandRecord, Recorder};

/// Held by everybody who writes commands down.
#[derive(Debug)]
#[must_use]
pub struct Writing {
    _lock: File,
}

impl Writing {
    /// Begins to write, as one of many.
    pub fn among_others(folder: &Path) -> io::Result<Self> {
        let lock = File::create(folder.join(LOCK))?;
        lock.lock_shared()?;
        Ok(Self { _lock: lock })
    }

    /// Waits until nobody writes any more, for a while.
    pub fn alone(folder: &Path, within: Duration) -> io::Result<Self> {
        let lock = File::create(folder.join(LOCK))?;
        let deadline = Instant::now() + within;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(10));
                }
                // Whoever hangs has written what there is to write.
                Err(TryLockError::WouldBlock) => break,
                Err(TryLockError::Error(err)) => return Err(err),
            }
        }
        Ok(Self { _lock: lock })
    }
}

const LOCK: &str = "commands.lock";

/// A command's folder in the evidence.
#[derive(Debug)]
pub struct Entry {
    folder: PathBuf,
    pub record: CommandRecord,
}

impl Entry {
    /// Takes the next number, which nobody else gets, and writes the command
    /// down.
    pub fn begin(
        evidence: &RunFolder,
        command: Vec<String>,
        directory: Option<String>,
        tty: bool,
    ) -> io::Result<Self> {
        let all = evidence.commands();
        let mut folder = DirBuilder::new();
        folder.mode(0o700);
        match folder.create(&all) {
            Err(err) if err.kind() != io::ErrorKind::AlreadyExists => return Err(err),
            Ok(()) | Err(_) => {}
        }
        let mut number = numbers(evidence).last().map_or(1, |last| last + 1);
        let place = loop {
            let place = all.join(number.to_string());
            match folder.create(&place) {
                Ok(()) => break place,
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(err) => return Err(err),
            }
        };
        let record = CommandRecord {
            number,
            command,
            directory,
            tty,
            begun: Timestamp::now(),
            ended: None,
            outcome: None,
            exit_code: None,
            usage: None,
        };
        let entry = Self { folder: place, record };
        entry.write()?;
        Ok(entry)
    }

    /// A recording of what it prints.
    pub fn recorder(&self, limit: u64, size: TerminalSize) -> io::Result<Recorder> {
        let path = self.folder.join("transcript.cast");
        Recorder::begin(&path, &self.record.command, limit, size)
    }

    /// What it printed, until it is in the transcript.
    pub fn spool(&self) -> PathBuf {
        self.folder.join(SPOOL)
    }

    pub fn remove_spool(&self) {
        drop(fs::remove_file(self.spool()));
    }

    /// It was never begun.
    pub fn remove(self) {
        drop(fs::remove_dir_all(&self.folder));
    }

    pub fn end(mut self, outcome: Outcome, usage: Usage) -> io::Result<CommandRecord> {
        self.record.ended = Some(Timestamp::now());
        self.record.exit_code = Some(outcome.code());
        self.record.outcome = Some(outcome);
        self.record.usage = Some(usage);
        self.write()?;
        Ok(self.record)
    }

    fn write(&self) -> io::Result<()> {
        let text = files::printable::ascii_json(&serde_json::to_string_pretty(&self.record)?);
        let path = self.folder.join("command.json");
        audit::put_whole_file(&path, 0o600, |file| writeln!(file, "{text}")).map(drop)
    }
}

/// The numbers of a session's commands, in order; none for a run.
pub fn numbers(evidence: &RunFolder) -> Vec<u32> {
    let entries = fs::read_dir(evidence.commands()).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// What one command of a session printed.
pub fn transcript(evidence: &RunFolder, number: u32) -> PathBuf {
    evidence.commands().join(number.to_string()).join("transcript.cast")
}

/// Everything that was written down, in order.
pub fn records(evidence: &RunFolder) -> Vec<CommandRecord> {
    let path = |number: u32| evidence.commands().join(number.to_string());
    let read = |number| fs::read(path(number).join("command.json")).ok();
    let numbers = numbers(evidence).into_iter();
    numbers.filter_map(|number| serde_json::from_slice(&read(number)?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn every_command_has_a_number_of_its_own() {
        let home = tempfile::tempdir().unwrap();
        let evidence = RunFolder::create(&home.path().join("runs"), "r1").unwrap();
        thread::scope(|scope| {
            for number in 0..20 {
                let evidence = &evidence;
                scope.spawn(move || {
                    let entry =
                        Entry::begin(evidence, vec![number.to_string()], None, false).unwrap();
                    entry.end(Outcome::Exited { code: 0 }, Usage::default()).unwrap();
                });
            }
        });
        assert_eq!(numbers(&evidence), (1..=20).collect::<Vec<_>>());
        let records = records(&evidence);
        assert!(records.iter().all(|record| record.exit_code == Some(0)), "{records:?}");
    }

    #[test]
    fn nothing_is_sealed_under_the_hands_of_a_writer() {
        let home = tempfile::tempdir().unwrap();
        let writer = Writing::among_others(home.path()).unwrap();
        let other = Writing::among_others(home.path()).unwrap();
        let written = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                // Longer than any machine takes: only the writers' end ends it.
                let alone = Writing::alone(home.path(), Duration::from_secs(3600)).unwrap();
                (alone, written.load(Ordering::SeqCst))
            });
            thread::sleep(Duration::from_millis(50));
            written.store(true, Ordering::SeqCst);
            drop((writer, other));
            assert!(waiting.join().unwrap().1, "it did not wait for those who write");
        });
    }
}
