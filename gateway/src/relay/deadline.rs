//! A time limit that is moved far more often than it passes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A limit that can be put off for the price of reading the clock.
///
/// Moving a timer means taking the runtime's lock, and an idle limit moves with
/// every piece of data. So the timer stays where it was set; when it fires too
/// early, it is set again.
#[derive(Debug)]
pub(crate) struct Deadline {
    sleep: Pin<Box<Sleep>>,
    at: Instant,
}

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        let at = deadline_in(limit);
        Self { sleep: Box::pin(sleep_until(at)), at }
    }

    /// Starts over: `limit` from now.
    pub(crate) fn restart(&mut self, limit: Duration) {
        self.at = deadline_in(limit);
        if self.at < self.sleep.deadline() {
            self.sleep.as_mut().reset(self.at);
        }
    }

    /// Ready once the limit has passed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.sleep.as_mut().poll(cx));
            if self.at <= Instant::now() {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(self.at);
        }
    }
}

/// Adding to an instant panics where it overflows, so limits are cut to a year.
fn deadline_in(limit: Duration) -> Instant {
    Instant::now() + limit.min(Duration::from_secs(365 * 24 * 3600))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_was_put_off_passes_when_it_should() {
        let begun = Instant::now();
        let mut deadline = Deadline::after(Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(9)).await;
        deadline.restart(Duration::from_secs(10));
        poll_fn(|cx| deadline.poll(cx)).await;
        assert_eq!(begun.elapsed().as_secs(), 19);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_was_brought_forward_passes_when_it_should() {
        let begun = Instant::now();
        let mut deadline = Deadline::after(Duration::from_secs(100));
        deadline.restart(Duration::from_secs(1));
        poll_fn(|cx| deadline.poll(cx)).await;
        assert_eq!(begun.elapsed().as_secs(), 1);
    }
}
