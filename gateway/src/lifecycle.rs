//! One connection, from accept to close.
//!
//! Read [`serve`], [`serve_one`] and [`terminate_tls`] for a connection, then
//! [`answer_http1`] and [`answer_http2`] for each of its requests, or [`tunnel`]
//! for a connection that is not opened. Each step takes what the step before it
//! made, so none can be skipped: [`HostPermit`](crate::HostPermit) and
//! [`RequestPermit`](crate::RequestPermit) can be made only by the two policy
//! steps, and the dialer takes nothing else. Code that connects without asking
//! policy does not compile.
//!
//! | step | where | called here by |
//! |---|---|---|
//! | 1 listen | [`crate::listen`] | calls [`serve`] |
//! | 2 opening | [`crate::opening`] | [`serve`] |
//! | 3 admit | [`crate::admit`] | [`serve_one`] |
//! | 4 terminate | [`crate::terminate`] | [`terminate_tls`] |
//! | 5 request | [`crate::request`] | [`answer_http1`], [`answer_http2`] |
//! | 6 authorize | [`crate::authorize`] | the same call: [`ConnectionContext::authorize`] |
//! | 7 inspect | [`crate::inspect`] | [`send_http1`], [`send_http2`], [`tunnel`] |
//! | 8 dial | [`crate::dial`] | [`send_http1`], [`send_http2`], [`tunnel`] |
//! | 9 relay | [`crate::relay`] | [`send_http1`], [`send_http2`], [`tunnel`] |
//! | 10 record | [`crate::record`] | [`serve`], [`answer_http1`], [`answer_http2`] |
//!
//! Two steps look ahead. Terminate may dial under the permit of the host, to learn
//! what the upstream speaks. And the record is begun before authorize, and written
//! to the kernel before relay sends the client a byte.
//!
//! `inspect` is the content step. Policy's choice of the same name,
//! [`Handling::Inspect`], means that requests go through it; that TLS is opened
//! for it is `terminate`.

use std::sync::Arc;
use std::time::Duration;

use audit::{ClientRecord, Handling};
use certs::Alpn;
use h2::RecvStream;
use policies::{Host, HostName, Scheme};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time;
use tokio_rustls::server::TlsStream;

use crate::admit::{Admitted, admit};
use crate::connection::{Authorized, ConnectionContext};
use crate::gateway::Gateway;
use crate::http1::{
    self, ClientIo, Destinations, ExchangeBuffers, ExchangeEnd, ExchangeError, OutgoingRequest,
};
use crate::http1_codec::head::RequestHead;
use crate::http2::{
    self, ClientSide, ClientStream, IncomingStream, OutgoingStream, StreamFailure, UpstreamLearned,
};
use crate::inbox::Inbox;
use crate::inspect::TrafficMeter;
use crate::listen::Accepted;
use crate::opening::reply::{confirm, refuse_as_http, refuse_as_tls};
use crate::opening::socks::{self, SocksReply};
use crate::opening::{
    self, OpenedBy, Opening, OpeningError, OpeningReply, TunnelOpening, client_hello,
};
use crate::read_ahead::ReadAhead;
use crate::record::{ConnectionRecord, RequestRecord};
use crate::refuse::{BlanketRefusal, Refusal, Reply};
use crate::relay::{ExchangeDeadlines, Tunnel};
use crate::request::is_grpc;
use crate::terminate::{Protocol, Terminated, check_name, protocols, terminate};

/// Serves one connection, and records it and each of its requests once.
pub(crate) async fn serve(accepted: Accepted, gateway: Arc<Gateway>) {
    let Accepted { mut stream, peer, kind, .. } = accepted;
    let client = ClientRecord::new(peer, (&kind).into());
    let mut record = match ConnectionRecord::begin(&gateway, client) {
        Ok(record) => record,
        // Nothing is done that cannot be recorded.
        Err(err) => return refuse_as_http(&mut stream, &Reply::unrecorded(&err.into())).await,
    };
    let served = match Box::pin(opening::read(&mut stream, &kind, &gateway)).await {
        Ok(Opening::Requests { door, mut inbox }) => {
            let source = &mut Destinations::per_request(&gateway, &mut record, door);
            http1::serve(&mut stream, &mut inbox, source, answer_http1).await.apply_to(&stream);
            Ok(())
        }
        Ok(Opening::Tunnel(opening)) => serve_one(stream, opening, &gateway, &mut record).await,
        Err(OpeningError { refusal, reply }) => {
            let refused = record.refused_for_good(&refusal);
            return match reply {
                OpeningReply::Http => refuse_recorded(&mut stream, refused, &gateway).await,
                OpeningReply::Nothing => {}
                OpeningReply::Tls(alert) => refuse_as_tls(&mut stream, &alert).await,
            };
        }
    };
    if let Err(refusal) = &served {
        drop(record.refused(refusal));
    }
    let outcome = record.outcome();
    record.close(outcome);
}

