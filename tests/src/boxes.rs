//! Sandboxes from outside: the real `sluice`, on a real backend, in a home of its
//! own.
//!
//! The programs are static or they cannot run in an image; where the build is
//! not, or where there is no engine, a test says so and ends.

mod images;
pub mod podman;
mod standing;
mod terminal;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::available::{is_installed, skip};
pub use crate::deadline::wait_for;
use crate::deadline::{ChildDeadline as _, CommandDeadline as _};
pub use images::{image, unpacked};

/// Where our programs are, as Cargo built them for this test.
#[derive(Clone, Copy, Debug)]
pub struct Programs {
    pub sluice: &'static str,
    pub init: &'static str,
    pub probe: &'static str,
    pub gateway: &'static str,
    pub launch: &'static str,
}

/// A person with a project, and `sluice` on one backend.
#[derive(Debug)]
pub struct Person {
    programs: Programs,
    home: TempDir,
    backend: BackendKind,
    /// Who types, where that is somebody without a name.
    uid: u32,
    variables: Vec<(String, String)>,
}

/// Where a person's sandboxes live.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BackendKind {
    Docker,
    /// The same engine, as somebody who is not root and in its group.
    DockerGroup,
    /// No engine, with all that root may.
    Namespaces,
    /// An engine without root, as somebody who is not root.
    Podman,
    /// No engine, as somebody who is not root.
    Unprivileged,
}

/// A `sluice` that has ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    /// `run.json` of the run it made, if it made one.
    pub record: Value,
}

/// A `sluice` that runs, and is ended with the test.
#[derive(Debug)]
pub struct Running {
    pub child: Child,
    home: PathBuf,
}

impl Person {
    /// Somebody on each backend that this machine has.
    pub fn everywhere(programs: Programs) -> Vec<Self> {
        let docker = Self::with_docker(programs);
        let podman = Self::with_podman(programs);
        docker.into_iter().chain(podman).chain(Self::with_namespaces(programs)).collect()
    }

    /// Somebody on any Linux machine. As root, since only then every limit can be
    /// had everywhere; what needs no root is [`Person::unprivileged`]'s to show.
    pub fn with_namespaces(programs: Programs) -> Option<Self> {
        if !is_static(programs.init) || unpacked().is_none() {
            return None;
        }
        if !is_root() {
            skip("root");
            return None;
        }
        let home = TempDir::new().unwrap();
        fs::create_dir(home.path().join("project")).unwrap();
        Some(Self {
            programs,
            home,
            backend: BackendKind::Namespaces,
            uid: SOMEBODY,
            variables: Vec::new(),
        })
    }

    /// Somebody without any privilege, on the same machine.
    pub fn unprivileged(programs: Programs) -> Option<Self> {
        Self::without_privileges(programs, SOMEBODY)
    }

    /// The same, as the user of this number.
    pub fn without_privileges(programs: Programs, uid: u32) -> Option<Self> {
        if !is_static(programs.init) || unpacked().is_none() {
            return None;
        }
        if !is_installed("setpriv") || !is_root() {
            skip("setpriv");
            return None;
        }
        let home = TempDir::new().unwrap();
        let project = home.path().join("project");
        fs::create_dir(&project).unwrap();
        for path in [home.path(), &project] {
            chown(path, Some(uid), Some(uid)).unwrap();
        }
        Some(Self {
            programs,
            home,
            backend: BackendKind::Unprivileged,
            uid,
            variables: Vec::new(),
        })
    }

    /// Somebody on a machine with Docker; nobody where there is none.
    pub fn with_docker(programs: Programs) -> Option<Self> {
        if !docker_answers() || !is_static(programs.init) || image().is_none() {
            return None;
        }
        let home = TempDir::new().unwrap();
        fs::create_dir(home.path().join("project")).unwrap();
        Some(Self {
            programs,
            home,
            backend: BackendKind::Docker,
            uid: SOMEBODY,
            variables: Vec::new(),
        })
    }

    /// Somebody without any privilege but that of the engine's group; nobody where
    /// the engine has none.
    pub fn in_dockers_group(programs: Programs) -> Option<Self> {
        let person = Self::with_docker(programs)?;
        if !is_installed("setpriv") || !is_root() {
            skip("setpriv");
            return None;
        }
        if engines_group().is_none() {
            skip("a group that may use Docker");
            return None;
        }
        let uid = MEMBER;
        for path in [person.home.path(), &person.project()] {
            chown(path, Some(uid), Some(uid)).unwrap();
        }
        Some(Self { backend: BackendKind::DockerGroup, uid, ..person })
    }

