//! Podman has no daemon: where nobody serves its interface, we do for as long as
//! we need it.
//!
//! It leaves by itself when we are gone, however we went: it stays only while
//! somebody asks, and we hold one question open ([`Libpod::listen`]).

use std::fs::{self, DirBuilder, File};
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time;

use super::libpod::{Libpod, Listener};
use crate::backend::GatewayLog;
use crate::environment::Environment;

/// A Podman that serves us alone, and leaves with us.
#[derive(Debug)]
pub(super) struct Service {
    child: Child,
    socket: PathBuf,
    _held: Listener,
}

impl Drop for Service {
    fn drop(&mut self) {
        // One that is gone already is as good.
        kill_process(Pid::from_child(&self.child), Signal::TERM).ok();
        let deadline = Instant::now() + ENDING;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                drop(self.child.kill());
            }
            thread::sleep(SERVICE_POLL_INTERVAL);
        }
        drop(fs::remove_file(&self.socket));
    }
}

/// Who serves Podman's interface here.
#[derive(Debug)]
pub(super) enum Served {
    ByOthers(Libpod),
    ByUs(Libpod, Service),
}

impl Served {
    pub(super) fn split(self) -> (Libpod, Option<Service>) {
        match self {
            Self::ByOthers(libpod) => (libpod, None),
            Self::ByUs(libpod, service) => (libpod, Some(service)),
        }
    }
}

/// Finds whoever serves it, else serves it.
pub(super) async fn reach(environment: &Environment) -> anyhow::Result<Served> {
    match served(environment).await? {
        Some(libpod) => Ok(Served::ByOthers(libpod)),
        None => serve(environment).await,
    }
}

/// Finds whoever serves it.
async fn served(environment: &Environment) -> anyhow::Result<Option<Libpod>> {
    if let Some(told) = environment.variable("CONTAINER_HOST").filter(|told| !told.is_empty()) {
        let told = told.to_string_lossy().into_owned();
        let Some(path) = told.strip_prefix("unix://") else {
            bail!(
                "CONTAINER_HOST is `{told}`, but the files of a sandbox are mounted from this \
                 machine, so only `unix://` and a path will do"
            );
        };
        let libpod = Libpod::at(path);
        libpod.get("/_ping").await.context("CONTAINER_HOST names no Podman that answers")?;
        return Ok(Some(libpod));
    }
    let usual = Libpod::at(usual_socket(environment));
    // On a machine with control groups of both versions, only one of the two
    // programs that Podman may use starts anything.
    let answers = !is_hybrid() && usual.get("/_ping").await.is_ok();
    Ok(answers.then_some(usual))
}

fn usual_socket(environment: &Environment) -> PathBuf {
    let base = match environment.absolute("XDG_RUNTIME_DIR") {
        Some(base) if !rustix::process::geteuid().is_root() => base,
        Some(_) | None => PathBuf::from("/run"),
    };
    base.join("podman/podman.sock")
}

/// Whether control groups of the first and the second version are both there.
fn is_hybrid() -> bool {
    Path::new("/sys/fs/cgroup/unified/cgroup.procs").exists()
}

async fn serve(environment: &Environment) -> anyhow::Result<Served> {
    let folder = environment.runtime();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    forget_the_dead(&folder);
    // One after the other: thirty that start at once all start too slowly.
    let _turn = turn(&folder).await;
    let socket = folder.join(format!("{PREFIX}{}.sock", std::process::id()));
    drop(fs::remove_file(&socket));

    let mut podman = Command::new("podman");
    podman.env_clear().envs(environment.variables());
    // The other one does not start where both versions of control groups are.
    if is_hybrid() {
        podman.args(["--runtime", "runc"]);
    }
    let mut child = podman
        .args(["system", "service", "--time", LINGERS])
        .arg(format!("unix://{}", socket.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Ctrl-C is for the command in the sandbox, not for this.
        .process_group(0)
        .spawn()
        .context("there is no program `podman`; install Podman 4 or newer")?;
    let log = GatewayLog::default();
    if let Some(mut said) = child.stderr.take() {
        let log = log.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = said.read(&mut buffer) {
                log.add(buffer.get(..length).unwrap_or_default());
            }
        });
    }
    let libpod = Libpod::at(&socket);
    let deadline = Instant::now() + SERVICE_START_TIMEOUT;
    loop {
        if let Ok(held) = libpod.listen().await {
            return Ok(Served::ByUs(libpod, Service { child, socket, _held: held }));
        }
        if let Some(ended) = child.try_wait().context("cannot wait for `podman`")? {
            bail!("`podman system service` ended ({ended}): {}", log.text().trim());
        }
        if Instant::now() > deadline {
            // It ends by itself: nobody asks it anything.
            bail!("`podman system service` does not answer: {}", log.text().trim());
        }
        time::sleep(SERVICE_POLL_INTERVAL).await;
    }
}

/// Our turn to start one, for as long as it is held. Who waits too long goes
/// ahead: an order is a courtesy.
async fn turn(folder: &Path) -> Option<File> {
    let turn = File::create(folder.join(TURN)).ok()?;
    let deadline = Instant::now() + WAITING;
    while turn.try_lock().is_err() && Instant::now() < deadline {
        time::sleep(SERVICE_POLL_INTERVAL).await;
    }
    Some(turn)
}

/// Removes the sockets of those who were killed. One that nobody listens on may
/// belong to somebody who is about to, so its owner must be gone.
fn forget_the_dead(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if owner(&name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            drop(fs::remove_file(entry.path()));
        }
    }
}

/// The process that a socket of ours was made by.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.strip_suffix(".sock")?.parse().ok()
}

const PREFIX: &str = "podman-";
/// Seconds without a question after which it leaves.
const LINGERS: &str = "30";
const TURN: &str = ".podman-turn";
/// For a turn.
const WAITING: Duration = Duration::from_secs(120);
const ENDING: Duration = Duration::from_secs(2);
const SERVICE_START_TIMEOUT: Duration = Duration::from_secs(30);
const SERVICE_POLL_INTERVAL: Duration = Duration::from_millis(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_one_who_is_about_to_listen_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |pid: u32| folder.path().join(format!("{PREFIX}{pid}.sock"));
        // No process has the second number; nobody listens on either.
        for pid in [std::process::id(), u32::MAX] {
            fs::write(at(pid), "").unwrap();
        }
        fs::write(folder.path().join("podman-is-here"), "").unwrap();
        forget_the_dead(folder.path());
        assert!(at(std::process::id()).exists());
        assert!(!at(u32::MAX).exists());
        assert!(folder.path().join("podman-is-here").exists());
    }
}
