//! One exchange: a request that was authorized goes out, its answer comes back.

use std::mem;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::authorize::RequestPermit;
use crate::connection::ConnectionContext;
use crate::dial::Http1Upstream;
use crate::http_version::HttpVersion;
use crate::http1::exchange_io::{ExchangeIo, SendState};
use crate::http1::forward::{self, ConnectionOption};
use crate::http1::upgrade;
use crate::http1_codec::framing::{self, Framing};
use crate::http1_codec::head::{HeadSearch, RequestHead, ResponseHead};
use crate::inbox::Inbox;
use crate::inspect::ReservedBytes;
use crate::record::RequestRecord;
use crate::refuse::{Refusal, Reply};
use crate::relay::{BodyPump, ExchangeDeadlines};
use crate::request::ParsedRequest;
use crate::websocket::WebSocketOffer;

/// The client's side of a connection.
pub(crate) struct ClientIo<'a, C> {
    pub(crate) io: &'a mut C,
    pub(crate) inbox: &'a mut Inbox,
    pub(crate) deadlines: &'a mut ExchangeDeadlines,
}

/// Memory that a connection uses again for each exchange.
pub(crate) struct ExchangeBuffers {
    response: ResponseHead,
    pub(super) upstream_in: Inbox,
    up: Vec<u8>,
    down: Vec<u8>,
}

impl ExchangeBuffers {
    pub(crate) fn new(longest_head: usize) -> Self {
        let upstream_in = Inbox::up_to(longest_head.max(64 * 1024));
        Self { response: ResponseHead::default(), upstream_in, up: Vec::new(), down: Vec::new() }
    }

    /// Gives their memory back, between two exchanges.
    pub(crate) fn shrink(&mut self) {
        self.upstream_in.clear();
        self.upstream_in.shrink();
        (self.up, self.down) = (Vec::new(), Vec::new());
    }
}

/// How an exchange ended, which says what becomes of the client's connection.
#[derive(Debug)]
#[must_use]
pub(crate) enum ExchangeEnd {
    /// It was answered, and the connection is to be closed.
    Close,
    /// The same, while the client is still sending.
    CloseUnread,
    /// The answer broke off, and the client can tell.
    Drop,
    KeepAlive,
    /// Nothing was answered yet; this is the answer.
    Refused(Reply),
    /// The answer broke off, and the end of the connection would look like the end
    /// of the answer.
    Reset,
}

/// Why an exchange ended early, and how much of an answer the client had by then.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// Some of it.
    MidAnswer(Refusal),
    /// Some of one that ends with its connection.
    MidUndelimited(Refusal),
    /// None of it.
    Unanswered(Refusal),
}

/// Upstreams may send interim answers ahead of an answer, but not forever.
pub(crate) const MAX_INTERIM_ANSWERS: usize = 16;

/// A request that was authorized, with all that is needed to send it.
pub(crate) struct OutgoingRequest<'a> {
    permit: &'a RequestPermit,
    pub(super) request: &'a ParsedRequest<'a>,
    head: &'a RequestHead,
    framing: Framing,
    /// What it offers, if it asks for a WebSocket.
    pub(super) websocket: Option<WebSocketOffer>,
    pub(super) context: &'a ConnectionContext,
}

impl<'a> OutgoingRequest<'a> {
    pub(crate) fn new(
        permit: &'a RequestPermit,
        request: &'a ParsedRequest<'a>,
        head: &'a RequestHead,
        framing: Framing,
        context: &'a ConnectionContext,
    ) -> Result<Self, Refusal> {
        let websocket = upgrade::offer(request, head)?;
        Ok(Self { permit, request, head, framing, websocket, context })
    }

    /// Step 7, for what is known before anything leaves: the length of the body,
    /// and the head. The body itself is looked at while it is relayed.
    pub(crate) fn inspect(
        &self,
        buffers: &mut ExchangeBuffers,
        record: &RequestRecord,
    ) -> Result<ReservedBytes, ExchangeError> {
        if let Framing::Length(length) = self.framing {
            record.meter().announced(length).map_err(ExchangeError::Unanswered)?;
        }
        // It is written once more when it leaves.
        buffers.up.clear();
        self.write_head(&mut buffers.up);
        record.meter().reserve(buffers.up.len()).map_err(ExchangeError::Unanswered)
    }

    /// Step 8. `head` is what may leave once there is an upstream; `fresh` says
    /// that no kept connection may be used.
    pub(crate) async fn dial(
        &self,
        head: ReservedBytes,
        fresh: bool,
        record: &mut RequestRecord,
    ) -> Result<Http1Upstream, ExchangeError> {
        let ConnectionContext { gateway, scheme, destination, .. } = self.context;
        let dialled = gateway.dialer.http1(self.permit, *scheme, destination, fresh).await;
        record.meter().settle(head, &dialled);
        let upstream = dialled.map_err(|err| ExchangeError::Unanswered(err.into()))?;
        record.dialled(upstream.facts());
        Ok(upstream)
    }

