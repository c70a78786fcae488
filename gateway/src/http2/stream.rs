//! One stream: read, authorize, dial, relay, record.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::client::ResponseFuture;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Request as HttpRequest, Response, StatusCode};
use tokio::time::{self, Instant};

use super::head::{Head, Outgoing};
use super::pump::{Broken, Pump, Remains, Unsent, malformed_body};
use crate::authorize::{Authorized, RequestPermit};
use crate::connection::ConnectionContext;
use crate::dial::{DialError, Http2Upstream};
use crate::gateway::Signals;
use crate::inspect::Meter;
use crate::record::Exchange;
use crate::refuse::{Refusal, Reply};
use crate::request::{Request, Version, is_grpc};
use crate::websocket::{Offer, PROTOCOL_ERROR_CLOSE};

/// What a stream means for its connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Afterwards {
    /// The upstream takes WebSockets.
    pub(super) extended_connect: bool,
    /// The upstream has changed its mind about HTTP/2: on its next connection
    /// the client is offered what it speaks now.
    pub(super) leave: bool,
}

/// Answers one request, and records it once.
pub(super) async fn answer(
    ctx: &ConnectionContext,
    outgoing: &Outgoing,
    request: HttpRequest<RecvStream>,
    respond: SendResponse<Bytes>,
) -> Afterwards {
    // Before policy is asked, so that no change of it is missed.
    let signals = ctx.gateway.signals();
    let (parts, body) = request.into_parts();
    let head = Head::received(parts);
    let bounds = &ctx.gateway.limits;
    let authorized = match head.check(bounds.headers(), bounds.header_bytes()) {
        Ok(()) => ctx.authorize(head.asked()).await,
        Err(refusal) => Err(ctx.refuse(&refusal)),
    };
    let Authorized { permit, request, mut exchange } = match authorized {
        Ok(authorized) => authorized,
        Err(reply) => {
            refuse(respond, &reply, &head, is_grpc(&head));
            discard(body).await;
            return Afterwards::default();
        }
    };
    let mut relay = Relay { ctx, head: &head, request: &request, permit: &permit, signals };
    let mut afterwards = Afterwards::default();
    let body = (!body.is_end_stream()).then_some(body);
    let unread = match relay.run(outgoing, body, respond, &mut exchange, &mut afterwards).await {
        Ok(unread) => {
            exchange.relayed();
            unread
        }
        Err(failed) => failed.tell(exchange, &head, request.grpc),
    };
    if let Some(unread) = unread {
        discard(unread).await;
    }
    afterwards
}

/// A request that may go out.
struct Relay<'a> {
    ctx: &'a ConnectionContext,
    head: &'a Head,
    request: &'a Request<'a>,
    permit: &'a RequestPermit,
    signals: Signals,
}

