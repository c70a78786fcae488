//! A pilot as a person has it: started, looked at and removed by the commands
//! that README names.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use tests::CommandDeadline as _;
use tests::available::{is_installed, skip};
use tests::boxes::docker;

/// A pilot that is up, and taken down with the test whatever comes of it.
#[derive(Debug)]
pub(crate) struct Pilot {
    pub(crate) project: String,
    /// Where it was started from.
    pub(crate) clone: PathBuf,
    /// Images to remove with it.
    images: Vec<String>,
    settings: Vec<(&'static str, String)>,
    /// A copy of the settings, for tests to change.
    home: TempDir,
    /// What `compose/up` said.
    pub(crate) told: String,
    down: bool,
}

/// What a command inside came to.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Whether there is an engine, and somebody who reads compose files.
pub(crate) fn can_run() -> bool {
    let answers = Command::new("docker").arg("version").output_in_time();
    if !answers.is_ok_and(|out| out.status.success()) {
        skip("docker");
        return false;
    }
    has_compose()
}

fn has_compose() -> bool {
    has_plugin() || is_installed("docker-compose")
}

fn has_plugin() -> bool {
    let plugin = Command::new("docker").args(["compose", "version"]).output_in_time();
    plugin.is_ok_and(|out| out.status.success())
}

pub(crate) fn clone() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

impl Pilot {
    /// `compose/up`, with `changed` in place of what `.env` says and with the
    /// programs that are there.
    pub(crate) fn up(name: &str, changed: &[(&'static str, &str)]) -> Self {
        let mut all = vec![
            ("SLUICE_PROGRAM", env!("CARGO_BIN_EXE_sluice-under-test")),
            ("SLUICE_GATEWAY_PROGRAM", env!("CARGO_BIN_EXE_sluice-gateway-under-test")),
            ("SLUICE_STANDIN_PROGRAM", env!("CARGO_BIN_EXE_sluice-standin-under-test")),
        ];
        all.extend(changed);
        Self::from_clone(name, &all)
    }

    /// `compose/up` as it is typed after cloning: it builds its programs too.
    pub(crate) fn from_clone(name: &str, changed: &[(&'static str, &str)]) -> Self {
        let home = TempDir::new().unwrap();
        let settings = home.path().join("settings");
        fs::create_dir(&settings).unwrap();
        for file in ["gateway.yaml", "policy.yaml"] {
            fs::copy(clone().join("compose/settings").join(file), settings.join(file)).unwrap();
        }
        let mut all = vec![("PILOT_SETTINGS", settings.display().to_string())];
        all.extend(changed.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let mut pilot = Self::new(name, home, clone(), all);
        let started = pilot.script("up", &[]);
        assert!(started.code == 0, "{}{}", started.stdout, started.stderr);
        assert!(started.stdout.contains("compose/review"), "it says what to do next: {started:?}");
        pilot.told = started.stdout;
        pilot
    }

    /// `docker compose up` in a copy of what git has, with `base` in place of what
    /// a registry has, and names of its own for what is built.
    pub(crate) fn in_fresh_clone(name: &str, base: &str) -> Self {
        let home = TempDir::new().unwrap();
        let fresh = home.path().join("clone");
        fs::create_dir(&fresh).unwrap();
        let copy = "git ls-files -z -c -o --exclude-standard | \
                    tar --null --files-from=- --ignore-failed-read -c | tar -x -C \"$0\"";
        let mut command = Command::new("sh");
        let copied =
            command.args(["-c", copy]).arg(&fresh).current_dir(clone()).output_in_time().unwrap();
        assert!(copied.status.success(), "{copied:?}");
        let process = std::process::id();
        let built = [
            ("PILOT_GATEWAY_IMAGE", format!("sluice-test/gateway:{process}")),
            ("PILOT_STANDIN_IMAGE", format!("sluice-test/standin:{process}")),
            ("PILOT_REVIEWER_IMAGE", format!("sluice-test/reviewer:{process}")),
            ("PILOT_IMAGE", format!("sluice/agent:test-{process}")),
        ];
        let mut all = vec![
            ("SLUICE_AGENT_BASE", base.to_owned()),
            ("SLUICE_BUILDER", base.to_owned()),
            ("SLUICE_PROFILE", "debug".to_owned()),
        ];
        let images = built.iter().map(|(_, name)| name.clone()).collect();
        all.extend(built);
        let mut pilot = Self::new(name, home, fresh, all);
        pilot.images = images;
        let started = pilot.compose(&["up", "-d"]);
        assert!(started.code == 0, "{}", started.all());
        pilot
    }

    fn new(
        name: &str,
        home: TempDir,
        clone: PathBuf,
        mut settings: Vec<(&'static str, String)>,
    ) -> Self {
        let process = std::process::id();
        // What is kept, and the key that it is sealed with.
        settings.push(("XDG_STATE_HOME", home.path().join("state").display().to_string()));
        // Where nobody else who tests begins.
        if settings.iter().all(|(name, _)| *name != "PILOT_NUMBER") {
            settings.push(("PILOT_NUMBER", (64 + process % 56).to_string()));
        }
        Self {
            project: format!("sluice-test-{process}-{name}"),
            clone,
            images: Vec::new(),
            settings,
            home,
            told: String::new(),
            down: false,
        }
    }

    /// Removes one of the images that were built for it.
    pub(crate) fn remove_image(&self, repository: &str) {
        let image = self.images.iter().find(|name| name.starts_with(repository)).unwrap();
        docker(&["rmi", image]);
        assert_eq!(docker(&["images", "-q", image]), "", "{image} is still there");
    }

    /// Docker's own command, as it is typed in the clone.
    pub(crate) fn compose(&self, words: &[&str]) -> Said {
        self.compose_with(words, &[])
    }

    /// The same, with something else set on the command line.
    pub(crate) fn compose_with(&self, words: &[&str], changed: &[(&str, &str)]) -> Said {
        let mut command = Command::new("timeout");
        match has_plugin() {
            true => command.args(["3600", "docker", "compose"]),
            false => command.args(["3600", "docker-compose"]),
        };
        command.args(words).current_dir(&self.clone);
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command.env("COMPOSE_PROJECT_NAME", &self.project).envs(changed.iter().copied());
        Said::of(command.output_in_time().unwrap())
    }

    /// One of the three commands.
    pub(crate) fn script(&self, name: &str, arguments: &[&str]) -> Said {
        self.script_with(name, arguments, &[])
    }

    /// The same, with something else set on the command line.
    pub(crate) fn script_with(
        &self,
        name: &str,
        arguments: &[&str],
        changed: &[(&str, &str)],
    ) -> Said {
        let mut command = Command::new("timeout");
        command.arg("1800").arg(self.clone.join("compose").join(name)).args(["-p", &self.project]);
        command.args(arguments).current_dir(self.home.path());
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command.envs(changed.iter().copied());
        Said::of(command.output_in_time().unwrap())
    }

    /// What a person types in the clone, at a terminal.
    pub(crate) fn type_in(&self, line: &str) -> Said {
        let terminal =
            "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
        let mut command = Command::new("timeout");
        command.args(["60", "python3", "-c", terminal, "sh", "-c", line]);
        Said::of(command.current_dir(clone()).output_in_time().unwrap())
    }

    pub(crate) fn settings(&self) -> PathBuf {
        self.home.path().join("settings")
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn container(&self, service: &str) -> String {
        let project = format!("label=com.docker.compose.project={}", self.project);
        let service = format!("label=com.docker.compose.service={service}");
        docker(&["ps", "-aq", "--filter", &project, "--filter", &service])
    }

    /// A command inside the sandbox.
    pub(crate) fn inside(&self, words: &[&str]) -> Said {
        let sandbox = self.container("sandbox");
        let mut command = Command::new("timeout");
        command.args(["60", "docker", "exec", &sandbox]).args(words);
        Said::of(command.output_in_time().unwrap())
    }

    /// `curl` inside the sandbox: version, status, then the body.
    pub(crate) fn curl(&self, words: &[&str]) -> Said {
        let quiet = ["curl", "-sS", "-m", "20", "-w", "\n%{http_version} %{http_code}"];
        self.inside(&[quiet.as_slice(), words].concat())
    }

    /// A Python script inside the sandbox.
    pub(crate) fn python(&self, script: &str) -> Said {
        self.inside(&["python3", "-c", script])
    }

    /// The address of `service` that ends in `last`.
    pub(crate) fn address(&self, last: u8) -> String {
        let network = format!("{}_inside", self.project);
        let subnet = docker(&[
            "network",
            "inspect",
            "-f",
            "{{range .IPAM.Config}}{{.Subnet}}{{end}}",
            &network,
        ]);
        let (three, _) = subnet.rsplit_once('.').unwrap();
        format!("{three}.{last}")
    }

    /// Every request that reached the stand-in.
    pub(crate) fn arrived(&self) -> Vec<Value> {
        let log = docker(&["logs", &self.container("upstream")]);
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// `compose/down`; what is left of it afterwards.
    pub(crate) fn down(&mut self) -> String {
        self.down_with(&[]);
        self.left()
    }

    /// `compose/down`, and what it said.
    pub(crate) fn down_with(&mut self, arguments: &[&str]) -> String {
        let ended = self.script("down", arguments);
        assert!(ended.code == 0, "{}{}", ended.stdout, ended.stderr);
        self.down = true;
        ended.stderr
    }

    /// The logs that were kept, the oldest first.
    pub(crate) fn kept(&self) -> Vec<PathBuf> {
        let folder = self.home.path().join("state/sluice/pilots");
        let mut kept: Vec<_> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        kept.sort();
        kept
    }

    /// `sluice audit verify`, where the key is that logs are sealed with.
    pub(crate) fn verify(&self, evidence: &Path) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-under-test"));
        command.args(["audit", "verify"]).arg(evidence);
        Said::of(
            command.env("XDG_STATE_HOME", self.home.path().join("state")).output_in_time().unwrap(),
        )
    }

    /// What Docker has of it.
    pub(crate) fn left(&self) -> String {
        let label = format!("label=com.docker.compose.project={}", self.project);
        let filter = ["--filter", label.as_str(), "-q"];
        let list = |verb: &[&str]| docker(&[verb, filter.as_slice()].concat());
        [list(&["ps", "-a"]), list(&["network", "ls"]), list(&["volume", "ls"])].concat()
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        if !self.down {
            self.script("down", &["--remove-log"]);
        }
        for image in &self.images {
            docker(&["rmi", image]);
        }
    }
}

impl Said {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }
    }

    /// Everything it said.
    pub(crate) fn all(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }

    #[track_caller]
    pub(crate) fn assert_ends(&self, end: &str) -> &Self {
        assert!(self.stdout.ends_with(end), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn assert_says(&self, word: &str) -> &Self {
        assert!(self.stdout.contains(word), "{self:?}");
        self
    }
}