    /// Whether an upstream closed without a word on a request that changes nothing.
    /// On a kept connection the request may not have arrived, and can be sent again.
    pub(crate) fn is_repeatable(
        &self,
        relayed: &Result<ExchangeEnd, ExchangeError>,
        buffers: &ExchangeBuffers,
    ) -> bool {
        matches!(relayed, Err(ExchangeError::Unanswered(Refusal::UpstreamClosed(_))))
            && buffers.upstream_in.is_empty()
            && self.framing == Framing::Empty
            && !self.request.mutates()
    }

    fn write_head(&self, out: &mut Vec<u8>) {
        forward::request(self.request, self.head, &self.context.authority, self.framing, out);
    }

    /// Step 9: sends the request and relays its answer, or all that follows an
    /// upgrade.
    pub(crate) async fn relay<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut upstream: Http1Upstream,
        client: &mut ClientIo<'_, C>,
        buffers: &mut ExchangeBuffers,
        record: &mut RequestRecord,
    ) -> Result<ExchangeEnd, ExchangeError> {
        let ExchangeBuffers { response, upstream_in, up, down } = buffers;
        upstream_in.clear();
        let mut up = BodyPump::new(self.framing, self.framing == Framing::Chunked, mem::take(up));
        self.write_head(&mut up.out);
        let mut io = ExchangeIo {
            client: client.io,
            client_in: client.inbox,
            upstream: upstream.io(),
            upstream_in,
            up,
            sending: SendState::Running,
            down: BodyPump::new(Framing::Empty, false, mem::take(down)),
            client_ended: false,
            record,
            record_sent: false,
            search: HeadSearch::new(self.context.gateway.limits.bounds().header_bytes),
        };

        self.head_of_answer(&mut io, response, client.deadlines).await?;
        let answered_at = Instant::now();
        if response.status == 101 {
            let agreed = self.check_upgrade(&io, response).map_err(ExchangeError::Unanswered)?;
            let upgraded = self.upgrade(&mut io, response, client.deadlines).await;
            io.record.answered(101, answered_at);
            (buffers.up, buffers.down) = (io.up.out, io.down.out);
            upgraded.map_err(ExchangeError::MidAnswer)?;
            return self.tunnel(agreed, upstream, client, buffers, record).await;
        }

        let (answer, option) = self.begin_answer(&mut io, response, client.deadlines)?;
        io.record.answered(response.status, answered_at);
        if let Err(err) = self.record_answer(&mut io, client.deadlines).await {
            (buffers.up, buffers.down) = (io.up.out, io.down.out);
            return Err(err);
        }
        let relayed = self.drive(&mut io, client.deadlines, ExchangeIo::poll_body).await;
        let reusable = io.sending == SendState::Done
            && io.upstream_in.is_empty()
            && answer != Framing::UntilClose
            && forward::upstream_stays(response);
        let end = match (io.sending, option) {
            (SendState::Done, ConnectionOption::KeepAlive(_)) => ExchangeEnd::KeepAlive,
            (SendState::Done, ConnectionOption::Close | ConnectionOption::Upgrade) => {
                ExchangeEnd::Close
            }
            (SendState::Abandoned | SendState::Running, _) => ExchangeEnd::CloseUnread,
        };
        (buffers.up, buffers.down) = (io.up.out, io.down.out);
        // Chunks would show that some are missing, but an old client has none.
        let delimited = matches!(answer, Framing::Empty | Framing::Length(_));
        let undelimited = !delimited && self.head.version == HttpVersion::Http10;
        relayed.map_err(|refusal| match undelimited {
            true => ExchangeError::MidUndelimited(refusal),
            false => ExchangeError::MidAnswer(refusal),
        })?;
        if reusable {
            upstream.give_back();
        }
        Ok(end)
    }

    /// Waits for the final head, relaying interim ones.
    async fn head_of_answer<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: &mut ExchangeIo<'_, C>,
        response: &mut ResponseHead,
        deadlines: &mut ExchangeDeadlines,
    ) -> Result<(), ExchangeError> {
        for _ in 0..MAX_INTERIM_ANSWERS {
            let read = self.drive(io, deadlines, ExchangeIo::poll_head).await;
            let end = read.map_err(|refusal| match refusal {
                Refusal::Idle { limit } if io.sending != SendState::Running => {
                    ExchangeError::Unanswered(Refusal::UpstreamSilent { limit })
                }
                refusal => ExchangeError::Unanswered(refusal),
            })?;
            let bytes = io.upstream_in.filled().get(..end).unwrap_or_default();
            let most = self.context.gateway.limits.bounds().headers;
            response.read(bytes, most).map_err(|fault| malformed(&fault))?;
            io.upstream_in.consume(end);
            // All of the head is counted, also what is not passed on.
            io.record.meter().received(end).map_err(ExchangeError::Unanswered)?;
            if !matches!(response.status, 100 | 102..200) {
                return Ok(());
            }
            if self.head.version != HttpVersion::Http10 {
                let keep = ConnectionOption::KeepAlive(HttpVersion::Http11);
                forward::response(response, false, keep, &mut io.down.out);
                io.record.queue_opened();
            }
        }
        Err(malformed(&"it sent hint after hint and no answer"))
    }

    /// Puts the head of the answer in front of its body.
    fn begin_answer<C>(
        &self,
        io: &mut ExchangeIo<'_, C>,
        response: &ResponseHead,
        deadlines: &ExchangeDeadlines,
    ) -> Result<(Framing, ConnectionOption), ExchangeError> {
        let bodiless = self.request.method == policies::Method::Head;
        let ResponseHead { fields, version, status, .. } = response;
        let answer = framing::of_response(fields, *version, *status, bodiless)
            .map_err(|fault| malformed(&fault))?;
        let old = self.head.version == HttpVersion::Http10;
        let delimited = matches!(answer, Framing::Empty | Framing::Length(_));
        let stays = forward::client_stays(self.head)
            && (delimited || !old)
            && io.sending == SendState::Done
            && !io.client_ended
            && !deadlines.signals().draining();
        let option = if stays {
            ConnectionOption::KeepAlive(self.head.version)
        } else {
            ConnectionOption::Close
        };
        // A body that ends with its connection is sent in chunks, so that its end can
        // be told from a failure.
        let chunked = !delimited && !old;
        io.down.carry(answer, chunked);
        forward::response(response, chunked, option, &mut io.down.out);
        Ok((answer, option))
    }

    /// Waits until a record is written, so that the answer may be sent. If nothing
    /// can be recorded, the client is told that instead.
    async fn record_answer<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: &mut ExchangeIo<'_, C>,
        deadlines: &mut ExchangeDeadlines,
    ) -> Result<(), ExchangeError> {
        match self.drive(io, deadlines, ExchangeIo::poll_recorded).await {
            Err(refusal @ Refusal::AuditUnavailable(_)) => Err(ExchangeError::Unanswered(refusal)),
            recorded => recorded.map_err(ExchangeError::MidAnswer),
        }
    }

    /// Drives a step until it is done or must not go on.
    pub(super) async fn drive<'t, C: AsyncRead + AsyncWrite + Unpin, T>(
        &self,
        io: &mut ExchangeIo<'t, C>,
        deadlines: &mut ExchangeDeadlines,
        step: impl FnMut(&mut ExchangeIo<'t, C>, &mut Context<'_>) -> Poll<Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        deadlines.drive(io, step, ExchangeIo::moved, || self.context.reconsider(self.request)).await
    }
}

