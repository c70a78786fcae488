//! A gateway for tests, made of the real parts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use certs::{CertificateAuthority, Lifetime, Serving};
use policies::{NoFiles, Source};
use tempfile::TempDir;

use crate::dial::{Dialer, UpstreamSettings};
use crate::gateway::Gateway;
use crate::limits::{Bounds, GatewayLimits};
use crate::metrics::Metrics;
use crate::policy_cell::PolicyCell;

/// A gateway, and the directory its audit log is in.
pub(crate) struct Stage {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) directory: TempDir,
    disk_is_full: Arc<AtomicBool>,
}

/// The log's disk, which can be full.
struct StageDisk(audit::Folder, Arc<AtomicBool>);

impl audit::Sink for StageDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.1.load(Ordering::SeqCst) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => self.0.write(bytes),
        }
    }

    fn durable(&self) -> Arc<dyn audit::Durable> {
        self.0.durable()
    }

    fn rotate(&mut self) -> io::Result<String> {
        self.0.rotate()
    }
}

impl Stage {
    /// A gateway under the policy in `text`.
    pub(crate) fn new(text: &str) -> Self {
        Self::with_bounds(text, Bounds::default())
    }

    pub(crate) fn with_bounds(text: &str, bounds: Bounds) -> Self {
        let dialer = Dialer::new(UpstreamSettings::default()).expect("the bundled roots are there");
        Self::with_dialer(text, bounds, dialer)
    }

    /// A gateway whose upstreams are where `dialer` finds them.
    pub(crate) fn with_dialer(text: &str, bounds: Bounds, dialer: Dialer) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let policy = policies::read(&Source::new("test.policy.yaml", text), &NoFiles)
            .unwrap_or_else(|problems| panic!("{problems}"));
        let audit_folder = directory.path().join("audit");
        let disk_is_full = Arc::new(AtomicBool::new(false));
        let disk = Arc::clone(&disk_is_full);
        let options = audit::Options::new("test");
        let (log, _) =
            audit::Log::open_through(&audit_folder, options, |folder| StageDisk(folder, disk))
                .expect("a log can be opened");
        let authority =
            CertificateAuthority::in_memory("test", Lifetime::default()).expect("keys are made");
        let limits = GatewayLimits::new(bounds, &policy.net.limits);
        let gateway = Gateway::new(
            PolicyCell::new(policy, "hash"),
            Serving::new(Arc::new(authority)).expect("leaves can be minted"),
            dialer,
            log,
            limits,
            Metrics::new(),
        );
        Self { gateway: Arc::new(gateway), directory, disk_is_full }
    }

    /// From now on nothing can be written to the log, or it can again.
    pub(crate) fn fill_disk(&self, is_full: bool) {
        self.disk_is_full.store(is_full, Ordering::SeqCst);
    }

    /// Resolves when a record was to be written and there was no room for it.
    pub(crate) async fn no_room_was_found(&self) {
        while self.gateway.log.health().unavailable.is_none() {
            tokio::task::yield_now().await;
        }
    }

    /// Resolves when so many requests that have ended are in the log: an answer can
    /// be home before its line is.
    pub(crate) async fn requests_are_recorded(&self, count: usize) {
        let current = self.directory.path().join("audit").join(audit::segment::CURRENT_SEGMENT);
        let recorded = || {
            let text = std::fs::read_to_string(&current).expect("it can be read");
            text.matches(r#""kind":"request""#).count()
        };
        while recorded() < count {
            tokio::task::yield_now().await;
        }
    }

    /// What the log holds by now, after ending it.
    pub(crate) async fn events(&self) -> Vec<serde_json::Value> {
        match self.gateway.log.close().await {
            // It may have been ended before.
            Ok(_) | Err(audit::Unavailable::Closed) => {}
            Err(err) => panic!("{err}"),
        }
        let mut events = Vec::new();
        let folder = self.directory.path().join("audit");
        for file in std::fs::read_dir(folder).expect("the folder is there") {
            let path = file.expect("it can be listed").path();
            if path.extension().is_some_and(|ending| ending == "jsonl") {
                let text = std::fs::read_to_string(path).expect("it can be read");
                let lines =
                    text.lines().map(|line| serde_json::from_str(line).expect("it is JSON"));
                events.extend(lines);
            }
        }
        events
    }

    /// The events of one kind.
    pub(crate) async fn events_of(&self, kind: &str) -> Vec<serde_json::Value> {
        let mut events = self.events().await;
        events.retain(|event| event.get("kind").and_then(|kind| kind.as_str()) == Some(kind));
        events
    }
}

/// A policy that lets `allowed.test` pass and nothing else.
pub(crate) const ALLOWED_TEST: &str =
    "version: 1\nname: stage\nnet:\n  enabled: true\n  allow: [allowed.test]\n";

/// Spoils bytes, in the same way every time, so that a failure can be repeated.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits fit") % below.max(1)
    }

    /// Changes, inserts, removes or cuts off some of `honest`.
    pub(crate) fn spoil(&mut self, honest: &[u8]) -> Vec<u8> {
        let mut bytes = honest.to_vec();
        for _ in 0..=self.roll(4) {
            let at = self.roll(bytes.len());
            let byte = match self.roll(2) {
                0 => b"\r\n\0 :/\\%@[];,\t\x7f\xff"[self.roll(16)],
                _ => u8::try_from(self.roll(256)).expect("less than 256"),
            };
            match self.roll(12) {
                0 => bytes.truncate(at.max(1)),
                1..=4 => bytes.insert(at, byte),
                5..=7 if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => bytes[at] = byte,
            }
        }
        bytes
    }
}
