//! The signals of the operating system that a gateway obeys.

use std::io;

use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals a gateway listens for, from the moment this is made.
#[derive(Debug)]
pub struct OsSignals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

/// What a signal means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OperatorSignal {
    /// SIGHUP.
    Reload,
    /// SIGTERM or SIGINT.
    Stop,
}

impl OsSignals {
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> OperatorSignal {
        select! {
            _ = self.hangup.recv() => OperatorSignal::Reload,
            _ = self.interrupt.recv() => OperatorSignal::Stop,
            _ = self.terminate.recv() => OperatorSignal::Stop,
        }
    }
}