    /// Somebody who is not root and has Podman; nobody where there is none.
    pub fn with_podman(programs: Programs) -> Option<Self> {
        let user = podman::user()?;
        if !is_static(programs.init) || podman::image().is_none() {
            return None;
        }
        let home = TempDir::new().unwrap();
        let project = home.path().join("project");
        fs::create_dir(&project).unwrap();
        user.give(&[home.path(), &project]);
        Some(Self {
            programs,
            home,
            backend: BackendKind::Podman,
            uid: SOMEBODY,
            variables: Vec::new(),
        })
    }

    /// Makes a path this person's, who may be somebody else than the test.
    pub fn give(&self, path: &Path) {
        if self.backend == BackendKind::Podman {
            podman::user().unwrap().give(&[path]);
        }
    }

    /// Whom this person's project belongs to.
    pub fn owner(&self) -> (u32, u32) {
        match self.backend {
            BackendKind::Docker | BackendKind::Namespaces if is_root() => (1000, 1000),
            BackendKind::Docker | BackendKind::Namespaces => {
                (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
            }
            BackendKind::Podman => podman::user().map(|user| (user.uid, user.gid)).unwrap(),
            BackendKind::DockerGroup | BackendKind::Unprivileged => (self.uid, self.uid),
        }
    }

    /// Whether memory and processors can be limited there at all.
    pub fn limits_memory(&self) -> bool {
        match self.backend {
            BackendKind::Docker | BackendKind::DockerGroup | BackendKind::Namespaces => true,
            BackendKind::Podman => {
                let controllers = ["info", "--format", "{{.Host.CgroupControllers}}"];
                podman::user().unwrap().podman(&controllers).contains("memory")
            }
            BackendKind::Unprivileged => false,
        }
    }

    /// Sets a variable for every `sluice`.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// The same person, whose sandboxes are attached to their gateways like this, whatever
    /// the tests are run with.
    pub fn attached_by(mut self, way: &str) -> Self {
        self.set("SLUICE_ATTACH", way);
        self
    }

    /// How this person's sandboxes are attached to their gateways, where that is not as
    /// they choose by themselves: for all tests at once, `SLUICE_TEST_ATTACH` says it.
    fn attachment(&self) -> Option<String> {
        let own = self.variables.iter().find(|(name, _)| name == "SLUICE_ATTACH");
        let own = own.map(|(_, way)| way.clone());
        own.or_else(|| std::env::var("SLUICE_TEST_ATTACH").ok()).filter(|way| !way.is_empty())
    }

    /// Whether this person's sandboxes have a network of their own, and not doors alone.
    pub fn has_network(&self) -> bool {
        match self.backend {
            BackendKind::Docker | BackendKind::Podman => {
                self.attachment().is_some_and(|way| way == "network")
            }
            BackendKind::DockerGroup => self.attachment().is_none_or(|way| way == "network"),
            BackendKind::Namespaces | BackendKind::Unprivileged => false,
        }
    }

    /// Whether what finds no door of this person's sandboxes is seen and recorded.
    pub fn sees_what_finds_no_door(&self) -> bool {
        let is_an_engine =
            !matches!(self.backend, BackendKind::Namespaces | BackendKind::Unprivileged);
        let is_relayed = self.attachment().is_some_and(|way| way == "relay");
        !(self.has_network() || is_an_engine && is_relayed)
    }

    pub fn backend(&self) -> BackendKind {
        self.backend
    }

    /// Where runs keep what goes with them, for a person without a session.
    pub fn runtime(&self) -> PathBuf {
        let user = match self.backend {
            BackendKind::Podman => return podman::user().unwrap().runtime().join("sluice"),
            BackendKind::Docker | BackendKind::Namespaces => rustix::process::getuid().as_raw(),
            BackendKind::DockerGroup | BackendKind::Unprivileged => self.uid,
        };
        PathBuf::from(format!("/tmp/sluice-{user}"))
    }

    pub fn project(&self) -> PathBuf {
        self.home.path().join("project")
    }

    /// Gives the project to whoever works in a sandbox: nothing there is root.
    pub fn own_project(&self) {
        if std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) != 0 {
            return;
        }
        let (uid, gid) = self.owner();
        std::os::unix::fs::chown(self.project(), Some(uid), Some(gid)).unwrap();
        // The way there: what is in a home of root's is for root alone.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(self.home.path(), open).unwrap();
    }

    /// Where this person's runs are kept.
    pub fn runs(&self) -> PathBuf {
        self.home.path().join("state/sluice/runs")
    }

