//! What is about to come home, beside its place.
//!
//! Every file is copied here and compared with what was recorded before anything
//! of the project is touched, and made safe on disk with one call for all. What
//! comes after is renaming, so a file is replaced whole or not at all. The
//! directory goes away with the [`ApplyStage`].

use std::collections::BTreeMap;
use std::fs::File;

use audit::Digest;
use files::TreePath;
use files::removal::remove_all;
use files::tree::Directory;
use rustix::fs::{Mode, OFlags};

use super::super::changes::{Change, Node};
use super::super::sparse::{self, Pieces};
use super::write::{ApplyError, disk};

/// Drafts of everything that comes.
#[derive(Debug)]
pub(super) struct ApplyStage<'p> {
    project: &'p Directory,
    name: String,
    pub(super) directory: Directory,
    drafts: BTreeMap<TreePath, String>,
}

impl<'p> ApplyStage<'p> {
    /// Copies what the changes bring; at fault is the first that cannot be had.
    pub(super) fn fill(
        project: &'p Directory,
        upper: &Directory,
        ready: &[&Change],
    ) -> Result<Self, (TreePath, ApplyError)> {
        let at = |path: &TreePath| {
            let path = path.clone();
            move |err| (path, err)
        };
        let mut stage = Self::open(project).map_err(at(&TreePath::ROOT))?;
        for change in ready {
            let Some(after) = &change.after else { continue };
            stage.draft(upper, &change.path, after).map_err(at(&change.path))?;
        }
        rustix::fs::syncfs(&stage.directory)
            .map_err(|err| at(&TreePath::ROOT)(disk("write")(err.into())))?;
        Ok(stage)
    }

    fn open(project: &'p Directory) -> Result<Self, ApplyError> {
        let name = format!(".sluice-{}", uuid::Uuid::now_v7());
        rustix::fs::mkdirat(project, &*name, Mode::RWXU)
            .map_err(|err| disk("write beside")(err.into()))?;
        let directory = project.child(name.as_bytes()).map_err(disk("write beside"))?;
        Ok(Self { project, name, directory, drafts: BTreeMap::new() })
    }

    /// The name of the draft of what comes to `path`.
    pub(super) fn draft_of(&self, path: &TreePath) -> Option<&str> {
        self.drafts.get(path).map(String::as_str)
    }

    fn draft(
        &mut self,
        upper: &Directory,
        path: &TreePath,
        after: &Node,
    ) -> Result<(), ApplyError> {
        let draft = self.drafts.len().to_string();
        match after {
            // What was not read is never ready, nor is what is no file.
            Node::Directory { .. } | Node::File { sha256: None, .. } | Node::Special { .. } => {
                return Ok(());
            }
            Node::File { mode, sha256: Some(hash), .. } => {
                self.file(&draft, upper, path, *mode, hash)?;
            }
            Node::Link { target } => rustix::fs::symlinkat(&*target.0, &self.directory, &*draft)
                .map_err(|err| disk("create")(err.into()))?,
        }
        self.drafts.insert(path.clone(), draft);
        Ok(())
    }

    fn file(
        &self,
        draft: &str,
        upper: &Directory,
        path: &TreePath,
        mode: u32,
        hash: &Digest,
    ) -> Result<(), ApplyError> {
        let source = upper.holding(path).map_err(disk("find"))?.ok_or(ApplyError::Tampered)?;
        let name = path.name().ok_or(ApplyError::Tampered)?;
        let (from, seen) = source.file(name).map_err(disk("open what the run made of"))?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&self.directory, draft, flags, Mode::RUSR | Mode::WUSR);
        let file = File::from(made.map_err(|err| disk("create")(err.into()))?);
        let pieces = Pieces::new(from, seen.size());
        if sparse::copy(pieces, &file, || Ok(())).map_err(disk("copy"))?.0 != *hash {
            return Err(ApplyError::Tampered);
        }
        // Bits that lend rights do not come home.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777))
            .map_err(|err| disk("set the permissions of")(err.into()))
    }
}

impl Drop for ApplyStage<'_> {
    fn drop(&mut self) {
        // What is left in it is ours alone, and of no use.
        drop(remove_all(self.project, self.name.as_bytes()));
    }
}
