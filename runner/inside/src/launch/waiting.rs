//! Descriptors that the runner waits on, among many other things.
//!
//! Terminals and handles of processes come out of this folder's work, and their
//! registration with the runtime is what its `unsafe` is for; hence it is here.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers `fd`, which must not block, with the runtime we are in.
pub fn on(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: it wants a descriptor that stays the same and open for as long as
    // it is registered. An owned one does both.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(Into::into)
}