    /// `sluice` with these arguments, to its end.
    pub fn sluice(&self, arguments: &[&str]) -> Ran {
        self.sluice_reading(arguments, b"")
    }

    pub fn sluice_reading(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut child = self.command(arguments).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that does not read ends before this does.
        drop(stdin.write_all(input));
        drop(stdin);
        self.ended(child.wait_with_output_in_time().unwrap())
    }

    /// A run of `script` in busybox's shell, without a project.
    pub fn shell(&self, flags: &[&str], script: &str) -> Ran {
        let mut arguments = vec!["run", "--mode", "none"];
        arguments.extend(flags);
        arguments.extend(["--", "sh", "-c", script]);
        self.sluice(&arguments)
    }

    /// The same, not waited for.
    pub fn start_shell(&self, flags: &[&str], script: &str) -> Running {
        let mut arguments = vec!["run", "--mode", "none"];
        arguments.extend(flags);
        arguments.extend(["--", "sh", "-c", script]);
        self.start(&arguments)
    }

    /// `sluice` with these arguments, not waited for.
    pub fn start(&self, arguments: &[&str]) -> Running {
        let child = self.command(arguments).spawn().unwrap();
        Running { child, home: self.home.path().to_owned() }
    }

    /// A policy in a file of its own.
    pub fn policy(&self, text: &str) -> String {
        let path = self.home.path().join("policy.yaml");
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The folder of the newest run.
    pub fn evidence(&self) -> Option<PathBuf> {
        newest_run(self.home.path())
    }

    /// This script in a shell that has `sluice`, as a person would type it: with
    /// the image that is used when none is named.
    pub fn typing(&self, script: &str) -> Command {
        let bin = self.home.path().join("bin");
        fs::create_dir_all(&bin).unwrap();
        let link = bin.join("sluice");
        if !link.exists() {
            std::os::unix::fs::symlink(self.programs.sluice, &link).unwrap();
        }
        let mut path = bin.into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut command = match self.backend {
            BackendKind::Docker | BackendKind::Namespaces | BackendKind::Podman => {
                Command::new("bash")
            }
            BackendKind::DockerGroup | BackendKind::Unprivileged => self.without_privilege("bash"),
        };
        command.args(["-c", script]).current_dir(self.project()).env_clear();
        for (name, value) in self.command(&[]).get_envs() {
            if let (true, Some(value)) = (name != "SLUICE_IMAGE", value) {
                command.env(name, value);
            }
        }
        command.env("PATH", path).stdin(Stdio::null());
        command
    }

    /// The names of all runs so far.
    pub fn every_run(&self) -> Vec<String> {
        let runs = fs::read_dir(self.home.path().join("state/sluice/runs"));
        let runs = runs.into_iter().flatten().flatten();
        runs.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let Programs { mut sluice, mut init, mut probe, mut gateway, mut launch } = self.programs;
        let mut command = match self.backend {
            BackendKind::Docker | BackendKind::Namespaces => Command::new(sluice),
            BackendKind::Podman => {
                let user = podman::user().unwrap();
                for program in [&mut sluice, &mut init, &mut probe, &mut gateway, &mut launch] {
                    *program = user.reach(program);
                }
                user.command(sluice)
            }
            BackendKind::DockerGroup | BackendKind::Unprivileged => self.without_privilege(sluice),
        };
        if self.backend != BackendKind::Podman {
            // There, a home of its own would be a store of its own.
            command.env_clear().env("HOME", self.home.path());
        }
        match self.backend {
            BackendKind::Podman => command
                .env("SLUICE_BACKEND", "podman")
                .env("SLUICE_IMAGE", podman::image().unwrap_or_default()),
            BackendKind::Docker | BackendKind::DockerGroup => command
                .env("SLUICE_BACKEND", "docker")
                .env("SLUICE_IMAGE", image().unwrap_or_default()),
            BackendKind::Namespaces | BackendKind::Unprivileged => command
                .env("SLUICE_BACKEND", "namespaces")
                .env("SLUICE_IMAGE", unpacked().unwrap_or_default()),
        };
        if let (BackendKind::Docker | BackendKind::Podman, Some(way)) =
            (self.backend, self.attachment())
        {
            command.env("SLUICE_ATTACH", way);
        }
        // A person whose configuration permits what they pin.
        let pinned: Vec<&str> = arguments
            .iter()
            .zip(arguments.iter().skip(1))
            .filter(|(flag, _)| **flag == "--pin")
            .filter_map(|(_, pin)| Some(pin.split_once('=')?.1))
            .collect();
        if !pinned.is_empty() {
            command.env("SLUICE_UPSTREAMS", pinned.join(","));
        }
        command
            .args(arguments)
            .current_dir(self.project())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("XDG_STATE_HOME", self.home.path().join("state"))
            // Which engine, and where those who share it find each other.
            .envs(["DOCKER_HOST", "XDG_RUNTIME_DIR"].into_iter().filter_map(ours))
            .env("SLUICE_INIT_PROGRAM", init)
            .env("SLUICE_PROBE_PROGRAM", probe)
            .env("SLUICE_GATEWAY_PROGRAM", gateway)
            .env("SLUICE_LAUNCH_PROGRAM", launch)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if self.backend == BackendKind::Podman {
            // Podman's own state is in there, and that user's alone.
            command.env("XDG_RUNTIME_DIR", podman::user().unwrap().runtime());
        }
        command
    }

    /// A program as this person, who may do no more than use the engine.
    fn without_privilege(&self, program: &str) -> Command {
        let somebody = self.uid.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &somebody, "--regid", &somebody]);
        match engines_group().filter(|_| self.backend == BackendKind::DockerGroup) {
            Some(group) => command.args(["--groups", &group.to_string()]),
            None => command.arg("--clear-groups"),
        };
        command.arg("--").arg(program);
        command
    }

    fn ended(&self, output: Output) -> Ran {
        let record = self.evidence().and_then(|folder| fs::read(folder.join("run.json")).ok());
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            record: record.map(|bytes| serde_json::from_slice(&bytes).unwrap()).unwrap_or_default(),
        }
    }
}

