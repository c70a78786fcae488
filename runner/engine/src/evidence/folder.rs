//! The folder of one run.
//!
//! Only its owner can read it. A file of it appears whole or not at all, except
//! the transcript, which grows while the run is going and is usable whenever it
//! is cut off.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};

use audit::segment::Segment;
use files::removal::remove_all;
use files::tree::Directory;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::work_budget::{self, WorkBudget};
use crate::workspace::patch::{self, PatchLimits};
use crate::workspace::{Changes, changes};

/// The names of the files.
const CHANGES: &str = "changes.json";
const PATCH: &str = "changes.patch";
const POLICY: &str = "policy.yaml";
const RUN: &str = "run.json";
const TRANSCRIPT: &str = "transcript.cast";
pub const SPOOL: &str = "output.spool";
pub(super) const ARTIFACTS: &str = "artifacts";
const COMMANDS: &str = "commands";

/// Where the gateway writes its log while it runs.
const GATEWAY: &str = audit::segment::GATEWAY_FOLDER;

/// A record larger than this is not read.
const MAX_FILE_BYTES: u64 = 512 * 1024 * 1024;

/// The folder of one run, and its scratch space.
#[derive(Clone, Debug)]
pub struct RunFolder {
    run: String,
    path: PathBuf,
    scratch: PathBuf,
}

/// What is wrong with a run's folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("cannot {step} {}", path.display())]
    Disk { step: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is damaged", path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error("there is a run `{run}` already; choose another name")]
    Exists { run: String },
    #[error("{} is of format {format}; this program reads format {}", path.display(), changes::FORMAT)]
    Format { path: PathBuf, format: u32 },
    #[error("`{run}` is not the name of a run")]
    Name { run: String },
    #[error("there is no run `{run}`; `sluice ls` lists them")]
    Unknown { run: String },
}

impl RunFolder {
    /// Makes the folder of a new run below `runs`.
    pub fn create(runs: &Path, run: &str) -> Result<Self, FolderError> {
        let folder = Self::named(runs, run)?;
        private(runs)?;
        match DirBuilder::new().mode(0o700).create(&folder.path) {
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {
                return Err(FolderError::Exists { run: run.to_owned() });
            }
            made => made.map_err(disk("create", &folder.path))?,
        }
        private(&folder.scratch)?;
        Ok(folder)
    }

    /// The folder of a run that was.
    pub fn open(runs: &Path, run: &str) -> Result<Self, FolderError> {
        let folder = Self::named(runs, run)?;
        let metadata = folder.path.symlink_metadata();
        if metadata.is_ok_and(|metadata| metadata.is_dir()) {
            return Ok(folder);
        }
        Err(FolderError::Unknown { run: run.to_owned() })
    }

    fn named(runs: &Path, run: &str) -> Result<Self, FolderError> {
        let mut components = Path::new(run).components();
        let (Some(Component::Normal(only)), None) = (components.next(), components.next()) else {
            return Err(FolderError::Name { run: run.to_owned() });
        };
        if only != run {
            return Err(FolderError::Name { run: run.to_owned() });
        }
        Ok(Self {
            run: run.to_owned(),
            path: runs.join(run),
            scratch: runs.with_file_name("scratch").join(run),
        })
    }

