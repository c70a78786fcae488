//! One stream of HTTP/2: steps 7 to 10 for its request, as
//! [`crate::lifecycle::answer_http2`] calls them.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Request as HttpRequest, Response, StatusCode};
use tokio::time::{self, Instant};

use super::head::{StreamHead, UpstreamAuthority};
use super::pump::{ClientSide, ClientStream, StreamError, StreamPump, malformed_body};
use crate::authorize::RequestPermit;
use crate::connection::ConnectionContext;
use crate::dial::{DialError, Http2Upstream, Permit};
use crate::gateway::GatewaySignals;
use crate::http_version::HttpVersion;
use crate::inspect::{ReservedBytes, TrafficMeter};
use crate::record::RequestRecord;
use crate::refuse::{Refusal, Reply};
use crate::request::ParsedRequest;
use crate::websocket::{PROTOCOL_ERROR_CLOSE, WebSocketOffer};

/// A request that a client has sent, as the library gives it to us.
pub(crate) struct IncomingStream<'c> {
    pub(crate) context: &'c ConnectionContext,
    pub(crate) authority: &'c UpstreamAuthority,
    pub(crate) head: StreamHead,
    pub(crate) client: ClientStream,
}

impl<'c> IncomingStream<'c> {
    pub(super) fn new(
        context: &'c ConnectionContext,
        authority: &'c UpstreamAuthority,
        request: HttpRequest<RecvStream>,
        respond: SendResponse<Bytes>,
    ) -> Self {
        let (parts, body) = request.into_parts();
        let body = (!body.is_end_stream()).then_some(body);
        let client = ClientStream { respond, body };
        Self { context, authority, head: StreamHead::received(parts), client }
    }
}

/// A request that was authorized, with all that is needed to send it.
pub(crate) struct OutgoingStream<'a> {
    pub(crate) permit: &'a RequestPermit,
    pub(crate) request: &'a ParsedRequest<'a>,
    pub(crate) head: &'a StreamHead,
    pub(crate) authority: &'a UpstreamAuthority,
    pub(crate) context: &'a ConnectionContext,
    /// Those since before policy was asked, so that no change of it is missed.
    pub(crate) signals: GatewaySignals,
    pub(crate) learned: UpstreamLearned,
}

/// What a stream has learned about the upstream of its connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UpstreamLearned {
    /// It takes WebSockets.
    pub(super) extended_connect: bool,
    /// It does not speak HTTP/2 any more: on its next connection the client is
    /// offered what it speaks now.
    pub(super) no_http2: bool,
}

/// Why a stream ended early, and what the client can still be told.
pub(crate) struct StreamFailure {
    pub(crate) error: StreamError,
    pub(crate) client: ClientSide,
}

impl ClientStream {
    /// The end of a stream that was not answered, and whose body is all there.
    pub(crate) fn failed(self, error: impl Into<StreamError>) -> StreamFailure {
        let client = ClientSide::Unanswered { client: self, resendable: true };
        StreamFailure { error: error.into(), client }
    }

    /// Answers a request that is refused, and is already recorded.
    pub(crate) async fn refuse(self, reply: &Reply, head: &StreamHead, grpc: bool) {
        send_refusal(self.respond, reply, head, grpc);
        discard(self.body).await;
    }
}