impl Ran {
    /// The kind of the outcome, as it stands in the record.
    pub fn outcome(&self) -> &str {
        self.record["outcome"]["kind"].as_str().unwrap_or("none")
    }

    pub fn run(&self) -> &str {
        self.record["run"].as_str().unwrap_or_default()
    }
}

impl Running {
    /// The run's name, once it has one.
    pub fn run(&self) -> String {
        let folder = wait_for("the run's folder", || newest_run(&self.home));
        folder.file_name().unwrap().to_str().unwrap().to_owned()
    }

    /// Waits until the command has printed `word`.
    pub fn printed(&self, word: &str) {
        wait_for(word, || {
            let transcript = newest_run(&self.home)?.join("transcript.cast");
            let text = fs::read_to_string(transcript).ok()?;
            // The first line holds the command, which may name the word too.
            text.split_once('\n')?.1.contains(word).then_some(())
        });
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// `docker` with these arguments; what it printed.
pub fn docker(arguments: &[&str]) -> String {
    let output =
        Command::new("docker").args(arguments).stdin(Stdio::null()).output_in_time().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn ours(name: &str) -> Option<(&str, std::ffi::OsString)> {
    std::env::var_os(name).map(|value| (name, value))
}

fn newest_run(home: &Path) -> Option<PathBuf> {
    let runs = fs::read_dir(home.join("state/sluice/runs")).ok()?;
    // By time: the names of two runs of the same second say nothing of it.
    runs.flatten()
        .map(|entry| entry.path())
        .max_by_key(|path| path.metadata().and_then(|found| found.modified()).ok())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A user that needs no name.
pub const SOMEBODY: u32 = 1500;
/// Another, since what a sandbox takes there it takes from its user.
const MEMBER: u32 = 1503;

fn docker_answers() -> bool {
    static ANSWERS: OnceLock<bool> = OnceLock::new();
    let answers = *ANSWERS.get_or_init(|| {
        Command::new("docker").arg("version").output_in_time().is_ok_and(|out| out.status.success())
    });
    if !answers {
        skip("docker");
    }
    answers
}

/// Who besides root may use the engine: the group of its socket.
fn engines_group() -> Option<u32> {
    let named = std::env::var("DOCKER_HOST").unwrap_or_default();
    let socket = named.strip_prefix("unix://").unwrap_or("/var/run/docker.sock");
    let found = fs::metadata(socket).ok()?;
    let is_open = std::os::unix::fs::MetadataExt::mode(&found) & 0o060 == 0o060;
    is_open.then(|| std::os::unix::fs::MetadataExt::gid(&found)).filter(|gid| *gid != 0)
}

fn is_static(program: &str) -> bool {
    let headers = Command::new("readelf").args(["-l", program]).output_in_time();
    let is_static =
        headers.is_ok_and(|out| !String::from_utf8_lossy(&out.stdout).contains("INTERP"));
    if !is_static {
        skip("static");
    }
    is_static
}
