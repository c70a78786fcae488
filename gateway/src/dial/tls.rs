//! TLS towards the upstream, verified.
//!
//! A certificate that is not believed ends the attempt. There is no setting that
//! accepts it, and the reason is put in words that a person can act on.

use std::fmt;
use std::io;
use std::sync::Arc;

use audit::Digest;
use policies::{Destination, Host};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, CipherSuite, ClientConfig, HandshakeKind, ProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

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
        Err(source) => Err(match distrust(&source) {
            Some(reason) => DialError::Untrusted { to: to.clone(), reason },
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
        version: match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "1.3",
            Some(ProtocolVersion::TLSv1_2) => "1.2",
            // Neither is offered below 1.2, so this is never reached.
            Some(_) | None => "unknown",
        },
        cipher: session
            .negotiated_cipher_suite()
            .map(|suite| cipher_name(suite.suite()))
            .unwrap_or("unknown"),
        alpn: match session.alpn_protocol() {
            Some(b"h2") => Some("h2"),
            Some(b"http/1.1") => Some("http/1.1"),
            Some(_) | None => None,
        },
        resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
        certificate,
    }
}

/// Why an upstream's certificate is not believed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Distrust {
    /// What `openssl req -x509` makes, unless told otherwise.
    Authority,
    BadSignature,
    Expired,
    Invalid,
    NotYetValid,
    Revoked,
    UnknownIssuer,
    WrongName,
    WrongPurpose,
}

impl Distrust {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Authority => {
                "it is an authority's own certificate; issue the server one that is not (CA:FALSE)"
            }
            Self::BadSignature => "the authority it names did not sign it",
            Self::Expired => "it has expired",
            Self::Invalid => "it is not a valid certificate",
            Self::NotYetValid => "it is not valid yet",
            Self::Revoked => "it was revoked",
            Self::UnknownIssuer => {
                "no authority we trust issued it; it may be self-signed, or lack its intermediate"
            }
            Self::WrongName => "it was issued for another name",
            Self::WrongPurpose => "it was not issued for a server",
        }
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The fault in the certificate, if that is what ended the handshake.
fn distrust(err: &io::Error) -> Option<Distrust> {
    let err = err.get_ref()?.downcast_ref::<rustls::Error>()?;
    let rustls::Error::InvalidCertificate(fault) = err else { return None };
    // rustls may add faults; all of them are distrust.
    Some(match fault {
        CertificateError::BadSignature => Distrust::BadSignature,
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => Distrust::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            Distrust::NotYetValid
        }
        CertificateError::Revoked => Distrust::Revoked,
        CertificateError::UnknownIssuer => Distrust::UnknownIssuer,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Distrust::WrongName
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            Distrust::WrongPurpose
        }
        // The verifier's own word, which rustls passes on without a name.
        CertificateError::Other(why) if why.to_string().contains("CaUsedAsEndEntity") => {
            Distrust::Authority
        }
        _ => Distrust::Invalid,
    })
}

/// A cipher suite as IANA spells it, which is what reviewers search for. rustls
/// has its own spelling for those of TLS 1.3.
pub(crate) fn cipher_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or("unknown"),
    }
}
