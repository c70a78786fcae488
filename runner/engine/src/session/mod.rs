//! Sandboxes that are kept for several commands.
//!
//! A session is a run without a command of its own. [`start`] makes its sandbox as
//! for a run, up to the moment where the command would begin; there it hands the
//! first process a listening socket and is done. From then on nothing on the host is
//! needed: the first process and the gateway keep the time by themselves, and
//! whoever comes later finds the session by its folder ([`state`]) and speaks with
//! the first process over that socket.
//!
//! A session is over when somebody stops it or when its time is. Either way
//! [`finish`] closes the evidence as for a run; after an expiry that is done by the
//! next sweep.
//!
//! **Invariant:** the socket is in a folder that only its owner can enter, and is
//! never mounted into a sandbox.
//! **Invariant:** what comes out of a sandbox is bytes, and is read with limits.

pub mod commands;
pub mod finish;
pub mod start;
pub mod state;
