//! Collects what a run was to make, and copies it out.
//!
//! The patterns of `fs.artifacts` say what; the files are copied out of what the
//! sandbox wrote, name by name in open directories. A link is never followed and
//! never taken, and what is too much is left out and named.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use audit::Digest;
use files::tree::Directory;
use policies::FileGlob;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::folder::{FolderError, RunFolder, disk};
use crate::work_budget::WorkBudget;
use crate::workspace::sparse::{self, Pieces};
use crate::workspace::{TreePath, named_by};

/// How much is collected.
#[derive(Clone, Copy, Debug)]
pub struct ArtifactLimits {
    pub files: usize,
    pub file_bytes: u64,
    pub bytes: u64,
    pub depth: usize,
    /// Names that are looked at to find them.
    pub names: usize,
}

impl Default for ArtifactLimits {
    fn default() -> Self {
        Self { files: 10_000, file_bytes: 1 << 30, bytes: 4 << 30, depth: 64, names: 1_000_000 }
    }
}

/// What was collected and what was not.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Collected {
    pub artifacts: Vec<Artifact>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Artifact {
    pub path: TreePath,
    pub size: u64,
    pub sha256: Digest,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LeftOut {
    pub path: TreePath,
    pub why: String,
}

/// How many reasons are kept: they come from an agent's tree.
const REASONS: usize = 1000;

impl RunFolder {
    /// Copies the files of `source` that a pattern names into the evidence, and
    /// nothing that the policy hides: the source may be the project itself.
    pub fn collect_artifacts(
        &self,
        source: &Path,
        globs: &[FileGlob],
        deny: &[FileGlob],
        limits: &ArtifactLimits,
        budget: &WorkBudget,
    ) -> Result<Collected, FolderError> {
        if globs.is_empty() {
            return Ok(Collected::default());
        }
        let from = Directory::open(source).map_err(disk("open", source))?;
        let into = self.artifacts();
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .recursive(true)
            .create(&into)
            .map_err(disk("create", &into))?;
        let into = Directory::open(&into).map_err(disk("open", &into))?;
        let mut collecting = Collecting {
            globs,
            deny,
            limits: *limits,
            bytes: 0,
            names: 0,
            into,
            budget,
            found: Collected::default(),
        };
        collecting.directory(&from, &TreePath::ROOT).map_err(disk("collect from", source))?;
        Ok(collecting.found)
    }
}

struct Collecting<'a> {
    globs: &'a [FileGlob],
    deny: &'a [FileGlob],
    limits: ArtifactLimits,
    bytes: u64,
    names: usize,
    into: Directory,
    budget: &'a WorkBudget,
    found: Collected,
}

impl Collecting<'_> {
    fn directory(&mut self, here: &Directory, at: &TreePath) -> io::Result<()> {
        if at.depth() >= self.limits.depth {
            self.leave(at, "it is nested too deep");
            return Ok(());
        }
        let (names, more) = here.names(self.limits.names.saturating_sub(self.names))?;
        self.names += names.len();
        if more {
            self.leave(at, "there are too many files to look through");
        }
        for named in names {
            let path = at.join(&named.name);
            if let Err(why) = self.budget.check() {
                self.leave(&path, &format!("collecting was {why}; so is what comes after it"));
                return Ok(());
            }
            let Some(seen) = here.look(&named.name)? else { continue };
            let wanted = {
                let text = path.lossy();
                self.globs.iter().any(|glob| glob.matches(&text))
            };
            if named_by(self.deny, &path) {
                if wanted {
                    self.leave(&path, "the policy hides it");
                }
                continue;
            }
            match seen.kind() {
                FileType::Directory => match here.child(&named.name) {
                    Ok(child) => self.directory(&child, &path)?,
                    Err(err) => self.leave(&path, &format!("it cannot be opened: {err}")),
                },
                FileType::RegularFile if wanted => self.file(here, &named.name, &path, seen.size()),
                FileType::Symlink if wanted => self.leave(&path, "it is a symbolic link"),
                // How an overlay says that something was deleted.
                FileType::CharacterDevice if seen.is_whiteout() => {}
                _ if wanted => self.leave(&path, "it is not a file"),
                _ => {}
            }
        }
        Ok(())
    }

    fn file(&mut self, here: &Directory, name: &[u8], path: &TreePath, size: u64) {
        if self.found.artifacts.len() >= self.limits.files {
            return self.leave(path, &format!("{} files are enough", self.limits.files));
        }
        if size > self.limits.file_bytes {
            return self
                .leave(path, &format!("it is larger than {} bytes", self.limits.file_bytes));
        }
        if self.bytes.saturating_add(size) > self.limits.bytes {
            return self.leave(path, &format!("together they exceed {} bytes", self.limits.bytes));
        }
        match self.copy(here, name, path, size) {
            Ok(sha256) => {
                self.bytes += size;
                self.found.artifacts.push(Artifact { path: path.clone(), size, sha256 });
            }
            Err(err) => self.leave(path, &format!("it cannot be copied: {err}")),
        }
    }

    fn copy(
        &self,
        here: &Directory,
        name: &[u8],
        path: &TreePath,
        size: u64,
    ) -> io::Result<Digest> {
        let (from, _) = here.file(name)?;
        let parent = way_to(&self.into, &path.parent().unwrap_or_default())?;
        let to = create(&parent, name)?;
        let copied = copied(from, &to, size, || self.budget.check().map_err(io::Error::other));
        // Half a file is not what the run made.
        copied.inspect_err(|_| {
            rustix::fs::unlinkat(&parent, name, rustix::fs::AtFlags::empty()).ok();
        })
    }

    fn leave(&mut self, path: &TreePath, why: &str) {
        if self.found.left_out.len() < REASONS {
            self.found.left_out.push(LeftOut { path: path.clone(), why: why.to_owned() });
        }
    }
}

