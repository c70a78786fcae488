//! A million events searched, and verified.
//!
//! The log is written once per process, in segments, about half a gigabyte beside
//! the build. Each question reads all of it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::LazyLock;

use audit::search::{Query, search};
use audit::{
    Decision, Destination, Http, Kind, Log, Options, Outcome, Request, Sync, Text, Unavailable,
    Verdict, verify,
};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use tempfile::TempDir;

const EVENTS: u64 = 1_000_000;

fn main() {
    divan::main();
}

/// One host in a thousand: the bytes rule out the rest.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn a_rare_host(bencher: Bencher<'_, '_>) {
    count(bencher, Query { host: "host-7.example".parse().ok(), ..Query::default() }, 1000);
}

/// Every line is parsed, a tenth fits.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn a_status_class(bencher: Bencher<'_, '_>) {
    count(bencher, Query { status: "4xx".parse().ok(), ..Query::default() }, 100_000);
}

/// Every line is parsed and fits.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn everything(bencher: Bencher<'_, '_>) {
    count(bencher, Query { kinds: vec![Kind::Request], ..Query::default() }, 1_000_000);
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn words_that_are_nowhere(bencher: Bencher<'_, '_>) {
    count(bencher, Query { text: Some("pastebin".to_owned()), ..Query::default() }, 0);
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn verified(bencher: Bencher<'_, '_>) {
    let dir = LOG.path();
    bencher
        .counter(ItemsCount::new(EVENTS))
        .bench_local(|| verify(black_box(dir), &[]).expect("the log is whole"));
}

fn count(bencher: Bencher<'_, '_>, query: Query, expected: usize) {
    let dir = LOG.path();
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| {
        let found = search(black_box(dir), &query).expect("the log exists");
        assert_eq!(found.filter(Result::is_ok).count(), expected);
    });
}

static LOG: LazyLock<TempDir> = LazyLock::new(|| {
    let private = fs::Permissions::from_mode(0o700);
    let dir = tempfile::Builder::new()
        .permissions(private)
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("the target directory can be written");
    let options = Options { sync: Sync::Never, ..Options::new("run-7f3a") };
    let (log, _) = Log::open(dir.path(), options).expect("a new log can be opened");
    for n in 0..EVENTS {
        let mut entry = loop {
            match log.begin(Request::default()) {
                Ok(entry) => break entry,
                Err(Unavailable::Full { .. }) => std::thread::yield_now(),
                Err(why) => panic!("{why}"),
            }
        };
        let refused = n % 10 == 0;
        entry.destination = Destination::new(format!("host-{}.example", n % 1000), 443);
        entry.http = Http {
            method: Some(Text::constant("GET")),
            scheme: Some(Text::constant("https")),
            path: Some(format_args!("/repos/acme/widgets/issues/{n}").into()),
            status: Some(if refused { 403 } else { 200 }),
            ..Http::default()
        };
        entry.decision = Decision {
            verdict: Some(if refused { Verdict::Deny } else { Verdict::Allow }),
            rule: Some(Text::constant("allow[1]")),
            reason: Some(Text::constant("rule")),
            policy: Some(Text::constant("9f86d081884c7d65")),
            ..Decision::default()
        };
        entry.close(if refused { Outcome::Refused } else { Outcome::Relayed });
    }
    log.close_blocking().expect("the disk has room");
    dir
});
