//! The commands of a session, each with its place in the evidence:
//! `commands/<n>/{command.json,transcript.cast}`.
//!
//! Whoever starts a command writes it down, and holds a lock while it does, so
//! that the evidence is not sealed under its hands. Whoever closes the session waits
//! for them, but not without end: then it takes the folders away from them.
//!
//! **Invariant:** a command is written down through descriptors of folders, never by
//! their names. What was taken away leads nowhere.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
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
    commands: File,
}

impl Writing {
    /// Begins to write, as one of many, unless the session is closed.
    pub fn among_others(folder: &Path, evidence: &RunFolder) -> io::Result<Self> {
        let path = folder.join(LOCK);
        let lock = File::create(&path)?;
        lock.lock_shared()?;
        make(&evidence.commands())?;
        let commands = File::open(evidence.commands())?;
        // Asked last: whoever closes the session takes the lock's name before the
        // folder, so the folder that we hold is not the one it seals.
        let (ours, named) = (lock.metadata()?, fs::metadata(path)?);
        if ours.ino() != named.ino() || evidence.path().join(audit::seal::SEAL).exists() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self { _lock: lock, commands })
    }
}

/// Held by the one who closes the session.
#[derive(Debug)]
#[must_use]
pub struct Closing {
    _lock: File,
}

impl Closing {
    /// Waits until nobody writes any more, for a while. After that nobody can.
    pub fn begin(folder: &Path, evidence: &RunFolder, within: Duration) -> io::Result<Self> {
        // Left by one that was killed while it took the place of those who hang.
        let moved = evidence.path().join(MOVED);
        if moved.exists() {
            make(&evidence.commands())?;
            take_away(&moved, &evidence.commands())?;
        }
        let lock = File::create(folder.join(LOCK))?;
        let deadline = Instant::now() + within;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { _lock: lock }),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => return Self::instead(folder, evidence),
                Err(TryLockError::Error(err)) => return Err(err),
            }
        }
    }

    /// Takes the place of those who hang.
    fn instead(folder: &Path, evidence: &RunFolder) -> io::Result<Self> {
        let draft = folder.join(".commands.lock");
        let lock = File::create(&draft)?;
        lock.lock()?;
        fs::rename(draft, folder.join(LOCK))?;
        let all = evidence.commands();
        make(&all)?;
        let anew = evidence.path().join(MOVED);
        make(&anew)?;
        take_away(&all, &anew)?;
        fs::rename(&anew, &all)?;
        Ok(Self { _lock: lock })
    }
}

/// Where commands are while the folder around them is made anew.
const MOVED: &str = ".commands";

/// Moves what is in `from` to the folder `to`, folders as new ones, and removes `from`:
/// in a folder that is gone nobody can make a file. What is not written to its end stays
/// behind.
fn take_away(from: &Path, to: &Path) -> io::Result<()> {
    loop {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let place = to.join(entry.file_name());
            let is_draft = entry.file_name().as_encoded_bytes().starts_with(b".");
            // One that was renamed meanwhile is found under its other name.
            let moved = match entry.file_type()?.is_dir() {
                true => make(&place).and_then(|()| take_away(&entry.path(), &place)),
                false if is_draft => fs::remove_file(entry.path()),
                false => fs::rename(entry.path(), place),
            };
            match moved {
                Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
                Ok(()) | Err(_) => {}
            }
        }
        match fs::remove_dir(from) {
            Err(err) if err.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            removed => return removed,
        }
    }
}

