//! Every error that has a reason, and what a person is told. Real servers show the same in
//! `tests/functional/distrusted.rs`.

use std::sync::Arc;

use super::*;

/// What webpki says, which rustls passes on as it is.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Webpki(&'static str);

fn ended_by(err: rustls::Error) -> Option<HandshakeRefusal> {
    refused(&io::Error::new(io::ErrorKind::InvalidData, err))
}

fn of_certificate(fault: CertificateError) -> Distrust {
    match ended_by(rustls::Error::InvalidCertificate(fault)) {
        Some(HandshakeRefusal::Untrusted(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn other_error(why: impl std::error::Error + Send + Sync + 'static) -> CertificateError {
    CertificateError::Other(OtherError(Arc::new(why)))
}

fn signed_with(algorithm: &[u8]) -> CertificateError {
    CertificateError::UnsupportedSignatureAlgorithmContext {
        signature_algorithm_id: algorithm.to_vec(),
        supported_algorithms: Vec::new(),
    }
}

#[test]
fn each_fault_of_a_certificate_is_distrust_with_its_own_reason() {
    let for_key = CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
        signature_algorithm_id: Vec::new(),
        public_key_algorithm_id: Vec::new(),
    };
    for (fault, reason) in [
        (CertificateError::BadSignature, Distrust::BadSignature),
        (CertificateError::Expired, Distrust::Expired),
        (CertificateError::NotValidYet, Distrust::NotYetValid),
        (CertificateError::Revoked, Distrust::Revoked),
        (CertificateError::UnhandledCriticalExtension, Distrust::CriticalExtension),
        (CertificateError::UnknownIssuer, Distrust::UnknownIssuer),
        (CertificateError::NotValidForName, Distrust::WrongName),
        (CertificateError::InvalidPurpose, Distrust::WrongPurpose),
        (CertificateError::BadEncoding, Distrust::Invalid),
        (for_key, Distrust::SignatureAlgorithm),
        (other_error(certs::WeakKey { bits: 1024 }), Distrust::WeakKey { bits: 1024 }),
        (other_error(Webpki("CaUsedAsEndEntity")), Distrust::Authority),
        (other_error(Webpki("NameConstraintViolation")), Distrust::NameConstraint),
        (other_error(Webpki("PathLenConstraintViolated")), Distrust::PathLength),
        (other_error(Webpki("SomethingNew")), Distrust::Invalid),
    ] {
        assert_eq!(of_certificate(fault.clone()), reason, "{fault:?}");
    }
}

#[test]
fn sha1_is_told_from_other_algorithms_by_its_identifier() {
    for algorithm in SHA1_SIGNATURES {
        // As certificates hold it: type, length, identifier, no parameters.
        let length = u8::try_from(algorithm.len()).unwrap();
        let encoded = [&[0x06, length], algorithm, &[0x05, 0x00]].concat();
        assert_eq!(of_certificate(signed_with(&encoded)), Distrust::Sha1);
        assert_eq!(of_certificate(signed_with(algorithm)), Distrust::Sha1);
        let part = &algorithm[..algorithm.len() - 1];
        assert_eq!(of_certificate(signed_with(part)), Distrust::SignatureAlgorithm);
    }
    assert_eq!(of_certificate(signed_with(&[])), Distrust::SignatureAlgorithm);
}

#[test]
fn an_upstream_that_shares_nothing_with_us_is_incompatible() {
    let old = Some(HandshakeRefusal::Incompatible(Incompatibility::OldVersion));
    let nothing = Some(HandshakeRefusal::Incompatible(Incompatibility::NothingInCommon));
    for (err, expected) in [
        (rustls::Error::AlertReceived(AlertDescription::ProtocolVersion), old),
        (rustls::Error::AlertReceived(AlertDescription::HandshakeFailure), nothing),
        (rustls::Error::AlertReceived(AlertDescription::InsufficientSecurity), nothing),
        (rustls::Error::AlertReceived(AlertDescription::InternalError), None),
        (PeerIncompatible::ServerDoesNotSupportTls12Or13.into(), old),
        (PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig.into(), old),
        (PeerIncompatible::NoCipherSuitesInCommon.into(), nothing),
        (rustls::Error::DecryptError, None),
    ] {
        assert_eq!(ended_by(err.clone()), expected, "{err:?}");
    }
}

#[test]
fn an_error_that_is_not_of_tls_has_no_reason_here() {
    assert_eq!(refused(&io::ErrorKind::ConnectionReset.into()), None);
    assert_eq!(refused(&io::Error::other("reset")), None);
}

#[test]
fn what_does_not_meet_is_said_in_a_sentence() {
    assert_eq!(
        Incompatibility::NothingInCommon.to_string(),
        "no cipher suite, key exchange or signature that both accept"
    );
    assert_eq!(Incompatibility::OldVersion.to_string(), "it speaks no TLS of version 1.2 or 1.3");
    let weak = Distrust::WeakKey { bits: 1024 }.to_string();
    assert!(weak.contains("1024 bits"), "{weak}");
}
