//! What a workload did: operations, delays, errors and remarks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

#[derive(Default)]
pub(super) struct Tally {
    histograms: Mutex<BTreeMap<&'static str, Histogram<u64>>>,
    remarks: Mutex<BTreeMap<String, u64>>,
    operations: AtomicU64,
    /// Also those before and after the measuring.
    all_operations: AtomicU64,
    begun: AtomicU64,
    errors: AtomicU64,
    reconnects: AtomicU64,
    measuring: AtomicBool,
    stopped: AtomicBool,
}

impl Tally {
    /// An operation succeeded. It counts while something is measured.
    pub(super) fn operation(&self, took: Duration) {
        self.all_operations.fetch_add(1, Relaxed);
        if self.is_measuring() {
            self.operations.fetch_add(1, Relaxed);
            self.delay("latency", took);
        }
    }

    /// An event arrived, so much later than it was sent.
    pub(super) fn event(&self, delay: Duration) {
        self.operations.fetch_add(1, Relaxed);
        self.delay("latency", delay);
    }

    pub(super) fn delay(&self, of: &'static str, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        let mut histograms = lock(&self.histograms);
        // It grows by itself, so three digits is all that can be wrong about it.
        let new = || Histogram::new(DIGITS).expect("three digits are permitted");
        // For the same reason every value fits.
        histograms.entry(of).or_insert_with(new).record(nanoseconds).ok();
    }

    pub(super) fn remark(&self, text: String) {
        *lock(&self.remarks).entry(text).or_default() += 1;
    }

    pub(super) fn error(&self, err: impl fmt::Display) {
        self.errors.fetch_add(1, Relaxed);
        self.remark(shortened(format!("error: {err:#}"), MAX_ERROR_BYTES));
    }

    /// An operation failed; false once the workload is over, when that is no news.
    pub(super) fn failed(&self, err: impl fmt::Display) -> bool {
        let counts = !self.is_stopped();
        if counts {
            self.error(err);
        }
        counts
    }

    pub(super) fn reconnected(&self) {
        self.reconnects.fetch_add(1, Relaxed);
    }

    /// Whether one more operation may begin: not after the end, nor beyond `count`.
    pub(super) fn begin(&self, count: Option<u64>) -> bool {
        let is_within = |count| self.begun.fetch_add(1, Relaxed) < count;
        !self.is_stopped() && count.is_none_or(is_within)
    }

    pub(super) fn measure(&self, on: bool) {
        self.measuring.store(on, Relaxed);
    }

    pub(super) fn is_measuring(&self) -> bool {
        self.measuring.load(Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    pub(super) fn operations(&self) -> u64 {
        self.operations.load(Relaxed)
    }

    pub(super) fn is_first_operation(&self) -> bool {
        self.all_operations.load(Relaxed) == 1
    }

    pub(super) fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    pub(super) fn json(&self) -> Map<String, Value> {
        let histograms = lock(&self.histograms);
        let histograms: Map<String, Value> =
            histograms.iter().map(|(name, one)| ((*name).to_owned(), summary(one))).collect();
        let mut figures = Map::new();
        figures.insert("hist".into(), Value::Object(histograms));
        figures.insert("errors".into(), json!(self.errors()));
        figures.insert("reconnects".into(), json!(self.reconnects.load(Relaxed)));
        figures.insert("notes".into(), json!(*lock(&self.remarks)));
        figures
    }
}

/// Microseconds.
fn summary(histogram: &Histogram<u64>) -> Value {
    let at = |share: f64| histogram.value_at_quantile(share) as f64 / 1000.0;
    json!({
        "n": histogram.len(),
        "mean_us": histogram.mean() / 1000.0,
        "p50_us": at(0.5),
        "p90_us": at(0.9),
        "p99_us": at(0.99),
        "max_us": histogram.max() as f64 / 1000.0,
    })
}

pub(super) fn shortened(mut text: String, bytes: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes));
    text
}

/// What is counted is right also if a task panicked while it counted.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const DIGITS: u8 = 3;
const MAX_ERROR_BYTES: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_summed_up_in_microseconds() {
        let tally = Tally::default();
        tally.measure(true);
        for milliseconds in 1..=100 {
            tally.operation(Duration::from_millis(milliseconds));
        }
        let figures = tally.json();
        let latency = &figures["hist"]["latency"];
        assert_eq!(latency["n"], 100);
        for (name, expected) in [("p50_us", 50e3), ("p90_us", 90e3), ("p99_us", 99e3)] {
            let value = latency[name].as_f64().unwrap();
            assert!((value / expected - 1.0).abs() < 0.01, "{name}: {value}");
        }
    }

    #[test]
    fn what_happens_outside_the_measuring_does_not_count() {
        let tally = Tally::default();
        tally.operation(Duration::from_millis(1));
        assert_eq!(tally.operations(), 0);
        assert!(tally.is_first_operation());
        assert_eq!(tally.json()["hist"], json!({}));
    }

    #[test]
    fn an_error_after_the_end_is_no_news() {
        let tally = Tally::default();
        assert!(tally.failed("broken"));
        tally.stop();
        assert!(!tally.failed("broken"));
        let figures = tally.json();
        assert_eq!(
            (&figures["errors"], &figures["notes"]["error: broken"]),
            (&json!(1), &json!(1))
        );
    }

    #[test]
    fn no_more_operations_begin_than_were_asked_for() {
        let tally = Tally::default();
        let begun = (0..10).filter(|_| tally.begin(Some(3))).count();
        assert_eq!(begun, 3);
        assert!(tally.begin(None));
        tally.stop();
        assert!(!tally.begin(None));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(shortened("aéé".to_owned(), 4), "aé");
        assert_eq!(shortened("aéé".to_owned(), 9), "aéé");
    }
}