/// Steps 3 to 10 for a connection that is for one destination.
async fn serve_one(
    mut stream: TcpStream,
    opening: TunnelOpening,
    gateway: &Arc<Gateway>,
    record: &mut ConnectionRecord,
) -> Result<(), Refusal> {
    record.destination(&opening.to);
    let admitted = match admit(&gateway.policy, &gateway.limits, &opening.to) {
        Ok(admitted) => admitted,
        Err(why) => {
            return Box::pin(refuse(stream, opening, why.into(), gateway, record)).await;
        }
    };
    record.admitted(admitted.handling, admitted.rule.clone(), &admitted.policy);
    confirm(&mut stream, opening.by).await?;
    match admitted.handling {
        Handling::Inspect => serve_requests(stream, opening, Ok(admitted), gateway, record).await,
        Handling::Passthrough => {
            Box::pin(pass_through(stream, opening, admitted, gateway, record)).await
        }
        Handling::Tcp => Box::pin(tunnel(stream, opening, admitted, gateway, record)).await,
    }
}

/// Steps 4 to 10 for a connection whose requests are judged; or, where policy said
/// no to all of them, answered with that.
async fn serve_requests(
    stream: TcpStream,
    opening: TunnelOpening,
    admission: Result<Admitted, BlanketRefusal>,
    gateway: &Arc<Gateway>,
    record: &mut ConnectionRecord,
) -> Result<(), Refusal> {
    // The memory of a handshake is given back when it is done: of a connection
    // that then idles for hours it would be the most.
    match Box::pin(terminate_tls(stream, opening, admission, gateway, record)).await? {
        RequestConnection::Clear { mut stream, mut inbox, context } => {
            let source = &mut Destinations::PerConnection(context);
            http1::serve(&mut stream, &mut inbox, source, answer_http1).await.apply_to(&stream);
            Ok(())
        }
        RequestConnection::Tls { mut stream, context } => {
            let source = &mut Destinations::PerConnection(context);
            let end = http1::serve(&mut stream, &mut Inbox::new(), source, answer_http1).await;
            end.apply_to(stream.get_ref().0.socket());
            Ok(())
        }
        RequestConnection::TlsHttp2 { stream, context } => {
            Box::pin(http2::serve(stream, context, answer_http2)).await
        }
    }
}

/// A connection that requests can be read from.
enum RequestConnection {
    Clear { stream: TcpStream, inbox: Inbox, context: Arc<ConnectionContext> },
    Tls { stream: Box<TlsStream<ReadAhead<TcpStream>>>, context: Arc<ConnectionContext> },
    TlsHttp2 { stream: Box<TlsStream<ReadAhead<TcpStream>>>, context: Arc<ConnectionContext> },
}

/// Step 4: whatever TLS there is ends here.
async fn terminate_tls(
    mut stream: TcpStream,
    mut opening: TunnelOpening,
    admission: Result<Admitted, BlanketRefusal>,
    gateway: &Arc<Gateway>,
    record: &mut ConnectionRecord,
) -> Result<RequestConnection, Refusal> {
    let context = |admission: Result<Admitted, BlanketRefusal>, scheme, to, record: &_| {
        let admission = admission.as_ref().map_err(Clone::clone);
        Arc::new(ConnectionContext::new(admission, gateway, scheme, to, record))
    };
    let Some(hello) = opening.client_hello(&mut stream, gateway).await? else {
        let TunnelOpening { to, inbox, .. } = opening;
        let context = context(admission, Scheme::Http, to, record);
        return Ok(RequestConnection::Clear { stream, inbox, context });
    };
    let to = opening.to;
    let (admission, leaf) = match check_name(&hello, &to) {
        Ok(()) => (admission, to.host.clone()),
        // It is told so in the protocol it speaks, under the name it used.
        Err(refusal) => match hello.server_name.as_deref().map(HostName::parse) {
            Some(Ok(named)) => (Err(record.refused_all(refusal)), Host::Name(named)),
            _ => {
                refuse_as_tls(&mut stream, &client_hello::alert(client_hello::UNRECOGNIZED_NAME))
                    .await;
                return Err(refusal.refusal());
            }
        },
    };
    let offered = match &admission {
        Ok(admitted) => protocols(&admitted.permit, &hello, &to, gateway, record).await,
        Err(_) => Ok(Alpn::H2OrHttp1),
    };
    let (admission, alpn) = match offered {
        Ok(alpn) => (admission, alpn),
        Err(Refusal::BudgetSpent(limit)) => {
            (Err(record.refused_all(BlanketRefusal::BudgetSpent(limit))), Alpn::H2OrHttp1)
        }
        Err(refusal) => return Err(refusal),
    };
    let terminated = terminate(stream, hello, &leaf, alpn, gateway, record).await?;
    let context = context(admission, Scheme::Https, to, record);
    let Terminated { stream, protocol } = terminated;
    let stream = Box::new(stream);
    Ok(match protocol {
        Protocol::Http1 => RequestConnection::Tls { stream, context },
        Protocol::Http2 => RequestConnection::TlsHttp2 { stream, context },
    })
}