impl OutgoingStream<'_> {
    /// Step 7, for what is known before anything leaves: the length of the body,
    /// and the head. The body itself is looked at while it is relayed.
    ///
    /// The name is part of the head, and a sandbox chooses the labels below a
    /// wildcard, so there is room for it in the budget before anything is dialled.
    pub(crate) fn inspect(&self, meter: &TrafficMeter) -> Result<ReservedBytes, Refusal> {
        if let Some(length) = self.head.announced() {
            meter.announced(length)?;
        }
        // What a WebSocket's handshake has wrong is told before anything is dialled.
        self.offer()?;
        meter.reserve(self.head.size())
    }

    /// Step 8. A client that cancels does not wait for a dial that may take long.
    pub(crate) async fn dial(
        &mut self,
        head: ReservedBytes,
        client: &mut ClientStream,
        meter: &TrafficMeter,
    ) -> Result<(Http2Upstream, ReservedBytes), Refusal> {
        let (dialer, permit) = (&self.context.gateway.dialer, Permit::Request(self.permit));
        let dialled = tokio::select! {
            biased;
            dialled = dialer.http2(permit, &self.context.destination) => dialled,
            refusal = cancelled(client) => return Err(refusal),
        };
        match dialled {
            Ok(upstream) => Ok((upstream, head)),
            Err(err) => {
                meter.not_dialled(head, &err);
                self.learned.no_http2 = matches!(err, DialError::NotHttp2 { .. });
                Err(err.into())
            }
        }
    }

    /// Whether a request that was not answered can be sent again. Other streams share its
    /// upstream connection, and their client may be why that ended: it vanished, and the
    /// upstream was cancelled too often.
    pub(crate) fn is_repeatable(&self, error: &StreamError) -> bool {
        match error {
            StreamError::Unprocessed(_) => true,
            StreamError::Upstream(err) => {
                (err.is_io() || err.is_go_away()) && !self.request.mutates()
            }
            StreamError::Client(_) | StreamError::Refused(_) => false,
        }
    }

    /// Step 9: sends the request and relays its answer. What is left of the body
    /// when the answer is complete is returned.
    pub(crate) async fn relay(
        &mut self,
        (mut upstream, head): (Http2Upstream, ReservedBytes),
        client: ClientStream,
        record: &mut RequestRecord,
    ) -> Result<Option<RecvStream>, StreamFailure> {
        let offer = match self.offer() {
            Ok(Some(_)) if !upstream.extended_connect() => {
                let why = "it takes no WebSocket on HTTP/2";
                return Err(client.failed(Refusal::UpstreamMalformed(why.to_owned())));
            }
            Ok(offer) => offer,
            Err(refusal) => return Err(client.failed(refusal)),
        };
        let outgoing = self.authority.head(self.head, self.request);
        let opened = match upstream.send(self.permit, outgoing, client.body.is_none()) {
            Ok(opened) => opened,
            // It said goodbye since it was dialled.
            Err(err) if err.is_go_away() || err.is_io() => {
                return Err(client.failed(StreamError::Unprocessed(err)));
            }
            Err(err) => return Err(client.failed(StreamError::Upstream(err))),
        };
        record.meter().sent_reserved(head);
        self.learned.extended_connect = upstream.extended_connect();
        record.dialled(upstream.facts());
        let watch = Arc::clone(upstream.watch());
        let mut pump = StreamPump::new(client, opened, watch, offer, record);
        let ended = self.drive(&mut pump).await;
        // What came last is counted, even if it is too much by now.
        drop(pump.settle());
        let Err(error) = ended else { return Ok(pump.into_unread()) };
        let error = match (error, upstream.watch().fault()) {
            (StreamError::Unprocessed(_) | StreamError::Upstream(_), Some(fault)) => {
                StreamError::Refused(Refusal::UpstreamMalformed(fault.to_string()))
            }
            (error, _) => error,
        };
        Err(StreamFailure { error, client: pump.into_client_side() })
    }

    /// Step 10: ends the record, and tells the client of a failure as much as it
    /// can still be told.
    pub(crate) async fn record(
        self,
        relayed: Result<Option<RecvStream>, StreamFailure>,
        record: RequestRecord,
    ) -> UpstreamLearned {
        let unread = match relayed {
            Ok(unread) => {
                record.relayed();
                unread
            }
            Err(failure) => failure.record(record, self.head, self.request.grpc),
        };
        discard(unread).await;
        self.learned
    }

    /// What it offers, if it asks for a WebSocket.
    fn offer(&self) -> Result<Option<WebSocketOffer>, Refusal> {
        if !self.request.websocket {
            return Ok(None);
        }
        let offer = WebSocketOffer::read(self.head, HttpVersion::Http2);
        offer.map(Some).map_err(|fault| Refusal::Malformed(fault.to_string()))
    }

    /// Relays until the end, or until it must not go on.
    async fn drive(&mut self, pump: &mut StreamPump<'_>) -> Result<(), StreamError> {
        let moved = AtomicU64::new(0);
        let ended = tokio::select! {
            biased;
            ended = poll_fn(|cx| pump.poll(cx, &moved)) => ended,
            refusal = stalled(self.context, &moved) => Err(refusal.into()),
            refusal = policy_revoked(self.context, self.request, &mut self.signals) => {
                Err(refusal.into())
            }
        };
        match ended {
            Err(StreamError::Refused(Refusal::Idle { limit })) if pump.is_unanswered() => {
                Err(Refusal::UpstreamSilent { limit }.into())
            }
            ended => ended,
        }
    }
}

/// Resolves when the client does not want the answer any more.
async fn cancelled(ClientStream { respond, body }: &mut ClientStream) -> Refusal {
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
async fn stalled(context: &ConnectionContext, moved: &AtomicU64) -> Refusal {
    let bounds = context.gateway.limits.bounds();
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
async fn policy_revoked(
    context: &ConnectionContext,
    request: &ParsedRequest<'_>,
    signals: &mut GatewaySignals,
) -> Refusal {
    loop {
        signals.changed().await;
        if let Err(refusal) = context.reconsider(request) {
            return refusal;
        }
    }
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

impl StreamFailure {
    /// Ends the record. If the client gets an answer, what is left of its request
    /// is returned.
    fn record(self, record: RequestRecord, head: &StreamHead, grpc: bool) -> Option<RecvStream> {
        let (refusal, reason) = match self.error {
            StreamError::Client(why) => (Refusal::ClientGone(why), Reason::CANCEL),
            StreamError::Refused(refusal) => (refusal, Reason::CANCEL),
            StreamError::Unprocessed(err) | StreamError::Upstream(err) => {
                (closed(&err), reason_for_client(&err))
            }
        };
        let gone = matches!(refusal, Refusal::ClientGone(_));
        match self.client {
            ClientSide::Unanswered { mut client, .. }
                if gone || reason == Reason::HTTP_1_1_REQUIRED =>
            {
                // Clients know what to do about the latter: they ask again in
                // HTTP/1.1.
                client.respond.send_reset(reason);
                record.broken(&refusal);
                None
            }
            ClientSide::Unanswered { client, .. } => {
                let reply = record.refused(&refusal);
                send_refusal(client.respond, &reply, head, grpc);
                client.body
            }
            ClientSide::Answered { mut to_client, can_close }
                if can_close && refusal.is_websocket_violation() =>
            {
                let close = Bytes::from_static(&PROTOCOL_ERROR_CLOSE);
                // Fails only if the client went away in between.
                to_client.send_data(close, true).ok();
                record.broken(&refusal);
                None
            }
            ClientSide::Answered { mut to_client, .. } => {
                let reply = Reply::new(&refusal, record.id());
                if gone || !grpc || to_client.send_trailers(trailers(&reply)).is_err() {
                    to_client.send_reset(reason);
                }
                record.broken(&refusal);
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
async fn discard(unread: Option<RecvStream>) {
    let Some(mut unread) = unread else { return };
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
fn send_refusal(mut respond: SendResponse<Bytes>, reply: &Reply, head: &StreamHead, grpc: bool) {
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
