//! How much of something is done in one second, and how much more was asked for.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{self, Instant};

/// Admits a number of things a second, and counts the rest.
#[derive(Debug)]
pub(crate) struct RateLimit {
    bound: u32,
    state: Mutex<RateState>,
    rising: Notify,
}

#[derive(Debug)]
struct RateState {
    second_began: Instant,
    admitted: u32,
    dropped: u64,
}

impl RateLimit {
    pub(crate) fn new(bound: u32) -> Self {
        let state = RateState { second_began: Instant::now(), admitted: 0, dropped: 0 };
        Self { bound, state: Mutex::new(state), rising: Notify::new() }
    }

    /// Whether one more fits into this second.
    pub(crate) fn admits(&self) -> bool {
        let mut state = self.state.lock();
        let now = Instant::now();
        if now.duration_since(state.second_began) >= SECOND {
            state.second_began = now;
            state.admitted = 0;
        }
        if state.admitted < self.bound {
            state.admitted += 1;
            return true;
        }
        state.dropped += 1;
        self.rising.notify_one();
        false
    }

    /// Waits until some were dropped, and a second longer, so that one number
    /// stands for a whole second's worth.
    pub(crate) async fn dropped(&self) -> u64 {
        loop {
            self.rising.notified().await;
            time::sleep(SECOND).await;
            let dropped = self.take_dropped();
            if dropped > 0 {
                return dropped;
            }
        }
    }
}

impl RateLimit {
    /// How many were dropped that nobody was told of; now that is done.
    pub(crate) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.state.lock().dropped)
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn beyond_the_bound_all_is_dropped_and_counted_once() {
        let rate_limit = RateLimit::new(3);
        assert_eq!((0..10).filter(|_| rate_limit.admits()).count(), 3);
        assert_eq!(rate_limit.dropped().await, 7);

        // A second has passed: there is room again, and nothing left to report.
        assert!(rate_limit.admits());
        assert!(time::timeout(SECOND * 10, rate_limit.dropped()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_dropped_while_one_waits_is_in_the_same_number() {
        let rate_limit = RateLimit::new(1);
        assert!(rate_limit.admits() && !rate_limit.admits());
        let meanwhile = async {
            time::sleep(SECOND / 2).await;
            assert!(!rate_limit.admits() && !rate_limit.admits());
        };
        let (dropped, ()) = tokio::join!(rate_limit.dropped(), meanwhile);
        assert_eq!(dropped, 3);
        // They were told, so that nothing is left to tell.
        assert!(time::timeout(SECOND * 10, rate_limit.dropped()).await.is_err());
    }
}