/// Steps 5 to 10 for one request in HTTP/1.1.
async fn answer_http1<C: AsyncRead + AsyncWrite + Unpin>(
    client: &mut ClientIo<'_, C>,
    head: &RequestHead,
    source: &mut Destinations<'_>,
    buffers: &mut ExchangeBuffers,
) -> ExchangeEnd {
    let (context, raw, framing) = match http1::read_request(head, source) {
        Ok(read) => read,
        Err(refusal) => return ExchangeEnd::Refused(source.refuse(&refusal)),
    };
    let Authorized { permit, request, mut record } = match context.authorize(raw).await {
        Ok(authorized) => authorized,
        Err(reply) => return ExchangeEnd::Refused(reply),
    };
    let relayed = match OutgoingRequest::new(&permit, &request, head, framing, &context) {
        Ok(outgoing) => send_http1(&outgoing, client, buffers, &mut record).await,
        Err(refusal) => Err(ExchangeError::Unanswered(refusal)),
    };
    record.ended(relayed)
}

/// Steps 7 to 9, and once more where a kept upstream connection turns out to be dead.
async fn send_http1<C: AsyncRead + AsyncWrite + Unpin>(
    outgoing: &OutgoingRequest<'_>,
    client: &mut ClientIo<'_, C>,
    buffers: &mut ExchangeBuffers,
    record: &mut RequestRecord,
) -> Result<ExchangeEnd, ExchangeError> {
    client.deadlines.begin(record.meter().gateway());
    let mut fresh = false;
    loop {
        let head = outgoing.inspect(buffers, record)?;
        let upstream = outgoing.dial(head, fresh, record).await?;
        let kept = upstream.facts().reused;
        let relayed = outgoing.relay(upstream, client, buffers, record).await;
        if !(kept && outgoing.is_repeatable(&relayed, buffers)) {
            return relayed;
        }
        fresh = true;
    }
}

/// Steps 5 to 10 for one request in HTTP/2, which is one stream.
pub(crate) async fn answer_http2(incoming: IncomingStream<'_>) -> UpstreamLearned {
    let IncomingStream { context, authority, head, client } = incoming;
    let signals = context.gateway.signals();
    let authorized = match head.read_request(&context.gateway.limits) {
        Ok(raw) => context.authorize(raw).await,
        Err(refusal) => Err(context.refuse(&refusal)),
    };
    let learned = UpstreamLearned::default();
    let Authorized { permit, request, mut record } = match authorized {
        Ok(authorized) => authorized,
        Err(reply) => {
            client.refuse(&reply, &head, is_grpc(&head)).await;
            return learned;
        }
    };
    let (permit, request, head) = (&permit, &request, &head);
    let mut outgoing =
        OutgoingStream { permit, request, head, authority, context, signals, learned };
    let relayed = send_http2(&mut outgoing, client, &mut record).await;
    outgoing.record(relayed, record).await
}

/// Steps 7 to 9, and once more where the upstream did nothing about the request, or its
/// connection broke under one that changes nothing.
async fn send_http2(
    outgoing: &mut OutgoingStream<'_>,
    mut client: ClientStream,
    record: &mut RequestRecord,
) -> Result<Option<RecvStream>, StreamFailure> {
    let mut may_retry = true;
    loop {
        let head = match outgoing.inspect(record.meter()) {
            Ok(head) => head,
            Err(refusal) => return Err(client.failed(refusal)),
        };
        let upstream = match outgoing.dial(head, &mut client, record.meter()).await {
            Ok(upstream) => upstream,
            Err(refusal) => return Err(client.failed(refusal)),
        };
        match outgoing.relay(upstream, client, record).await {
            Err(StreamFailure {
                error,
                client: ClientSide::Unanswered { client: again, resendable: true },
            }) if may_retry && outgoing.is_repeatable(&error) => {
                (client, may_retry) = (again, false);
            }
            relayed => return relayed,
        }
    }
}

