//! One connection, from accept to close.
//!
//! Read [`serve`], [`tunnel`] and [`open`] first: together they are the whole life
//! of a connection, one line a step. Each step takes what the step before it made, so
//! none can be skipped: [`HostPermit`](crate::HostPermit) and
//! [`RequestPermit`](crate::RequestPermit) can be made only by the two policy
//! steps, and the dialer takes nothing else. Code that connects without asking
//! policy does not compile.
//!
//! | step | where |
//! |---|---|
//! | 1 listen | [`crate::listen`] |
//! | 2 opening | [`crate::opening`] |
//! | 3 admit | [`crate::admit`] |
//! | 4 terminate | [`crate::terminate`] |
//! | 5 request | [`crate::request`], read by [`crate::http1`] or [`crate::http2`] |
//! | 6 authorize | [`crate::authorize`] |
//! | 7 inspect | [`crate::inspect`] |
//! | 8 dial | [`crate::dial`] |
//! | 9 relay | [`crate::relay`] |
//! | 10 record | [`crate::record`] |
//!
//! Two steps look ahead. Terminate may dial under the permit of the host, to learn
//! what the upstream speaks. And the record is begun by authorize, and written to
//! the kernel before relay sends the client a byte.

use std::sync::Arc;
use std::time::Duration;

use audit::{Client, Handling};
use certs::Alpn;
use policies::{Destination, Host, HostName, Scheme};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time;
use tokio_rustls::server::TlsStream;

use crate::admit::{Admitted, admit};
use crate::connection::{ConnectionContext, Doom};
use crate::gateway::Gateway;
use crate::http1::{self, Ended, Origin};
use crate::http2;
use crate::inspect::Meter;
use crate::listen::Accepted;
use crate::opening::answer::{say_yes, tell_http, tell_tls};
use crate::opening::hello::{self, Hello};
use crate::opening::socks;
use crate::opening::{self, Answer, By, Opened, Opening};
use crate::read_ahead::ReadAhead;
use crate::record::ConnectionRecord;
use crate::refuse::{Refusal, Reply};
use crate::relay::{Inbox, Patience, Tunnel};
use crate::terminate::{Protocol, Terminated, check_name, protocols, terminate};

/// Serves one connection, and records it and each of its requests once.
pub(crate) async fn serve(accepted: Accepted, gateway: Arc<Gateway>) {
    let Accepted { mut stream, peer, way, .. } = accepted;
    let client = Client::new(peer, way.into());
    let mut record = match ConnectionRecord::begin(&gateway, client) {
        Ok(record) => record,
        // Nothing is done that cannot be recorded.
        Err(err) => return tell_http(&mut stream, &Reply::unrecorded(&err.into())).await,
    };
    let served = match Box::pin(opening::read(&mut stream, way, &gateway)).await {
        Ok(Opening::Requests { proxy, mut inbox }) => {
            let origin = &mut Origin::each(&gateway, &mut record, proxy);
            let ended = http1::serve(&mut stream, &mut inbox, origin).await;
            reset_if_broken(&stream, ended);
            Ok(())
        }
        Ok(Opening::Tunnel(opened)) => tunnel(stream, opened, &gateway, &mut record).await,
        Err(unopened) => {
            let reply = record.refused_for_good(&unopened.refusal);
            return match unopened.answer {
                Answer::Http => tell_recorded(&mut stream, reply, &gateway).await,
                Answer::Nothing => {}
                Answer::Tls(alert) => tell_tls(&mut stream, &alert).await,
            };
        }
    };
    if let Err(refusal) = &served {
        drop(record.refused(refusal));
    }
    let outcome = record.outcome();
    record.close(outcome);
}

/// Refuses as HTTP/1.1 once the record is written. A client is not kept waiting
/// for that beyond its time.
async fn tell_recorded(stream: &mut TcpStream, reply: Reply, gateway: &Gateway) {
    let recorded = reply.once_recorded(&gateway.log);
    if let Ok(reply) = time::timeout(gateway.limits.opening(), recorded).await {
        tell_http(stream, &reply).await;
    }
}

/// Steps 3 to 10 for a connection that is for one destination.
async fn tunnel(
    mut stream: TcpStream,
    opened: Opened,
    gateway: &Arc<Gateway>,
    record: &mut ConnectionRecord,
) -> Result<(), Refusal> {
    record.destination(&opened.to);
    let admitted = match admit(gateway, &opened.to) {
        Ok(admitted) => admitted,
        Err(refusal) => {
            return Box::pin(say_no(stream, opened, refusal, gateway, record)).await;
        }
    };
    record.admitted(admitted.handling, admitted.rule.clone(), &admitted.policy);
    say_yes(&mut stream, opened.by).await?;
    match admitted.handling {
        Handling::Inspect => inspect(stream, opened, Ok(admitted), gateway, record).await,
        Handling::Passthrough => {
            Box::pin(passthrough(stream, opened, admitted, gateway, record)).await
        }
        Handling::Tcp => Box::pin(relay(stream, opened, admitted, gateway, record)).await,
    }
}

