//! Policy files on disk, and the files they extend.
//!
//! A file is read once, whole, if it is a regular file of bearable size, and is
//! from then on what it was: what is obeyed is what was approved. It is known by its canonical path, however it was written:
//! that is how [`policies::read`] notices circles. People see that path from where
//! they stand, and harmless for their terminal.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::spec::ReadPolicyFile;
use files::printable::Printable;
use policies::{
    Policy, Position, Problem, Problems, ProjectBounds, RegistryKind, RegistryUrl, Source, Sources,
};

use super::project::ProjectTree;
use super::registries::Lookup;
use crate::config::Permitted;

/// The largest file that is read; the language itself refuses less.
const MAX_POLICY_BYTES: u64 = 4 * 1024 * 1024;

/// The files of one policy, and the registries of this machine.
#[derive(Debug)]
pub(super) struct PolicyFiles<'f> {
    here: Option<PathBuf>,
    lookup: Lookup,
    whose: Whose<'f>,
    /// The files that were read, by the name people know them by.
    opened: RefCell<BTreeMap<Arc<str>, ReadPolicyFile>>,
}

/// Whose word a policy's files are, and what those of a project may grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whose<'f> {
    pub(super) tree: &'f ProjectTree,
    pub(super) permitted: &'f Permitted,
    /// Nobody named the file: it was there.
    pub(super) is_found: bool,
    /// Something is to be put under the policy.
    pub(super) is_obeyed: bool,
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

impl<'f> PolicyFiles<'f> {
    pub(super) fn new(whose: Whose<'f>, lookup: Lookup) -> Self {
        let here = std::env::current_dir().and_then(fs::canonicalize).ok();
        Self { here, lookup, whose, opened: RefCell::default() }
    }

    /// Reads the policy in the file at `path` and what it extends.
    pub(super) fn read(&self, path: &Path) -> Result<Result<Policy, Problems>, Unreadable> {
        let is_projects = self.whose.is_found || self.whose.tree.chooses(path);
        let own = self.open(path, is_projects)?;
        Ok(policies::read(&own, self))
    }

    /// Reads one file, which the project has a say in or not.
    fn open(&self, written: &Path, is_projects: bool) -> Result<Source, Unreadable> {
        let path = written.canonicalize().map_err(Unreadable::Disk)?;
        let mut opened = self.opened.borrow_mut();
        if let Some((name, known)) = opened.iter_mut().find(|(_, known)| known.path == path) {
            // A person's own file extends it too.
            known.is_projects &= is_projects;
            return Ok(Source::new(Arc::clone(name), Arc::clone(&known.text)));
        }
        let metadata = path.metadata().map_err(Unreadable::Disk)?;
        // Asked before opening: opening a pipe would wait for its other end.
        if !metadata.is_file() {
            return Err(Unreadable::Unfit("it is not a regular file"));
        }
        let mut bytes = Vec::new();
        let file = File::open(&path).map_err(Unreadable::Disk)?;
        file.take(MAX_POLICY_BYTES + 1).read_to_end(&mut bytes).map_err(Unreadable::Disk)?;
        if bytes.len() as u64 > MAX_POLICY_BYTES {
            return Err(Unreadable::Unfit("it is larger than 4 MiB"));
        }
        let name: Arc<str> = self.name(&path).into();
        match String::from_utf8(bytes) {
            Ok(text) => {
                let text: Arc<str> = text.into();
                let file = ReadPolicyFile { path, text: Arc::clone(&text), is_projects };
                opened.insert(Arc::clone(&name), file);
                Ok(Source::new(name, text))
            }
            Err(err) => Err(Unreadable::NotText(Box::new(not_text(name, err.as_bytes())))),
        }
    }

    /// Every file that was read, and what was looked up for them.
    pub(super) fn into_parts(self) -> (BTreeMap<Arc<str>, ReadPolicyFile>, Lookup) {
        (self.opened.into_inner(), self.lookup)
    }

    fn name(&self, path: &Path) -> String {
        let near = self.here.as_deref().and_then(|here| path.strip_prefix(here).ok());
        Printable(&near.unwrap_or(path).to_string_lossy()).to_string()
    }
}

