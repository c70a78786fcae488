//! What happens on both sockets while one exchange is under way.
//!
//! Everything here is polled from the connection's own task: sending the request
//! and receiving its answer go on at the same time, because an upstream may
//! answer before it has heard everything, and neither may wait for the other.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::dial::UpstreamStream;
use crate::http1_codec::fields::Fields;
use crate::http1_codec::head::HeadSearch;
use crate::inbox::{HeadError, Inbox};
use crate::inspect::TrafficMeter;
use crate::per_worker::yield_to_others;
use crate::record::RequestRecord;
use crate::refuse::Refusal;
use crate::relay::{BodyPump, InspectBody, PumpError};
use crate::trailers;

/// The two sides of one exchange.
pub(crate) struct ExchangeIo<'a, C> {
    pub(crate) client: &'a mut C,
    pub(crate) client_in: &'a mut Inbox,
    pub(crate) upstream: &'a mut UpstreamStream,
    pub(crate) upstream_in: &'a mut Inbox,
    /// The request, on its way out.
    pub(crate) up: BodyPump,
    pub(crate) sending: SendState,
    /// The answer, on its way back. Until its head is there: interim heads.
    pub(crate) down: BodyPump,
    /// The client has closed its half. It may still be listening.
    pub(crate) client_ended: bool,
    pub(crate) record: &'a mut RequestRecord,
    /// A record of the exchange was handed over for this answer.
    pub(crate) record_sent: bool,
    /// For the end of a head in what the upstream sends.
    pub(crate) search: HeadSearch,
}

/// How far the request has got.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SendState {
    /// The upstream wants no more of it. It may have said why.
    Abandoned,
    Done,
    Running,
}

