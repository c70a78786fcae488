//! What a command can do to files: H4, H5 and the disk of H6.
//!
//! Everything here is tried in a sandbox on the real engine. Where an attempt is
//! to fail, the same script does beside it what may succeed, so that a sandbox
//! in which nothing works does not pass.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, UnmountFlags};
use tests::available::skip;
use tests::boxes::{Person, Ran};

use crate::the_box::{PROGRAMS, person};

mod approved;
mod credentials;
mod disk;
mod hidden;
mod obeyed;
mod owners;
mod protected;

/// Makes files below `root`; a name that ends in `/` is a directory.
fn make(root: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match name.ends_with('/') {
            true => fs::create_dir_all(&path).unwrap(),
            false => fs::write(&path, text).unwrap(),
        }
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A policy that permits every mode, with this in its `fs`.
fn any_mode(person: &Person, fs: &str) -> String {
    person.policy(&format!("version: 1\nfs: {{workspace: direct{fs}}}\n"))
}

/// Runs `script` on the project in this mode.
fn run(person: &Person, policy: &str, mode: &str, script: &str) -> Ran {
    person.sluice(&["run", "--policy", policy, "--mode", mode, "--", "sh", "-c", script])
}

const MODES: [&str; 3] = ["direct", "overlay", "readonly"];