/// Makes the directories of `path` below `top`.
fn way_to(top: &Directory, path: &TreePath) -> io::Result<Directory> {
    let mut here = top.at(&TreePath::ROOT)?;
    for part in path.parts() {
        match rustix::fs::mkdirat(&here, part, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => here = here.child(part)?,
            Err(err) => return Err(err.into()),
        }
    }
    Ok(here)
}

fn create(parent: &Directory, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?))
}

/// Copies exactly `size` bytes: a file that grew since was not what we measured.
fn copied(
    from: File,
    to: &File,
    size: u64,
    check: impl Fn() -> io::Result<()>,
) -> io::Result<Digest> {
    // What is hashed is what was copied, whatever happens to the source.
    let (digest, copied) = sparse::copy(Pieces::new(from, size), to, check)?;
    if copied != size {
        return Err(io::Error::other("it changed meanwhile"));
    }
    to.sync_all()?;
    Ok(digest)
}

/// Every file that was collected, with its hash.
pub fn listed(artifacts: &Directory) -> io::Result<Vec<Artifact>> {
    let mut found = Vec::new();
    list(artifacts, &TreePath::ROOT, &mut found)?;
    Ok(found)
}

/// Every file below `here`, with its hash.
fn list(here: &Directory, at: &TreePath, found: &mut Vec<Artifact>) -> io::Result<()> {
    for named in here.names(usize::MAX)?.0 {
        let path = at.join(&named.name);
        let Some(seen) = here.look(&named.name)? else { continue };
        match seen.kind() {
            FileType::Directory if path.depth() < 200 => {
                list(&here.child(&named.name)?, &path, found)?
            }
            FileType::RegularFile => {
                let (sha256, size) = Digest::of_reader(here.file(&named.name)?.0)?;
                found.push(Artifact { path, size, sha256 });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Copies them below `to`, where nothing is replaced.
pub fn copy_out(from: &Directory, artifacts: &[Artifact], to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    let into = Directory::open(to).with_context(|| format!("cannot open {}", to.display()))?;
    for Artifact { path, size, .. } in artifacts {
        let copy = || -> io::Result<Option<Digest>> {
            let (Some(name), Some(parent)) = (path.name(), from.holding(path)?) else {
                return Ok(None);
            };
            let into = way_to(&into, &path.parent().unwrap_or_default())?;
            copied(parent.file(name)?.0, &create(&into, name)?, *size, || Ok(())).map(Some)
        };
        copy().map_err(|err| anyhow!(err).context(format!("cannot copy {path}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use expect_test::expect;

    use super::*;

    fn collected(
        limits: &ArtifactLimits,
        globs: &[&str],
    ) -> (tempfile::TempDir, RunFolder, String) {
        let home = tempfile::tempdir().unwrap();
        let source = home.path().join("source");
        fs::create_dir_all(source.join("dist/deep")).unwrap();
        fs::write(source.join("dist/app"), "program").unwrap();
        fs::write(source.join("dist/deep/map"), "mapmap").unwrap();
        fs::write(source.join("other"), "x").unwrap();
        fs::write(source.join("dist/hidden"), "secret").unwrap();
        fs::write(home.path().join("secret"), "secret").unwrap();
        symlink("../../secret", source.join("dist/link")).unwrap();
        symlink("/etc", source.join("dist/etc")).unwrap();
        let tree = Directory::open(&source).unwrap();
        rustix::fs::mkfifoat(&tree, "dist/pipe", Mode::RUSR).unwrap();
        let folder = RunFolder::create(&home.path().join("runs"), "r1").unwrap();
        let globs: Vec<_> = globs.iter().map(|glob| FileGlob::parse(glob).unwrap()).collect();
        let deny = [FileGlob::parse("**/hidden").unwrap()];
        let found = folder
            .collect_artifacts(&source, &globs, &deny, limits, &WorkBudget::unattended())
            .unwrap();
        let mut told = String::new();
        for artifact in &found.artifacts {
            told.push_str(&format!("{} {}\n", artifact.path, artifact.size));
        }
        for left in &found.left_out {
            told.push_str(&format!("{}: {}\n", left.path, left.why));
        }
        (home, folder, told)
    }

    #[test]
    fn what_was_declared_is_collected_and_nothing_hidden_or_behind_a_link() {
        let (_home, folder, told) = collected(&ArtifactLimits::default(), &["dist/**"]);
        expect![[r#"
            dist/app 7
            dist/deep/map 6
            dist/etc: it is a symbolic link
            dist/hidden: the policy hides it
            dist/link: it is a symbolic link
            dist/pipe: it is not a file
        "#]]
        .assert_eq(&told);
        assert_eq!(fs::read(folder.artifacts().join("dist/deep/map")).unwrap(), b"mapmap");
        assert!(!folder.artifacts().join("dist/link").exists());
    }

    #[test]
    fn what_is_too_much_is_left_out_and_named() {
        let limits = ArtifactLimits { file_bytes: 6, ..ArtifactLimits::default() };
        let (_home, _folder, told) = collected(&limits, &["dist/app", "dist/deep/*"]);
        expect![[r#"
            dist/deep/map 6
            dist/app: it is larger than 6 bytes
        "#]]
        .assert_eq(&told);
        let limits = ArtifactLimits { bytes: 8, ..ArtifactLimits::default() };
        let (_home, _folder, told) = collected(&limits, &["dist/app", "dist/deep/*"]);
        expect![[r#"
            dist/app 7
            dist/deep/map: together they exceed 8 bytes
        "#]]
        .assert_eq(&told);
    }

    #[test]
    fn holes_stay_holes_and_what_is_stopped_is_left_out_whole() {
        use std::os::unix::fs::MetadataExt as _;

        let home = tempfile::tempdir().unwrap();
        let source = home.path().join("source");
        fs::create_dir(&source).unwrap();
        let sparse = File::create(source.join("sparse")).unwrap();
        sparse.set_len(8 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", (8 << 20) - 3).unwrap();
        let folder = RunFolder::create(&home.path().join("runs"), "r1").unwrap();
        let globs = [FileGlob::parse("*").unwrap()];
        let limits = ArtifactLimits::default();
        let collect = |budget: &WorkBudget| {
            folder.collect_artifacts(&source, &globs, &[], &limits, budget).unwrap()
        };
        let stop = crate::work_budget::StopToken::default();
        stop.because_of(2);
        let stopped = collect(&WorkBudget::attended(stop));
        assert_eq!(stopped.artifacts, []);
        assert_eq!(
            stopped.left_out.first().map(|left| left.why.as_str()),
            Some("collecting was stopped by signal 2; so is what comes after it")
        );
        assert!(!folder.artifacts().join("sparse").exists());

        let found = collect(&WorkBudget::unattended());
        let copy = folder.artifacts().join("sparse");
        let (sha256, size) = Digest::of_reader(File::open(&copy).unwrap()).unwrap();
        let artifact = found.artifacts.first().unwrap();
        assert_eq!((artifact.sha256, artifact.size), (sha256, size));
        let blocks = copy.metadata().unwrap().blocks();
        assert!(blocks * 512 < 4 << 20, "{blocks} blocks of holes were written");
        // Sealed by what was hashed while it was copied, and true.
        folder.seal_with(home.path(), &found.artifacts).unwrap();
        let key = audit::SigningKey::load(&crate::state_folder::key(home.path())).unwrap();
        audit::verify(folder.path(), &[key.public()]).unwrap();
    }

    #[test]
    fn nothing_is_collected_that_was_not_declared() {
        let (_home, folder, told) = collected(&ArtifactLimits::default(), &[]);
        assert_eq!(told, "");
        assert!(!folder.artifacts().exists());
    }
}