impl Relay<'_> {
    /// Relays the request. What is left of its body when the answer is complete
    /// is returned.
    async fn run(
        &mut self,
        outgoing: &Outgoing,
        mut body: Option<RecvStream>,
        mut respond: SendResponse<Bytes>,
        exchange: &mut Exchange,
        afterwards: &mut Afterwards,
    ) -> Result<Option<RecvStream>, Failed> {
        if let Some(Err(refusal)) = self.head.announced().map(|n| exchange.meter().announced(n)) {
            return Err(Failed::silent(refusal, respond, body));
        }
        let offer = match self.offer() {
            Ok(offer) => offer,
            Err(refusal) => return Err(Failed::silent(refusal, respond, body)),
        };
        let mut again = true;
        loop {
            // A client that cancels does not wait for a dial that may take long.
            let opened = tokio::select! {
                biased;
                opened = self.open(outgoing, body.is_none(), exchange.meter()) => opened,
                refusal = cancelled(&mut respond, &mut body) => Err(refusal),
            };
            let (upstream, opened) = match opened {
                Ok(opened) => opened,
                Err(refusal) => {
                    afterwards.leave = matches!(refusal, Refusal::Dial(DialError::NotHttp2 { .. }));
                    return Err(Failed::silent(refusal, respond, body));
                }
            };
            afterwards.extended_connect = upstream.extended_connect();
            exchange.dialled(upstream.facts());
            let watch = Arc::clone(upstream.watch());
            let mut pump = Pump::new(respond, body, opened, watch, offer.clone(), exchange);
            let ended = self.drive(&mut pump).await;
            // What came last is counted, even if it is too much by now.
            drop(pump.settle());
            let Err(broken) = ended else { return Ok(pump.into_unread()) };
            let broken = match (broken, upstream.watch().fault()) {
                (Broken::Upstream(_), Some(fault)) => {
                    Broken::Refused(Refusal::UpstreamMalformed(fault.to_string()))
                }
                (broken, _) => broken,
            };
            match (broken, pump.into_remains()) {
                // Nothing was done about it, so it can be asked again: once.
                (Broken::Upstream(err), Remains::Silent { respond: silent, body: unsent })
                    if again && is_unprocessed(&err) =>
                {
                    again = false;
                    respond = silent;
                    body = match unsent {
                        Unsent::All(all) => Some(all),
                        Unsent::Nothing => None,
                        Unsent::Part(rest) => {
                            return Err(Failed::silent(closed(&err), respond, rest));
                        }
                    };
                }
                (broken, remains) => return Err(Failed { broken, remains }),
            }
        }
    }

    /// What it offers, if it asks for a WebSocket.
    fn offer(&self) -> Result<Option<Offer>, Refusal> {
        if !self.request.websocket {
            return Ok(None);
        }
        let offer = Offer::read(self.head, Version::Http2);
        offer.map(Some).map_err(|fault| Refusal::Malformed(fault.to_string()))
    }

    /// Dials, and sends the head. There is room for it in the budget before
    /// anything is dialled: the name is part of it, and a sandbox chooses the
    /// labels below a wildcard.
    async fn open(
        &self,
        outgoing: &Outgoing,
        end_of_stream: bool,
        meter: &Meter,
    ) -> Result<(Http2Upstream, (ResponseFuture, SendStream<Bytes>)), Refusal> {
        let mut again = true;
        loop {
            let dialer = &self.ctx.gateway.dialer;
            let head = meter.reserve(self.head.size())?;
            let dialled = dialer.http2(self.permit, &self.ctx.destination).await;
            let mut upstream = match dialled {
                Ok(upstream) => upstream,
                Err(err) => {
                    meter.not_dialled(head, &err);
                    return Err(err.into());
                }
            };
            if self.request.websocket && !upstream.extended_connect() {
                let why = "it takes no WebSocket on HTTP/2";
                return Err(Refusal::UpstreamMalformed(why.to_owned()));
            }
            match upstream.send(outgoing.head(self.head, self.request), end_of_stream) {
                Ok(opened) => {
                    meter.leave(head);
                    return Ok((upstream, opened));
                }
                // It said goodbye between the two lines above.
                Err(err) if again && (err.is_go_away() || err.is_io()) => again = false,
                Err(err) => return Err(closed(&err)),
            }
        }
    }

    /// Relays until the end, or until it must not go on.
    async fn drive(&mut self, pump: &mut Pump<'_>) -> Result<(), Broken> {
        let moved = AtomicU64::new(0);
        let ended = tokio::select! {
            biased;
            ended = poll_fn(|cx| pump.poll(cx, &moved)) => ended,
            refusal = stalled(self.ctx, &moved) => Err(Broken::Refused(refusal)),
            refusal = outlawed(self.ctx, self.request, &mut self.signals) => {
                Err(Broken::Refused(refusal))
            }
        };
        match ended {
            Err(Broken::Refused(Refusal::Idle { limit })) if pump.is_silent() => {
                Err(Broken::Refused(Refusal::UpstreamSilent { limit }))
            }
            ended => ended,
        }
    }
}

/// Resolves when the client does not want the answer any more.
async fn cancelled(respond: &mut SendResponse<Bytes>, body: &mut Option<RecvStream>) -> Refusal {
    match poll_fn(|cx| respond.poll_reset(cx)).await {
        Ok(reason) => {
            // Or the library did, because the body is not what the head says.
            while let Some(Some(part)) = body.as_mut().and_then(|body| body.data().now_or_never()) {
                match part {
                    Ok(_) => {}
                    Err(err) if err.is_library() => return malformed_body(&err),
                    Err(_) => break,
                }
            }
            Refusal::ClientGone(format!("it cancelled: {reason}"))
        }
        Err(err) => Refusal::ClientGone(err.to_string()),
    }
}

/// Resolves when nothing has moved for too long, or it all took too long.
///
/// Looks now and then instead of at every frame: a stall is noticed a quarter
/// late at most, and frames stay cheap.
async fn stalled(ctx: &ConnectionContext, moved: &AtomicU64) -> Refusal {
    let bounds = ctx.gateway.limits.bounds();
    let began = Instant::now();
    let (mut seen, mut since) = (moved.load(Ordering::Relaxed), began);
    loop {
        let left = bounds.total.map(|total| total.saturating_sub(began.elapsed()));
        time::sleep(left.unwrap_or(bounds.idle).min(bounds.idle / 4)).await;
        if let Some(limit) = bounds.total.filter(|total| began.elapsed() >= *total) {
            return Refusal::CapReached { limit };
        }
        let now = moved.load(Ordering::Relaxed);
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() >= bounds.idle {
            return Refusal::Idle { limit: bounds.idle };
        }
    }
}

/// Resolves when a policy is loaded that would not let the request pass.
async fn outlawed(
    ctx: &ConnectionContext,
    request: &Request<'_>,
    signals: &mut Signals,
) -> Refusal {
    loop {
        signals.changed().await;
        if let Err(refusal) = ctx.reconsider(request) {
            return refusal;
        }
    }
}

/// Whether the upstream says that it did nothing about the request, so that it
/// can be sent again whatever it was (RFC 9113, 8.7).
fn is_unprocessed(err: &h2::Error) -> bool {
    let refused = err.is_reset() && err.reason() == Some(Reason::REFUSED_STREAM);
    let goodbye = err.is_go_away() && err.reason() == Some(Reason::NO_ERROR);
    err.is_remote() && (refused || goodbye)
}

