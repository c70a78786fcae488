//! A second sandbox, which the first must not reach, and which must not feel
//! what happens in others.

use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use inside::probe::attack::pools::{ASKED, MISSED};
use inside::probe::attack::{AttackVerdict, Attempt};
use rustix::process::{Pid, Signal, kill_process};

use crate::self_invoke::{SelfInvocation, probe};

/// It runs until this is dropped.
#[derive(Debug)]
pub(super) struct Neighbour {
    child: Mutex<Child>,
    addresses: Vec<IpAddr>,
    /// What it said of visits, and of what it missed.
    said: Arc<Mutex<Vec<String>>>,
}

impl Neighbour {
    /// Starts it, and waits until it listens.
    pub(super) fn start(
        invocation: &SelfInvocation,
        policy: &str,
        token: &str,
    ) -> anyhow::Result<Self> {
        let flags = ["--policy", policy, "--mode", "none", "--timeout", "5m"].map(str::to_owned);
        let port = PORT.to_string();
        let command = probe(&["attack", "listen", &port, token]);
        let mut child = invocation
            .run_command(&flags, &command)
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start `sluice`")?;
        let said = child.stderr.take().context("it has no output")?;
        let told = Arc::new(Mutex::new(Vec::new()));
        let (lines, heard) = mpsc::channel();
        let noted = Arc::clone(&told);
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                if line.starts_with("visited") || line.starts_with(MISSED) {
                    noted.lock().unwrap_or_else(PoisonError::into_inner).push(line.clone());
                }
                // Nobody listens any more when it has started.
                drop(lines.send(line));
            }
        });
        let mut neighbour = Self { child: Mutex::new(child), addresses: Vec::new(), said: told };
        neighbour.addresses = addresses(&heard)?;
        Ok(neighbour)
    }

    /// Where it listens, and where its gateway does.
    pub(super) fn doors(&self) -> Vec<SocketAddr> {
        let ports = [PORT, 80, 443, 3128, 1080];
        let all = self.addresses.iter().flat_map(|at| ports.map(|port| SocketAddr::new(*at, port)));
        all.collect()
    }

    pub(super) fn visited(&self) -> Attempt {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let visits: Vec<_> = said.iter().filter(|line| !line.starts_with(MISSED)).collect();
        let verdict = match visits.as_slice() {
            [] => AttackVerdict::Held("nobody came".to_owned()),
            visits => AttackVerdict::Broken(format!("{visits:?}")),
        };
        Attempt::new("D8", "neighbour-outside", "what another sandbox saw", verdict)
    }

    /// What it needed all the while and could not have, one for each pool.
    pub(super) fn missed(&self) -> Vec<Attempt> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = |pool: &str| match said.iter().any(|line| *line == format!("{MISSED}{pool}"))
        {
            true => AttackVerdict::Broken("missed".to_owned()),
            false => AttackVerdict::Held("it missed none".to_owned()),
        };
        let attempt = |pool: &str| {
            let tried = "what another sandbox could still have meanwhile";
            Attempt::new("H15", &format!("{pool}-beside"), tried, verdict(pool))
        };
        // The first is no sandbox's to have.
        ASKED.into_iter().filter(|pool| *pool != "aio").map(attempt).collect()
    }

    /// Whether it goes on as if nothing had been.
    pub(super) fn lived(&self) -> Attempt {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = match child.try_wait() {
            Ok(None) => AttackVerdict::Held("it still runs".to_owned()),
            Ok(Some(status)) => AttackVerdict::Broken(format!("it ended: {status}")),
            Err(err) => AttackVerdict::Untried(err.to_string()),
        };
        Attempt::new("H6", "neighbour-lives", "another sandbox, through all of this", verdict)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM).ok();
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                drop(child.kill());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// From the line that says `listening ADDRESSES gateway ADDRESS`.
fn addresses(heard: &Receiver<String>) -> anyhow::Result<Vec<IpAddr>> {
    let deadline = Instant::now() + STARTING;
    let mut last = "it said nothing".to_owned();
    while let Ok(line) = heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        if let Some(rest) = line.strip_prefix("listening ") {
            let (own, gateway) = rest.split_once(" gateway ").unwrap_or((rest, ""));
            let all = own.split(',').chain([gateway]);
            return Ok(all.filter_map(|address| address.parse().ok()).collect());
        }
        last = line;
    }
    bail!("the sandbox beside it did not start: {last}")
}

const PORT: u16 = 8000;

/// An image may have to be built first.
const STARTING: Duration = Duration::from_secs(300);
