//! How long an exchange or a tunnel may go on, and who may end it from outside.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::deadline::Deadline;
use crate::gateway::{Gateway, Signals};

/// The limits of one connection, and its ear for signals.
#[derive(Debug)]
pub(crate) struct Patience {
    deadline: Deadline,
    idle: Duration,
    total: Option<(Duration, Instant)>,
    signals: Signals,
}

/// What happened first.
#[derive(Debug)]
pub(crate) enum First<T> {
    /// Nothing moved for this long.
    Idle(Duration),
    It(T),
    /// A policy was loaded, or the gateway drains.
    Signal,
    /// It took longer than this in all.
    Total(Duration),
}

impl Patience {
    pub(crate) fn new(gateway: &Gateway) -> Self {
        let idle = gateway.limits.idle();
        let signals = gateway.signals();
        Self { deadline: Deadline::after(idle), idle, total: None, signals }
    }

    pub(crate) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Begins to wait under another limit, without one for the whole.
    pub(crate) fn wait(&mut self, limit: Duration) {
        self.idle = limit;
        self.total = None;
        self.deadline.restart(limit);
    }

    /// Begins something that has both limits.
    pub(crate) fn begin(&mut self, gateway: &Gateway) {
        self.idle = gateway.limits.idle();
        self.total = gateway.limits.total().map(|total| (total, Instant::now() + total));
        self.progress();
    }

    /// Drives `it` until it is ready or patience ends. `moved` is asked after each
    /// turn; when it has changed, idleness begins anew.
    pub(crate) async fn first<T, S>(
        &mut self,
        state: &mut S,
        mut it: impl FnMut(&mut S, &mut Context<'_>) -> Poll<T>,
        moved: impl Fn(&S) -> u64,
    ) -> First<T> {
        let Self { deadline, idle, total, signals } = self;
        let mut before = moved(state);
        let driven = poll_fn(|cx| {
            if let Poll::Ready(done) = it(state, cx) {
                return Poll::Ready(First::It(done));
            }
            let now = moved(state);
            if now != before {
                before = now;
                restart(deadline, *idle, *total);
            }
            match deadline.poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(()) => Poll::Ready(match *total {
                    Some((limit, end)) if end <= Instant::now() => First::Total(limit),
                    _ => First::Idle(*idle),
                }),
            }
        });
        tokio::select! {
            biased;
            first = driven => first,
            () = signals.changed() => First::Signal,
        }
    }

    fn progress(&mut self) {
        restart(&mut self.deadline, self.idle, self.total);
    }
}

fn restart(deadline: &mut Deadline, idle: Duration, total: Option<(Duration, Instant)>) {
    let left = total.map(|(_, end)| end.saturating_duration_since(Instant::now()));
    deadline.restart(left.map_or(idle, |left| left.min(idle)));
}
