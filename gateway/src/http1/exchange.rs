//! One exchange: a request that was authorized goes out, its answer comes back.

use std::mem;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::authorize::{Authorized, RequestPermit};
use crate::connection::ConnectionContext;
use crate::dial::Http1Upstream;
use crate::http1::forward::{self, Afterwards};
use crate::http1::framing::{self, Framing};
use crate::http1::head::{RequestHead, ResponseHead};
use crate::http1::turn::{Sending, Stop, Turn};
use crate::http1::upgrade;
use crate::inspect::Reserved;
use crate::record::Exchange;
use crate::refuse::{Refusal, Reply};
use crate::relay::{First, Inbox, Patience, Pump};
use crate::request::{Request, Version};
use crate::websocket::{Agreed, Offer};

/// The client's side of a connection.
pub(crate) struct Client<'a, C> {
    pub(crate) io: &'a mut C,
    pub(crate) inbox: &'a mut Inbox,
    pub(crate) patience: &'a mut Patience,
}

/// Memory that a connection uses again for each exchange.
pub(crate) struct Buffers {
    response: ResponseHead,
    pub(super) upstream_in: Inbox,
    up: Vec<u8>,
    down: Vec<u8>,
}

impl Buffers {
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

/// What is left of the client's connection.
#[derive(Debug)]
pub(crate) enum After {
    /// It has ended well and is to be closed.
    Close,
    /// The same, while the client is still sending.
    CloseUnread,
    /// It cannot go on, and the client must notice.
    Drop,
    KeepAlive,
    /// The same as [`After::Drop`], where the end of the connection would look
    /// like the end of the answer.
    Reset,
    /// Nothing was answered yet; this is the answer.
    Refused(Reply),
}

/// Why an exchange ended early: before the client got an answer, or within it.
pub(super) enum Stopped {
    Answered(Refusal),
    Unanswered(Refusal),
    /// Within an answer that ends with its connection.
    Undelimited(Refusal),
}

/// Upstreams may send hints ahead of an answer, but not forever.
pub(crate) const MOST_INTERIM: usize = 16;

/// Carries one request out and its answer back, and ends its record.
pub(crate) async fn carry<C: AsyncRead + AsyncWrite + Unpin>(
    authorized: Authorized<'_>,
    head: &RequestHead,
    framing: Framing,
    client: &mut Client<'_, C>,
    buffers: &mut Buffers,
    context: &ConnectionContext,
) -> After {
    let Authorized { permit, request, mut exchange } = authorized;
    let websocket = match upgrade::offer(&request, head) {
        Ok(websocket) => websocket,
        Err(refusal) => return After::Refused(exchange.refused(&refusal)),
    };
    client.patience.begin(&context.gateway);
    let sent = Sent { permit: &permit, request: &request, head, framing, websocket, context };
    match sent.carry(client, buffers, &mut exchange).await {
        Ok(after) => {
            exchange.relayed();
            after
        }
        Err(Stopped::Unanswered(refusal)) => After::Refused(exchange.refused(&refusal)),
        Err(Stopped::Undelimited(refusal)) => {
            exchange.broken(&refusal);
            After::Reset
        }
        Err(Stopped::Answered(refusal)) => {
            exchange.broken(&refusal);
            // Its last word is a close frame, which must not be lost on the way.
            if refusal.is_websocket_violation() { After::CloseUnread } else { After::Drop }
        }
    }
}

/// A request, with all that is needed to send it.
pub(super) struct Sent<'a> {
    permit: &'a RequestPermit,
    pub(super) request: &'a Request<'a>,
    head: &'a RequestHead,
    framing: Framing,
    /// What it offers, if it asks for a WebSocket.
    pub(super) websocket: Option<Offer>,
    pub(super) context: &'a ConnectionContext,
}

