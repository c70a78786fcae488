//! Whose a project's files are: on the disk, and in the sandbox.
//!
//! Nothing in a sandbox is root. A project that root works on is shown through a
//! mount in which its owner appears as the sandbox's user
//! ([`inside::launch::idmap`]), so that files can be changed and what is written
//! belongs to the project's owner. Where the kernel or the file system cannot do
//! that, somebody else's project is worked on as that somebody; to root's own the
//! sandbox's user remains a stranger, and whoever asked is told.
//!
//! What belongs to a third user stays that user's in every case: a mapping is one
//! to one.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use files::tree::Directory;
use inside::init::measure::NOTHING_MOUNTED;
use inside::launch::idmap::Swap;

use crate::environment::Environment;
use crate::plan::{OWN_USERS, OwnUsers, UserIds};

/// Who the command is, and whose the files are that it writes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Owners {
    pub user: UserIds,
    pub disk: UserIds,
    /// Where the sandbox may be nobody else instead of `user`, and the files still
    /// be its own.
    pub own_users: Option<OwnUsers>,
    /// Why the two are strangers, if they are.
    pub strangers: Option<String>,
}

/// The caller, unless that is root: then whoever owns the project, unless that
/// is root too. Of a project that nobody is shown nothing is asked.
pub fn owners(project: &Path, is_shown: bool, environment: &Environment) -> Owners {
    let caller = UserIds {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
    let same = |user| Owners { user, disk: user, own_users: None, strangers: None };
    if caller.uid != 0 {
        return same(caller);
    }
    let own_users = OwnUsers::here();
    let owner = match project.metadata() {
        Ok(found) => UserIds { uid: found.uid(), gid: found.gid() },
        Err(_) => return same(NOBODY_IN_PARTICULAR),
    };
    let user = if owner.uid == 0 { NOBODY_IN_PARTICULAR } else { owner };
    if !is_shown {
        return Owners { own_users, ..same(user) };
    }
    // Whom it appears as makes no difference to whether it can.
    let swap = Swap { disk: owner, shown: UserIds { uid: OWN_USERS.start, gid: user.gid } };
    match can_show(project, &swap, environment) {
        Ok(()) => Owners { user, disk: owner, own_users, strangers: None },
        Err(_) if owner.uid != 0 => same(owner),
        Err(err) => Owners { strangers: Some(format!("{err:#}")), ..same(user) },
    }
}

/// Whom root's sandboxes run as: the first ordinary user of most systems.
const NOBODY_IN_PARTICULAR: UserIds = UserIds { uid: 1000, gid: 1000 };

/// Tries it, attached nowhere.
fn can_show(project: &Path, swap: &Swap, environment: &Environment) -> anyhow::Result<()> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    // From here on an overlay can lie over such a mount.
    ensure!(is_at_least(&release, (5, 19)), "Linux {release} is older than 5.19");
    launch(&File::open(project)?, swap, None, environment)
}

fn is_at_least(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|text| text.parse().ok());
    let mut next = || numbers.next().flatten();
    matches!((next(), next()), (Some(major), Some(minor)) if (major, minor) >= wanted)
}

/// Mounts the open `project` at `at`, its owner shown as another, and looks
/// whether it is there.
///
/// What lies below the mount says so itself ([`NOTHING_MOUNTED`]): an engine that
/// lives elsewhere and does not see the mount would show that to the sandbox,
/// whose first process notices before any command starts.
pub(super) fn show(
    project: &Directory,
    at: &Path,
    swap: &Swap,
    environment: &Environment,
) -> anyhow::Result<()> {
    DirBuilder::new().mode(0o700).create(at).context("cannot make a place for it")?;
    fs::write(at.join(NOTHING_MOUNTED), "")?;
    launch(project, swap, Some(at), environment)?;
    let (wanted, found) = (project.itself()?, fs::symlink_metadata(at)?);
    let wanted = (wanted.stat().st_dev, wanted.stat().st_ino);
    ensure!((found.dev(), found.ino()) == wanted, "something else is mounted there");
    Ok(())
}

fn launch(
    project: &impl AsFd,
    swap: &Swap,
    at: Option<&Path>,
    environment: &Environment,
) -> anyhow::Result<()> {
    let program: PathBuf = environment.program("sluice-launch", "SLUICE_LAUNCH_PROGRAM")?;
    let written = |who: UserIds| format!("{}:{}", who.uid, who.gid);
    let mut command = Command::new(program);
    command.args(["idmap", "--disk", &written(swap.disk), "--shown", &written(swap.shown)]);
    if let Some(at) = at {
        command.arg("--at").arg(at);
    }
    let handed: io::Result<_> = project.as_fd().try_clone_to_owned();
    let output = command.env_clear().stdin(Stdio::from(handed?)).output();
    let output = output.context("cannot start `sluice-launch`")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_compared_by_its_numbers() {
        for (release, new_enough) in [
            ("6.18.44", true),
            ("5.19.0-rc1", true),
            ("5.19", true),
            ("5.9.1", false),
            ("5.15.0-91-generic", false),
            ("4.19.0", false),
            ("unknown", false),
        ] {
            assert_eq!(is_at_least(release, (5, 19)), new_enough, "{release}");
        }
    }
}
