//! What one end of a relay keeps of all streams and questions.
//!
//! It does no I/O: it is given frames and what happened to sockets, says what is to be
//! done, and holds the bytes that are to go over the channel.
//!
//! A stream stays until nothing about it can be on its way any more (`protocol::relay`
//! says when). The end inside lets go of a number only after the end outside did, so
//! an end outside that is asked for more than there may be is not in a race: it is
//! lied to.
//!
//! **Invariant:** there are at most so many streams and questions, and at most
//! [`MAX_OUTGOING_BYTES`] wait to be sent, whatever frames come.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddrV4;

use protocol::relay::{
    HEADER_BYTES, MAX_DATA_BYTES, MAX_DATAGRAM_BYTES, MAX_QUESTIONS, MAX_STREAMS, RelayFrame,
};

use super::stream::RelayStream;

/// Which end this is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RelaySide {
    /// In the sandbox. It opens streams and asks questions.
    Inside,
    Outside,
}

/// Every stream and question of one end.
#[derive(Debug)]
pub(super) struct RelayTable {
    side: RelaySide,
    max_streams: usize,
    streams: BTreeMap<u32, RelayStream>,
    /// Without an answer yet, and to which door each is.
    questions: BTreeMap<u32, SocketAddrV4>,
    /// The last number that was given to anything.
    last: u32,
    /// For the channel.
    outgoing: VecDeque<u8>,
}

/// What a frame asks of whoever has the sockets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RelayEvent<'a> {
    Answered {
        id: u32,
        bytes: &'a [u8],
    },
    Asked {
        id: u32,
        address: SocketAddrV4,
        bytes: &'a [u8],
    },
    Data {
        id: u32,
        bytes: &'a [u8],
    },
    Ended {
        id: u32,
    },
    Nothing,
    Opened {
        id: u32,
        address: SocketAddrV4,
    },
    /// The stream is over, and its socket is to be reset.
    Reset {
        id: u32,
    },
    Unanswered {
        id: u32,
    },
}

impl RelayEvent<'_> {
    /// The stream that it is about, if it is about one.
    pub(super) fn stream(&self) -> Option<u32> {
        match *self {
            Self::Data { id, .. } | Self::Ended { id } | Self::Opened { id, .. } => Some(id),
            Self::Answered { .. }
            | Self::Asked { .. }
            | Self::Nothing
            | Self::Reset { .. }
            | Self::Unanswered { .. } => None,
        }
    }
}

/// What no end that keeps to the protocol sends, in whatever order things happen.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum RelayViolation {
    #[error("more bytes or credit than there was credit for")]
    Credit,
    #[error("it asks for answers and does not take them")]
    Flood,
    #[error("bytes that are no frame")]
    Malformed,
    #[error("a number that is not the next")]
    Number,
    #[error("a frame that cannot come at this point of a stream")]
    Order,
    #[error("a frame that only the other end sends")]
    Side,
    #[error("more streams or questions at once than there may be")]
    TooMany,
    #[error("a frame about a stream or a question that does not exist")]
    Unknown,
}

impl RelayTable {
    /// An end with at most `max_streams` at once, or as many as the protocol has.
    pub(super) fn new(side: RelaySide, max_streams: usize) -> Self {
        Self {
            side,
            max_streams: max_streams.min(MAX_STREAMS),
            streams: BTreeMap::new(),
            questions: BTreeMap::new(),
            last: 0,
            outgoing: VecDeque::new(),
        }
    }

    /// What is to go over the channel, or the first part of it.
    pub(super) fn outgoing(&self) -> &[u8] {
        self.outgoing.as_slices().0
    }

