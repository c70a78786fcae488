//! Connections from a client's socket to an upstream's, with the gateway between
//! them, over loopback.

mod agreed;
mod bounded;
mod counted;
mod doors;
mod ended;
mod hostile;
mod inside;
mod recorded;
mod relayed;
mod sealed;
mod tls;
mod verdicts;
mod ways;
mod websockets;
mod world;
