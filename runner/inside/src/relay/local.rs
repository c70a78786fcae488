//! The socket of one stream, on this end's side: a client's inside, or one that leads to
//! the gateway outside.
//!
//! It is read only as far as there is room on the channel, and what it does not take
//! at once waits here; the other end's credit bounds how much that is. How a direction
//! ends is passed on as it is: FIN as the end, RST as a reset.

use std::collections::VecDeque;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, connect, recv, send,
    shutdown, socket_with, sockopt,
};

/// A socket that does not block.
#[derive(Debug)]
pub(super) struct LocalSocket {
    socket: OwnedFd,
    is_connecting: bool,
    /// What it is to take.
    pending: VecDeque<u8>,
    /// Nothing follows what is pending, and whether it was told.
    ends: bool,
    has_shut: bool,
    has_read_end: bool,
    /// Both directions have ended for the kernel, which says so again and again.
    is_hung_up: bool,
}

/// What reading gave.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LocalRead {
    Bytes(usize),
    End,
    NotYet,
}

/// Nothing more goes through the socket, in either direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken;

impl LocalSocket {
    /// A connection that was accepted without blocking.
    pub(super) fn accepted(socket: OwnedFd) -> Self {
        // The other end's pieces are passed on as they come, or a small one would wait for
        // the next. A socket that refuses this works all the same.
        sockopt::set_tcp_nodelay(&socket, true).ok();
        Self {
            socket,
            is_connecting: false,
            pending: VecDeque::new(),
            ends: false,
            has_shut: false,
            has_read_end: false,
            is_hung_up: false,
        }
    }

    /// Begins to connect. Whether that works out is known later.
    pub(super) fn connect(address: SocketAddrV4) -> rustix::io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        let is_connecting = match connect(&socket, &address) {
            Ok(()) => false,
            Err(Errno::INPROGRESS) => true,
            Err(err) => return Err(err),
        };
        Ok(Self { is_connecting, ..Self::accepted(socket) })
    }

    /// What to wait for, if `room` bytes may be read; nothing if there is no use in
    /// waiting. With no flag, the kernel still says when it breaks.
    pub(super) fn interest(&self, room: usize) -> Option<PollFlags> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, !self.is_connecting && !self.has_read_end && room > 0);
        flags.set(PollFlags::OUT, self.is_connecting || !self.pending.is_empty());
        if flags.is_empty() && self.is_hung_up { None } else { Some(flags) }
    }

    /// What the kernel said of it.
    pub(super) fn note(&mut self, flags: PollFlags) -> Result<(), Broken> {
        if flags.contains(PollFlags::ERR) {
            return Err(Broken);
        }
        if flags.contains(PollFlags::OUT) {
            self.is_connecting = false;
        }
        self.is_hung_up |= flags.contains(PollFlags::HUP);
        Ok(())
    }

    /// Adds what it is to take, after what is pending.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.pending.extend(bytes);
    }

    /// Nothing more is added.
    pub(super) fn end(&mut self) {
        self.ends = true;
    }

    /// Writes what it takes; how many bytes.
    pub(super) fn write(&mut self) -> Result<usize, Broken> {
        let mut written = 0;
        if self.is_connecting {
            return Ok(written);
        }
        while !self.pending.is_empty() {
            let (bytes, _) = self.pending.as_slices();
            match send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(taken) => {
                    self.pending.drain(..taken);
                    written += taken;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return Err(Broken),
            }
        }
        if self.pending.is_empty() {
            // Idle streams keep no memory.
            self.pending = VecDeque::new();
            if self.ends && !self.has_shut {
                shutdown(&self.socket, Shutdown::Write).map_err(|_| Broken)?;
                self.has_shut = true;
            }
        }
        Ok(written)
    }

    /// Reads once.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<LocalRead, Broken> {
        loop {
            match recv(&self.socket, &mut *into, RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    self.has_read_end = true;
                    return Ok(LocalRead::End);
                }
                Ok((length, _)) => return Ok(LocalRead::Bytes(length)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(LocalRead::NotYet),
                Err(_) => return Err(Broken),
            }
        }
    }

    /// Closes it so that whoever is connected to it is told that it broke.
    pub(super) fn reset(self) {
        sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO)).ok();
    }
}

impl AsFd for LocalSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
