//! Both directions of one stream, from the request's head to the end.
//!
//! Each side's data, trailers and cancellation reach the other. One poll does
//! all that can be done at the moment, in the task of the connection.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, StatusCode};

use super::flow::{Count, Cut, Flow};
use super::head::{self, ResponseHeaders};
use crate::frames::Watch;
use crate::http1::MOST_INTERIM;
use crate::inspect::Meter;
use crate::record::Exchange;
use crate::refuse::Refusal;
use crate::trailers;
use crate::websocket::{FrameChecker, FrameFault, Frames, Offer};

/// A request whose head was sent, with all that is still to come.
pub(super) struct Pump<'e> {
    respond: SendResponse<Bytes>,
    upload: Upload,
    answer: Answer,
    /// What was offered, if a WebSocket was asked for.
    offer: Option<Offer>,
    /// What both sides send, once there is a WebSocket.
    frames: Option<Frames>,
    hints: Hints,
    exchange: &'e mut Exchange,
    /// Of the upstream's connection.
    watch: Arc<Watch>,
}

/// Interim answers that were passed on. They have no window, so they have a
/// bound: what one head may have is what all of them may.
#[derive(Debug, Default)]
struct Hints {
    count: usize,
    bytes: usize,
}

impl Hints {
    /// One more, or too many.
    fn add(&mut self, hint: &http::Response<()>, meter: &Meter) -> Result<(), Refusal> {
        let size = head::fields_size(hint.headers());
        self.count += 1;
        self.bytes += size;
        meter.received(size)?;
        if self.count > MOST_INTERIM || self.bytes > meter.gateway().limits.header_bytes() {
            let why = "it sent hint after hint and no answer";
            return Err(Refusal::UpstreamMalformed(why.to_owned()));
        }
        Ok(())
    }
}

/// What the client still sends.
enum Upload {
    Body(Flow),
    /// All of it was sent, or the upstream wants no more; this is what it does
    /// not want.
    Done {
        unread: Option<RecvStream>,
    },
    /// It had nothing to send.
    Nothing,
}

/// What the upstream still sends.
enum Answer {
    Awaited(ResponseFuture),
    Body(Flow),
    /// All of it was passed on; the stream is open while the client sends.
    Done(SendStream<Bytes>),
}

/// Why a relay ended before its end.
#[derive(Debug)]
pub(super) enum Broken {
    /// The client cancelled, or is gone.
    Client(String),
    /// We said enough.
    Refused(Refusal),
    /// The upstream cancelled, or is gone.
    Upstream(h2::Error),
}

/// What is left of a relay that broke.
pub(super) enum Remains {
    /// The client has heard nothing yet.
    Silent { respond: SendResponse<Bytes>, body: Unsent },
    /// The answer had begun. `can_close` says that it is a WebSocket's, and that
    /// a close frame may come next.
    Spoken { to_client: SendStream<Bytes>, can_close: bool },
}

/// A request's body, as far as it can be sent again.
pub(super) enum Unsent {
    /// None of it was read.
    All(RecvStream),
    /// Some of it may have been sent, and is gone; this is the rest.
    Part(Option<RecvStream>),
    /// There was none.
    Nothing,
}

impl<'e> Pump<'e> {
    /// `upstream` and `response` are the two ends of the stream that was opened
    /// for the request, on the connection that `watch` knows.
    pub(super) fn new(
        respond: SendResponse<Bytes>,
        body: Option<RecvStream>,
        (response, upstream): (ResponseFuture, SendStream<Bytes>),
        watch: Arc<Watch>,
        offer: Option<Offer>,
        exchange: &'e mut Exchange,
    ) -> Self {
        let upload = match body {
            Some(body) => Upload::Body(Flow::new(body, upstream)),
            None => Upload::Nothing,
        };
        let (answer, hints) = (Answer::Awaited(response), Hints::default());
        Self { respond, upload, answer, offer, frames: None, hints, exchange, watch }
    }

