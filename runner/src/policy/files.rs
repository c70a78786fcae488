//! Policy files on disk, and the files they extend.
//!
//! A file is read once, whole, if it is a regular file of bearable size. It is
//! known by its canonical path, however it was written: that is how
//! [`policies::read`] notices circles. People see that path from where they
//! stand, and harmless for their terminal.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use policies::{At, Problem, Registries, Source, Sources};

use crate::shown::Shown;

/// The largest file that is read; the language itself refuses less.
const LARGEST: u64 = 4 * 1024 * 1024;

/// The files of one reading, and the registries of this machine.
#[derive(Debug)]
pub(super) struct Files {
    here: Option<PathBuf>,
    registries: Registries,
    /// The files that were read, by the name people know them by.
    opened: RefCell<BTreeMap<Arc<str>, Opened>>,
}

/// A file of a policy, as it was when it was read.
#[derive(Clone, Debug)]
pub struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) text: Arc<str>,
}

/// Why a file is no source.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// It could not be read at all.
    Disk(io::Error),
    /// It was read, and is no text.
    NotText(Box<Problem>),
    /// It is something else than a file, or far too large.
    Unfit(&'static str),
}

impl Files {
    pub(super) fn new(registries: Registries) -> Self {
        let here = std::env::current_dir().and_then(fs::canonicalize).ok();
        Self { here, registries, opened: RefCell::default() }
    }

    /// Reads one file.
    pub(super) fn open(&self, path: &Path) -> Result<Source, Unreadable> {
        let path = path.canonicalize().map_err(Unreadable::Disk)?;
        let metadata = path.metadata().map_err(Unreadable::Disk)?;
        // Asked before opening: opening a pipe would wait for its other end.
        if !metadata.is_file() {
            return Err(Unreadable::Unfit("it is not a regular file"));
        }
        let mut bytes = Vec::new();
        let file = File::open(&path).map_err(Unreadable::Disk)?;
        file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(Unreadable::Disk)?;
        if bytes.len() as u64 > LARGEST {
            return Err(Unreadable::Unfit("it is larger than 4 MiB"));
        }
        let name: Arc<str> = self.name(&path).into();
        match String::from_utf8(bytes) {
            Ok(text) => {
                let text: Arc<str> = text.into();
                let opened = Opened { path, text: Arc::clone(&text) };
                self.opened.borrow_mut().insert(Arc::clone(&name), opened);
                Ok(Source::new(name, text))
            }
            Err(err) => Err(Unreadable::NotText(Box::new(not_text(name, err.as_bytes())))),
        }
    }

    /// Every file that was read.
    pub(super) fn into_opened(self) -> BTreeMap<Arc<str>, Opened> {
        self.opened.into_inner()
    }

    fn name(&self, path: &Path) -> String {
        let near = self.here.as_deref().and_then(|here| path.strip_prefix(here).ok());
        Shown(&near.unwrap_or(path).to_string_lossy()).to_string()
    }
}

impl Sources for Files {
    fn load(&self, written: &str, from: &Source) -> Result<Source, String> {
        if Path::new(written).is_absolute() {
            return Err(format!("`{written}` is absolute; write it relative to this file"));
        }
        let opened = self.opened.borrow();
        let beside = opened.get(&from.name).and_then(|file| file.path.parent());
        let Some(path) = beside.map(|dir| dir.join(written)) else {
            return Err(format!("`{written}` is a file, and a preset cannot extend files"));
        };
        drop(opened);
        self.open(&path).map_err(|err| match err {
            Unreadable::Disk(err) if err.kind() == io::ErrorKind::NotFound => {
                format!("there is no file `{written}` beside this one")
            }
            Unreadable::Disk(err) => format!("`{written}` cannot be read: {err}"),
            Unreadable::NotText(problem) => format!("`{written}`: {}", one_line(&problem)),
            Unreadable::Unfit(why) => format!("`{written}` cannot be extended: {why}"),
        })
    }

    fn registries(&self) -> Registries {
        self.registries.clone()
    }
}

/// The first byte that is no text, where an editor would look for it.
fn not_text(name: Arc<str>, bytes: &[u8]) -> Problem {
    let good = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let byte = bytes.get(good.len()).copied().unwrap_or_default();
    let line = good.matches('\n').count() + 1;
    let column = good.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let lossy = Source::new(name, String::from_utf8_lossy(bytes));
    let message = format!("the byte 0x{byte:02x} is not UTF-8; save the file as UTF-8");
    lossy.problem(At { line, column, width: 1 }, "", message)
}

fn one_line(problem: &Problem) -> String {
    let At { line, column, .. } = problem.at.unwrap_or_default();
    format!("line {line}, column {column}: {}", problem.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_has_one_name_however_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.yaml");
        fs::write(&file, "version: 1\n").unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        std::os::unix::fs::symlink(&file, dir.path().join("link.yaml")).unwrap();
        let files = Files::new(Registries::default());
        let names = ["a.yaml", "sub/../a.yaml", "./a.yaml", "link.yaml"]
            .map(|written| files.open(&dir.path().join(written)).unwrap().name);
        assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    }

    #[test]
    fn a_file_is_found_beside_the_one_that_extends_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("team")).unwrap();
        fs::write(dir.path().join("team/own.yaml"), "version: 1\n").unwrap();
        fs::write(dir.path().join("team/base.yaml"), "version: 1\nname: base\n").unwrap();
        let files = Files::new(Registries::default());
        let own = files.open(&dir.path().join("team/own.yaml")).unwrap();
        assert!(files.load("./base.yaml", &own).unwrap().text.contains("base"));
        assert_eq!(
            files.load("./other.yaml", &own).unwrap_err(),
            "there is no file `./other.yaml` beside this one"
        );
        assert!(files.load("/etc/passwd.yaml", &own).unwrap_err().contains("absolute"));
        let preset = policies::presets::find("deny-all").unwrap();
        assert!(files.load("./x.yaml", &preset).unwrap_err().contains("a preset cannot"));
    }

    #[test]
    fn what_is_no_regular_file_is_not_waited_for() {
        let files = Files::new(Registries::default());
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(files.open(dir.path()), Err(Unreadable::Unfit(_))));
        assert!(matches!(files.open(Path::new("/dev/zero")), Err(Unreadable::Unfit(_))));
    }

    #[test]
    fn a_byte_that_is_no_text_has_a_place() {
        let problem = not_text("p.yaml".into(), b"version: 1\nname: \xc3\xa9\xff\n");
        assert_eq!(problem.at.map(|at| (at.line, at.column)), Some((2, 8)));
        assert_eq!(problem.message, "the byte 0xff is not UTF-8; save the file as UTF-8");
    }
}
