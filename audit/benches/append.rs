//! How fast the log takes records, by sync policy.
//!
//! `closed` is the usual request: begun, filled in, closed, with nobody waiting
//! for the disk. `opened` is the request that changes something: 64 at a time
//! wait until their line is safe. `handed_over` is what a request's own task
//! pays. Throughput includes waiting for the last line to be in the file.

#[path = "written/begin.rs"]
mod begin;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use audit::{
    ClientRecord, DecisionRecord, DestinationRecord, Entry, EntryOutcome, Http, Log, Operator,
    Options, RequestFacts, SyncPolicy, Text, VerdictRecord, WayIn,
};
use divan::Bencher;
use divan::counter::ItemsCount;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use begin::begin;

const BATCH: u64 = 2000;
const WAITING: u64 = 64;

const POLICIES: [Policy; 3] = [Policy::EachBatch, Policy::Interval, Policy::Never];

fn main() {
    divan::main();
}

#[divan::bench(args = POLICIES, max_time = 5)]
fn closed(bencher: Bencher<'_, '_>, policy: Policy) {
    let (log, _dir, runtime) = open(policy);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for n in 0..BATCH {
            fill_in(begin(&log), n).close(EntryOutcome::Relayed);
        }
        settle(&log, &runtime);
    });
}

#[divan::bench(args = POLICIES, max_time = 5)]
fn opened(bencher: Bencher<'_, '_>, policy: Policy) {
    let (log, _dir, runtime) = open(policy);
    bencher.counter(ItemsCount::new(WAITING)).bench_local(|| {
        let tasks: Vec<_> = (0..WAITING)
            .map(|n| {
                let log = log.clone();
                runtime.spawn(async move {
                    let mut entry = fill_in(begin(&log), n);
                    entry.opened().await.expect("the disk has room");
                    entry.close(EntryOutcome::Relayed);
                })
            })
            .collect();
        for task in tasks {
            runtime.block_on(task).expect("no task panics");
        }
    });
}

#[divan::bench(max_time = 5)]
fn handed_over(bencher: Bencher<'_, '_>) {
    let (log, _dir, _runtime) = open(Policy::Never);
    bencher.bench_local(|| fill_in(begin(&log), 7).close(EntryOutcome::Relayed));
}

#[derive(Clone, Copy, Debug)]
enum Policy {
    EachBatch,
    Interval,
    Never,
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

fn open(policy: Policy) -> (Log, TempDir, Runtime) {
    // Beside the build, not in a temporary file system that may be memory.
    let private = fs::Permissions::from_mode(0o700);
    let dir = tempfile::Builder::new()
        .permissions(private)
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("the target directory can be written");
    let sync = match policy {
        Policy::EachBatch => SyncPolicy::EachBatch,
        Policy::Interval => SyncPolicy::Interval(Duration::from_millis(100)),
        Policy::Never => SyncPolicy::Never,
    };
    let options = Options { sync, ..Options::new("run-7f3a") };
    let (log, _) = Log::open(dir.path(), options).expect("a new log can be opened");
    let runtime =
        Builder::new_multi_thread().worker_threads(2).build().expect("a runtime can be made");
    (log, dir, runtime)
}

fn fill_in(mut entry: Entry<RequestFacts>, n: u64) -> Entry<RequestFacts> {
    entry.client = ClientRecord::new(([10, 209, 0, 2], 40112).into(), WayIn::Proxy);
    entry.destination = DestinationRecord::new("api.github.com", 443);
    entry.destination.dialled(&SocketAddr::from(([140, 82, 121, 6], 443)).into());
    entry.http = Http {
        method: Some(Text::constant("GET")),
        scheme: Some(Text::constant("https")),
        path: Some(format_args!("/repos/acme/widgets/issues/{n}").into()),
        status: Some(200),
        protocol: Some(Text::constant("http")),
        version: Some(Text::constant("2")),
        ..Http::default()
    };
    entry.decision = DecisionRecord {
        verdict: Some(VerdictRecord::Allow),
        rule: Some(Text::constant("allow[1]")),
        reason: Some(Text::constant("rule")),
        policy: Some(Text::constant("9f86d081884c7d65")),
        ..DecisionRecord::default()
    };
    entry.traffic.received = 2048;
    entry
}

/// Waits until everything handed over so far is as safe as the policy makes it.
fn settle(log: &Log, runtime: &Runtime) {
    let marker = Operator { action: Text::constant("settle"), ..Operator::default() };
    runtime.block_on(log.record_safely(marker)).expect("the disk has room");
}
