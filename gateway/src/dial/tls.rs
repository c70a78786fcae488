//! TLS towards the upstream, verified.
//!
//! A certificate that is not believed ends the attempt. There is no setting that
//! accepts it, and the reason is put in words that a person can act on.

use std::io;
use std::sync::Arc;

use audit::Digest;
use policies::{Destination, Host};
use rustls::pki_types::ServerName;
use rustls::{CipherSuite, ClientConfig, CommonState, HandshakeKind, ProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::distrust::{HandshakeRefusal, refused};
use super::error::DialError;
use super::facts::TlsFacts;
use super::stream::Tls;
use crate::read_ahead::ReadAhead;

/// Speaks TLS on a connected stream, and believes only `to`.
pub(super) async fn handshake(
    config: &Arc<ClientConfig>,
    to: &Destination,
    stream: TcpStream,
) -> Result<(Tls, Arc<TlsFacts>), DialError> {
    let name = server_name(to).map_err(|source| DialError::Handshake {
        to: to.clone(),
        source: io::Error::other(source),
    })?;
    match TlsConnector::from(Arc::clone(config)).connect(name, ReadAhead::new(stream)).await {
        Ok(stream) => {
            let facts = Arc::new(facts(&stream));
            Ok((stream, facts))
        }
        Err(source) => Err(match refused(&source) {
            Some(HandshakeRefusal::Untrusted(reason)) => {
                DialError::Untrusted { to: to.clone(), reason }
            }
            Some(HandshakeRefusal::Incompatible(reason)) => {
                DialError::Incompatible { to: to.clone(), reason }
            }
            None => DialError::Handshake { to: to.clone(), source },
        }),
    }
}

fn server_name(
    to: &Destination,
) -> Result<ServerName<'static>, rustls::pki_types::InvalidDnsNameError> {
    match &to.host {
        Host::Address(address) => Ok(ServerName::IpAddress((*address).into())),
        Host::Name(name) => ServerName::try_from(name.as_str().to_owned()),
    }
}

fn facts(stream: &Tls) -> TlsFacts {
    let (_, session) = stream.get_ref();
    let certificate = session
        .peer_certificates()
        .and_then(<[_]>::first)
        .map(|certificate| Digest::of(certificate));
    TlsFacts {
        // There is always one: the handshake is over.
        version: tls_version(session).unwrap_or("unknown"),
        cipher: tls_cipher(session).unwrap_or("unknown"),
        alpn: match session.alpn_protocol() {
            Some(b"h2") => Some("h2"),
            Some(b"http/1.1") => Some("http/1.1"),
            Some(_) | None => None,
        },
        resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
        certificate,
    }
}

pub(crate) fn tls_version(session: &CommonState) -> Option<&'static str> {
    match session.protocol_version()? {
        ProtocolVersion::TLSv1_3 => Some("1.3"),
        ProtocolVersion::TLSv1_2 => Some("1.2"),
        _ => None,
    }
}

pub(crate) fn tls_cipher(session: &CommonState) -> Option<&'static str> {
    session.negotiated_cipher_suite().map(|suite| cipher_name(suite.suite()))
}

/// A cipher suite as IANA spells it, which is what reviewers search for. rustls
/// has its own spelling for those of TLS 1.3.
pub(super) fn cipher_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or("unknown"),
    }
}