    pub fn run(&self) -> &str {
        &self.run
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the sandbox's own files are; not part of the evidence.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// The overlay's upper layer.
    pub fn upper(&self) -> PathBuf {
        self.scratch.join("upper")
    }

    pub fn artifacts(&self) -> PathBuf {
        self.path.join(ARTIFACTS)
    }

    pub fn transcript(&self) -> PathBuf {
        self.path.join(TRANSCRIPT)
    }

    /// What the command printed, until it is in the transcript.
    pub fn spool(&self) -> PathBuf {
        self.path.join(SPOOL)
    }

    /// Where the commands of a session are; a run has none.
    pub fn commands(&self) -> PathBuf {
        self.path.join(COMMANDS)
    }

    /// Writes the policy and the record of a run that begins. Nobody waits for
    /// the disk: both are written again when it has ended, and whoever is killed
    /// before leaves what the kernel has.
    pub fn begin(&self, policy: &str, record: &impl Serialize) -> Result<(), FolderError> {
        self.put_without_sync(POLICY, |file| file.write_all(policy.as_bytes()))?;
        self.put_without_sync(RUN, |file| json(record, file))
    }

    /// Writes the policy as it was in force.
    pub fn write_policy(&self, text: &str) -> Result<(), FolderError> {
        self.put(POLICY, |file| file.write_all(text.as_bytes()))
    }

    /// Writes `run.json`, again and again as more is known.
    pub fn write_run(&self, record: &impl Serialize) -> Result<(), FolderError> {
        self.put(RUN, |file| json(record, file))
    }

    pub fn read_run<T: DeserializeOwned>(&self) -> Result<T, FolderError> {
        self.read_json(RUN)
    }

    /// Writes `changes.patch` and, with where each part of it is, `changes.json`.
    pub fn write_changes(
        &self,
        mut changes: Changes,
        budget: &WorkBudget,
    ) -> Result<Changes, FolderError> {
        let project = changes.project.to_path();
        let upper = Directory::open(&self.upper()).map_err(disk("open", &self.upper()))?;
        let lower = Directory::open(&project).map_err(disk("open", &project))?;
        budget.begin("patch", work_budget::PATCH);
        self.put(PATCH, |file| {
            let out = io::BufWriter::new(file);
            patch::write(&mut changes, &upper, &lower, &PatchLimits::default(), budget, out)
        })?;
        self.put(CHANGES, |file| json(&changes, file))?;
        Ok(changes)
    }

    /// What the run changed; none when nobody compared.
    pub fn read_changes(&self) -> Result<Option<Changes>, FolderError> {
        let path = self.path.join(CHANGES);
        if path.symlink_metadata().is_err() {
            return Ok(None);
        }
        let changes: Changes = self.read_json(CHANGES)?;
        if changes.format != changes::FORMAT {
            return Err(FolderError::Format { path, format: changes.format });
        }
        Ok(Some(changes))
    }

    /// A part of `changes.patch`.
    pub fn read_patch(&self, section: changes::Section) -> Result<Vec<u8>, FolderError> {
        let path = self.path.join(PATCH);
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(&path)?;
            io::Seek::seek(&mut file, io::SeekFrom::Start(section.offset))?;
            let mut bytes = Vec::new();
            file.take(section.length.min(MAX_FILE_BYTES)).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(disk("read", &path))
    }

    /// The directory the gateway's log is written to. It alone is mounted into
    /// the gateway: the rest of the evidence is none of its business.
    pub fn gateway_log(&self) -> Result<PathBuf, FolderError> {
        let path = self.path.join(GATEWAY);
        private(&path)?;
        Ok(path)
    }

    /// Brings the log to its place once its writer has stopped.
    pub fn settle_log(&self) -> Result<(), FolderError> {
        let from = self.path.join(GATEWAY);
        let Ok(directory) = Directory::open(&from) else { return Ok(()) };
        for segment in Segment::list(&from).map_err(disk("read", &from))? {
            let name = segment.name();
            // A link would be sealed as one and say nothing.
            directory.file(name.as_bytes()).map_err(disk("open", segment.path()))?;
            fs::rename(segment.path(), self.path.join(name))
                .map_err(disk("move", segment.path()))?;
        }
        drop(directory);
        match fs::remove_dir(&from) {
            // Whatever else the gateway left is evidence too.
            Err(err) if err.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => removed.map_err(disk("remove", &from)),
        }
    }

    /// Removes what the sandbox wrote; the evidence stays.
    pub fn remove_scratch(&self) -> Result<(), FolderError> {
        remove(&self.scratch)
    }

    /// Removes everything there is of the run.
    pub fn remove(self) -> Result<(), FolderError> {
        remove(&self.scratch)?;
        remove(&self.path)
    }

    fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T, FolderError> {
        let path = self.path.join(name);
        let file = File::open(&path).map_err(disk("open", &path))?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(disk("read", &path))?;
        serde_json::from_slice(&bytes).map_err(|source| FolderError::Damaged { path, source })
    }

    /// Writes a file beside its place, makes it safe on disk and moves it there.
    fn put(
        &self,
        name: &str,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), FolderError> {
        self.put_without_sync(name, |file| {
            write(file)?;
            file.sync_all()
        })
    }

    fn put_without_sync(
        &self,
        name: &str,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), FolderError> {
        let path = self.path.join(name);
        audit::put_whole_file(&path, 0o600, write).map(drop).map_err(disk("write", &path))
    }
}

fn json(record: &impl Serialize, file: &mut File) -> io::Result<()> {
    let mut text = files::printable::ascii_json(&serde_json::to_string_pretty(record)?);
    text.push('\n');
    file.write_all(text.as_bytes())
}

fn private(dir: &Path) -> Result<(), FolderError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(disk("create", dir))
}