/// Makes a folder that only its owner can enter, unless it is there.
fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(err) if err.kind() != io::ErrorKind::AlreadyExists => Err(err),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Where an open folder is, whatever became of its name.
fn inside(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

const LOCK: &str = "commands.lock";

/// A command's folder in the evidence.
#[derive(Debug)]
pub struct CommandEntry {
    folder: File,
    pub record: CommandRecord,
}

impl CommandEntry {
    /// Takes the next number, which nobody else gets, and writes the command
    /// down.
    pub fn begin(
        writing: &Writing,
        command: Vec<String>,
        directory: Option<String>,
        tty: bool,
    ) -> io::Result<Self> {
        let all = inside(&writing.commands);
        let mut number = numbers_in(&all).last().map_or(1, |last| last + 1);
        let place = loop {
            let place = all.join(number.to_string());
            match DirBuilder::new().mode(0o700).create(&place) {
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
        let entry = Self { folder: File::open(place)?, record };
        entry.write()?;
        Ok(entry)
    }

    /// A recording of what it prints.
    pub fn recorder(&self, limit: u64, size: TerminalSize) -> io::Result<Recorder> {
        let path = inside(&self.folder).join("transcript.cast");
        Recorder::begin(&path, &self.record.command, limit, size)
    }

    /// What it printed, until it is in the transcript.
    pub fn spool(&self) -> PathBuf {
        inside(&self.folder).join(SPOOL)
    }

    pub fn remove_spool(&self) {
        drop(fs::remove_file(self.spool()));
    }

    /// It was never begun.
    pub fn remove(self) {
        let place = fs::read_link(inside(&self.folder));
        for entry in fs::read_dir(inside(&self.folder)).into_iter().flatten().flatten() {
            drop(fs::remove_file(entry.path()));
        }
        // One that somebody else put there instead is not empty.
        drop(place.and_then(fs::remove_dir));
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
        let path = inside(&self.folder).join("command.json");
        audit::put_whole_file(&path, 0o600, |file| writeln!(file, "{text}")).map(drop)
    }
}

/// The numbers of a session's commands, in order; none for a run.
pub fn numbers(evidence: &RunFolder) -> Vec<u32> {
    numbers_in(&evidence.commands())
}

fn numbers_in(commands: &Path) -> Vec<u32> {
    let entries = fs::read_dir(commands).into_iter().flatten().flatten();
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
    use crate::spooled::finish_transcripts;

    #[test]
    fn every_command_has_a_number_of_its_own() {
        let home = tempfile::tempdir().unwrap();
        let evidence = RunFolder::create(&home.path().join("runs"), "r1").unwrap();
        thread::scope(|scope| {
            for number in 0..20 {
                let (home, evidence) = (&home, &evidence);
                scope.spawn(move || {
                    let writing = Writing::among_others(home.path(), evidence).unwrap();
                    let entry =
                        CommandEntry::begin(&writing, vec![number.to_string()], None, false)
                            .unwrap();
                    entry.end(Outcome::Exited { code: 0 }, Usage::default()).unwrap();
                });
            }
        });
        assert_eq!(numbers(&evidence), (1..=20).collect::<Vec<_>>());
        let records = records(&evidence);
        assert!(records.iter().all(|record| record.exit_code == Some(0)), "{records:?}");
    }

    #[test]
    fn commands_that_were_being_moved_when_their_mover_died_are_found_again() {
        let home = tempfile::tempdir().unwrap();
        let evidence = RunFolder::create(&home.path().join("runs"), "r1").unwrap();
        let writing = Writing::among_others(home.path(), &evidence).unwrap();
        for _ in 0..2 {
            let entry = CommandEntry::begin(&writing, vec!["true".to_owned()], None, false);
            entry.unwrap().end(Outcome::Exited { code: 0 }, Usage::default()).unwrap();
        }
        drop(writing);
        let moved = evidence.path().join(MOVED);
        make(&moved).unwrap();
        fs::rename(evidence.commands().join("1"), moved.join("1")).unwrap();
        let _closing = Closing::begin(home.path(), &evidence, Duration::ZERO).unwrap();
        assert_eq!(numbers(&evidence), [1, 2]);
        assert_eq!(records(&evidence).len(), 2);
        assert!(!moved.exists());
    }

    #[test]
    fn nothing_is_sealed_under_the_hands_of_a_writer() {
        let home = tempfile::tempdir().unwrap();
        let evidence = RunFolder::create(&home.path().join("runs"), "r1").unwrap();
        let writer = Writing::among_others(home.path(), &evidence).unwrap();
        let other = Writing::among_others(home.path(), &evidence).unwrap();
        let written = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                // Longer than any machine takes: only the writers' end ends it.
                let long = Duration::from_secs(3600);
                let alone = Closing::begin(home.path(), &evidence, long).unwrap();
                (alone, written.load(Ordering::SeqCst))
            });
            thread::sleep(Duration::from_millis(50));
            written.store(true, Ordering::SeqCst);
            drop((writer, other));
            assert!(waiting.join().unwrap().1, "it did not wait for those who write");
        });
    }
    #[test]
    fn who_hangs_while_the_evidence_is_closed_changes_nothing_in_it() {
        let home = tempfile::tempdir().unwrap();
        let evidence = RunFolder::create(&home.path().join("runs"), "r1").unwrap();
        let writing = Writing::among_others(home.path(), &evidence).unwrap();
        let begin = |writing| CommandEntry::begin(writing, vec!["true".to_owned()], None, false);
        let (hangs, other, third) =
            (begin(&writing).unwrap(), begin(&writing).unwrap(), begin(&writing).unwrap());
        let size = TerminalSize { columns: 80, rows: 24 };
        let _recorder = hangs.recorder(1000, size).unwrap();
        fs::write(hangs.spool(), "").unwrap();

        let alone = Closing::begin(home.path(), &evidence, Duration::from_millis(20)).unwrap();
        assert_eq!(records(&evidence).len(), 3, "what was written is there");
        finish_transcripts(&evidence, &[]).unwrap();
        evidence.seal(home.path()).unwrap();
        drop(alone);

        let done = || (Outcome::Exited { code: 0 }, Usage::default());
        let (outcome, usage) = done();
        assert!(hangs.end(outcome, usage).is_err());
        assert!(fs::write(other.spool(), "").is_err());
        assert!(other.recorder(1000, size).is_err());
        third.remove();
        assert!(begin(&writing).is_err());
        assert!(Writing::among_others(home.path(), &evidence).is_err());
        let key = audit::SigningKey::load(&crate::state_folder::key(home.path())).unwrap();
        audit::verify(evidence.path(), &[key.public()]).unwrap();
        assert_eq!(numbers(&evidence), [1, 2, 3]);
    }
}