impl Sent<'_> {
    async fn carry<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        client: &mut Client<'_, C>,
        buffers: &mut Buffers,
        exchange: &mut Exchange,
    ) -> Result<After, Stopped> {
        let mut upstream = self.prepare(buffers, exchange).await.map_err(Stopped::Unanswered)?;
        loop {
            let fresh = !upstream.facts().reused;
            match self.attempt(&mut upstream, client, buffers, exchange).await {
                Ok(Answered::Relayed { reusable, after }) => {
                    if reusable {
                        upstream.give_back();
                    }
                    return Ok(after);
                }
                Ok(Answered::Upgraded(agreed)) => {
                    return self.tunnel(agreed, upstream, client, buffers, exchange).await;
                }
                // A kept connection may have died before our bytes arrived. What
                // changes nothing can be asked again; once.
                Err(Lost::Stale(_)) if !fresh && self.repeatable() => {
                    upstream =
                        self.dial_anew(buffers, exchange).await.map_err(Stopped::Unanswered)?;
                }
                Err(Lost::Stale(why)) => {
                    return Err(Stopped::Unanswered(Refusal::UpstreamClosed(why)));
                }
                Err(Lost::Stopped(stopped)) => return Err(stopped),
            }
        }
    }

    /// Makes sure that what is known to go out may, then dials.
    async fn prepare(
        &self,
        buffers: &mut Buffers,
        exchange: &mut Exchange,
    ) -> Result<Http1Upstream, Refusal> {
        if let Framing::Length(length) = self.framing {
            exchange.meter().announced(length)?;
        }
        let head = self.reserve_head(buffers, exchange)?;
        let ConnectionContext { gateway, scheme, destination, .. } = self.context;
        let dialled = gateway.dialer.http1(self.permit, *scheme, destination).await;
        exchange.meter().settle(head, &dialled);
        let upstream = dialled?;
        exchange.dialled(upstream.facts());
        Ok(upstream)
    }

    async fn dial_anew(
        &self,
        buffers: &mut Buffers,
        exchange: &mut Exchange,
    ) -> Result<Http1Upstream, Refusal> {
        let head = self.reserve_head(buffers, exchange)?;
        let ConnectionContext { gateway, scheme, destination, .. } = self.context;
        let dialled = gateway.dialer.http1_fresh(self.permit, *scheme, destination).await;
        exchange.meter().settle(head, &dialled);
        let upstream = dialled?;
        exchange.dialled(upstream.facts());
        Ok(upstream)
    }

    /// Makes sure that the head may leave. It is written once more when it does.
    fn reserve_head(
        &self,
        buffers: &mut Buffers,
        exchange: &Exchange,
    ) -> Result<Reserved, Refusal> {
        buffers.up.clear();
        self.write_head(&mut buffers.up);
        exchange.meter().reserve(buffers.up.len())
    }

    fn write_head(&self, out: &mut Vec<u8>) {
        forward::request(self.request, self.head, &self.context.authority, self.framing, out);
    }

    fn repeatable(&self) -> bool {
        self.framing == Framing::Empty && !self.request.mutates()
    }

    /// Sends the request and relays its answer, all of it or up to an upgrade.
    async fn attempt<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        upstream: &mut Http1Upstream,
        client: &mut Client<'_, C>,
        buffers: &mut Buffers,
        exchange: &mut Exchange,
    ) -> Result<Answered, Lost> {
        let Buffers { response, upstream_in, up, down } = buffers;
        upstream_in.clear();
        let mut up = Pump::new(self.framing, self.framing == Framing::Chunked, mem::take(up));
        self.write_head(&mut up.out);
        let mut turn = Turn {
            client: client.io,
            client_in: client.inbox,
            upstream: upstream.io(),
            upstream_in,
            up,
            sending: Sending::Running,
            down: Pump::new(Framing::Empty, false, mem::take(down)),
            client_ended: false,
            exchange,
            handed_over: false,
            searched: 0,
            longest_head: self.context.gateway.limits.header_bytes(),
        };

        self.head_of_answer(&mut turn, response, client.patience).await?;
        let answered_at = Instant::now();
        if response.status == 101 {
            let agreed = self.check_upgrade(&turn, response).map_err(Lost::unanswered)?;
            let upgraded = self.upgrade(&mut turn, response, client.patience).await;
            turn.exchange.answered(101, answered_at);
            (buffers.up, buffers.down) = (turn.up.out, turn.down.out);
            return upgraded.map(|()| Answered::Upgraded(agreed)).map_err(Lost::answered);
        }

        let (answer, afterwards) = self.begin_answer(&mut turn, response, client.patience)?;
        turn.exchange.answered(response.status, answered_at);
        if let Err(lost) = self.record_answer(&mut turn, client.patience).await {
            (buffers.up, buffers.down) = (turn.up.out, turn.down.out);
            return Err(lost);
        }
        let relayed = self.body_of_answer(&mut turn, client.patience).await;
        let whole = relayed.is_ok();
        let reusable = whole
            && turn.sending == Sending::Done
            && turn.upstream_in.is_empty()
            && answer != Framing::UntilClose
            && forward::upstream_stays(response);
        let after = match (turn.sending, afterwards) {
            (Sending::Done, Afterwards::KeepAlive(_)) => After::KeepAlive,
            (Sending::Done, Afterwards::Close | Afterwards::Upgraded) => After::Close,
            (Sending::Abandoned | Sending::Running, _) => After::CloseUnread,
        };
        (buffers.up, buffers.down) = (turn.up.out, turn.down.out);
        // Chunks would show that some are missing, but an old client has none.
        let delimited = matches!(answer, Framing::Empty | Framing::Length(_));
        let undelimited = !delimited && self.head.version == Version::Http10;
        relayed.map_err(|refusal| match undelimited {
            true => Lost::Stopped(Stopped::Undelimited(refusal)),
            false => Lost::answered(refusal),
        })?;
        Ok(Answered::Relayed { reusable, after })
    }

    /// Waits for the final head, relaying interim ones.
    async fn head_of_answer<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        turn: &mut Turn<'_, C>,
        response: &mut ResponseHead,
        patience: &mut Patience,
    ) -> Result<(), Lost> {
        for _ in 0..MOST_INTERIM {
            let poll = |turn: &mut Turn<'_, C>, cx: &mut Context<'_>| turn.poll_head(cx);
            let end = loop {
                match patience.first(turn, poll, Turn::moved).await {
                    First::It(Ok(end)) => break end,
                    First::It(Err(Stop::Stale(why))) => return Err(Lost::Stale(why)),
                    First::It(Err(Stop::Refused(refusal))) => {
                        return Err(Lost::unanswered(refusal));
                    }
                    First::Idle(limit) if turn.sending == Sending::Running => {
                        return Err(Lost::unanswered(Refusal::Idle { limit }));
                    }
                    First::Idle(limit) => {
                        return Err(Lost::unanswered(Refusal::UpstreamSilent { limit }));
                    }
                    First::Total(limit) => {
                        return Err(Lost::unanswered(Refusal::CapReached { limit }));
                    }
                    First::Signal => {
                        self.context.reconsider(self.request).map_err(Lost::unanswered)?;
                    }
                }
            };
            let bytes = turn.upstream_in.filled().get(..end).unwrap_or_default();
            let most = self.context.gateway.limits.headers();
            response.read(bytes, most).map_err(|fault| malformed(&fault))?;
            turn.upstream_in.consume(end);
            // As it came, whatever of it is passed on.
            turn.exchange.meter().received(end).map_err(Lost::unanswered)?;
            if !matches!(response.status, 100 | 102..200) {
                return Ok(());
            }
            if self.head.version != Version::Http10 {
                let keep = Afterwards::KeepAlive(Version::Http11);
                forward::response(response, false, keep, &mut turn.down.out);
                turn.exchange.open();
            }
        }
        Err(malformed(&"it sent hint after hint and no answer"))
    }

    /// Puts the head of the answer in front of its body.
    fn begin_answer<C>(
        &self,
        turn: &mut Turn<'_, C>,
        response: &ResponseHead,
        patience: &Patience,
    ) -> Result<(Framing, Afterwards), Lost> {
        let bodiless = self.request.method == policies::Method::Head;
        let ResponseHead { fields, version, status, .. } = response;
        let answer = framing::of_response(fields, *version, *status, bodiless)
            .map_err(|fault| malformed(&fault))?;
        let old = self.head.version == Version::Http10;
        let delimited = matches!(answer, Framing::Empty | Framing::Length(_));
        let stays = forward::client_stays(self.head)
            && (delimited || !old)
            && turn.sending == Sending::Done
            && !turn.client_ended
            && !patience.signals().draining();
        let afterwards =
            if stays { Afterwards::KeepAlive(self.head.version) } else { Afterwards::Close };
        // What lasts until the end gets an end that can be told from a break.
        let chunked = !delimited && !old;
        turn.down.carry(answer, chunked);
        forward::response(response, chunked, afterwards, &mut turn.down.out);
        Ok((answer, afterwards))
    }

    /// Waits until the client may hear the answer. If nothing can be recorded it
    /// hears that instead.
    async fn record_answer<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        turn: &mut Turn<'_, C>,
        patience: &mut Patience,
    ) -> Result<(), Lost> {
        let poll = |turn: &mut Turn<'_, C>, cx: &mut Context<'_>| turn.poll_recorded(cx);
        match self.drive(turn, patience, poll).await {
            Err(refusal @ Refusal::AuditUnavailable(_)) => Err(Lost::unanswered(refusal)),
            recorded => recorded.map_err(Lost::answered),
        }
    }

    async fn body_of_answer<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        turn: &mut Turn<'_, C>,
        patience: &mut Patience,
    ) -> Result<(), Refusal> {
        let poll = |turn: &mut Turn<'_, C>, cx: &mut Context<'_>| turn.poll_body(cx);
        self.drive(turn, patience, poll).await
    }

    /// Drives a step of the answer until it is done or must not go on.
    async fn drive<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        turn: &mut Turn<'_, C>,
        patience: &mut Patience,
        mut step: impl FnMut(&mut Turn<'_, C>, &mut Context<'_>) -> Poll<Result<(), Stop>>,
    ) -> Result<(), Refusal> {
        loop {
            match patience.first(turn, &mut step, Turn::moved).await {
                First::It(Ok(())) => return Ok(()),
                First::It(Err(Stop::Refused(refusal))) => return Err(refusal),
                First::It(Err(Stop::Stale(why))) => return Err(Refusal::UpstreamClosed(why)),
                First::Idle(limit) => return Err(Refusal::Idle { limit }),
                First::Total(limit) => return Err(Refusal::CapReached { limit }),
                First::Signal => self.context.reconsider(self.request)?,
            }
        }
    }
}

/// What came back.
enum Answered {
    Relayed { reusable: bool, after: After },
    Upgraded(Agreed),
}

/// Why an attempt came to nothing.
enum Lost {
    Stale(String),
    Stopped(Stopped),
}

impl Lost {
    fn answered(refusal: Refusal) -> Self {
        Self::Stopped(Stopped::Answered(refusal))
    }

    fn unanswered(refusal: Refusal) -> Self {
        Self::Stopped(Stopped::Unanswered(refusal))
    }
}

fn malformed(why: &dyn std::fmt::Display) -> Lost {
    Lost::unanswered(Refusal::UpstreamMalformed(why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn buffers_give_their_memory_back_between_two_exchanges() {
        let mut buffers = Buffers::new(0);
        (buffers.up, buffers.down) = (Vec::with_capacity(100), Vec::with_capacity(100));
        buffers.upstream_in.fill(&mut &b"the rest of an answer"[..]).await.unwrap();
        buffers.shrink();
        assert!(buffers.upstream_in.is_empty());
        assert_eq!((buffers.up.capacity(), buffers.down.capacity()), (0, 0));
    }
}
