//! Makes the workspace of a run ready to be mounted.
//!
//! The project is walked once, bounded and without following a link, to find
//! what the sandbox must not write (`.git`, nested ones and the pointer files of
//! work trees, `scripts`, whatever `fs.protect` names) and what it must not see
//! (`fs.deny`). Nothing is mounted here; the backend does that.
//!
//! What can be masked, and what cannot:
//!
//! | mode | what is there at the start | what the host creates later | what the sandbox creates |
//! |---|---|---|---|
//! | overlay | hidden by whiteouts in a layer of its own; no path inside leads to it | hidden under the plainest path that a pattern names (`.env` in the project's root for `**/.env*`); otherwise visible if its name is new to its directory | its own words: reported, never applied |
//! | direct, readonly | covered by an empty file or directory, mount by mount | visible | its own words |
//!
//! A whiteout names a file, as a mount does, and neither names a pattern: what
//! does not exist yet can be hidden only where its name is known. A hard link
//! under a name that no pattern covers is another file.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use files::TreePath;
use files::tree::Directory;
use inside::launch::idmap::Swap;
use policies::{FileGlob, RelativePath, Workspace};
use rustix::fs::{FileType, Gid, Mode, Uid};

use super::gitdirs;
use super::masks;
use super::owners;
use super::pattern::Pattern;
use super::secret_files;
use super::survey::{self, Survey, SurveyError};
use crate::environment::Environment;

/// A project, and how a run may use it.
#[derive(Clone, Copy, Debug)]
pub struct Project<'a> {
    pub root: &'a Path,
    pub mode: Workspace,
    pub protect: &'a BTreeSet<RelativePath>,
    pub deny: &'a [FileGlob],
    /// Shown although it is hidden by default.
    pub show: &'a [FileGlob],
    /// Whom the sandbox runs as; used when we may give files away.
    pub owner: Option<(u32, u32)>,
    /// Under another owner than on disk, if at all.
    pub shown: Option<RemappedMount<'a>>,
}

/// A project that appears under another owner.
#[derive(Clone, Copy, Debug)]
pub struct RemappedMount<'a> {
    /// Where it is mounted like that; nothing is there yet.
    pub at: &'a Path,
    pub swap: Swap,
    /// Says where our launcher is, which mounts it.
    pub environment: &'a Environment,
}

/// A workspace that can be mounted.
#[derive(Clone, Debug)]
pub struct PreparedWorkspace {
    /// The project, by its real path.
    pub root: PathBuf,
    /// The project as the sandbox is to see it: what is mounted is taken from
    /// here. Mostly the same.
    pub source: PathBuf,
    /// For the mode `overlay`.
    pub overlay: Option<Overlay>,
    /// To be mounted read-only over themselves.
    pub protected: Vec<Place>,
    /// Not to be seen. An overlay hides them by itself; otherwise
    /// [`Prepared::empty_file`] or [`Prepared::empty_directory`] goes over each.
    pub masked: Vec<Place>,
    /// Those of them that only the default list names.
    pub hidden: Vec<TreePath>,
    /// Files that hold credentials and that somebody wants shown.
    pub shown: Vec<TreePath>,
    /// Everything that the sandbox is not to see, as patterns.
    pub deny: Vec<FileGlob>,
    pub empty_file: PathBuf,
    pub empty_directory: PathBuf,
    /// Protected, and not there: nothing to mount, and `apply` refuses them.
    pub absent: Vec<TreePath>,
}

/// A file or directory of the project.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Place {
    pub path: TreePath,
    pub directory: bool,
}

/// The layers of an overlay.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Overlay {
    /// The uppermost first: what is hidden, then the project.
    pub lower: Vec<PathBuf>,
    pub upper: PathBuf,
    pub work: PathBuf,
}

impl Overlay {
    /// The options of the mount.
    ///
    /// `userxattr` keeps the kernel's marks where the owner can read them
    /// without being root, and where a sandbox cannot set them. With it the
    /// kernel neither redirects nor splits metadata from content, so the upper
    /// layer alone says what changed.
    pub fn options(&self) -> String {
        let lower: Vec<String> = self.lower.iter().map(|dir| dir.display().to_string()).collect();
        format!(
            "lowerdir={},upperdir={},workdir={},userxattr",
            lower.join(":"),
            self.upper.display(),
            self.work.display(),
        )
    }
}

