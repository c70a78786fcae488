//! What the machine tells a running gateway.

use std::io;

use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals a gateway listens for, from the moment this is made.
#[derive(Debug)]
pub struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

/// What a signal means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Told {
    /// SIGHUP.
    Reload,
    /// SIGTERM or SIGINT.
    Stop,
}

impl Signals {
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> Told {
        select! {
            _ = self.hangup.recv() => Told::Reload,
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.terminate.recv() => Told::Stop,
        }
    }
}
