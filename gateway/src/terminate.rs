//! Step 4 of 10: TLS, under a leaf that we mint.
//!
//! Comes after policy let the destination in, or decided to say no in words the
//! client understands. The leaf is for the destination. A client that sends another
//! name gets a leaf for that name, and every request in the tunnel is refused.

use std::sync::Arc;

use certs::{Alpn, Subject};
use policies::{Destination, Host, HostName};
use tokio::net::TcpStream;
use tokio::time;
use tokio_rustls::StartHandshake;
use tokio_rustls::server::TlsStream;

use crate::admit::HostPermit;
use crate::dial::{tls_cipher, tls_version};
use crate::gateway::Gateway;
use crate::opening::client_hello::ClientHello;
use crate::read_ahead::ReadAhead;
use crate::record::ConnectionRecord;
use crate::refuse::{BlanketRefusal, Refusal};

/// A connection whose TLS ends here.
#[derive(Debug)]
pub(crate) struct Terminated {
    pub(crate) stream: TlsStream<ReadAhead<TcpStream>>,
    pub(crate) protocol: Protocol,
}

/// What was negotiated above TLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// Whether the name in the hello is the destination's. None at all is fine: the
/// client has named the destination before.
pub(crate) fn check_name(hello: &ClientHello, to: &Destination) -> Result<(), BlanketRefusal> {
    let Some(written) = &hello.server_name else { return Ok(()) };
    match (HostName::parse(written), &to.host) {
        (Ok(named), Host::Name(admitted)) if named == *admitted => Ok(()),
        _ => Err(BlanketRefusal::NameMismatch {
            admitted: to.host.to_string(),
            named: written.clone(),
        }),
    }
}

/// What to offer a client: what its upstream speaks, as far as it can be known.
///
/// Nothing is translated between the two, so a client must not be given a
/// protocol that its upstream does not speak. To find out may take a connection,
/// and that is the first thing to leave for this destination.
pub(crate) async fn protocols(
    permit: &HostPermit,
    hello: &ClientHello,
    to: &Destination,
    gateway: &Arc<Gateway>,
    record: &mut ConnectionRecord,
) -> Result<Alpn, Refusal> {
    if !hello.offers_h2 {
        return Ok(Alpn::Http1);
    }
    let speaks_h2 = match gateway.dialer.known_to_speak_h2(to) {
        Some(known) => Ok(known),
        None => record.dial(gateway, to, gateway.dialer.speaks_h2(permit, to)).await?,
    };
    Ok(match speaks_h2 {
        Ok(true) => Alpn::H2OrHttp1,
        Ok(false) => Alpn::Http1,
        // A client that cannot be served is told so by its first request, in
        // whatever protocol it speaks: nothing is going to be relayed.
        Err(_) => Alpn::H2OrHttp1,
    })
}

/// Finishes the handshake as `leaf`.
pub(crate) async fn terminate(
    stream: TcpStream,
    hello: ClientHello,
    leaf: &Host,
    alpn: Alpn,
    gateway: &Gateway,
    record: &mut ConnectionRecord,
) -> Result<Terminated, Refusal> {
    let failed = |why: &dyn std::fmt::Display| Refusal::HandshakeFailed(why.to_string());
    let subject = match leaf {
        Host::Address(address) => Subject::from(*address),
        Host::Name(name) => Subject::parse(name.as_str()).map_err(|err| failed(&err))?,
    };
    let config = gateway.tls.config(&subject, alpn).map_err(|err| failed(&err))?;
    let server_name = hello.server_name.clone();
    let limit = gateway.limits.bounds().opening;
    let handshake =
        StartHandshake::from_parts(hello.accepted, ReadAhead::new(stream)).into_stream(config);
    let stream = match time::timeout(limit, handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(err)) => return Err(failed(&err)),
        Err(_elapsed) => return Err(Refusal::OpeningTimeout { limit }),
    };
    let (_, session) = stream.get_ref();
    let protocol = match session.alpn_protocol() {
        Some(b"h2") => Protocol::Http2,
        _ => Protocol::Http1,
    };
    record.tls(facts(session, server_name));
    Ok(Terminated { stream, protocol })
}

fn facts(session: &rustls::ServerConnection, server_name: Option<String>) -> audit::NegotiatedTls {
    let protocol = session.alpn_protocol().map(String::from_utf8_lossy);
    let resumed = session.handshake_kind().map(|kind| kind == rustls::HandshakeKind::Resumed);
    audit::NegotiatedTls {
        version: tls_version(session).map(audit::Text::constant),
        cipher: tls_cipher(session).map(audit::Text::constant),
        next_protocol: protocol.map(|name| audit::Text::new(&name)),
        server_name: server_name.map(audit::Text::from),
        resumed,
        server_hash: None,
    }
}