/// Opens the connection and serves its requests; or, where policy said no,
/// answers each of them with that.
async fn inspect(
    stream: TcpStream,
    opened: Opened,
    standing: Result<Admitted, Doom>,
    gateway: &Arc<Gateway>,
    record: &mut ConnectionRecord,
) -> Result<(), Refusal> {
    // What a handshake takes is given back when it is done: most of the memory of
    // a connection that then idles for hours would be this.
    match Box::pin(open(stream, opened, standing, gateway, record)).await? {
        Open::Clear { mut stream, mut inbox, context } => {
            let ended = http1::serve(&mut stream, &mut inbox, &mut Origin::One(context)).await;
            reset_if_broken(&stream, ended);
            Ok(())
        }
        Open::Tls { mut stream, context } => {
            let origin = &mut Origin::One(context);
            let ended = http1::serve(&mut stream, &mut Inbox::new(), origin).await;
            reset_if_broken(stream.get_ref().0.socket(), ended);
            Ok(())
        }
        Open::TlsHttp2 { stream, context } => Box::pin(http2::serve(stream, context)).await,
    }
}

/// Has a connection end with a reset where its client would take a plain end for
/// the end of its answer. That TLS did not say goodbye is not enough: many
/// clients overlook it.
fn reset_if_broken(stream: &TcpStream, ended: Ended) {
    if ended == Ended::InMidAnswer
        && let Err(err) = SockRef::from(stream).set_linger(Some(Duration::ZERO))
    {
        tracing::debug!(%err, "a connection cannot be reset");
    }
}

/// A connection that requests can be read from.
enum Open {
    Clear { stream: TcpStream, inbox: Inbox, context: Arc<ConnectionContext> },
    Tls { stream: Box<TlsStream<ReadAhead<TcpStream>>>, context: Arc<ConnectionContext> },
    TlsHttp2 { stream: Box<TlsStream<ReadAhead<TcpStream>>>, context: Arc<ConnectionContext> },
}

/// Step 4: whatever TLS there is ends here.
async fn open(
    mut stream: TcpStream,
    mut opened: Opened,
    standing: Result<Admitted, Doom>,
    gateway: &Arc<Gateway>,
    record: &mut ConnectionRecord,
) -> Result<Open, Refusal> {
    let Some(hello) = find_hello(&mut stream, &mut opened, gateway).await? else {
        let Opened { to, inbox, .. } = opened;
        let context = Arc::new(context(standing, Scheme::Http, to, gateway, record));
        return Ok(Open::Clear { stream, inbox, context });
    };
    let to = opened.to;
    let (standing, leaf) = match check_name(&hello, &to) {
        Ok(()) => (standing, to.host.clone()),
        // It is told so in the protocol it speaks, under the name it used.
        Err(doom) => match hello.server_name.as_deref().map(HostName::parse) {
            Some(Ok(named)) => (Err(note(doom, record)), Host::Name(named)),
            _ => {
                tell_tls(&mut stream, &hello::alert(hello::UNRECOGNIZED_NAME)).await;
                return Err(doom.refusal());
            }
        },
    };
    let offered = match &standing {
        Ok(admitted) => protocols(&admitted.permit, &hello, &to, gateway, record).await,
        Err(_) => Ok(Alpn::H2OrHttp1),
    };
    let (standing, alpn) = match offered {
        Ok(alpn) => (standing, alpn),
        Err(Refusal::BudgetSpent(limit)) => {
            (Err(note(Doom::Spent(limit), record)), Alpn::H2OrHttp1)
        }
        Err(refusal) => return Err(refusal),
    };
    let terminated = terminate(stream, hello, &leaf, alpn, gateway, record).await?;
    let context = Arc::new(context(standing, Scheme::Https, to, gateway, record));
    let Terminated { stream, protocol } = terminated;
    let stream = Box::new(stream);
    Ok(match protocol {
        Protocol::Http1 => Open::Tls { stream, context },
        Protocol::Http2 => Open::TlsHttp2 { stream, context },
    })
}