impl<C: AsyncRead + AsyncWrite + Unpin> ExchangeIo<'_, C> {
    /// Counts up whenever something moves on either socket.
    pub(crate) fn moved(&self) -> u64 {
        self.up.moved + self.down.moved
    }

    /// Sends, until the head of an answer is there; gives its length.
    pub(crate) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Refusal>> {
        self.poll_sending(cx)?;
        // A client that does not read them does not keep the answer from coming.
        if let Poll::Ready(Err(refusal)) = self.poll_interim(cx) {
            return Poll::Ready(Err(refusal));
        }
        let before = self.upstream_in.filled().len();
        let read = self.upstream_in.poll_head(cx, self.upstream, &mut self.search);
        if self.upstream_in.filled().len() > before {
            self.up.moved += 1;
        }
        match read {
            Poll::Pending => Poll::Pending,
            Poll::Ready(read) => Poll::Ready(read.map_err(|err| match err {
                HeadError::Closed => self.upstream_gone("it gave no answer"),
                HeadError::Fault(fault) => Refusal::UpstreamMalformed(fault.to_string()),
                HeadError::Io(err) => self.upstream_gone(&err.to_string()),
            })),
        }
    }

    /// Relays the answer's body, and the rest of the request beside it.
    pub(crate) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.poll_sending(cx)?;
        let Self { client, upstream, upstream_in, down, record, .. } = self;
        let inspect = &mut BodyDownload(record.meter());
        let moved = ready!(down.poll(cx, *upstream, upstream_in, *client, inspect));
        Poll::Ready(moved.map_err(answer_broken))
    }

    /// Ready once a record of the exchange is written: from then on its answer may
    /// be sent. One that is not recorded yet is recorded with its end if the answer
    /// is all there, else that it began.
    pub(crate) fn poll_recorded(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.poll_sending(cx)?;
        if !self.record_sent {
            let Self { upstream_in, down, record, .. } = self;
            let inspect = &mut BodyDownload(record.meter());
            down.gather(upstream_in, inspect).map_err(answer_broken)?;
            self.record_sent = true;
            let was_opened = self.record.is_opened();
            if !was_opened && self.down.is_whole() && self.sending == SendState::Done {
                self.record.relayed_in_full();
            } else {
                self.record.queue_opened();
            }
            if !was_opened && self.record.others_under_way() {
                // Answers that came at the same time are recorded with one write,
                // by the first of us that goes on.
                yield_to_others(cx);
                return Poll::Pending;
            }
        }
        Poll::Ready(ready!(self.record.poll_recorded(cx)).map_err(Refusal::from))
    }

    /// Writes what is in `down` and nothing more.
    pub(crate) fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        if self.down.is_drained() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.record.poll_recorded(cx)).map_err(Refusal::from)?;
        let gone = |err| match err {
            PumpError::Write(err) | PumpError::Read(err) => Refusal::ClientGone(err.to_string()),
            PumpError::Refused(refusal) => refusal,
            PumpError::Malformed(_) | PumpError::Truncated => Refusal::ClientGone(String::new()),
        };
        ready!(self.down.poll_drain(cx, self.client)).map_err(gone)?;
        let flushed = ready!(Pin::new(&mut *self.client).poll_flush(cx));
        Poll::Ready(flushed.map_err(|err| Refusal::ClientGone(err.to_string())))
    }

    /// Sends what can be sent; never ready, but may fail.
    fn poll_sending(&mut self, cx: &mut Context<'_>) -> Result<(), Refusal> {
        match self.sending {
            SendState::Abandoned => return Ok(()),
            SendState::Done => return self.watch_client(cx),
            SendState::Running => {}
        }
        let Self { client, client_in, upstream, up, record, .. } = self;
        let inspect = &mut BodyUpload(record.meter());
        match up.poll(cx, *client, client_in, *upstream, inspect) {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(())) => {
                self.sending = SendState::Done;
                self.watch_client(cx)
            }
            // An upstream may refuse a long body by answering and closing. What
            // it said, if it said something, is still to be read.
            Poll::Ready(Err(PumpError::Write(_))) => {
                self.sending = SendState::Abandoned;
                Ok(())
            }
            Poll::Ready(Err(err)) => Err(match err {
                PumpError::Malformed(fault) => Refusal::Malformed(fault.to_string()),
                PumpError::Refused(refusal) => refusal,
                PumpError::Truncated => Refusal::ClientGone("the body ended too early".to_owned()),
                PumpError::Read(err) | PumpError::Write(err) => {
                    Refusal::ClientGone(err.to_string())
                }
            }),
        }
    }

    /// Notices a client that is gone, so that its request does not go on. What it
    /// sends meanwhile is its next request, and waits.
    fn watch_client(&mut self, cx: &mut Context<'_>) -> Result<(), Refusal> {
        while !self.client_ended && !self.client_in.is_full() {
            match self.client_in.poll_fill(cx, self.client) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => self.client_ended = true,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(err)) => return Err(Refusal::ClientGone(err.to_string())),
            }
        }
        Ok(())
    }

    /// It closed before it said anything, or within its head.
    fn upstream_gone(&self, why: &str) -> Refusal {
        let within = "its head ended too early";
        let why = if self.upstream_in.is_empty() { why } else { within };
        Refusal::UpstreamClosed(why.to_owned())
    }
}

/// The body of a request, as it goes by.
struct BodyUpload<'m>(&'m TrafficMeter);

impl InspectBody for BodyUpload<'_> {
    fn data(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.0.body(bytes)
    }

    fn trailers(&mut self, fields: &mut Fields) -> Result<(), Refusal> {
        trailers::check_request(&self.0.gateway().policy, fields.iter().map(|(_, name, _)| name))?;
        self.0.body(fields.written())
    }

    fn framing(&mut self, _: usize, written: usize) -> Result<(), Refusal> {
        self.0.sent(written)
    }
}

/// The body of an answer, as it goes by.
struct BodyDownload<'m>(&'m TrafficMeter);

impl InspectBody for BodyDownload<'_> {
    fn data(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.0.received(bytes)
    }

    fn trailers(&mut self, fields: &mut Fields) -> Result<(), Refusal> {
        fields.retain(trailers::may_follow_an_answer);
        Ok(())
    }

    fn framing(&mut self, read: usize, _: usize) -> Result<(), Refusal> {
        self.0.received(read)
    }
}

/// Why an answer did not get across.
fn answer_broken(err: PumpError) -> Refusal {
    match err {
        PumpError::Malformed(fault) => Refusal::UpstreamMalformed(fault.to_string()),
        PumpError::Read(err) => Refusal::UpstreamClosed(err.to_string()),
        PumpError::Refused(refusal) => refusal,
        PumpError::Truncated => Refusal::UpstreamClosed("its answer ended too early".to_owned()),
        PumpError::Write(err) => Refusal::ClientGone(err.to_string()),
    }
}

#[cfg(test)]
mod tests;