fn closed(err: &h2::Error) -> Refusal {
    if err.is_library() {
        Refusal::UpstreamMalformed(err.to_string())
    } else {
        Refusal::UpstreamClosed(err.to_string())
    }
}

/// What a client is told by a reset because the upstream broke off.
///
/// NO_ERROR would say that all is well: some clients take what they have for the
/// whole answer then.
fn reason_for_client(err: &h2::Error) -> Reason {
    match err.reason() {
        None | Some(Reason::NO_ERROR) => Reason::INTERNAL_ERROR,
        Some(reason) => reason,
    }
}

/// A relay that ended before its end.
struct Failed {
    broken: Broken,
    remains: Remains,
}

impl Failed {
    fn silent(refusal: Refusal, respond: SendResponse<Bytes>, unread: Option<RecvStream>) -> Self {
        let remains = Remains::Silent { respond, body: Unsent::Part(unread) };
        Self { broken: Broken::Refused(refusal), remains }
    }

    /// Tells the client as much as it can still be told, and the record all. If
    /// that is an answer, what is left of the request is returned.
    fn tell(self, exchange: Exchange, head: &Head, grpc: bool) -> Option<RecvStream> {
        let Self { broken, remains } = self;
        let (refusal, reason) = match broken {
            Broken::Client(why) => (Refusal::ClientGone(why), Reason::CANCEL),
            Broken::Refused(refusal) => (refusal, Reason::CANCEL),
            Broken::Upstream(err) => (closed(&err), reason_for_client(&err)),
        };
        let gone = matches!(refusal, Refusal::ClientGone(_));
        match remains {
            Remains::Silent { mut respond, .. } if gone || reason == Reason::HTTP_1_1_REQUIRED => {
                // Clients know what to do about the latter: they ask again in
                // HTTP/1.1.
                respond.send_reset(reason);
                exchange.broken(&refusal);
                None
            }
            Remains::Silent { respond, body } => {
                let reply = exchange.refused(&refusal);
                refuse(respond, &reply, head, grpc);
                body.into_unread()
            }
            Remains::Spoken { mut to_client, can_close }
                if can_close && refusal.is_websocket_violation() =>
            {
                let close = Bytes::from_static(&PROTOCOL_ERROR_CLOSE);
                // Fails only if the client went away in between.
                to_client.send_data(close, true).ok();
                exchange.broken(&refusal);
                None
            }
            Remains::Spoken { mut to_client, .. } => {
                let reply = Reply::new(&refusal, exchange.id());
                if gone || !grpc || to_client.send_trailers(trailers(&reply)).is_err() {
                    to_client.send_reset(reason);
                }
                exchange.broken(&refusal);
                None
            }
        }
    }
}

/// Lets a client finish what it sends although it has its whole answer.
///
/// A stream that is reset while its client is still sending loses the answer
/// with many clients, curl among them, whatever the reset says. So what comes is
/// thrown away, for a while; then the stream is reset with NO_ERROR, which is
/// how HTTP/2 says that the rest is not wanted (RFC 9113, 8.1).
async fn discard(mut unread: RecvStream) {
    let discarded = async {
        let mut bytes = 0;
        while bytes < MAX_DISCARDED_BYTES {
            let Some(Ok(data)) = unread.data().await else { break };
            bytes += data.len();
            // Fails only if the stream is over.
            unread.flow_control().release_capacity(data.len()).ok();
        }
    };
    // Whatever came of it, nothing depends on it any more.
    drop(time::timeout(DISCARD_TIMEOUT, discarded).await);
}

/// Sends a refusal. Whether it arrives is the client's business.
fn refuse(mut respond: SendResponse<Bytes>, reply: &Reply, head: &Head, grpc: bool) {
    let wire = reply.wire(grpc);
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(wire.status).unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = headers(wire.headers);
    response.headers_mut().insert(CONTENT_LENGTH, wire.body.len().into());
    let end = wire.body.is_empty() || head.is_head();
    if let Ok(mut to_client) = respond.send_response(response, end)
        && !end
    {
        // Fails only if the client went away in between.
        to_client.send_data(wire.body.into(), true).ok();
    }
}

/// What a gRPC client reads after an answer that had begun.
fn trailers(reply: &Reply) -> HeaderMap {
    let mut wire = reply.wire(true);
    wire.headers.retain(|(name, _)| *name != CONTENT_TYPE.as_str());
    headers(wire.headers)
}

fn headers(fields: Vec<(&'static str, String)>) -> HeaderMap {
    let text = |value: String| HeaderValue::try_from(value).ok();
    fields
        .into_iter()
        .filter_map(|(name, value)| Some((HeaderName::from_static(name), text(value)?)))
        .collect()
}

/// What a client may send after its answer, in bytes and in time. Beyond that it
/// is not listened to.
const MAX_DISCARDED_BYTES: usize = 64 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);
