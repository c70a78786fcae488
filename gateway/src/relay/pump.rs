//! One direction of an exchange.
//!
//! A [`BodyPump`] takes bytes out of an [`Inbox`], makes sure that they are a body of
//! the announced kind, counts them and writes them. It is polled, not spawned:
//! two of them, one per direction, run in the task of their connection and share
//! its sockets without a lock.
//!
//! What has to precede the body (a head) is put into [`BodyPump::out`], so that it
//! leaves together with the first piece of the body.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::http1_codec::chunked::{self, ChunkDecoder, ChunkFault};
use crate::http1_codec::fields::Fields;
use crate::http1_codec::framing::Framing;
use crate::inbox::Inbox;
use crate::refuse::Refusal;

/// Moves a body from one side to the other.
#[derive(Debug)]
pub(crate) struct BodyPump {
    from: BodySource,
    chunked: bool,
    /// What is to be written before anything that is still in the inbox.
    pub(crate) out: Vec<u8>,
    written: usize,
    /// Bytes at the front of the inbox that were counted and not yet written.
    counted: usize,
    ended: bool,
    /// Counts up whenever something moves, so that others can tell idleness.
    pub(crate) moved: u64,
}

/// How the body arrives.
#[derive(Debug)]
enum BodySource {
    Chunked(Box<ChunkDecoder>),
    Length(u64),
    UntilClose,
}

impl BodySource {
    /// The way in, and whether it has ended before it began.
    fn of(framing: Framing) -> (Self, bool) {
        match framing {
            Framing::Chunked => (Self::Chunked(Box::new(ChunkDecoder::new())), false),
            Framing::Empty => (Self::Length(0), true),
            Framing::Length(length) => (Self::Length(length), false),
            Framing::UntilClose => (Self::UntilClose, false),
        }
    }
}

/// Why a body did not get across.
#[derive(Debug)]
pub(crate) enum PumpError {
    Malformed(ChunkFault),
    Read(io::Error),
    Refused(Refusal),
    /// It ended before its end.
    Truncated,
    Write(io::Error),
}

impl From<Refusal> for PumpError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Step 7 for a body: looks at each piece before it is passed on.
pub(crate) trait InspectBody {
    /// So many bytes of it are about to be written.
    fn data(&mut self, bytes: usize) -> Result<(), Refusal>;

    /// These fields come after it.
    fn trailers(&mut self, trailers: &mut Fields) -> Result<(), Refusal>;

    /// Around it, so many bytes were read, and others are to be written in their
    /// place. What is read includes the trailers.
    fn framing(&mut self, read: usize, written: usize) -> Result<(), Refusal> {
        let _ = (read, written);
        Ok(())
    }
}

/// For bodies that have no trailers.
impl<F: FnMut(usize) -> Result<(), Refusal>> InspectBody for F {
    fn data(&mut self, bytes: usize) -> Result<(), Refusal> {
        self(bytes)
    }

    fn trailers(&mut self, trailers: &mut Fields) -> Result<(), Refusal> {
        self(trailers.written())
    }
}

/// Up to here the first piece of a body is copied behind the head.
const MAX_COALESCED_BYTES: usize = 16 * 1024;

impl BodyPump {
    /// A pump for a body that arrives as `framing` says and leaves chunked or as
    /// it is. `out` is memory to be reused.
    pub(crate) fn new(framing: Framing, chunked: bool, mut out: Vec<u8>) -> Self {
        out.clear();
        let (from, ended) = BodySource::of(framing);
        Self { from, chunked, out, written: 0, counted: 0, ended, moved: 0 }
    }

    /// Begins another body, after what already waits to be written.
    pub(crate) fn carry(&mut self, framing: Framing, chunked: bool) {
        (self.from, self.ended) = BodySource::of(framing);
        self.chunked = chunked;
    }

    /// Takes what is there of the body without writing any of it.
    pub(crate) fn gather(
        &mut self,
        inbox: &mut Inbox,
        inspect: &mut impl InspectBody,
    ) -> Result<(), PumpError> {
        self.take(inbox, inspect)
    }

    /// Whether the end of the body was taken: all of it waits to be written.
    pub(crate) fn is_whole(&self) -> bool {
        self.ended
    }

    /// Whether nothing waits to be written.
    pub(crate) fn is_drained(&self) -> bool {
        self.written == self.out.len()
    }