    /// Relays what can be relayed now, and adds it to `moved`.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        moved: &AtomicU64,
    ) -> Poll<Result<(), Broken>> {
        let ended = self.poll_both(cx);
        moved.store(self.moved(), Ordering::Relaxed);
        ended
    }

    fn poll_both(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.settle().map_err(Broken::Refused)?;
        let waits = self.offer.is_some() && self.is_silent();
        let mut uploaded = self.poll_upload(cx)?;
        let answered = self.poll_answer(cx)?;
        if waits && !self.is_silent() {
            // What waited for the answer goes on with it.
            uploaded = self.poll_upload(cx)?;
        }
        if uploaded && answered {
            return Poll::Ready(Ok(()));
        }
        self.poll_client_reset(cx)?;
        if !self.is_silent() {
            // The answer goes on beyond this turn, at whose end it is sent. Until
            // then there has to be a record of it.
            self.exchange.open();
        }
        Poll::Pending
    }

    /// Counts what the upstream has said on its connection that is part of no
    /// answer. Several requests may share it; whoever is at work pays.
    pub(super) fn settle(&self) -> Result<(), Refusal> {
        self.exchange.meter().arrived(self.watch.take_overhead())
    }

    /// Whether the client's side is done.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<bool, Broken> {
        let Upload::Body(upload) = &mut self.upload else { return Ok(true) };
        // Before there is a WebSocket nothing is said over it.
        if self.offer.is_some() && self.frames.is_none() {
            return Ok(false);
        }
        let frames = self.frames.as_mut().map(|frames| &mut frames.from_client);
        let mut count = Uploaded { exchange: self.exchange, frames };
        match upload.poll(cx, &mut count) {
            // While the client is silent, this is where an upstream that wants no
            // more is heard.
            Poll::Pending if upload.to().poll_reset(cx).is_pending() => return Ok(false),
            Poll::Ready(Ok(())) => self.upload = Upload::Done { unread: None },
            // An upstream may answer without reading the rest. What it says, or
            // that it says nothing, is in the answer.
            Poll::Pending | Poll::Ready(Err(Cut::To)) => self.upload.abandon(),
            Poll::Ready(Err(Cut::From(err))) if err.is_reset() && err.is_library() => {
                return Err(Broken::Refused(malformed_body(&err)));
            }
            Poll::Ready(Err(Cut::From(err))) => return Err(gone(err)),
            Poll::Ready(Err(Cut::Refused(refusal))) => return Err(Broken::Refused(refusal)),
        }
        Ok(true)
    }

    /// Whether the upstream's side is done.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Result<bool, Broken> {
        if let Answer::Awaited(response) = &mut self.answer {
            loop {
                match response.poll_informational(cx) {
                    Poll::Pending => return Ok(false),
                    Poll::Ready(None) => break,
                    Poll::Ready(Some(interim)) => {
                        let mut interim = interim.map_err(Broken::Upstream)?;
                        let counted = self.hints.add(&interim, self.exchange.meter());
                        counted.map_err(Broken::Refused)?;
                        if interim.status() == StatusCode::SWITCHING_PROTOCOLS {
                            let why = "it answers 101, which HTTP/2 does not have".to_owned();
                            return Err(Broken::Refused(Refusal::UpstreamMalformed(why)));
                        }
                        head::strip_response(&mut interim);
                        self.exchange.open();
                        self.respond.send_informational(interim).map_err(gone)?;
                    }
                }
            }
            match Pin::new(response).poll(cx) {
                Poll::Pending => return Ok(false),
                Poll::Ready(response) => self.begin(response.map_err(Broken::Upstream)?)?,
            }
        }
        let Answer::Body(download) = &mut self.answer else {
            return Ok(matches!(self.answer, Answer::Done(_)));
        };
        let frames = self.frames.as_mut().map(|frames| &mut frames.from_upstream);
        match download.poll(cx, &mut Downloaded { exchange: self.exchange, frames }) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Ready(Err(Cut::From(err))) => Err(Broken::Upstream(err)),
            Poll::Ready(Err(Cut::Refused(refusal))) => Err(Broken::Refused(refusal)),
            Poll::Ready(Err(Cut::To)) => Err(Broken::Client("it cancelled".to_owned())),
        }
    }

    /// The head of the answer is there.
    fn begin(&mut self, response: http::Response<RecvStream>) -> Result<(), Broken> {
        let (parts, body) = response.into_parts();
        let mut response = http::Response::from_parts(parts, ());
        // As it came, whatever of it is passed on.
        let size = head::fields_size(response.headers());
        head::strip_response(&mut response);
        self.check_websocket(&response).map_err(Broken::Refused)?;
        self.exchange.answered(response.status().as_u16(), Instant::now());
        note_grpc_status(self.exchange, response.headers());
        self.exchange.meter().received(size).map_err(Broken::Refused)?;
        let end = body.is_end_stream();
        let to_client = self.respond.send_response(response, end).map_err(gone)?;
        self.answer =
            if end { Answer::Done(to_client) } else { Answer::Body(Flow::new(body, to_client)) };
        Ok(())
    }

    /// Whether an answer to a request for a WebSocket makes one. If it declines,
    /// what the client has to say is for nobody.
    fn check_websocket(&mut self, response: &http::Response<()>) -> Result<(), Refusal> {
        let Some(offer) = &self.offer else { return Ok(()) };
        if response.status().is_success() {
            let agreed = offer.check(&ResponseHeaders(response.headers()));
            let agreed = agreed.map_err(|fault| Refusal::UpstreamMalformed(fault.to_string()))?;
            self.frames = Some(Frames::new(agreed));
        } else if let Upload::Body(upload) = &mut self.upload {
            // Fails only if the upstream wants no more, which is what this says.
            upload.to().send_data(Bytes::new(), true).ok();
            self.upload.abandon();
        }
        Ok(())
    }

    /// A client that cancels while it has nothing to send says so here alone.
    fn poll_client_reset(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        let reset = match &mut self.answer {
            Answer::Awaited(_) => self.respond.poll_reset(cx),
            Answer::Body(download) => download.to().poll_reset(cx),
            Answer::Done(to_client) => to_client.poll_reset(cx),
        };
        match reset {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(reason)) => Err(Broken::Client(format!("it cancelled: {reason}"))),
            Poll::Ready(Err(err)) => Err(gone(err)),
        }
    }

    /// Grows with whatever is relayed.
    fn moved(&self) -> u64 {
        let uploaded = match &self.upload {
            Upload::Body(upload) => upload.moved(),
            Upload::Done { .. } | Upload::Nothing => OVER,
        };
        let answered = match &self.answer {
            Answer::Awaited(_) => 0,
            Answer::Body(download) => 1 + download.moved(),
            Answer::Done(_) => OVER,
        };
        uploaded + answered + self.hints.count as u64
    }

    /// Whether the client has heard nothing yet.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.answer, Answer::Awaited(_))
    }

    /// What the client still sends after all was relayed.
    pub(super) fn into_unread(self) -> Option<RecvStream> {
        match self.upload {
            Upload::Done { unread } => unread,
            Upload::Body(_) | Upload::Nothing => None,
        }
    }

    /// Lets go of the upstream, which cancels what it was asked for.
    pub(super) fn into_remains(self) -> Remains {
        match self.answer {
            Answer::Awaited(_) => {
                let body = match self.upload {
                    Upload::Body(upload) if upload.is_untouched() => {
                        Unsent::All(upload.into_from())
                    }
                    Upload::Body(upload) => Unsent::Part(Some(upload.into_from())),
                    Upload::Done { unread } => Unsent::Part(unread),
                    Upload::Nothing => Unsent::Nothing,
                };
                Remains::Silent { respond: self.respond, body }
            }
            Answer::Body(download) => {
                let frames = self.frames.as_ref();
                let between = frames.is_some_and(|frames| frames.from_upstream.can_close());
                let can_close = between && download.is_drained();
                Remains::Spoken { to_client: download.into_to(), can_close }
            }
            Answer::Done(to_client) => Remains::Spoken { to_client, can_close: false },
        }
    }
}

