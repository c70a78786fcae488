//! Time limits of an exchange or a tunnel, and the signals that end it.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::deadline::Deadline;
use crate::gateway::{Gateway, GatewaySignals};
use crate::refuse::Refusal;

/// The time limits of one connection, and its receiver for signals.
#[derive(Debug)]
pub(crate) struct ExchangeDeadlines {
    deadline: Deadline,
    idle: Duration,
    total: Option<(Duration, Instant)>,
    signals: GatewaySignals,
}

/// What ended a wait.
#[derive(Debug)]
pub(crate) enum Waited<T> {
    /// Nothing moved for this long.
    Idle(Duration),
    /// It took longer than this in all.
    Overtime(Duration),
    Ready(T),
    /// A policy was loaded, or the gateway drains.
    Signal,
}

impl ExchangeDeadlines {
    pub(crate) fn new(gateway: &Gateway) -> Self {
        let idle = gateway.limits.bounds().idle;
        let signals = gateway.signals();
        Self { deadline: Deadline::after(idle), idle, total: None, signals }
    }

    pub(crate) fn signals(&self) -> &GatewaySignals {
        &self.signals
    }

    /// Begins to wait under another limit, without one for the whole.
    pub(crate) fn restart(&mut self, limit: Duration) {
        self.idle = limit;
        self.total = None;
        self.deadline.restart(limit);
    }

    /// Begins something that has both limits.
    pub(crate) fn begin(&mut self, gateway: &Gateway) {
        self.idle = gateway.limits.bounds().idle;
        self.total = gateway.limits.bounds().total.map(|total| (total, Instant::now() + total));
        restart(&mut self.deadline, self.idle, self.total);
    }

    /// Polls `step` until it is ready or must not go on: a limit has passed, or the
    /// policy of the moment says no. `allowed` asks that policy. A gateway that
    /// drains lets it finish, as everything that is at work.
    pub(crate) async fn drive<T, S>(
        &mut self,
        state: &mut S,
        mut step: impl FnMut(&mut S, &mut Context<'_>) -> Poll<Result<T, Refusal>>,
        moved: impl Fn(&S) -> u64,
        allowed: impl Fn() -> Result<(), Refusal>,
    ) -> Result<T, Refusal> {
        loop {
            match self.wait(state, &mut step, &moved).await {
                Waited::Idle(limit) => return Err(Refusal::Idle { limit }),
                Waited::Overtime(limit) => return Err(Refusal::CapReached { limit }),
                Waited::Ready(done) => return done,
                Waited::Signal => allowed()?,
            }
        }
    }

    /// Polls `step` until it is ready, a limit has passed or a signal has come.
    /// `moved` is asked after each poll; when it has changed, the idle limit starts
    /// over.
    pub(crate) async fn wait<T, S>(
        &mut self,
        state: &mut S,
        mut step: impl FnMut(&mut S, &mut Context<'_>) -> Poll<T>,
        moved: impl Fn(&S) -> u64,
    ) -> Waited<T> {
        let Self { deadline, idle, total, signals } = self;
        let mut before = moved(state);
        let driven = poll_fn(|cx| {
            if let Poll::Ready(done) = step(state, cx) {
                return Poll::Ready(Waited::Ready(done));
            }
            let now = moved(state);
            if now != before {
                before = now;
                restart(deadline, *idle, *total);
            }
            match deadline.poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(()) => Poll::Ready(match *total {
                    Some((limit, end)) if end <= Instant::now() => Waited::Overtime(limit),
                    _ => Waited::Idle(*idle),
                }),
            }
        });
        tokio::select! {
            biased;
            first = driven => first,
            () = signals.changed() => Waited::Signal,
        }
    }
}

fn restart(deadline: &mut Deadline, idle: Duration, total: Option<(Duration, Instant)>) {
    let left = total.map(|(_, end)| end.saturating_duration_since(Instant::now()));
    deadline.restart(left.map_or(idle, |left| left.min(idle)));
}
