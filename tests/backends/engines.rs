//! Engines beside the usual one: those that a person's settings name are used where they
//! see this machine's files, and refused in words where they do not.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tests::available::{is_installed, skip};
use tests::boxes::{Person, image};
use tests::{ChildDeadline as _, CommandDeadline as _, wait_for};

use crate::programs;

/// A second engine, in mount and network namespaces of its own.
#[derive(Debug)]
struct SecondEngine {
    engine: Child,
    home: TempDir,
}

impl SecondEngine {
    /// `hidden` are folders of this machine that it has others of.
    fn start(hidden: &[&str]) -> Option<Self> {
        let image = image()?;
        if !is_installed("dockerd") || !is_installed("unshare") {
            skip("dockerd");
            return None;
        }
        // Where neither it nor we look for files of sandboxes.
        let home = TempDir::with_prefix_in("sluice-engine-", "/var/tmp").unwrap();
        let at = home.path().display();
        let covers: String =
            hidden.iter().map(|folder| format!("mount -t tmpfs none {folder}; ")).collect();
        let script = format!(
            "{covers} echo '{{}}' >{at}/daemon.json
             exec dockerd --config-file {at}/daemon.json --data-root {at}/data --exec-root {at}/exec --pidfile {at}/pid \
             -H unix://{at}/docker.sock --bridge none --iptables=false --containerd-namespace second"
        );
        let engine = Command::new("unshare")
            .args(["--mount", "--net", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(home.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let second = Self { engine, home };
        wait_for("the second engine", || {
            second.docker(&["version"]).output_in_time().unwrap().status.success().then_some(())
        });
        let copy = format!("docker save {image} | docker -H {} load", second.address());
        let copied = Command::new("sh").args(["-c", &copy]).output_in_time().unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        Some(second)
    }

    fn address(&self) -> String {
        format!("unix://{}/docker.sock", self.home.path().display())
    }

    fn docker(&self, words: &[&str]) -> Command {
        let mut docker = Command::new("docker");
        docker.args(["-H", &self.address()]).args(words).stdin(Stdio::null());
        docker
    }

    fn containers(&self) -> String {
        let listed = self.docker(&["ps", "-aq"]).output_in_time().unwrap();
        String::from_utf8(listed.stdout).unwrap()
    }
}

impl Drop for SecondEngine {
    fn drop(&mut self) {
        // `unshare` and the shell became it.
        drop(Command::new("kill").arg(self.engine.id().to_string()).status());
        drop(self.engine.wait_in_time());
    }
}

/// These engines make no networks.
fn somebody() -> Option<Person> {
    Person::with_docker(programs()).map(|person| person.attached_by("sockets"))
}

const NETWORK: &str = "version: 1\nnet: {enabled: true}\n";

#[test]
fn an_engine_that_settings_name_is_used_where_it_sees_this_machines_files() {
    let Some(second) = SecondEngine::start(&[]) else { return };
    let ran_there = |person: &Person, how: &str| {
        let policy = person.policy(NETWORK);
        let mut running = person.start_shell(&["--policy", &policy], "echo started; exec cat");
        running.printed("started");
        assert_eq!(second.containers().lines().count(), 1, "{how}");
        drop(running.child.stdin.take());
        assert!(running.child.wait_in_time().unwrap().success(), "{how}");
        assert_eq!(second.containers(), "", "{how}");
    };
    let Some(mut person) = somebody() else { return };
    person.set("DOCKER_HOST", &second.address());
    ran_there(&person, "DOCKER_HOST");

    let Some(mut person) = somebody() else { return };
    let config: PathBuf = second.home.path().join("config");
    let context = config.join("contexts/meta/0");
    fs::create_dir_all(&context).unwrap();
    let host = second.address();
    let meta = format!(r#"{{"Name":"second","Endpoints":{{"docker":{{"Host":"{host}"}}}}}}"#);
    fs::write(context.join("meta.json"), meta).unwrap();
    fs::write(config.join("config.json"), r#"{"currentContext":"second"}"#).unwrap();
    // A variable that is empty says nothing.
    person.set("DOCKER_HOST", "");
    person.set("DOCKER_CONFIG", config.to_str().unwrap());
    ran_there(&person, "a context");
}

#[test]
fn an_engine_that_does_not_see_this_machines_files_is_refused_with_what_to_do() {
    let Some(mut person) = somebody() else { return };
    let Some(second) = SecondEngine::start(&["/tmp", "/run"]) else { return };
    person.set("DOCKER_HOST", &second.address());
    for flags in [vec![], vec!["--policy".to_owned(), person.policy(NETWORK)]] {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let ran = person.shell(&flags, "echo it ran");
        assert_eq!((ran.code, ran.stdout.as_str()), (125, ""), "{}", ran.stderr);
        let said = "the engine does not see this machine's files, so it is on another machine";
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
        assert_eq!(second.containers(), "");
    }
}