impl Sources for PolicyFiles<'_> {
    fn load(&self, written: &str, from: &Source) -> Result<Source, String> {
        if Path::new(written).is_absolute() {
            return Err(format!("`{written}` is absolute; write it relative to this file"));
        }
        let opened = self.opened.borrow();
        let beside = opened.get(&from.name).and_then(|file| Some((file, file.path.parent()?)));
        let Some((from, path)) = beside.map(|(file, dir)| (file.is_projects, dir.join(written)))
        else {
            return Err(format!("`{written}` is a file, and a preset cannot extend files"));
        };
        drop(opened);
        // What a project's file extends is what the project chose.
        let is_projects = from || self.whose.tree.chooses(&path);
        self.open(&path, is_projects).map_err(|err| match err {
            Unreadable::Disk(err) if err.kind() == io::ErrorKind::NotFound => {
                format!("there is no file `{written}` beside this one")
            }
            Unreadable::Disk(err) => format!("`{written}` cannot be read: {err}"),
            Unreadable::NotText(problem) => format!("`{written}`: {}", one_line(&problem)),
            Unreadable::Unfit(why) => format!("`{written}` cannot be extended: {why}"),
        })
    }

    fn registries(&self, kind: RegistryKind) -> Vec<RegistryUrl> {
        self.lookup.registries(kind)
    }

    fn bounds(&self, source: &Source) -> Option<ProjectBounds<'_>> {
        let opened = self.opened.borrow();
        let file = opened.get(&source.name).filter(|file| file.is_projects)?;
        let beside = file.path.parent().unwrap_or(Path::new("/")).to_owned();
        let Whose { tree, permitted, is_obeyed, .. } = self.whose;
        let hosts = permitted.secrets.iter().map(|(name, secret)| (name, &*secret.hosts));
        Some(ProjectBounds {
            overrides: &permitted.overrides,
            secrets: hosts.collect(),
            is_enforced: is_obeyed,
            mount: Box::new(move |written, mode| tree.may_mount(&beside, written, mode, permitted)),
        })
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
    lossy.problem(Position { line, column, width: 1 }, "", message)
}

fn one_line(problem: &Problem) -> String {
    let Position { line, column, .. } = problem.at.unwrap_or_default();
    format!("line {line}, column {column}: {}", problem.message)
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::LazyLock;

    use super::*;

    /// No project, and nothing permitted.
    pub(in super::super) fn nobodys() -> Whose<'static> {
        static NONE: LazyLock<(ProjectTree, Permitted)> = LazyLock::new(Default::default);
        Whose { tree: &NONE.0, permitted: &NONE.1, is_found: false, is_obeyed: true }
    }

    #[test]
    fn what_was_read_stays_what_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (own, base) = (dir.path().join("own.yaml"), dir.path().join("base.yaml"));
        fs::write(&own, "version: 1\nextends: [./base.yaml]\n").unwrap();
        fs::write(&base, "version: 1\nnet: {enabled: true, allow: [a.example]}\n").unwrap();
        let files = PolicyFiles::new(nobodys(), Lookup::default());
        assert_eq!(files.read(&own).unwrap().unwrap().rules().count(), 1);
        for file in [&own, &base] {
            fs::write(file, "version: 1\nnet: {enabled: true, allow: [b.example, c.example]}\n")
                .unwrap();
        }
        let again = files.read(&own).unwrap().unwrap();
        assert_eq!(again.rules().next().unwrap().summary(), "a.example");
        let (opened, _) = files.into_parts();
        assert!(opened.values().all(|file| !file.text.contains("b.example")), "{opened:?}");
    }

    #[test]
    fn one_file_has_one_name_however_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.yaml");
        fs::write(&file, "version: 1\n").unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        std::os::unix::fs::symlink(&file, dir.path().join("link.yaml")).unwrap();
        let files = PolicyFiles::new(nobodys(), Lookup::default());
        let names = ["a.yaml", "sub/../a.yaml", "./a.yaml", "link.yaml"]
            .map(|written| files.open(&dir.path().join(written), false).unwrap().name);
        assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    }

    #[test]
    fn a_file_is_found_beside_the_one_that_extends_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("team")).unwrap();
        fs::write(dir.path().join("team/own.yaml"), "version: 1\n").unwrap();
        fs::write(dir.path().join("team/base.yaml"), "version: 1\nname: base\n").unwrap();
        let files = PolicyFiles::new(nobodys(), Lookup::default());
        let own = files.open(&dir.path().join("team/own.yaml"), false).unwrap();
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
        let files = PolicyFiles::new(nobodys(), Lookup::default());
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(files.open(dir.path(), false), Err(Unreadable::Unfit(_))));
        assert!(matches!(files.open(Path::new("/dev/zero"), false), Err(Unreadable::Unfit(_))));
    }

    #[test]
    fn a_byte_that_is_no_text_has_a_place() {
        let problem = not_text("p.yaml".into(), b"version: 1\nname: \xc3\xa9\xff\n");
        assert_eq!(problem.at.map(|at| (at.line, at.column)), Some((2, 8)));
        assert_eq!(problem.message, "the byte 0xff is not UTF-8; save the file as UTF-8");
    }
}
