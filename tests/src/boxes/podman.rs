//! Rootless Podman, as a user who exists for tests alone.
//!
//! Tests mostly run as root, and what they have to show is what Podman does
//! without. So everything here happens as the user that `scripts/set-up test`
//! made; where tests are not root's, as whoever runs them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

use super::images::FILL;
use crate::available::{is_installed, skip};
use crate::deadline::CommandDeadline as _;

/// Who uses Podman here.
#[derive(Clone, Debug)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    home: PathBuf,
    runtime: PathBuf,
}

/// The user of the tests, where Podman works for one.
pub fn user() -> Option<&'static User> {
    static USER: OnceLock<Option<User>> = OnceLock::new();
    let user = USER.get_or_init(|| {
        let user = find()?;
        let works = is_installed("podman")
            && user
                .command("podman")
                .arg("info")
                .output_in_time()
                .is_ok_and(|out| out.status.success());
        works.then_some(user)
    });
    if user.is_none() {
        skip("podman");
    }
    user.as_ref()
}

fn find() -> Option<User> {
    let me = rustix::process::geteuid();
    let name = if me.is_root() { "sluice-test".to_owned() } else { me.as_raw().to_string() };
    let known = Command::new("getent").args(["passwd", &name]).output_in_time().ok()?;
    let known = String::from_utf8(known.stdout).ok()?;
    let fields: Vec<&str> = known.trim().split(':').collect();
    let [_, _, uid, gid, _, home, _] = fields[..] else { return None };
    let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
    let runtime = PathBuf::from(format!("/run/user/{uid}"));
    if me.is_root() && !runtime.exists() {
        // Who logs in has one made for them; nobody logs in here.
        fs::create_dir_all(&runtime).ok()?;
        chown(&runtime, Some(uid), Some(gid)).ok()?;
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).ok()?;
    }
    Some(User { uid, gid, home: home.into(), runtime })
}

impl User {
    /// A program, run as this user and with nothing else of ours.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = if rustix::process::geteuid().is_root() {
            let (uid, gid) = (self.uid.to_string(), self.gid.to_string());
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &uid, "--regid", &gid, "--clear-groups", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command
            .env_clear()
            .current_dir("/")
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.home)
            .env("XDG_RUNTIME_DIR", &self.runtime)
            .stdin(Stdio::null());
        command
    }

    /// `podman` with these arguments; what it printed.
    pub fn podman(&self, arguments: &[&str]) -> String {
        let output = self.command("podman").args(arguments).output_in_time().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// Makes these this user's.
    pub fn give(&self, paths: &[&Path]) {
        if rustix::process::geteuid().is_root() {
            for path in paths {
                chown(path, Some(self.uid), Some(self.gid)).unwrap();
            }
        }
    }

    /// A program of ours where this user can reach it: builds may be in somebody's
    /// home.
    pub fn reach(&self, program: &'static str) -> &'static str {
        static REACHED: Mutex<BTreeMap<&str, &str>> = Mutex::new(BTreeMap::new());
        let mut reached = REACHED.lock().unwrap();
        reached.entry(program).or_insert_with(|| {
            let reachable = self.command("test").args(["-x", program]).status_in_time();
            if reachable.unwrap().success() { program } else { public(program) }
        })
    }
}

/// A copy for everybody, made anew when the program is.
fn public(program: &str) -> &'static str {
    let name = Path::new(program).file_name().unwrap().to_string_lossy().into_owned();
    let copy = std::env::temp_dir().join(format!("sluice-test-{name}"));
    let changed = |path: &Path| fs::metadata(path).and_then(|seen| seen.modified()).ok();
    if changed(&copy) < changed(Path::new(program)) {
        // Several tests may do this at once: each makes its own, and the last stays.
        let own = copy.with_extension(std::process::id().to_string());
        fs::copy(program, &own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&own, &copy).unwrap();
    }
    copy.to_str().unwrap().to_owned().leak()
}

/// The image of the tests, in this user's store.
pub fn image() -> Option<&'static str> {
    static MADE: OnceLock<bool> = OnceLock::new();
    let user = user()?;
    let made = *MADE.get_or_init(|| {
        let known =
            user.command("podman").args(["image", "exists", IMAGE]).status_in_time().unwrap();
        known.success() || (is_installed("busybox") && import(user))
    });
    made.then_some(IMAGE)
}

fn import(user: &User) -> bool {
    let script = format!(
        "set -eu; cd \"$(mktemp -d)\"; {FILL}
         tar c . | podman import - {IMAGE}; rm -rf \"$PWD\""
    );
    let made = user.command("sh").args(["-c", &script]).output_in_time().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    true
}

const IMAGE: &str = "localhost/sluice-test/busybox:3";
