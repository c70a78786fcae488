//! Requests of the last minute.
//!
//! One bucket a second. A minute touches up to 61 of them, and all 61 are
//! counted: the bound is never exceeded in any sixty seconds, and a request may
//! have to wait up to one second longer than it must.

use std::time::Duration;

use tokio::time::Instant;

const BUCKETS: usize = 61;

#[derive(Debug)]
pub(super) struct RequestWindow {
    began: Instant,
    /// The second, since `began`, that `buckets` ends with.
    newest: u64,
    buckets: [u32; BUCKETS],
}

/// The minute has had enough.
#[derive(Debug)]
pub(super) struct RateExceeded {
    pub(super) bound: u32,
    pub(super) retry_after: Duration,
}

impl Default for RequestWindow {
    fn default() -> Self {
        Self { began: Instant::now(), newest: 0, buckets: [0; BUCKETS] }
    }
}

impl RequestWindow {
    /// Counts one request at `now`, unless the last minute already has `bound`.
    pub(super) fn take(&mut self, now: Instant, bound: Option<u32>) -> Result<(), RateExceeded> {
        // Two threads may read the clock in one order and get here in the other;
        // the later second counts for both.
        let second = now.saturating_duration_since(self.began).as_secs().max(self.newest);
        self.advance(second);

        let taken: u64 = self.buckets.iter().copied().map(u64::from).sum();
        if let Some(bound) = bound.filter(|bound| taken >= u64::from(*bound)) {
            return Err(RateExceeded { bound, retry_after: self.retry_after(taken, bound) });
        }
        if let Some(bucket) = self.buckets.get_mut(place(second)) {
            *bucket = bucket.saturating_add(1);
        }
        Ok(())
    }

    /// Forgets the buckets between the newest second and `second`.
    fn advance(&mut self, second: u64) {
        let gone = (second - self.newest).min(BUCKETS as u64);
        for passed in 1..=gone {
            if let Some(bucket) = self.buckets.get_mut(place(self.newest + passed)) {
                *bucket = 0;
            }
        }
        if gone == BUCKETS as u64 {
            self.buckets = [0; BUCKETS];
        }
        self.newest = second;
    }

    /// How long until enough of the oldest have left.
    fn retry_after(&self, taken: u64, bound: u32) -> Duration {
        let mut left = taken;
        for age in (0..BUCKETS as u64).rev() {
            let Some(second) = self.newest.checked_sub(age) else { continue };
            left -= u64::from(self.buckets.get(place(second)).copied().unwrap_or_default());
            if left < u64::from(bound) {
                return Duration::from_secs(BUCKETS as u64 - age);
            }
        }
        Duration::from_secs(BUCKETS as u64)
    }
}

fn place(second: u64) -> usize {
    usize::try_from(second % BUCKETS as u64).expect("a remainder of 61 fits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(window: &RequestWindow, millis: u64) -> Instant {
        window.began + Duration::from_millis(millis)
    }

    #[test]
    fn a_full_minute_says_when_to_come_back() {
        let mut window = RequestWindow::default();
        for millis in [500, 1500, 1600] {
            let now = at(&window, millis);
            window.take(now, Some(3)).expect("three are allowed");
        }
        let now = at(&window, 30_000);
        let full = window.take(now, Some(3)).expect_err("the fourth is not");
        assert_eq!(full.retry_after, Duration::from_secs(31));
        let now = at(&window, 61_000);
        window.take(now, Some(3)).expect("the first has left");
        let now = at(&window, 61_001);
        window.take(now, Some(3)).expect_err("the next two have not");
    }

    #[test]
    fn a_bound_of_a_new_policy_counts_what_came_before() {
        let mut window = RequestWindow::default();
        for _ in 0..10 {
            let now = at(&window, 0);
            window.take(now, None).expect("there is no bound");
        }
        let now = at(&window, 1);
        window.take(now, Some(5)).expect_err("ten is more than five");
    }

    proptest! {
        /// In no sixty seconds are more admitted than the bound, and after
        /// `retry_after` one is.
        #[test]
        fn the_bound_holds_in_every_minute(
            steps in prop::collection::vec(0u64..9_000, 1..400),
            bound in 1u32..20,
        ) {
            let mut window = RequestWindow::default();
            let mut now = 0;
            let mut admitted: Vec<u64> = Vec::new();
            for step in steps {
                now += step;
                let instant = at(&window, now);
                match window.take(instant, Some(bound)) {
                    Ok(()) => admitted.push(now),
                    Err(full) => {
                        now += u64::try_from(full.retry_after.as_millis()).unwrap();
                        let instant = at(&window, now);
                        prop_assert!(window.take(instant, Some(bound)).is_ok());
                        admitted.push(now);
                    }
                }
                let recent = admitted.iter().filter(|then| now - **then < 60_000).count();
                prop_assert!(recent <= bound as usize, "{recent} in one minute");
            }
        }
    }
}
