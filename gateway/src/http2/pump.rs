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
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, StatusCode};

use super::flow::{FlowError, InspectFlow, StreamFlow};
use super::head::{self, ResponseHeaders};
use crate::frames::FrameWatch;
use crate::http1::MAX_INTERIM_ANSWERS;
use crate::inspect::TrafficMeter;
use crate::record::RequestRecord;
use crate::refuse::Refusal;
use crate::trailers;
use crate::websocket::{FrameChecker, FrameCheckers, WebSocketFault, WebSocketOffer};

/// A request whose head was sent, with all that is still to come.
pub(super) struct StreamPump<'e> {
    respond: SendResponse<Bytes>,
    upload: Upload,
    answer: Download,
    /// What was offered, if a WebSocket was asked for.
    offer: Option<WebSocketOffer>,
    /// What both sides send, once there is a WebSocket.
    frames: Option<FrameCheckers>,
    interim: InterimAnswers,
    record: &'e mut RequestRecord,
    /// Of the upstream's connection.
    watch: Arc<FrameWatch>,
}

/// Interim answers that were passed on. They have no window, so they have a
/// bound: what one head may have is what all of them may.
#[derive(Debug, Default)]
struct InterimAnswers {
    count: usize,
    bytes: usize,
}

impl InterimAnswers {
    /// One more, or too many.
    fn add(&mut self, answer: &http::Response<()>, meter: &TrafficMeter) -> Result<(), Refusal> {
        let size = head::fields_size(answer.headers());
        self.count += 1;
        self.bytes += size;
        meter.received(size)?;
        if self.count > MAX_INTERIM_ANSWERS
            || self.bytes > meter.gateway().limits.bounds().header_bytes
        {
            let why = "it sent hint after hint and no answer";
            return Err(Refusal::UpstreamMalformed(why.to_owned()));
        }
        Ok(())
    }
}

/// What the client still sends.
enum Upload {
    Body(StreamFlow),
    /// All of it was sent, or the upstream wants no more; this is what it does
    /// not want.
    Done {
        unread: Option<RecvStream>,
    },
    /// It had nothing to send.
    Nothing,
}

/// What the upstream still sends.
enum Download {
    Awaited(ResponseFuture),
    Body(StreamFlow),
    /// All of it was passed on; the stream is open while the client sends.
    Done(SendStream<Bytes>),
}

/// Why a stream ended before its end.
#[derive(Debug)]
pub(crate) enum StreamError {
    /// The client cancelled, or is gone.
    Client(String),
    /// We ended it.
    Refused(Refusal),
    /// The upstream did nothing about the request, so that it can be sent again
    /// whatever it was (RFC 9113, 8.7).
    Unprocessed(h2::Error),
    /// The upstream cancelled, or is gone.
    Upstream(h2::Error),
}

impl From<Refusal> for StreamError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl StreamError {
    fn upstream(err: h2::Error) -> Self {
        let refused = err.is_reset() && err.reason() == Some(Reason::REFUSED_STREAM);
        let goodbye = err.is_go_away() && err.reason() == Some(Reason::NO_ERROR);
        match err.is_remote() && (refused || goodbye) {
            true => Self::Unprocessed(err),
            false => Self::Upstream(err),
        }
    }
}

/// The client's side of a stream whose answer has not begun.
pub(crate) struct ClientStream {
    pub(super) respond: SendResponse<Bytes>,
    /// What it still sends.
    pub(super) body: Option<RecvStream>,
}

/// The client's side of a stream that ended early.
pub(crate) enum ClientSide {
    /// The answer had begun. `can_close` says that it is a WebSocket's, and that
    /// a close frame may come next.
    Answered { to_client: SendStream<Bytes>, can_close: bool },
    /// The client has heard nothing yet. `resendable` says that none of its body
    /// was sent.
    Unanswered { client: ClientStream, resendable: bool },
}

