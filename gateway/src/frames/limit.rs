//! Limits frames that carry no content.
//!
//! Each such frame spends an allowance. Frames with content, in either direction,
//! and time refill it: a window update answers data that went the other way, and
//! pings every few seconds may go on for ever. What a peer sends on a stream that
//! we have reset was perhaps on its way already; one window of it is free.

use tokio::time::Instant;

use super::reader::{CONTINUATION, DATA, HEADERS, Http2Frame, RST_STREAM};

/// Who opens the streams of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum StreamOpener {
    /// The peer: it is a client.
    Peer,
    /// We: it is an upstream.
    We,
}

/// A stream that a client opened and that its requests are not among.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum UnreadStream {
    /// The library answered it: its head is too large.
    Answered,
    /// The library reset it, with this code.
    Reset(u32),
    /// The connection ended before its request was read.
    Unseen,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum FrameFault {
    #[error("it sends frames that carry nothing, {count} of them, the last a {last}")]
    Empty { count: u64, last: &'static str },
    #[error("it goes on sending on streams that are over, {count} frames, the last a {last}")]
    Over { count: u64, last: &'static str },
    #[error("it sends head after head on one stream and no answer")]
    Heads,
    #[error("it opens streams that cannot be answered any more")]
    Unread,
}

/// The rule of one connection.
#[derive(Debug)]
pub(super) struct FrameLimit {
    opener: StreamOpener,
    /// What one stream may have under way.
    window: u64,
    allowance: u64,
    earned_until: Instant,
    /// What may still come on streams that are over.
    after_end: u64,
    /// And how many heads: the library reads them whole, field by field.
    heads_after_end: u64,
    /// In the order of their ids, which only grow.
    streams: Vec<StreamState>,
    newest: u32,
    /// Frames without content, and frames of streams that are over.
    empty: u64,
    over: u64,
}

#[derive(Debug)]
struct StreamState {
    id: u32,
    heads: u8,
    /// Whether the peer may still send on it.
    open: bool,
    /// How the library treated it, until its request is taken.
    unread: Option<UnreadStream>,
}

impl FrameLimit {
    pub(super) fn new(opener: StreamOpener, window: u32, now: Instant) -> Self {
        Self {
            opener,
            window: u64::from(window),
            allowance: MAX_ALLOWANCE,
            earned_until: now,
            after_end: 0,
            heads_after_end: 0,
            streams: Vec::new(),
            newest: 0,
            empty: 0,
            over: 0,
        }
    }

    /// The peer has sent a frame. Gives the bytes of it that are neither content
    /// nor a head, which are counted elsewhere.
    pub(super) fn read(&mut self, frame: &Http2Frame, now: Instant) -> Result<u64, FrameFault> {
        let length = u64::from(frame.length);
        match frame.kind {
            DATA => self.read_data(frame, now),
            HEADERS => self.read_head(frame),
            // The library bounds how many there are to a head.
            CONTINUATION => self.pay(0, frame, now).map(|()| HEADER_BYTES),
            RST_STREAM => {
                self.close(frame.stream);
                self.pay(length, frame, now).map(|()| HEADER_BYTES + length)
            }
            _ => self.pay(length, frame, now).map(|()| HEADER_BYTES + length),
        }
    }

    fn read_data(&mut self, frame: &Http2Frame, now: Instant) -> Result<u64, FrameFault> {
        let (length, content) = (u64::from(frame.length), u64::from(frame.content()));
        let Some(untaken) = self.find_open(frame.stream).map(|stream| stream.unread.is_some())
        else {
            return self.pay_after_end(frame);
        };
        // Its request may never be taken, so it may send one window of data.
        if untaken {
            self.pay_after_end(frame)?;
        }
        if frame.ends_stream() {
            self.close(frame.stream);
        } else if content == 0 {
            self.pay(length, frame, now)?;
        }
        if content > 0 {
            self.earn(FRAME_EARNINGS);
        }
        Ok(HEADER_BYTES + length - content)
    }

    fn read_head(&mut self, frame: &Http2Frame) -> Result<u64, FrameFault> {
        if self.opener == StreamOpener::Peer && frame.stream > self.newest {
            if self.streams.len() >= MAX_TRACKED_STREAMS {
                return Err(FrameFault::Unread);
            }
            self.open(frame.stream, Some(UnreadStream::Unseen));
            // It may send before its head is read.
            self.allow_after_end(self.window);
        } else {
            let Some(stream) = self.find_open(frame.stream) else {
                return self.pay_after_end(frame);
            };
            stream.heads = stream.heads.saturating_add(1);
            if stream.heads > MAX_HEADS_PER_STREAM {
                return Err(FrameFault::Heads);
            }
        }
        if frame.ends_stream() {
            self.close(frame.stream);
        }
        self.earn(FRAME_EARNINGS);
        Ok(HEADER_BYTES)
    }

    /// We have sent a frame.
    pub(super) fn wrote(&mut self, frame: &Http2Frame) {
        match frame.kind {
            DATA => self.earn(FRAME_EARNINGS),
            HEADERS => {
                self.earn(FRAME_EARNINGS);
                if self.opener == StreamOpener::We && frame.stream > self.newest {
                    self.open(frame.stream, None);
                } else if let Some(stream) = self.find(frame.stream) {
                    stream.answer(UnreadStream::Answered);
                }
            }
            RST_STREAM => {
                let Some(stream) = self.find(frame.stream) else { return };
                stream.answer(UnreadStream::Reset(frame.error_code()));
                if stream.open {
                    // What it has sent by then is not its fault.
                    self.allow_after_end(self.window + MAX_HEAD_BYTES);
                    self.close(frame.stream);
                }
            }
            _ => {}
        }
    }

    /// The request on a stream was taken.
    pub(super) fn taken(&mut self, id: u32) {
        if let Some(stream) = self.find(id) {
            stream.unread = None;
        }
        self.forget(id);
    }

    /// Streams that were answered without their requests being taken. Asked when
    /// no request waits to be taken; at the end, all that are left.
    pub(super) fn unread(&mut self, at_the_end: bool) -> Vec<UnreadStream> {
        let done = |stream: &StreamState| match stream.unread {
            None => None,
            Some(UnreadStream::Unseen) if !at_the_end => None,
            unread => unread,
        };
        // Nearly always there is none, and then nothing is moved.
        if !self.streams.iter().any(|stream| done(stream).is_some()) {
            return Vec::new();
        }
        let all = self.streams.iter().filter_map(done).collect();
        self.streams.retain(|stream| done(stream).is_none());
        all
    }

    fn open(&mut self, id: u32, unread: Option<UnreadStream>) {
        self.newest = id;
        self.streams.push(StreamState { id, heads: 0, open: true, unread });
    }

    fn find(&mut self, id: u32) -> Option<&mut StreamState> {
        let at = self.streams.binary_search_by_key(&id, |stream| stream.id).ok()?;
        self.streams.get_mut(at)
    }

    fn find_open(&mut self, id: u32) -> Option<&mut StreamState> {
        self.find(id).filter(|stream| stream.open)
    }

    fn close(&mut self, id: u32) {
        if let Some(stream) = self.find(id) {
            stream.open = false;
        }
        self.forget(id);
    }

    /// Forgets a stream on which nothing more is to come and nothing is owed.
    fn forget(&mut self, id: u32) {
        if let Ok(at) = self.streams.binary_search_by_key(&id, |stream| stream.id)
            && self.streams.get(at).is_some_and(|stream| !stream.open && stream.unread.is_none())
        {
            self.streams.remove(at);
        }
    }

    fn earn(&mut self, bytes: u64) {
        self.allowance = (self.allowance + bytes).min(MAX_ALLOWANCE);
    }

    fn pay(&mut self, length: u64, frame: &Http2Frame, now: Instant) -> Result<(), FrameFault> {
        self.empty += 1;
        let price = FRAME_COST + length;
        if self.allowance < price {
            let passed = now.saturating_duration_since(self.earned_until);
            self.earned_until = now;
            let millis = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
            self.earn(millis.saturating_mul(EARNED_PER_MILLISECOND).min(MAX_ALLOWANCE));
        }
        match self.allowance.checked_sub(price) {
            Some(left) => self.allowance = left,
            None => return Err(FrameFault::Empty { count: self.empty, last: frame.name() }),
        }
        Ok(())
    }

    fn allow_after_end(&mut self, bytes: u64) {
        self.after_end = self.after_end.saturating_add(bytes);
        self.heads_after_end = self.heads_after_end.saturating_add(HEADS_AFTER_RESET);
    }

    fn pay_after_end(&mut self, frame: &Http2Frame) -> Result<u64, FrameFault> {
        self.over += 1;
        let fault = FrameFault::Over { count: self.over, last: frame.name() };
        if frame.kind == HEADERS {
            self.heads_after_end = self.heads_after_end.checked_sub(1).ok_or(fault)?;
        }
        let length = u64::from(frame.length);
        // Data is let in by the byte: a window may be full of small frames.
        let price = if frame.content() > 0 { length } else { FRAME_COST + length };
        self.after_end = self.after_end.checked_sub(price).ok_or(fault)?;
        Ok(HEADER_BYTES + length)
    }
}

impl StreamState {
    fn answer(&mut self, how: UnreadStream) {
        if self.unread.is_some() {
            self.unread = Some(how);
        }
    }
}

const HEADER_BYTES: u64 = 9;
/// What a frame costs beside its length: the work it makes.
const FRAME_COST: u64 = 64;
/// What a frame with content earns: for each, a peer may send two window updates
/// and a ping.
const FRAME_EARNINGS: u64 = 256;
/// Some fifteen thousand pings at once.
const MAX_ALLOWANCE: u64 = 1 << 20;
/// Some two hundred pings a second, for ever.
const EARNED_PER_MILLISECOND: u64 = 16;
/// Hints, an answer and trailers. Those who relay them have had enough before.
const MAX_HEADS_PER_STREAM: u8 = 64;
const MAX_HEAD_BYTES: u64 = 128 << 10;
/// Of a stream that was reset: an answer, trailers, hints.
const HEADS_AFTER_RESET: u64 = 4;
/// Far more than may be open at once.
const MAX_TRACKED_STREAMS: usize = 4096;

#[cfg(test)]
mod tests;