/// Why a workspace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("cannot {step} {}", path.display())]
    Disk { step: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{} cannot be the workspace: a mount cannot name a path with `{found}`; rename the directory",
        path.display()
    )]
    Name { path: PathBuf, found: char },
    #[error("the project cannot be shown under another owner")]
    Show(#[source] anyhow::Error),
    #[error(transparent)]
    Survey(#[from] SurveyError),
}

/// Finds what to protect and to hide in `project`, and makes the directories
/// the run needs under `scratch`.
pub fn prepare(project: &Project<'_>, scratch: &Path) -> Result<PreparedWorkspace, WorkspaceError> {
    let root = project.root.canonicalize().map_err(disk("find", project.root))?;
    let tree = Directory::open(&root).map_err(disk("open", &root))?;
    let Survey { mut protected, mut masked, hidden, shown, absent } = match project.mode {
        Workspace::None => Survey::default(),
        Workspace::Direct | Workspace::Overlay | Workspace::Readonly => {
            let Project { protect, deny, show, .. } = *project;
            survey::survey(&tree, protect, deny, show, &survey::SurveyLimits::default())?
        }
    };

    let mut deny = project.deny.to_vec();
    deny.extend(hidden.iter().filter_map(secret_files::pattern));
    deny.extend(secret_files::to_come(project.show));
    let further = gitdirs::led_to(&tree, &root, &protected)?;
    protected.extend(further);
    protected.sort();
    protected.dedup();
    // What is in another needs no mount of its own; what is hidden would come
    // back by one.
    let outer = protected.clone();
    protected.retain(|place| {
        let covers = |other: &Place| other != place && place.path.is_within(&other.path);
        !outer.iter().any(covers) && !masked.iter().any(|mask| place.path.is_within(&mask.path))
    });

    if project.mode != Workspace::Overlay {
        // A mount on a link lands where the link points. What it points to is
        // hidden under its own name, or is not in the sandbox at all.
        let is_link = |place: &Place| {
            let seen = tree.look_at(&place.path).ok().flatten();
            seen.is_some_and(|seen| seen.kind() == FileType::Symlink)
        };
        masked.retain(|place| !is_link(place));
    }

    let (empty_file, empty_directory) = (scratch.join("empty"), scratch.join("empty.d"));
    private(scratch)?;
    private(&empty_directory)?;
    empty(&empty_file).map_err(disk("create", &empty_file))?;
    lock(&empty_directory).map_err(disk("prepare", &empty_directory))?;

    let source = match &project.shown {
        None => root.clone(),
        Some(RemappedMount { at, swap, environment }) => {
            owners::show(&tree, at, swap, environment).map_err(WorkspaceError::Show)?;
            at.to_path_buf()
        }
    };
    let overlay = match project.mode {
        Workspace::Overlay => Some(layers(project, &source, &tree, (&masked, &deny), scratch)?),
        Workspace::Direct | Workspace::None | Workspace::Readonly => None,
    };
    Ok(PreparedWorkspace {
        root,
        source,
        overlay,
        protected,
        masked,
        hidden,
        shown,
        deny,
        empty_file,
        empty_directory,
        absent,
    })
}

fn layers(
    project: &Project<'_>,
    source: &Path,
    tree: &Directory,
    (masked, deny): (&[Place], &[FileGlob]),
    scratch: &Path,
) -> Result<Overlay, WorkspaceError> {
    let scratch = scratch.canonicalize().map_err(disk("find", scratch))?;
    // Separators of mount options. They can be escaped, but not for every
    // program between us and the kernel.
    for path in [source, &scratch] {
        if let Some(found) = path.to_string_lossy().chars().find(|c| ",:\\\"'".contains(*c)) {
            return Err(WorkspaceError::Name { path: path.to_owned(), found });
        }
    }
    let (upper, work) = (scratch.join("upper"), scratch.join("work"));
    private(&upper)?;
    private(&work)?;

    // The root of the merged tree looks like the root of the upper layer.
    let seen = tree.itself().map_err(disk("read", source))?;
    let upper_fd = File::open(&upper).map_err(disk("open", &upper))?;
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = project.owner.unwrap_or_else(|| seen.owner());
        rustix::fs::fchown(&upper_fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
            .map_err(|err| disk("give away", &upper)(err.into()))?;
    }
    rustix::fs::fchmod(&upper_fd, Mode::from_raw_mode(seen.mode()))
        .map_err(|err| disk("prepare", &upper)(err.into()))?;

    let mut lower = Vec::new();
    let ahead = ahead(deny, tree);
    if !masked.is_empty() || !ahead.is_empty() {
        let layer = scratch.join("masks");
        private(&layer)?;
        let swap = project.shown.map(|shown| shown.swap);
        masks::write(tree, masked.iter().chain(&ahead), &layer, swap)
            .map_err(disk("hide files in", &layer))?;
        lower.push(layer);
    }
    lower.push(source.to_owned());
    Ok(Overlay { lower, upper, work })
}

/// What patterns name most plainly and is not there: hidden before it exists, if
/// there is a directory for it.
fn ahead(deny: &[FileGlob], tree: &Directory) -> Vec<Place> {
    let is_to_come = |path: &TreePath| {
        let there = tree.holding(path).ok().flatten();
        let absent = |there: Directory| there.look(path.name()?).ok().filter(Option::is_none);
        there.and_then(absent).is_some()
    };
    let plainest = deny.iter().filter_map(|glob| Pattern::new(glob).plainest());
    plainest.filter(is_to_come).map(|path| Place { path, directory: false }).collect()
}

fn private(dir: &Path) -> Result<(), WorkspaceError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(disk("create", dir))
}