impl<'e> StreamPump<'e> {
    /// `upstream` and `response` are the two ends of the stream that was opened
    /// for the request, on the connection that `watch` knows.
    pub(super) fn new(
        ClientStream { respond, body }: ClientStream,
        (response, upstream): (ResponseFuture, SendStream<Bytes>),
        watch: Arc<FrameWatch>,
        offer: Option<WebSocketOffer>,
        record: &'e mut RequestRecord,
    ) -> Self {
        let upload = match body {
            Some(body) => Upload::Body(StreamFlow::new(body, upstream)),
            None => Upload::Nothing,
        };
        let (answer, interim) = (Download::Awaited(response), InterimAnswers::default());
        Self { respond, upload, answer, offer, frames: None, interim, record, watch }
    }

    /// Relays what can be relayed now, and adds it to `moved`.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        moved: &AtomicU64,
    ) -> Poll<Result<(), StreamError>> {
        let ended = self.poll_both(cx);
        moved.store(self.moved(), Ordering::Relaxed);
        ended
    }

    fn poll_both(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        self.settle()?;
        let waits = self.offer.is_some() && self.is_unanswered();
        let mut uploaded = self.poll_upload(cx)?;
        let answered = self.poll_answer(cx)?;
        if waits && !self.is_unanswered() {
            // What waited for the answer goes on with it.
            uploaded = self.poll_upload(cx)?;
        }
        if uploaded && answered {
            return Poll::Ready(Ok(()));
        }
        self.poll_client_reset(cx)?;
        if !self.is_unanswered() {
            // The answer goes on beyond this turn, at whose end it is sent. Until
            // then there has to be a record of it.
            self.record.queue_opened();
        }
        Poll::Pending
    }

    /// Counts bytes on the upstream's connection that are part of no answer. Several
    /// requests may share it; each counts what has come when it is polled.
    pub(super) fn settle(&self) -> Result<(), Refusal> {
        self.record.meter().arrived(self.watch.take_overhead())
    }

    /// Whether the client's side is done.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<bool, StreamError> {
        let Upload::Body(upload) = &mut self.upload else { return Ok(true) };
        // Before there is a WebSocket nothing is said over it.
        if self.offer.is_some() && self.frames.is_none() {
            return Ok(false);
        }
        let frames = self.frames.as_mut().map(|frames| &mut frames.from_client);
        let mut inspect = StreamUpload { record: self.record, frames };
        match upload.poll(cx, &mut inspect) {
            // While the client is silent, this is where an upstream that wants no
            // more is heard.
            Poll::Pending if upload.to().poll_reset(cx).is_pending() => return Ok(false),
            Poll::Ready(Ok(())) => self.upload = Upload::Done { unread: None },
            // An upstream may answer without reading the rest. What it says, or
            // that it says nothing, is in the answer.
            Poll::Pending | Poll::Ready(Err(FlowError::Receiver)) => self.upload.abandon(),
            Poll::Ready(Err(FlowError::Sender(err))) if err.is_reset() && err.is_library() => {
                return Err(malformed_body(&err).into());
            }
            Poll::Ready(Err(FlowError::Sender(err))) => return Err(gone(err)),
            Poll::Ready(Err(FlowError::Refused(refusal))) => {
                return Err(StreamError::Refused(refusal));
            }
        }
        Ok(true)
    }

    /// Whether the upstream's side is done.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Result<bool, StreamError> {
        if let Download::Awaited(response) = &mut self.answer {
            loop {
                match response.poll_informational(cx) {
                    Poll::Pending => return Ok(false),
                    Poll::Ready(None) => break,
                    Poll::Ready(Some(interim)) => {
                        let mut interim = interim.map_err(StreamError::upstream)?;
                        self.interim.add(&interim, self.record.meter())?;
                        if interim.status() == StatusCode::SWITCHING_PROTOCOLS {
                            let why = "it answers 101, which HTTP/2 does not have".to_owned();
                            return Err(Refusal::UpstreamMalformed(why).into());
                        }
                        head::strip_response(&mut interim);
                        self.record.queue_opened();
                        self.respond.send_informational(interim).map_err(gone)?;
                    }
                }
            }
            match Pin::new(response).poll(cx) {
                Poll::Pending => return Ok(false),
                Poll::Ready(response) => self.begin(response.map_err(StreamError::upstream)?)?,
            }
        }
        let Download::Body(download) = &mut self.answer else {
            return Ok(matches!(self.answer, Download::Done(_)));
        };
        let frames = self.frames.as_mut().map(|frames| &mut frames.from_upstream);
        match download.poll(cx, &mut StreamDownload { record: self.record, frames }) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Ready(Err(FlowError::Sender(err))) => Err(StreamError::upstream(err)),
            Poll::Ready(Err(FlowError::Refused(refusal))) => Err(StreamError::Refused(refusal)),
            Poll::Ready(Err(FlowError::Receiver)) => {
                Err(StreamError::Client("it cancelled".to_owned()))
            }
        }
    }

    /// The head of the answer is there.
    fn begin(&mut self, response: http::Response<RecvStream>) -> Result<(), StreamError> {
        let (parts, body) = response.into_parts();
        let mut response = http::Response::from_parts(parts, ());
        // As it came, whatever of it is passed on.
        let size = head::fields_size(response.headers());
        head::strip_response(&mut response);
        self.check_websocket(&response)?;
        self.record.answered(response.status().as_u16(), Instant::now());
        note_grpc_status(self.record, response.headers());
        self.record.meter().received(size)?;
        let end = body.is_end_stream();
        let to_client = self.respond.send_response(response, end).map_err(gone)?;
        self.answer = if end {
            Download::Done(to_client)
        } else {
            Download::Body(StreamFlow::new(body, to_client))
        };
        Ok(())
    }

    /// Whether an answer to a request for a WebSocket makes one. If it declines, the
    /// rest of what the client sends is not relayed.
    fn check_websocket(&mut self, response: &http::Response<()>) -> Result<(), Refusal> {
        let Some(offer) = &self.offer else { return Ok(()) };
        if response.status().is_success() {
            let agreed = offer.check(&ResponseHeaders(response.headers()));
            let agreed = agreed.map_err(|fault| Refusal::UpstreamMalformed(fault.to_string()))?;
            self.frames = Some(FrameCheckers::new(agreed));
        } else if let Upload::Body(upload) = &mut self.upload {
            // Fails only if the upstream wants no more, which is what this says.
            upload.to().send_data(Bytes::new(), true).ok();
            self.upload.abandon();
        }
        Ok(())
    }

    /// A client that cancels while it has nothing to send says so here alone.
    fn poll_client_reset(&mut self, cx: &mut Context<'_>) -> Result<(), StreamError> {
        let reset = match &mut self.answer {
            Download::Awaited(_) => self.respond.poll_reset(cx),
            Download::Body(download) => download.to().poll_reset(cx),
            Download::Done(to_client) => to_client.poll_reset(cx),
        };
        match reset {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(reason)) => Err(StreamError::Client(format!("it cancelled: {reason}"))),
            Poll::Ready(Err(err)) => Err(gone(err)),
        }
    }

    /// Grows with whatever is relayed.
    fn moved(&self) -> u64 {
        let uploaded = match &self.upload {
            Upload::Body(upload) => upload.moved(),
            Upload::Done { .. } | Upload::Nothing => MOVED_AT_END,
        };
        let answered = match &self.answer {
            Download::Awaited(_) => 0,
            Download::Body(download) => 1 + download.moved(),
            Download::Done(_) => MOVED_AT_END,
        };
        uploaded + answered + self.interim.count as u64
    }

    /// Whether no answer was sent to the client yet.
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self.answer, Download::Awaited(_))
    }

    /// What the client still sends after all was relayed.
    pub(super) fn into_unread(self) -> Option<RecvStream> {
        match self.upload {
            Upload::Done { unread } => unread,
            Upload::Body(_) | Upload::Nothing => None,
        }
    }

    /// Lets go of the upstream, which cancels what it was asked for.
    pub(super) fn into_client_side(self) -> ClientSide {
        match self.answer {
            Download::Awaited(_) => {
                let (body, resendable) = match self.upload {
                    Upload::Body(upload) => {
                        let untouched = upload.is_untouched();
                        (Some(upload.into_from()), untouched)
                    }
                    Upload::Done { unread } => (unread, false),
                    Upload::Nothing => (None, true),
                };
                let client = ClientStream { respond: self.respond, body };
                ClientSide::Unanswered { client, resendable }
            }
            Download::Body(download) => {
                let frames = self.frames.as_ref();
                let between = frames.is_some_and(|frames| frames.from_upstream.can_close());
                let can_close = between && download.is_drained();
                ClientSide::Answered { to_client: download.into_to(), can_close }
            }
            Download::Done(to_client) => ClientSide::Answered { to_client, can_close: false },
        }
    }
}

