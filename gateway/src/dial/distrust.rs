//! Why a TLS handshake with an upstream was refused, in words that a person can
//! act on.
//!
//! rustls and webpki speak of errors; here they become reasons. An error without
//! a reason of its own is still an error: nothing here decides whether an
//! upstream is believed.

use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError, OtherError, PeerIncompatible};

/// A handshake that came to nothing for a reason.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum HandshakeRefusal {
    Incompatible(Incompatibility),
    Untrusted(Distrust),
}

/// Why an upstream's certificate is not believed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Distrust {
    /// What `openssl req -x509` makes, unless told otherwise.
    Authority,
    BadSignature,
    CriticalExtension,
    Expired,
    Invalid,
    NameConstraint,
    NotYetValid,
    PathLength,
    Revoked,
    Sha1,
    SignatureAlgorithm,
    UnknownIssuer,
    WeakKey {
        bits: usize,
    },
    WrongName,
    WrongPurpose,
}

/// Why an upstream's TLS and ours do not meet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Incompatibility {
    NothingInCommon,
    OldVersion,
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Authority => {
                "it is an authority's own certificate; issue the server one that is not (CA:FALSE)"
            }
            Self::BadSignature => {
                "a signature does not verify; the authority it names did not sign it, or the \
                 server does not hold its key"
            }
            Self::CriticalExtension => "it has a critical extension that nobody here understands",
            Self::Expired => "it has expired",
            Self::Invalid => "it is not a valid certificate",
            Self::NameConstraint => {
                "an authority in its chain may not vouch for that name (name constraints)"
            }
            Self::NotYetValid => "it is not valid yet",
            Self::PathLength => {
                "an authority in its chain may not appoint further ones (path length)"
            }
            Self::Revoked => "it was revoked",
            Self::Sha1 => {
                "it, or an authority in its chain, is signed with SHA-1; issue it anew with SHA-256"
            }
            Self::SignatureAlgorithm => {
                "it, or an authority in its chain, is signed with an algorithm that is not accepted"
            }
            Self::UnknownIssuer => {
                "no authority we trust issued it; it may be self-signed, or lack its intermediate"
            }
            Self::WeakKey { bits } => {
                return write!(
                    f,
                    "it, or an authority in its chain, has an RSA key of {bits} bits, which is too \
                     short; use 2048 or more"
                );
            }
            Self::WrongName => "it was issued for another name",
            Self::WrongPurpose => "it was not issued for a server",
        })
    }
}

impl fmt::Display for Incompatibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingInCommon => "no cipher suite, key exchange or signature that both accept",
            Self::OldVersion => "it speaks no TLS of version 1.2 or 1.3",
        })
    }
}

/// The reason that ended a handshake, if it is one of those that have a name.
pub(super) fn refused(err: &io::Error) -> Option<HandshakeRefusal> {
    match err.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(fault) => {
            Some(HandshakeRefusal::Untrusted(distrust(fault)))
        }
        rustls::Error::AlertReceived(alert) => Some(HandshakeRefusal::Incompatible(match alert {
            AlertDescription::ProtocolVersion => Incompatibility::OldVersion,
            AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
                Incompatibility::NothingInCommon
            }
            _ => return None,
        })),
        rustls::Error::PeerIncompatible(what) => Some(HandshakeRefusal::Incompatible(match what {
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig => {
                Incompatibility::OldVersion
            }
            _ => Incompatibility::NothingInCommon,
        })),
        _ => None,
    }
}

fn distrust(fault: &CertificateError) -> Distrust {
    // rustls may add faults; all of them are distrust.
    match fault {
        CertificateError::BadSignature => Distrust::BadSignature,
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => Distrust::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            Distrust::NotYetValid
        }
        CertificateError::Revoked => Distrust::Revoked,
        CertificateError::UnhandledCriticalExtension => Distrust::CriticalExtension,
        CertificateError::UnknownIssuer => Distrust::UnknownIssuer,
        CertificateError::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id, ..
        } => algorithm(signature_algorithm_id),
        CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            Distrust::SignatureAlgorithm
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Distrust::WrongName
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            Distrust::WrongPurpose
        }
        CertificateError::Other(why) => other(why),
        _ => Distrust::Invalid,
    }
}

/// SHA-1 has a name of its own: it is what old authorities still sign with.
fn algorithm(id: &[u8]) -> Distrust {
    let contains = |oid: &[u8]| id.windows(oid.len()).any(|part| part == oid);
    if SHA1_SIGNATURES.iter().any(|oid| contains(oid)) {
        Distrust::Sha1
    } else {
        Distrust::SignatureAlgorithm
    }
}

/// What rustls passes on without a name: our verifier's word, or webpki's.
fn other(OtherError(why): &OtherError) -> Distrust {
    if let Some(certs::WeakKey { bits }) = why.downcast_ref() {
        return Distrust::WeakKey { bits: *bits };
    }
    match why.to_string() {
        why if why.contains("CaUsedAsEndEntity") => Distrust::Authority,
        why if why.contains("NameConstraintViolation") => Distrust::NameConstraint,
        why if why.contains("PathLenConstraintViolated") => Distrust::PathLength,
        _ => Distrust::Invalid,
    }
}

/// `sha1WithRSAEncryption`, `ecdsa-with-SHA1` and `dsa-with-sha1`.
const SHA1_SIGNATURES: [&[u8]; 3] = [
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01],
    &[0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x03],
];

#[cfg(test)]
mod tests;