    /// So many of those bytes are sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.outgoing.drain(..bytes.min(self.outgoing.len()));
    }

    /// Whether more may be read from sockets for the channel. Where not it stays there,
    /// and in the end whoever writes waits.
    pub(super) fn has_room(&self) -> bool {
        self.outgoing.len() < HIGH_WATER_BYTES
    }

    pub(super) fn may_open(&self) -> bool {
        self.has_room() && self.streams.len() < self.max_streams && self.last < u32::MAX
    }

    pub(super) fn may_ask(&self) -> bool {
        self.has_room() && self.questions.len() < MAX_QUESTIONS && self.last < u32::MAX
    }

    /// Announces a connection to this door; nothing if there is no room.
    pub(super) fn open(&mut self, address: SocketAddrV4) -> Option<u32> {
        if !self.may_open() {
            return None;
        }
        self.last += 1;
        self.streams.insert(self.last, RelayStream::new());
        self.queue(RelayFrame::Open { id: self.last, address });
        Some(self.last)
    }

    /// Passes a question on; nothing if there is no room, or if it is too long.
    pub(super) fn ask(&mut self, address: SocketAddrV4, bytes: &[u8]) -> Option<u32> {
        if !self.may_ask() || bytes.len() > MAX_DATAGRAM_BYTES {
            return None;
        }
        self.last += 1;
        self.questions.insert(self.last, address);
        self.queue(RelayFrame::Datagram { id: self.last, address, bytes });
        Some(self.last)
    }

    /// The answer to a question, or that there is none. One that is too long is none.
    pub(super) fn answer(&mut self, id: u32, answer: Option<&[u8]>) {
        let Some(address) = self.questions.remove(&id) else { return };
        self.queue(match answer.filter(|bytes| bytes.len() <= MAX_DATAGRAM_BYTES) {
            Some(bytes) => RelayFrame::Datagram { id, address, bytes },
            None => RelayFrame::Reset { id },
        });
    }

    /// Whether the stream still needs its socket.
    pub(super) fn is_live(&self, id: u32) -> bool {
        self.streams.get(&id).is_some_and(RelayStream::is_live)
    }

    /// How many bytes may be read from a stream's socket now.
    pub(super) fn room_for(&self, id: u32) -> usize {
        let room = self.streams.get(&id).map_or(0, RelayStream::room);
        if self.has_room() { room } else { 0 }
    }

    /// Sends what a stream's socket gave, at most [`Self::room_for`] it.
    pub(super) fn send_data(&mut self, id: u32, bytes: &[u8]) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.send_data(bytes.len());
        self.queue(RelayFrame::Data { id, bytes });
    }

    /// The stream's socket has nothing more.
    pub(super) fn send_end(&mut self, id: u32) {
        if self.streams.get_mut(&id).is_some_and(RelayStream::send_end) {
            self.queue(RelayFrame::End { id });
            self.forget_if_over(id);
        }
    }

    /// The stream's socket broke.
    pub(super) fn reset(&mut self, id: u32) {
        if self.streams.get_mut(&id).is_some_and(RelayStream::reset) {
            self.queue(RelayFrame::Reset { id });
        }
    }

    /// The stream's socket took so many bytes.
    pub(super) fn pass_on(&mut self, id: u32, bytes: usize) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if let Some(bytes) = stream.pass_on(bytes) {
            self.queue(RelayFrame::Credit { id, bytes });
        }
        self.confirm(id);
    }

    /// Judges a frame of the other end.
    pub(super) fn receive<'a>(
        &mut self,
        frame: RelayFrame<'a>,
    ) -> Result<RelayEvent<'a>, RelayViolation> {
        let event = match frame {
            RelayFrame::Credit { id, bytes } => {
                self.known(id)?.receive_credit(bytes)?;
                RelayEvent::Nothing
            }
            RelayFrame::Data { id, bytes } => match self.known(id)?.receive_data(bytes.len())? {
                true => RelayEvent::Data { id, bytes },
                false => RelayEvent::Nothing,
            },
            RelayFrame::Datagram { id, address, bytes } => {
                self.receive_datagram(id, address, bytes)?
            }
            RelayFrame::Done { id } => {
                self.known(id)?.receive_done()?;
                self.forget_if_over(id);
                RelayEvent::Nothing
            }
            RelayFrame::End { id } => match self.known(id)?.receive_end()? {
                true => {
                    self.confirm(id);
                    RelayEvent::Ended { id }
                }
                false => RelayEvent::Nothing,
            },
            RelayFrame::Open { id, address } => {
                if self.side == RelaySide::Inside {
                    return Err(RelayViolation::Side);
                }
                self.check_new(id, self.streams.len() < self.max_streams)?;
                self.last = id;
                self.streams.insert(id, RelayStream::new());
                RelayEvent::Opened { id, address }
            }
            RelayFrame::Reset { id } => self.receive_reset(id)?,
        };
        if self.outgoing.len() > MAX_OUTGOING_BYTES {
            return Err(RelayViolation::Flood);
        }
        Ok(event)
    }

    fn receive_datagram<'a>(
        &mut self,
        id: u32,
        address: SocketAddrV4,
        bytes: &'a [u8],
    ) -> Result<RelayEvent<'a>, RelayViolation> {
        match self.side {
            RelaySide::Inside => match self.questions.remove(&id) {
                Some(asked) if asked == address => Ok(RelayEvent::Answered { id, bytes }),
                Some(_) | None => Err(RelayViolation::Unknown),
            },
            RelaySide::Outside => {
                self.check_new(id, self.questions.len() < MAX_QUESTIONS)?;
                self.last = id;
                self.questions.insert(id, address);
                Ok(RelayEvent::Asked { id, address, bytes })
            }
        }
    }

    fn receive_reset(&mut self, id: u32) -> Result<RelayEvent<'static>, RelayViolation> {
        if self.side == RelaySide::Inside && self.questions.remove(&id).is_some() {
            return Ok(RelayEvent::Unanswered { id });
        }
        let stream = self.streams.remove(&id).ok_or(RelayViolation::Unknown)?;
        if stream.is_reset() {
            // The answer to ours, or the other end's own that was sent before it saw ours.
            return Ok(RelayEvent::Nothing);
        }
        self.queue(RelayFrame::Reset { id });
        Ok(RelayEvent::Reset { id })
    }

    fn known(&mut self, id: u32) -> Result<&mut RelayStream, RelayViolation> {
        self.streams.get_mut(&id).ok_or(RelayViolation::Unknown)
    }

    fn check_new(&self, id: u32, has_place: bool) -> Result<(), RelayViolation> {
        if self.last.checked_add(1) != Some(id) {
            return Err(RelayViolation::Number);
        }
        if has_place { Ok(()) } else { Err(RelayViolation::TooMany) }
    }

    /// Says so when everything was passed on.
    fn confirm(&mut self, id: u32) {
        if self.streams.get_mut(&id).is_some_and(RelayStream::send_done) {
            self.queue(RelayFrame::Done { id });
            self.forget_if_over(id);
        }
    }

    fn forget_if_over(&mut self, id: u32) {
        if self.streams.get(&id).is_some_and(RelayStream::is_over) {
            self.streams.remove(&id);
        }
    }

    fn queue(&mut self, frame: RelayFrame<'_>) {
        frame.write_to(&mut self.outgoing);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.questions.is_empty()
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn assert_bounded(&self) {
        assert!(self.streams.len() <= self.max_streams, "{} streams", self.streams.len());
        assert!(self.questions.len() <= MAX_QUESTIONS, "{} questions", self.questions.len());
        // What is done about a frame comes after it was judged.
        let most = MAX_OUTGOING_BYTES + LONGEST_FRAME_BYTES;
        assert!(self.outgoing.len() <= most, "{} bytes to send", self.outgoing.len());
        self.streams.values().for_each(RelayStream::assert_bounded);
    }
}

/// With so much to send, nothing more is read from sockets.
const HIGH_WATER_BYTES: usize = 128 << 10;
/// What the longest frame that a socket gave adds to that.
const LONGEST_FRAME_BYTES: usize = HEADER_BYTES + MAX_DATA_BYTES;
/// Frames that can be due besides, to an end that keeps to the protocol. For each stream
/// that it has: End, Done, Reset, and credit for two halves of a window.
const MAX_ANSWERS: usize = 5 * MAX_STREAMS + MAX_QUESTIONS;
/// Whoever makes us want to send more asks for answers and does not take them.
const MAX_OUTGOING_BYTES: usize =
    HIGH_WATER_BYTES + LONGEST_FRAME_BYTES + MAX_ANSWERS * HEADER_BYTES;

#[cfg(test)]
mod tests;