impl RequestRecord {
    /// Step 10: ends the record of a request that was authorized.
    pub(crate) fn ended(self, relayed: Result<ExchangeEnd, ExchangeError>) -> ExchangeEnd {
        match relayed {
            Ok(end) => {
                self.relayed();
                end
            }
            Err(ExchangeError::Unanswered(refusal)) => ExchangeEnd::Refused(self.refused(&refusal)),
            Err(ExchangeError::MidUndelimited(refusal)) => {
                self.broken(&refusal);
                ExchangeEnd::Reset
            }
            Err(ExchangeError::MidAnswer(refusal)) => {
                self.broken(&refusal);
                // What was sent last is a close frame, which must not be lost on the way.
                match refusal.is_websocket_violation() {
                    true => ExchangeEnd::CloseUnread,
                    false => ExchangeEnd::Drop,
                }
            }
        }
    }
}

fn malformed(why: &dyn std::fmt::Display) -> ExchangeError {
    ExchangeError::Unanswered(Refusal::UpstreamMalformed(why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn buffers_give_their_memory_back_between_two_exchanges() {
        let mut buffers = ExchangeBuffers::new(0);
        (buffers.up, buffers.down) = (Vec::with_capacity(100), Vec::with_capacity(100));
        buffers.upstream_in.fill(&mut &b"the rest of an answer"[..]).await.unwrap();
        buffers.shrink();
        assert!(buffers.upstream_in.is_empty());
        assert_eq!((buffers.up.capacity(), buffers.down.capacity()), (0, 0));
    }
}
