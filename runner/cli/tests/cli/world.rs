//! A home, a project, and the program to run in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directories that are gone when the test is over.
pub(crate) struct World {
    dir: tempfile::TempDir,
    environment: Vec<(String, String)>,
}

/// What one command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("home")).unwrap();
        fs::create_dir(dir.path().join("project")).unwrap();
        Self { dir, environment: Vec::new() }
    }

    /// A world whose project has this policy, approved if it is valid.
    pub(crate) fn with_policy(text: &str) -> Self {
        let world = Self::with_unapproved(text);
        world.sluice(&["policy", "trust"]);
        world
    }

    /// The same, as it is cloned.
    pub(crate) fn with_unapproved(text: &str) -> Self {
        let world = Self::new();
        world.write("sandbox.policy.yaml", text);
        world
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.home().join(".local/state/sluice")
    }

    /// Sets a variable for every command.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Writes a file of the project.
    pub(crate) fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.project().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.project().join(path)).unwrap()
    }

    /// The program, ready to be started in the project.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program(&self.project(), &self.home());
        command.args(arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs it to its end.
    pub(crate) fn sluice(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments))
    }
}

/// The program in `dir`, with nothing of our own environment.
pub(crate) fn program(dir: &Path, home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.current_dir(dir).env_clear().env("HOME", home).stdin(Stdio::null());
    command
}

impl Ran {
    pub(crate) fn of(mut command: Command) -> Self {
        let output = command.output().unwrap();
        Self {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Everything about it, for snapshots.
    pub(crate) fn whole(&self) -> String {
        let Self { code, stdout, stderr } = self;
        format!("exit {code}\n--- stdout\n{stdout}--- stderr\n{stderr}")
    }

    /// The result, as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|err| panic!("{err}: {self:?}"))
    }

    /// What it said harms no terminal.
    #[track_caller]
    pub(crate) fn assert_harmless(&self) {
        let harmful = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!self.stdout.contains(harmful), "{:?}", self.stdout);
        assert!(!self.stderr.contains(harmful), "{:?}", self.stderr);
    }
}