/// Relays TLS unopened. Its name must be readable and be the destination's, or
/// policy would have judged one host and the client reached another.
async fn pass_through(
    mut stream: TcpStream,
    mut opening: TunnelOpening,
    admitted: Admitted,
    gateway: &Arc<Gateway>,
    record: &mut ConnectionRecord,
) -> Result<(), Refusal> {
    let hello = match opening.client_hello(&mut stream, gateway).await? {
        Some(hello) => hello,
        None => return Err(Refusal::Passthrough("the client does not speak TLS")),
    };
    let refusal = match &hello.server_name {
        None => Some(Refusal::Passthrough("the client sends no server name")),
        Some(_) if hello.hides_a_name => {
            Some(Refusal::Passthrough("the client encrypts the name it means (ECH)"))
        }
        Some(_) => check_name(&hello, &opening.to).err().map(|refusal| refusal.refusal()),
    };
    if let Some(refusal) = refusal {
        refuse_as_tls(&mut stream, &client_hello::alert(client_hello::ACCESS_DENIED)).await;
        return Err(refusal);
    }
    // What was read of the hello is still in the inbox, and goes out as it came.
    tunnel(stream, opening, admitted, gateway, record).await
}

/// Steps 7 to 10 for a connection whose content is not read.
async fn tunnel(
    mut stream: TcpStream,
    opening: TunnelOpening,
    admitted: Admitted,
    gateway: &Arc<Gateway>,
    record: &mut ConnectionRecord,
) -> Result<(), Refusal> {
    let TunnelOpening { to, mut inbox, .. } = opening;
    let dial = gateway.dialer.tunnel(&admitted.permit, &to);
    // Boxed: a tunnel that then idles for hours would carry its memory.
    let (mut upstream, facts) = Box::pin(record.dial(gateway, &to, dial)).await??;
    record.dialled(&facts);

    let mut deadlines = ExchangeDeadlines::new(gateway);
    deadlines.begin(gateway);
    let mut upstream_in = Inbox::new();
    let meter = TrafficMeter::new(Arc::clone(gateway), admitted.host.clone());
    let tunnel =
        Tunnel::between((&mut stream, &mut inbox), (&mut upstream, &mut upstream_in), &meter);
    let allowed = || match admitted.still_holds(&gateway.policy, &to)? {
        true => Ok(()),
        false => Err(Refusal::PolicyChanged),
    };
    let relayed = tunnel.relay(&mut deadlines, allowed).await;
    record.totals().add(&meter.traffic());
    relayed
}

/// Tells a client that its destination is refused, in the protocol it waits in.
///
/// Where that has only a number to say it with, and HTTP can be expected inside,
/// the connection is opened all the same, and each request gets the full answer.
async fn refuse(
    mut stream: TcpStream,
    opening: TunnelOpening,
    refusal: BlanketRefusal,
    gateway: &Arc<Gateway>,
    record: &mut ConnectionRecord,
) -> Result<(), Refusal> {
    match opening.by {
        OpenedBy::Connect => {
            let refusal = refusal.refusal();
            refuse_recorded(&mut stream, record.refused_for_good(&refusal), gateway).await;
            Err(refusal)
        }
        OpenedBy::Door => {
            // Nothing can be said in a protocol that is not known, so it is cut off: an
            // orderly end could be taken for an answer. One that is gone cannot be cut.
            drop(SockRef::from(&stream).set_linger(Some(Duration::ZERO)));
            Err(refusal.refusal())
        }
        OpenedBy::Socks if !matches!(opening.to.port, 80 | 443) => {
            // A client that cannot be told is gone.
            drop(socks::reply(&mut stream, SocksReply::NotAllowed).await);
            Err(refusal.refusal())
        }
        OpenedBy::Hello | OpenedBy::Socks => {
            let refusal = record.refused_all(refusal);
            confirm(&mut stream, opening.by).await?;
            serve_requests(stream, opening, Err(refusal), gateway, record).await
        }
    }
}

/// Refuses as HTTP/1.1 once the record is written. A client is not kept waiting
/// for that beyond its time.
async fn refuse_recorded(stream: &mut TcpStream, reply: Reply, gateway: &Gateway) {
    let recorded = reply.once_recorded(&gateway.log);
    if let Ok(reply) = time::timeout(gateway.limits.bounds().opening, recorded).await {
        refuse_as_http(stream, &reply).await;
    }
}

#[cfg(test)]
mod tests;