/// Nobody can read it, not even its content of nothing: a masked file should
/// fail loudly, not look like an empty one.
fn empty(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o000).open(path) {
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

fn lock(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o000))
}

fn disk(step: &'static str, path: &Path) -> impl Fn(io::Error) -> WorkspaceError {
    move |source| WorkspaceError::Disk { step, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use expect_test::expect;

    use super::*;

    fn prepared(
        home: &Path,
        project: &str,
        mode: Workspace,
        owner: Option<(u32, u32)>,
    ) -> Result<PreparedWorkspace, WorkspaceError> {
        let root = home.join(project);
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::write(root.join(".env"), "SECRET=1").unwrap();
        symlink("../elsewhere", root.join("link.env")).unwrap();
        let deny = ["**/.env", "**/*.env"].map(|glob| FileGlob::parse(glob).unwrap());
        let project = Project {
            root: &root,
            mode,
            protect: &BTreeSet::new(),
            deny: &deny,
            show: &[],
            owner,
            shown: None,
        };
        prepare(&project, &home.join("scratch"))
    }

    fn names(places: &[Place]) -> Vec<String> {
        places.iter().map(|place| place.path.to_string()).collect()
    }

    #[test]
    fn an_overlay_hides_everything_by_itself_and_keeps_to_its_owner() {
        let home = tempfile::tempdir().unwrap();
        let me = rustix::process::geteuid();
        let owner = me.is_root().then_some((1234, 1235));
        let ready = prepared(home.path(), "project", Workspace::Overlay, owner).unwrap();
        let overlay = ready.overlay.as_ref().unwrap();
        let home = home.path().canonicalize().unwrap();
        expect!["lowerdir=H/scratch/masks:H/project,upperdir=H/scratch/upper,workdir=H/scratch/work,userxattr"]
            .assert_eq(&overlay.options().replace(home.to_str().unwrap(), "H"));
        assert_eq!(names(&ready.masked), [".env", "link.env"]);
        assert_eq!(names(&ready.protected), [".git"]);
        let upper = overlay.upper.metadata().unwrap();
        let project = home.join("project").metadata().unwrap();
        assert_eq!(upper.permissions().mode(), project.permissions().mode());
        if let Some((uid, gid)) = owner {
            assert_eq!((upper.uid(), upper.gid()), (uid, gid));
        }
        assert_eq!(home.join("scratch").metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn without_an_overlay_no_mount_lands_behind_a_link() {
        let home = tempfile::tempdir().unwrap();
        let ready = prepared(home.path(), "project", Workspace::Direct, None).unwrap();
        assert!(ready.overlay.is_none());
        assert_eq!(names(&ready.masked), [".env"]);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&ready.empty_file), mode(&ready.empty_directory)), (0, 0));
        // A second look at the same run finds the same.
        let root = home.path().join("project");
        let again = Project {
            root: &root,
            mode: Workspace::Readonly,
            protect: &BTreeSet::new(),
            deny: &[],
            show: &[FileGlob::parse("**").unwrap()],
            owner: None,
            shown: None,
        };
        assert!(prepare(&again, &home.path().join("scratch")).unwrap().masked.is_empty());
    }

    #[test]
    fn a_name_that_a_mount_would_misread_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let err = prepared(home.path(), "a:b", Workspace::Overlay, None).unwrap_err();
        let home = home.path().canonicalize().unwrap();
        expect!["H/a:b cannot be the workspace: a mount cannot name a path with `:`; rename the directory"]
            .assert_eq(&err.to_string().replace(home.to_str().unwrap(), "H"));
    }
}