fn remove(path: &Path) -> Result<(), FolderError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let Ok(parent) = Directory::open(parent) else { return Ok(()) };
    remove_all(&parent, std::os::unix::ffi::OsStrExt::as_bytes(name)).map_err(disk("remove", path))
}

pub(super) fn disk(step: &'static str, path: &Path) -> impl Fn(io::Error) -> FolderError {
    move |source| FolderError::Disk { step, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_the_owner_can_read_a_run() {
        let home = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&home.path().join("runs"), "r1").unwrap();
        for path in [folder.path(), folder.scratch(), &home.path().join("runs")] {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
        folder.write_policy("version: 1\n").unwrap();
        folder.write_run(&serde_json::json!({"run": "r1", "name": "\u{1b}[2J\u{9b}"})).unwrap();
        let text = fs::read_to_string(folder.path().join(RUN)).unwrap();
        assert!(text.bytes().all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte)), "{text}");
        let mode = folder.path().join(RUN).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read: serde_json::Value = folder.read_run().unwrap();
        assert_eq!(read["name"], "\u{1b}[2J\u{9b}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no draft is left");
    }

    #[test]
    fn a_runs_name_leads_nowhere_else() {
        let home = tempfile::tempdir().unwrap();
        for bad in ["", ".", "..", "a/b", "/etc", "a/", "./a"] {
            let err = RunFolder::create(home.path(), bad).unwrap_err();
            assert!(matches!(err, FolderError::Name { .. }), "{bad}: {err}");
        }
        let runs = home.path().join("runs");
        RunFolder::create(&runs, "r1").unwrap();
        assert_eq!(
            RunFolder::create(&runs, "r1").unwrap_err().to_string(),
            "there is a run `r1` already; choose another name"
        );
        assert_eq!(
            RunFolder::open(&runs, "r2").unwrap_err().to_string(),
            "there is no run `r2`; `sluice ls` lists them"
        );
        RunFolder::open(&runs, "r1").unwrap().remove().unwrap();
        assert!(RunFolder::open(&runs, "r1").is_err());
    }

    #[test]
    fn the_log_comes_home_and_a_link_does_not() {
        let home = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&home.path().join("runs"), "r1").unwrap();
        folder.settle_log().unwrap();
        let log = folder.gateway_log().unwrap();
        fs::write(log.join("audit.jsonl"), "{}\n").unwrap();
        fs::write(log.join("audit.000001.jsonl"), "{}\n").unwrap();
        folder.settle_log().unwrap();
        assert!(folder.path().join("audit.jsonl").exists() && !log.exists());

        let log = folder.gateway_log().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", log.join("audit.jsonl")).unwrap();
        assert!(folder.settle_log().is_err());
    }
}