impl Upload {
    /// Nobody wants the rest.
    fn abandon(&mut self) {
        if let Self::Body(flow) = std::mem::replace(self, Self::Nothing) {
            *self = Self::Done { unread: Some(flow.into_from()) };
        }
    }
}

impl Unsent {
    pub(super) fn into_unread(self) -> Option<RecvStream> {
        match self {
            Self::All(body) => Some(body),
            Self::Part(rest) => rest,
            Self::Nothing => None,
        }
    }
}

/// The library has reset a stream for what its client sent.
pub(super) fn malformed_body(err: &h2::Error) -> Refusal {
    Refusal::Malformed(format!("its body is not one of HTTP/2: {err}"))
}

fn gone(err: h2::Error) -> Broken {
    Broken::Client(err.to_string())
}

/// More than any flow that is not over has moved.
const OVER: u64 = 1 << 62;

struct Uploaded<'e> {
    exchange: &'e Exchange,
    frames: Option<&'e mut FrameChecker>,
}

impl Count for Uploaded<'_> {
    fn data(&mut self, bytes: usize) -> Result<(), Refusal> {
        let meter = self.exchange.meter();
        // A WebSocket is no body: it has the budget to end it, not a length.
        if self.frames.is_some() { meter.sent(bytes) } else { meter.body(bytes) }
    }

    fn check(&mut self, data: &[u8]) -> Result<(), Refusal> {
        let Some(frames) = &mut self.frames else { return Ok(()) };
        frames.feed(data).map_err(Refusal::WebSocket)
    }

    fn trailers(&mut self, trailers: &mut HeaderMap) -> Result<(), Refusal> {
        if self.frames.is_some() {
            return Err(Refusal::WebSocket(FrameFault::Trailers));
        }
        let names = trailers.keys().map(|name| name.as_str().as_bytes());
        trailers::check_request(self.exchange.meter().gateway(), names)?;
        self.exchange.meter().sent(head::fields_size(trailers))
    }
}

struct Downloaded<'e> {
    exchange: &'e mut Exchange,
    frames: Option<&'e mut FrameChecker>,
}

impl Count for Downloaded<'_> {
    fn data(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.exchange.meter().received(bytes)
    }

    fn check(&mut self, data: &[u8]) -> Result<(), Refusal> {
        let Some(frames) = &mut self.frames else { return Ok(()) };
        frames.feed(data).map_err(Refusal::UpstreamWebSocket)
    }

    fn trailers(&mut self, trailers: &mut HeaderMap) -> Result<(), Refusal> {
        if self.frames.is_some() {
            return Err(Refusal::UpstreamWebSocket(FrameFault::Trailers));
        }
        head::retain(trailers, |name| trailers::may_follow_an_answer(name.as_str().as_bytes()));
        note_grpc_status(self.exchange, trailers);
        self.exchange.meter().received(head::fields_size(trailers))
    }
}

/// In the trailers, or in the head of an answer that has nothing else to say.
fn note_grpc_status(exchange: &mut Exchange, fields: &HeaderMap) {
    let status = fields.get("grpc-status").and_then(|status| status.to_str().ok()?.parse().ok());
    if let Some(status) = status {
        exchange.grpc_status(status);
    }
}
