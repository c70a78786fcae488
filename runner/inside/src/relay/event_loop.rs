//! What one end of a relay does, in one thread: wait, move bytes, wait.
//!
//! Nothing here blocks but the wait itself. In a turn each stream gives one piece at
//! most, and who comes first changes from turn to turn, so one that always has bytes
//! does not keep others waiting. While the channel takes nothing, no socket is read.
//!
//! **Invariant:** whatever ends this, every socket of a stream is reset: what was cut off
//! never looks like an end.

use std::collections::BTreeMap;
use std::mem;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use protocol::relay::{MAX_DATA_BYTES, RelayFrame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::local::{Broken, LocalRead, LocalSocket};
use super::table::{RelayEvent, RelayTable, RelayViolation};

/// Why a relay ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RelayEnd {
    /// The channel did.
    Channel,
    /// Whoever it belongs to is gone, or wants it so.
    Owner,
    /// The other end did what the protocol does not have.
    Violation(RelayViolation),
}

/// What the two ends do differently.
pub(super) trait RelayRole {
    /// Descriptors that are to be read when they can be, each with a number of its own.
    fn wanted(&self, table: &RelayTable) -> Vec<(u32, BorrowedFd<'_>)>;

    /// The descriptor with this number can be read. What has been opened by that.
    fn ready(&mut self, number: u32, table: &mut RelayTable) -> Vec<(u32, LocalSocket)>;

    /// Does what an event asks for that is not about a stream's bytes.
    fn receive(&mut self, event: RelayEvent<'_>, table: &mut RelayTable) -> Option<LocalSocket>;

    /// When [`Self::expire`] is to be called, if nothing happens before.
    fn deadline(&self) -> Option<Instant>;

    fn expire(&mut self, now: Instant, table: &mut RelayTable);
}

/// Serves `channel` until it ends, or until `owner` can be read or ends.
pub(super) fn serve(
    channel: OwnedFd,
    owner: Option<BorrowedFd<'_>>,
    table: RelayTable,
    role: impl RelayRole,
) -> RelayEnd {
    let mut relay = EventLoop {
        channel,
        owner,
        table,
        role,
        sockets: BTreeMap::new(),
        incoming: Vec::new(),
        buffer: vec![0; READ_BYTES],
        last_read: 0,
    };
    loop {
        if let Err(end) = relay.turn() {
            return end;
        }
    }
}

struct EventLoop<'o, R> {
    channel: OwnedFd,
    owner: Option<BorrowedFd<'o>>,
    table: RelayTable,
    role: R,
    /// Of every stream that is live.
    sockets: BTreeMap<u32, LocalSocket>,
    /// What came over the channel and is no whole frame yet.
    incoming: Vec<u8>,
    buffer: Vec<u8>,
    /// Which stream was the last to be read.
    last_read: u32,
}

impl<R> Drop for EventLoop<'_, R> {
    fn drop(&mut self) {
        mem::take(&mut self.sockets).into_values().for_each(LocalSocket::reset);
    }
}

/// Whose descriptor it is.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    Channel,
    Owner,
    Role(u32),
    Stream(u32),
}

