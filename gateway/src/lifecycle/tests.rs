//! Connections from a client's socket to an upstream's, with the gateway between
//! them, over loopback.

mod bounded;
mod hostile;
mod inside;
mod relayed;
mod sealed;
mod verdicts;
mod ways;
mod world;