impl Upload {
    /// The upstream wants no more of the body.
    fn abandon(&mut self) {
        if let Self::Body(flow) = std::mem::replace(self, Self::Nothing) {
            *self = Self::Done { unread: Some(flow.into_from()) };
        }
    }
}

/// The library has reset a stream for what its client sent.
pub(super) fn malformed_body(err: &h2::Error) -> Refusal {
    Refusal::Malformed(format!("its body is not one of HTTP/2: {err}"))
}

fn gone(err: h2::Error) -> StreamError {
    StreamError::Client(err.to_string())
}

/// More than any flow that is not over has moved.
const MOVED_AT_END: u64 = 1 << 62;

struct StreamUpload<'e> {
    record: &'e RequestRecord,
    frames: Option<&'e mut FrameChecker>,
}

impl InspectFlow for StreamUpload<'_> {
    fn data(&mut self, bytes: usize) -> Result<(), Refusal> {
        let meter = self.record.meter();
        // A WebSocket is no body: it has the budget to end it, not a length.
        if self.frames.is_some() { meter.sent(bytes) } else { meter.body(bytes) }
    }

    fn check(&mut self, data: &[u8]) -> Result<(), Refusal> {
        let Some(frames) = &mut self.frames else { return Ok(()) };
        frames.feed(data).map_err(Refusal::WebSocket)
    }

    fn trailers(&mut self, trailers: &mut HeaderMap) -> Result<(), Refusal> {
        if self.frames.is_some() {
            return Err(Refusal::WebSocket(WebSocketFault::Trailers));
        }
        let names = trailers.keys().map(|name| name.as_str().as_bytes());
        trailers::check_request(&self.record.meter().gateway().policy, names)?;
        self.record.meter().sent(head::fields_size(trailers))
    }
}

struct StreamDownload<'e> {
    record: &'e mut RequestRecord,
    frames: Option<&'e mut FrameChecker>,
}

impl InspectFlow for StreamDownload<'_> {
    fn data(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.record.meter().received(bytes)
    }

    fn check(&mut self, data: &[u8]) -> Result<(), Refusal> {
        let Some(frames) = &mut self.frames else { return Ok(()) };
        frames.feed(data).map_err(Refusal::UpstreamWebSocket)
    }

    fn trailers(&mut self, trailers: &mut HeaderMap) -> Result<(), Refusal> {
        if self.frames.is_some() {
            return Err(Refusal::UpstreamWebSocket(WebSocketFault::Trailers));
        }
        head::retain(trailers, |name| trailers::may_follow_an_answer(name.as_str().as_bytes()));
        note_grpc_status(self.record, trailers);
        self.record.meter().received(head::fields_size(trailers))
    }
}

/// In the trailers, or in the head of an answer that has nothing else to say.
fn note_grpc_status(record: &mut RequestRecord, fields: &HeaderMap) {
    let status = fields.get("grpc-status").and_then(|status| status.to_str().ok()?.parse().ok());
    if let Some(status) = status {
        record.grpc_status(status);
    }
}
