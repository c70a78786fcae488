//! Both directions of one stream, from the request's head to the end.
//!
//! Each side's data, trailers and cancellation reach the other. One poll does
//! all that can be done at the moment, in the task of the connection.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::HeaderMap;

use super::flow::{Count, Cut, Flow};
use super::head;
use crate::record::Exchange;
use crate::refuse::Refusal;

/// A request whose head was sent, with all that is still to come.
pub(super) struct Pump<'e> {
    respond: SendResponse<Bytes>,
    upload: Upload,
    answer: Answer,
    websocket: bool,
    exchange: &'e mut Exchange,
}

/// What the client still sends.
enum Upload {
    Body(Flow),
    Done,
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
    /// The answer had begun.
    Spoken { to_client: SendStream<Bytes> },
}

/// A request's body, as far as it can be sent again.
pub(super) enum Unsent {
    /// None of it was read.
    All(RecvStream),
    /// Some of it was sent, and is gone.
    Lost,
    /// There was none.
    Nothing,
}

impl<'e> Pump<'e> {
    /// `upstream` and `response` are the two ends of the stream that was opened
    /// for the request.
    pub(super) fn new(
        respond: SendResponse<Bytes>,
        body: Option<RecvStream>,
        upstream: SendStream<Bytes>,
        response: ResponseFuture,
        websocket: bool,
        exchange: &'e mut Exchange,
    ) -> Self {
        let upload = match body {
            Some(body) => Upload::Body(Flow::new(body, upstream)),
            None => Upload::Nothing,
        };
        Self { respond, upload, answer: Answer::Awaited(response), websocket, exchange }
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
        let uploaded = self.poll_upload(cx)?;
        let answered = self.poll_answer(cx)?;
        if uploaded && answered {
            return Poll::Ready(Ok(()));
        }
        self.poll_client_reset(cx)?;
        Poll::Pending
    }

    /// Whether the client's side is done.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<bool, Broken> {
        let Upload::Body(upload) = &mut self.upload else { return Ok(true) };
        let mut count = Uploaded { exchange: self.exchange, websocket: self.websocket };
        match upload.poll(cx, &mut count) {
            // While the client is silent, this is where an upstream that wants no
            // more is heard.
            Poll::Pending if upload.to().poll_reset(cx).is_pending() => return Ok(false),
            Poll::Pending => self.upload = Upload::Done,
            // An upstream may answer without reading the rest. What it says, or
            // that it says nothing, is in the answer.
            Poll::Ready(Ok(()) | Err(Cut::To)) => self.upload = Upload::Done,
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
                        head::strip_response(&mut interim);
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
        match download.poll(cx, &mut Downloaded { exchange: self.exchange }) {
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
        head::strip_response(&mut response);
        self.exchange.answered(response.status().as_u16(), Instant::now());
        note_grpc_status(self.exchange, response.headers());
        let size = head::fields_size(response.headers());
        self.exchange.meter().received(size).map_err(Broken::Refused)?;
        let end = body.is_end_stream();
        let to_client = self.respond.send_response(response, end).map_err(gone)?;
        self.answer =
            if end { Answer::Done(to_client) } else { Answer::Body(Flow::new(body, to_client)) };
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
            Upload::Done | Upload::Nothing => OVER,
        };
        let answered = match &self.answer {
            Answer::Awaited(_) => 0,
            Answer::Body(download) => 1 + download.moved(),
            Answer::Done(_) => OVER,
        };
        uploaded + answered
    }

    /// Whether the client has heard nothing yet.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.answer, Answer::Awaited(_))
    }

    /// Lets go of the upstream, which cancels what it was asked for.
    pub(super) fn into_remains(self) -> Remains {
        match self.answer {
            Answer::Awaited(_) => {
                let body = match self.upload {
                    Upload::Body(upload) if upload.is_untouched() => {
                        Unsent::All(upload.into_from())
                    }
                    Upload::Body(_) | Upload::Done => Unsent::Lost,
                    Upload::Nothing => Unsent::Nothing,
                };
                Remains::Silent { respond: self.respond, body }
            }
            Answer::Body(download) => Remains::Spoken { to_client: download.into_to() },
            Answer::Done(to_client) => Remains::Spoken { to_client },
        }
    }
}

fn gone(err: h2::Error) -> Broken {
    Broken::Client(err.to_string())
}

/// More than any flow that is not over has moved.
const OVER: u64 = 1 << 62;

struct Uploaded<'e> {
    exchange: &'e Exchange,
    websocket: bool,
}

impl Count for Uploaded<'_> {
    fn data(&mut self, bytes: usize) -> Result<(), Refusal> {
        let meter = self.exchange.meter();
        // A WebSocket is no body: it has the budget to end it, not a length.
        if self.websocket { meter.sent(bytes) } else { meter.body(bytes) }
    }

    fn trailers(&mut self, trailers: &HeaderMap) -> Result<(), Refusal> {
        self.exchange.meter().sent(head::fields_size(trailers))
    }
}

struct Downloaded<'e> {
    exchange: &'e mut Exchange,
}

impl Count for Downloaded<'_> {
    fn data(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.exchange.meter().received(bytes)
    }

    fn trailers(&mut self, trailers: &HeaderMap) -> Result<(), Refusal> {
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