/// Relays TLS unopened. Its name must be readable and be the destination's, or
/// policy would have judged one host and the client reached another.
async fn passthrough(
    mut stream: TcpStream,
    mut opened: Opened,
    admitted: Admitted,
    gateway: &Arc<Gateway>,
    record: &mut ConnectionRecord,
) -> Result<(), Refusal> {
    let hello = match find_hello(&mut stream, &mut opened, gateway).await? {
        Some(hello) => hello,
        None => return Err(Refusal::Sealed("the client does not speak TLS")),
    };
    let refusal = match &hello.server_name {
        None => Some(Refusal::Sealed("the client sends no server name")),
        Some(_) if hello.hides_a_name => {
            Some(Refusal::Sealed("the client encrypts the name it means (ECH)"))
        }
        Some(_) => check_name(&hello, &opened.to).err().map(|doom| doom.refusal()),
    };
    if let Some(refusal) = refusal {
        tell_tls(&mut stream, &hello::alert(hello::ACCESS_DENIED)).await;
        return Err(refusal);
    }
    // What was read of the hello is still in the inbox, and goes out as it came.
    relay(stream, opened, admitted, gateway, record).await
}

/// Relays bytes nobody looks into.
async fn relay(
    mut stream: TcpStream,
    opened: Opened,
    admitted: Admitted,
    gateway: &Arc<Gateway>,
    record: &mut ConnectionRecord,
) -> Result<(), Refusal> {
    let Opened { to, mut inbox, .. } = opened;
    let meter = Meter::new(Arc::clone(gateway));
    // A name is bytes that leave, too: under a wildcard a client can choose it.
    let name = meter.reserve(to.host.to_string().len())?;
    record.opened().await?;
    let dialled = gateway.dialer.tunnel(&admitted.permit, &to).await;
    meter.settle(name, &dialled);
    record.tally().add(&meter.traffic());
    let (mut upstream, facts) = dialled?;
    record.dialled(&facts);

    let mut patience = Patience::new(gateway);
    patience.begin(gateway);
    let mut upstream_in = Inbox::new();
    let meter = Meter::new(Arc::clone(gateway));
    let tunnel =
        Tunnel::between((&mut stream, &mut inbox), (&mut upstream, &mut upstream_in), &meter);
    let allowed = || admitted.check_again(gateway, &to);
    let relayed = tunnel.relay(&mut patience, allowed).await;
    record.tally().add(&meter.traffic());
    relayed
}

/// The ClientHello, if the client speaks TLS; otherwise its first bytes are in
/// the inbox.
async fn find_hello(
    stream: &mut TcpStream,
    opened: &mut Opened,
    gateway: &Gateway,
) -> Result<Option<Hello>, Refusal> {
    if let Some(hello) = opened.hello.take() {
        return Ok(Some(*hello));
    }
    let limit = gateway.limits.opening();
    match time::timeout(limit, hello::read(stream, &mut opened.inbox)).await {
        Ok(Ok(hello)) => Ok(Some(hello)),
        Ok(Err(hello::HelloError::NotTls)) => Ok(None),
        Ok(Err(err)) => {
            if let hello::HelloError::Malformed { alert, .. } = &err {
                tell_tls(stream, alert).await;
            }
            Err(err.into())
        }
        Err(_elapsed) => Err(Refusal::OpeningTimeout { limit }),
    }
}

fn context(
    standing: Result<Admitted, Doom>,
    scheme: Scheme,
    to: Destination,
    gateway: &Arc<Gateway>,
    record: &ConnectionRecord,
) -> ConnectionContext {
    match standing {
        Ok(admitted) => ConnectionContext::admitted(&admitted.permit, gateway, scheme, to, record),
        Err(doom) => ConnectionContext::doomed(doom, gateway, scheme, to, record),
    }
}

/// Writes into the record why every request will be refused.
fn note(doom: Doom, record: &mut ConnectionRecord) -> Doom {
    drop(record.refused(&doom.refusal()));
    doom
}

/// Tells the client that it may not, in the words it understands best.
///
/// Where the words would be a bare number, and HTTP can be expected inside, the
/// connection is opened all the same, and each request gets the full answer.
async fn say_no(
    mut stream: TcpStream,
    opened: Opened,
    refusal: Refusal,
    gateway: &Arc<Gateway>,
    record: &mut ConnectionRecord,
) -> Result<(), Refusal> {
    let in_words = opened.by == By::Hello || matches!(opened.to.port, 80 | 443);
    match (opened.by, refusal) {
        (By::Connect, refusal) => {
            tell_recorded(&mut stream, record.refused_for_good(&refusal), gateway).await;
            Err(refusal)
        }
        (By::Hello | By::Socks, Refusal::Policy(denial)) if in_words => {
            let doom = note(Doom::Denied(denial), record);
            say_yes(&mut stream, opened.by).await?;
            inspect(stream, opened, Err(doom), gateway, record).await
        }
        (By::Hello, refusal) => {
            tell_tls(&mut stream, &hello::alert(hello::ACCESS_DENIED)).await;
            Err(refusal)
        }
        (By::Socks, refusal) => {
            // Nobody is left to hear that it could not be said.
            drop(socks::reply(&mut stream, socks::Reply::NotAllowed).await);
            Err(refusal)
        }
    }
}

#[cfg(test)]
mod tests;
