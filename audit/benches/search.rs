//! A million events searched, and verified.
//!
//! The log is written once per process, in segments, about half a gigabyte beside
//! the build. Each question reads all of it.

mod written;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::LazyLock;

use audit::search::{SearchQuery, search};
use audit::{EventKind, verify};
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
    count(
        bencher,
        SearchQuery { host: "host-7.example".parse().ok(), ..SearchQuery::default() },
        1000,
    );
}

/// Every line is parsed, a tenth fits.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn a_status_class(bencher: Bencher<'_, '_>) {
    count(bencher, SearchQuery { status: "4xx".parse().ok(), ..SearchQuery::default() }, 100_000);
}

/// Every line is parsed and fits.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn everything(bencher: Bencher<'_, '_>) {
    count(
        bencher,
        SearchQuery { kinds: vec![EventKind::Request], ..SearchQuery::default() },
        1_000_000,
    );
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn words_that_are_nowhere(bencher: Bencher<'_, '_>) {
    count(bencher, SearchQuery { text: Some("pastebin".to_owned()), ..SearchQuery::default() }, 0);
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn verified(bencher: Bencher<'_, '_>) {
    let dir = LOG.path();
    bencher
        .counter(ItemsCount::new(EVENTS))
        .bench_local(|| verify(black_box(dir), &[]).expect("the log is whole"));
}

fn count(bencher: Bencher<'_, '_>, query: SearchQuery, expected: usize) {
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
    written::log(dir.path(), EVENTS);
    dir
});