    /// Moves what can be moved; ready when the body is across. `inspect` is asked
    /// before each piece.
    pub(crate) fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        inbox: &mut Inbox,
        to: &mut W,
        inspect: &mut impl InspectBody,
    ) -> Poll<Result<(), PumpError>> {
        loop {
            self.take(inbox, inspect)?;
            ready!(self.poll_drain(cx, to))?;
            ready!(self.poll_straight(cx, inbox, to, inspect))?;
            if self.ended {
                return Pin::new(to).poll_flush(cx).map_err(PumpError::Write);
            }
            if !inbox.is_empty() {
                continue;
            }
            match inbox.poll_fill_up(cx, from) {
                Poll::Pending => {
                    ready!(Pin::new(to).poll_flush(cx)).map_err(PumpError::Write)?;
                    return Poll::Pending;
                }
                Poll::Ready(Err(err)) => return Poll::Ready(Err(PumpError::Read(err))),
                Poll::Ready(Ok(0)) => self.end_of_input()?,
                Poll::Ready(Ok(_)) => self.moved += 1,
            }
        }
    }

    /// Writes what is in `out`.
    pub(crate) fn poll_drain<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut W,
    ) -> Poll<Result<(), PumpError>> {
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            self.written += ready!(poll_some(cx, to, rest))?;
            self.moved += 1;
        }
        self.out.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Moves pieces of the body behind what is to be written, as far as that
    /// saves a write or cannot be done without a copy.
    fn take(&mut self, inbox: &mut Inbox, inspect: &mut impl InspectBody) -> Result<(), PumpError> {
        while !self.ended && !inbox.is_empty() && self.out.len() < MAX_COALESCED_BYTES {
            let room = MAX_COALESCED_BYTES - self.out.len();
            let (skip, length) = match &mut self.from {
                BodySource::Chunked(decoder) => {
                    let step = decoder.step(inbox.filled()).map_err(PumpError::Malformed)?;
                    (step.framing, step.data)
                }
                BodySource::Length(left) if self.chunked || !self.out.is_empty() => {
                    let length = min_with_u64(inbox.filled().len().min(room), *left);
                    *left -= length as u64;
                    (0, length)
                }
                BodySource::UntilClose if self.chunked || !self.out.is_empty() => {
                    (0, inbox.filled().len().min(room))
                }
                BodySource::Length(_) | BodySource::UntilClose => return Ok(()),
            };
            // What was counted already was to be written straight, and was not.
            let fresh = length - length.min(self.counted);
            self.counted -= length - fresh;
            inspect.data(fresh)?;
            let written = if self.chunked && length > 0 { chunked::around(length) } else { 0 };
            if skip + written > 0 {
                inspect.framing(skip, written)?;
            }
            let data = inbox.filled().get(skip..skip + length).unwrap_or_default();
            if self.chunked && !data.is_empty() {
                chunked::write_chunk(data, &mut self.out);
            } else {
                self.out.extend_from_slice(data);
            }
            inbox.consume(skip + length);
            if let BodySource::Chunked(decoder) = &mut self.from
                && decoder.is_done()
            {
                inspect.trailers(decoder.trailers_mut())?;
                inspect.framing(0, chunked::END.len())?;
            }
            self.end_if_complete();
        }
        Ok(())
    }

    /// Writes a plain body from where it was read, without a copy.
    fn poll_straight<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        to: &mut W,
        inspect: &mut impl InspectBody,
    ) -> Poll<Result<(), PumpError>> {
        while !self.ended && !self.chunked && !inbox.is_empty() {
            let length = match &self.from {
                BodySource::Chunked(_) => return Poll::Ready(Ok(())),
                BodySource::Length(left) => min_with_u64(inbox.filled().len(), *left),
                BodySource::UntilClose => inbox.filled().len(),
            };
            if length > self.counted {
                inspect.data(length - self.counted)?;
                self.counted = length;
            }
            let data = inbox.filled().get(..length).unwrap_or_default();
            let wrote = ready!(poll_some(cx, to, data))?;
            self.counted -= wrote;
            self.moved += 1;
            inbox.consume(wrote);
            if let BodySource::Length(left) = &mut self.from {
                *left -= wrote as u64;
            }
            self.end_if_complete();
        }
        Poll::Ready(Ok(()))
    }

    fn end_if_complete(&mut self) {
        let complete = match &self.from {
            BodySource::Chunked(decoder) => decoder.is_done(),
            BodySource::Length(left) => *left == 0,
            BodySource::UntilClose => false,
        };
        if complete {
            self.end();
        }
    }

    fn end_of_input(&mut self) -> Result<(), PumpError> {
        match &self.from {
            BodySource::UntilClose => {
                self.end();
                Ok(())
            }
            BodySource::Chunked(_) | BodySource::Length(_) => Err(PumpError::Truncated),
        }
    }

    fn end(&mut self) {
        self.ended = true;
        if self.chunked {
            match &self.from {
                BodySource::Chunked(decoder) => {
                    chunked::write_end(decoder.trailers(), &mut self.out)
                }
                BodySource::Length(_) | BodySource::UntilClose => {
                    chunked::write_end(&Fields::default(), &mut self.out);
                }
            }
        }
    }
}

fn poll_some<W: AsyncWrite + Unpin>(
    cx: &mut Context<'_>,
    to: &mut W,
    data: &[u8],
) -> Poll<Result<usize, PumpError>> {
    match ready!(Pin::new(to).poll_write(cx, data)) {
        Ok(0) => Poll::Ready(Err(PumpError::Write(io::ErrorKind::WriteZero.into()))),
        Ok(wrote) => Poll::Ready(Ok(wrote)),
        Err(err) => Poll::Ready(Err(PumpError::Write(err))),
    }
}

fn min_with_u64(length: usize, left: u64) -> usize {
    usize::try_from(left).map_or(length, |left| left.min(length))
}

#[cfg(test)]
mod tests;
