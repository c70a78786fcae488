//! What stands on a backend of one run, seen and ended from outside.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::{BackendKind, Person, docker, podman, wait_for};
use crate::deadline::CommandDeadline as _;

impl Person {
    /// Where this person's gateways see the machine they run on.
    pub fn host(&self) -> String {
        match self.backend {
            // A gateway without a network of its own is a process of this machine.
            _ if !self.has_network() => "127.0.0.1".to_owned(),
            BackendKind::Docker | BackendKind::DockerGroup => {
                // The gateways' network is made with the first of them.
                let policy = self.policy("version: 1\nnet: {enabled: true}\n");
                assert_eq!(self.shell(&["--policy", &policy], "true").code, 0);
                let format = "{{(index .IPAM.Config 0).Subnet}}";
                let subnet = docker(&["network", "inspect", "sluice-egress", "--format", format]);
                subnet.replace(".0/24", ".1")
            }
            BackendKind::Namespaces | BackendKind::Unprivileged => "127.0.0.1".to_owned(),
            // Through a process of this user's, so as this machine sees itself.
            BackendKind::Podman => {
                let route =
                    Command::new("ip").args(["-4", "route", "get", "192.0.2.1"]).output_in_time();
                let route = String::from_utf8_lossy(&route.unwrap().stdout).into_owned();
                let mut words = route.split_whitespace().skip_while(|word| *word != "src");
                words.nth(1).unwrap().to_owned()
            }
        }
    }

    /// Everything on the backend that bears a run's name.
    pub fn left_of(&self, run: &str) -> String {
        let label = format!("label=dev.sluice.run={run}");
        let container = "--format={{.Names}}:{{.Status}}";
        let kinds = [("ps -a", container), ("network ls", "-q"), ("volume ls", "-q")];
        let listed = kinds.map(|(verb, shown)| {
            let words: Vec<&str> = verb.split(' ').chain(["--filter", &label, shown]).collect();
            self.engine(&words)
        });
        if let [Some(containers), Some(networks), Some(volumes)] = listed {
            let gateway = self.remembered(run, GATEWAY).filter(|pid| is_alive(*pid));
            let gateway = gateway.map(|pid| format!("process {pid}")).unwrap_or_default();
            return [containers, networks, volumes, gateway].concat();
        }
        let name = format!("sluice-{run}");
        let groups = Command::new("find").args(["/sys/fs/cgroup", "-name", &name]).output_in_time();
        let groups = String::from_utf8_lossy(&groups.unwrap().stdout).into_owned();
        let folder = self.runtime().join(run);
        let folder = if folder.exists() { folder.display().to_string() } else { String::new() };
        let alive = self.alive(run);
        let alive = if alive > 0 { format!("{alive} processes") } else { String::new() };
        [groups, folder, alive].concat()
    }

    /// How many of a run's gateway and sandbox are running.
    pub fn alive(&self, run: &str) -> usize {
        let label = format!("label=dev.sluice.run={run}");
        if let Some(running) = self.engine(&["ps", "-q", "--filter", &label]) {
            let gateway = self.remembered(run, GATEWAY).filter(|pid| is_alive(*pid));
            return running.lines().count() + gateway.iter().count();
        }
        let pids = [GATEWAY, LAUNCHER].map(|name| self.remembered(run, name));
        pids.into_iter().flatten().filter(|pid| is_alive(*pid)).count()
    }

    /// Kills a run's sandbox from outside.
    pub fn kill_sandbox(&self, run: &str) {
        if self.engine(&["kill", &format!("sluice-{run}")]).is_none() {
            self.kill(run, LAUNCHER);
        }
    }

    /// Kills a run's gateway from outside.
    pub fn kill_gateway(&self, run: &str) {
        match self.remembered(run, GATEWAY) {
            Some(_) => self.kill(run, GATEWAY),
            None => drop(self.engine(&["kill", &format!("sluice-{run}-gateway")]).unwrap()),
        }
    }

    /// What this person's engine says to these words; nothing without an engine.
    fn engine(&self, words: &[&str]) -> Option<String> {
        match self.backend {
            BackendKind::Docker | BackendKind::DockerGroup => Some(docker(words)),
            BackendKind::Podman => Some(podman::user().unwrap().podman(words)),
            BackendKind::Namespaces | BackendKind::Unprivileged => None,
        }
    }

    /// Kills the process that a run remembers under this name, and waits until
    /// all of it is closed.
    fn kill(&self, run: &str, name: &str) {
        let pid = self.remembered(run, name).unwrap();
        let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
        assert!(killed.unwrap().success());
        wait_for("its end", || (!is_alive(pid)).then_some(()));
    }

    fn remembered(&self, run: &str, name: &str) -> Option<u64> {
        let text = fs::read_to_string(self.runtime().join(run).join(name)).ok()?;
        serde_json::from_str::<Value>(&text).ok()?["pid"].as_u64()
    }
}

const GATEWAY: &str = "gateway.process";
const LAUNCHER: &str = "launcher.process";

/// One that only waits to be reaped is not; but as long as one of its threads
/// is, its files are open.
fn is_alive(pid: u64) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().flatten().any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    })
}