impl<R: RelayRole> EventLoop<'_, R> {
    fn turn(&mut self) -> Result<(), RelayEnd> {
        let ready = self.wait();
        let is_ready = |wanted: fn(&Waiting) -> bool| ready.iter().any(|(it, _)| wanted(it));
        if is_ready(|it| matches!(it, Waiting::Owner)) {
            return Err(RelayEnd::Owner);
        }
        if is_ready(|it| matches!(it, Waiting::Channel)) {
            self.read_channel()?;
        }
        // What is new comes before streams, which could leave no room for it forever.
        for (whose, _) in &ready {
            if let Waiting::Role(number) = whose {
                self.sockets.extend(self.role.ready(*number, &mut self.table));
            }
        }
        let (mut early, mut late) = (Vec::new(), Vec::new());
        for (whose, flags) in ready {
            match whose {
                Waiting::Stream(id) if id > self.last_read => early.push((id, flags)),
                Waiting::Stream(id) => late.push((id, flags)),
                Waiting::Channel | Waiting::Owner | Waiting::Role(_) => {}
            }
        }
        for (id, flags) in early.into_iter().chain(late) {
            self.serve_stream(id, flags);
        }
        if self.role.deadline().is_some() {
            self.role.expire(Instant::now(), &mut self.table);
        }
        self.write_channel()
    }

    /// Waits until something can be done; whose descriptors are ready, and for what.
    fn wait(&self) -> Vec<(Waiting, PollFlags)> {
        let mut whose = vec![Waiting::Channel];
        let is_waiting = !self.table.outgoing().is_empty();
        let flags = if is_waiting { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut polled = vec![PollFd::new(&self.channel, flags)];
        if let Some(owner) = self.owner {
            whose.push(Waiting::Owner);
            polled.push(PollFd::from_borrowed_fd(owner, PollFlags::IN));
        }
        for (number, fd) in self.role.wanted(&self.table) {
            whose.push(Waiting::Role(number));
            polled.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        for (id, socket) in &self.sockets {
            if let Some(flags) = socket.interest(self.table.room_for(*id)) {
                whose.push(Waiting::Stream(*id));
                polled.push(PollFd::from_borrowed_fd(socket.as_fd(), flags));
            }
        }
        let left = self.role.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut polled, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Out of memory, for now.
            Err(_) => thread::sleep(MEMORY_PAUSE),
        }
        let ready = whose.into_iter().zip(polled.iter().map(PollFd::revents));
        ready.filter(|(_, flags)| !flags.is_empty()).collect()
    }

    /// Reads some of what the other end sent, and does what it says.
    fn read_channel(&mut self) -> Result<(), RelayEnd> {
        for _ in 0..CHANNEL_READS_PER_TURN {
            // Descriptors that come with the bytes, of whomever, are dropped by the kernel.
            let length = match recv(&self.channel, &mut *self.buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(RelayEnd::Channel),
                Ok((length, _)) => length,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(_) => return Err(RelayEnd::Channel),
            };
            let mut incoming = mem::take(&mut self.incoming);
            incoming.extend(self.buffer.get(..length).unwrap_or_default());
            let mut rest = &*incoming;
            while let Some((frame, length)) = RelayFrame::parse(rest)
                .map_err(|_| RelayEnd::Violation(RelayViolation::Malformed))?
            {
                let event = self.table.receive(frame).map_err(RelayEnd::Violation)?;
                self.act(event);
                rest = rest.get(length..).unwrap_or_default();
            }
            let done = incoming.len() - rest.len();
            incoming.drain(..done);
            self.incoming = incoming;
        }
        Ok(())
    }

    fn act(&mut self, event: RelayEvent<'_>) {
        match event {
            RelayEvent::Data { id, bytes } => {
                if let Some(socket) = self.sockets.get_mut(&id) {
                    socket.add(bytes);
                    self.write_stream(id);
                }
            }
            RelayEvent::Ended { id } => {
                if let Some(socket) = self.sockets.get_mut(&id) {
                    socket.end();
                    self.write_stream(id);
                }
            }
            RelayEvent::Nothing => {}
            RelayEvent::Opened { id, .. } => {
                if let Some(socket) = self.role.receive(event, &mut self.table) {
                    self.sockets.insert(id, socket);
                }
            }
            RelayEvent::Reset { id } => self.reset_socket(id),
            RelayEvent::Answered { .. }
            | RelayEvent::Asked { .. }
            | RelayEvent::Unanswered { .. } => {
                self.role.receive(event, &mut self.table);
            }
        }
        self.forget_finished(event.stream());
    }

    fn serve_stream(&mut self, id: u32, flags: PollFlags) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if socket.note(flags).is_err() {
            return self.break_off(id);
        }
        if flags.contains(PollFlags::OUT) {
            self.write_stream(id);
        }
        if flags.intersects(PollFlags::IN | PollFlags::HUP) {
            self.read_stream(id);
        }
        self.forget_finished(Some(id));
    }

    fn write_stream(&mut self, id: u32) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        match socket.write() {
            Ok(0) => {}
            Ok(bytes) => self.table.pass_on(id, bytes),
            Err(Broken) => self.break_off(id),
        }
    }

    /// Takes one piece of what a stream's socket has.
    fn read_stream(&mut self, id: u32) {
        let room = self.table.room_for(id).min(MAX_DATA_BYTES);
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let Some(into) = self.buffer.get_mut(..room).filter(|into| !into.is_empty()) else {
            return;
        };
        match socket.read(into) {
            Ok(LocalRead::Bytes(length)) => {
                let bytes = self.buffer.get(..length).unwrap_or_default();
                self.table.send_data(id, bytes);
                self.last_read = id;
            }
            Ok(LocalRead::End) => self.table.send_end(id),
            Ok(LocalRead::NotYet) => {}
            Err(Broken) => self.break_off(id),
        }
    }

    fn break_off(&mut self, id: u32) {
        self.table.reset(id);
        self.reset_socket(id);
    }

    fn reset_socket(&mut self, id: u32) {
        if let Some(socket) = self.sockets.remove(&id) {
            socket.reset();
        }
    }

    /// Closes the socket of a stream that is over in both directions.
    fn forget_finished(&mut self, id: Option<u32>) {
        if let Some(id) = id.filter(|id| !self.table.is_live(*id)) {
            self.sockets.remove(&id);
        }
    }

    fn write_channel(&mut self) -> Result<(), RelayEnd> {
        loop {
            let bytes = self.table.outgoing();
            if bytes.is_empty() {
                return Ok(());
            }
            match send(&self.channel, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => self.table.sent(sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(_) => return Err(RelayEnd::Channel),
            }
        }
    }
}

const READ_BYTES: usize = 64 << 10;
/// After so many, streams get their turn, whatever comes over the channel.
const CHANNEL_READS_PER_TURN: usize = 4;
const MEMORY_PAUSE: Duration = Duration::from_millis(20);
