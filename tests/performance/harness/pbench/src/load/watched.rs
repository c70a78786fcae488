//! The processes whose CPU and memory are reported: this one, and those it was told of.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use crate::processes::{TreeUsage, rss_kib};

pub(super) struct WatchedProcesses(Vec<(String, u32)>);

impl WatchedProcesses {
    /// From words such as `proxy=1234`.
    pub(super) fn parse(words: &[String]) -> Result<Self> {
        let mut processes = vec![("client".to_owned(), std::process::id())];
        for word in words {
            let (name, pid) = word
                .split_once('=')
                .and_then(|(name, pid)| Some((name, pid.parse().ok()?)))
                .with_context(|| format!("`{word}` is no NAME=PID, such as proxy=1234"))?;
            processes.push((name.to_owned(), pid));
        }
        Ok(Self(processes))
    }

    /// What `of` says about each process, in order.
    pub(super) fn each<T>(&self, of: impl Fn(u32) -> T) -> Vec<T> {
        self.0.iter().map(|(_, pid)| of(*pid)).collect()
    }

    /// An object with what belongs to each process under its name.
    pub(super) fn named(&self, values: impl IntoIterator<Item = Value>) -> Value {
        let names = self.0.iter().map(|(name, _)| name.clone());
        Value::Object(names.zip(values).collect())
    }

    /// Memory before and at its highest, of all but this process.
    pub(super) fn memory(&self, before: &[TreeUsage], peaks: &[u64]) -> Value {
        let mut named = Map::new();
        for (((name, _), before), peak) in self.0.iter().zip(before).zip(peaks).skip(1) {
            let figures = json!({
                "rss_before_kib": before.rss_kib,
                "rss_peak_kib": before.rss_kib.max(*peak),
                "procs": before.processes,
            });
            named.insert(name.clone(), figures);
        }
        Value::Object(named)
    }
}

/// Samples memory in a thread of its own until it is stopped.
pub(super) struct PeakMemory {
    stopped: Arc<AtomicBool>,
    sampler: JoinHandle<Vec<u64>>,
}

impl PeakMemory {
    pub(super) fn sample(watched: &WatchedProcesses) -> Self {
        let pids = watched.each(|pid| pid);
        let stopped = Arc::new(AtomicBool::new(false));
        let seen_stopped = Arc::clone(&stopped);
        let sampler = thread::spawn(move || {
            let mut peaks = vec![0; pids.len()];
            while !seen_stopped.load(Ordering::Relaxed) {
                for (pid, peak) in pids.iter().zip(&mut peaks).skip(1) {
                    *peak = rss_kib(*pid).max(*peak);
                }
                thread::sleep(SAMPLE_INTERVAL);
            }
            peaks
        });
        Self { stopped, sampler }
    }

    /// The highest that was seen of each process, in order.
    pub(super) fn stop(self) -> Vec<u64> {
        self.stopped.store(true, Ordering::Relaxed);
        self.sampler.join().unwrap_or_default()
    }
}

const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);
