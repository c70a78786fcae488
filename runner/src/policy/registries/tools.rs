//! Asking pip and npm themselves.
//!
//! The program is looked for by us, not by the kernel: only in absolute
//! directories of `PATH` that no project contains, so an activated virtual
//! environment or a `node_modules/.bin` is passed over. It runs in `/`, where
//! there is no project to read settings from, with a small environment, nothing
//! on its stdin, and a deadline.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::is_in_project;
use crate::place::Variable;

/// Longer than either takes on a slow machine, short enough to wait for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same, with an index to be asked.
const PATIENCE_OUTSIDE: Duration = Duration::from_secs(30);

/// Far more than one address, or one package.
const LONGEST_ANSWER: u64 = 1024 * 1024;

/// Programs that can be asked.
pub(in crate::policy) trait Tools {
    /// What `program` prints, if it is there and succeeds in time.
    fn ask(&self, program: &str, arguments: &[&str]) -> Option<String>;

    /// The same, for a question that may have to leave this machine.
    fn ask_outside(&self, program: &str, arguments: &[&str]) -> Option<String> {
        self.ask(program, arguments)
    }
}

impl<T: Tools + ?Sized> Tools for &T {
    fn ask(&self, program: &str, arguments: &[&str]) -> Option<String> {
        (**self).ask(program, arguments)
    }

    fn ask_outside(&self, program: &str, arguments: &[&str]) -> Option<String> {
        (**self).ask_outside(program, arguments)
    }
}

/// The programs of this machine.
pub(super) struct Programs {
    /// Where programs are looked for.
    path: Vec<PathBuf>,
    projects: Vec<PathBuf>,
    environment: Vec<(&'static str, OsString)>,
}

impl Programs {
    pub(super) fn new(variable: Variable<'_>, projects: Vec<PathBuf>) -> Self {
        let path = variable("PATH").unwrap_or_default();
        let trusted =
            |dir: &PathBuf| dir.is_absolute() && !is_in_project(&canonical(dir), &projects);
        let path = std::env::split_paths(&path).filter(trusted).collect();
        let passed = |name: &'static str| variable(name).map(|value| (name, value));
        Self { path, environment: PASSED_ON.iter().copied().filter_map(passed).collect(), projects }
    }

    fn ask_within(&self, patience: Duration, program: &str, arguments: &[&str]) -> Option<String> {
        let mut child = Command::new(self.find(program)?)
            .args(arguments)
            .current_dir("/")
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("PATH", std::env::join_paths(&self.path).ok()?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let deadline = Instant::now() + patience;
        let answer = output_until(deadline, &mut child);
        let succeeded = ends_well_until(deadline, &mut child);
        answer.filter(|_| succeeded)
    }

    fn find(&self, program: &str) -> Option<PathBuf> {
        let runs = |path: &PathBuf| {
            let executable = path
                .metadata()
                .is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0);
            executable && !is_in_project(&canonical(path), &self.projects)
        };
        self.path.iter().map(|dir| dir.join(program)).find(runs)
    }
}

/// What the tools need to find their own settings, and nothing else.
const PASSED_ON: &[&str] = &[
    "HOME",
    "NPM_CONFIG_GLOBALCONFIG",
    "NPM_CONFIG_USERCONFIG",
    "PIP_CONFIG_FILE",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "XDG_CONFIG_DIRS",
    "XDG_CONFIG_HOME",
    "npm_config_globalconfig",
    "npm_config_userconfig",
];

impl Tools for Programs {
    fn ask(&self, program: &str, arguments: &[&str]) -> Option<String> {
        self.ask_within(PATIENCE, program, arguments)
    }

    fn ask_outside(&self, program: &str, arguments: &[&str]) -> Option<String> {
        self.ask_within(PATIENCE_OUTSIDE, program, arguments)
    }
}

/// Its whole output, if that ends in time and is text.
fn output_until(deadline: Instant, child: &mut Child) -> Option<String> {
    let output = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let read = output.take(LONGEST_ANSWER).read_to_string(&mut text);
        // Nobody listens any more after the deadline.
        drop(sender.send(read.ok().map(|_| text)));
    });
    let left = deadline.saturating_duration_since(Instant::now());
    receiver.recv_timeout(left).ok().flatten()
}

/// Waits for its end, which comes at the deadline at the latest.
fn ends_well_until(deadline: Instant, child: &mut Child) -> bool {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => {
                drop(child.kill());
                drop(child.wait());
                return false;
            }
        }
    }
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn programs(dir: &Path, path: &str) -> Programs {
        let path: OsString = path.replace('@', dir.to_str().unwrap()).into();
        Programs::new(&|name| (name == "PATH").then(|| path.clone()), vec![dir.join("work")])
    }

    fn script(dir: &Path, path: &str, text: &str) {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_program_of_the_project_is_passed_over() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().canonicalize().unwrap();
        script(&dir, "work/.venv/bin/pip", "#!/bin/sh\necho evil\n");
        script(&dir, "bin/pip", "#!/bin/sh\necho good $PWD $SECRET\n");
        fs::create_dir_all(dir.join("links")).unwrap();
        std::os::unix::fs::symlink(dir.join("work/.venv/bin/pip"), dir.join("links/pip")).unwrap();

        let path = "@/work/.venv/bin:work/.venv/bin:@/links:@/bin";
        assert_eq!(programs(&dir, path).ask("pip", &[]).as_deref(), Some("good /\n"));
        assert_eq!(programs(&dir, "@/work/.venv/bin:@/links").ask("pip", &[]), None);
    }

    #[test]
    fn a_failure_is_no_answer() {
        let dir = tempfile::tempdir().unwrap();
        script(dir.path(), "bin/npm", "#!/bin/sh\necho https://a.example/\nexit 3\n");
        assert_eq!(programs(dir.path(), "@/bin").ask("npm", &[]), None);
        assert_eq!(programs(dir.path(), "@/bin").ask("pip", &[]), None);
    }
}
