//! Verification of upstreams, with an error that says what to fix.
//!
//! The verdict is webpki's, always. It calls a signature that was made with too
//! short a key "bad", as if it were forged; this says which it was, so that
//! whoever runs the server knows what to replace.

use std::iter;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};

/// A key that is too short for its signatures to be believed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("an RSA key of {bits} bits, where 2048 are the least")]
pub struct WeakKey {
    pub bits: usize,
}

/// webpki's verifier, with clearer errors. It never changes the verdict.
#[derive(Debug)]
pub(crate) struct ExplainingVerifier(pub(crate) Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for ExplainingVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        verified.map_err(|err| explain(err, iter::once(end_entity).chain(intermediates)))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = self.0.verify_tls12_signature(message, certificate, signature);
        verified.map_err(|err| explain(err, iter::once(certificate)))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = self.0.verify_tls13_signature(message, certificate, signature);
        verified.map_err(|err| explain(err, iter::once(certificate)))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Another reason for the same verdict: an error stays an error.
fn explain<'a, 'c: 'a>(
    err: Error,
    mut certificates: impl Iterator<Item = &'a CertificateDer<'c>>,
) -> Error {
    if !matches!(err, Error::InvalidCertificate(CertificateError::BadSignature)) {
        return err;
    }
    match certificates.find_map(weak_key) {
        Some(weak) => {
            Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(weak))))
        }
        None => err,
    }
}

fn weak_key(certificate: &CertificateDer<'_>) -> Option<WeakKey> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let bits = rsa_bits(&parsed.subject_public_key_info())?;
    (bits < MIN_RSA_BITS).then_some(WeakKey { bits })
}

/// The length of the modulus in a `SubjectPublicKeyInfo`, if the key is RSA.
fn rsa_bits(key_info: &[u8]) -> Option<usize> {
    let (SEQUENCE, key_info, _) = element(key_info)? else { return None };
    let (SEQUENCE, algorithm, rest) = element(key_info)? else { return None };
    let (OBJECT_IDENTIFIER, RSA_ENCRYPTION, _) = element(algorithm)? else { return None };
    let (BIT_STRING, [0, key @ ..], _) = element(rest)? else { return None };
    let (SEQUENCE, key, _) = element(key)? else { return None };
    let (INTEGER, modulus, _) = element(key)? else { return None };
    let modulus = match modulus {
        [0, modulus @ ..] => modulus,
        modulus => modulus,
    };
    let unused = modulus.first()?.leading_zeros() as usize;
    Some(modulus.len() * 8 - unused)
}

/// The first element: its tag, its content, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        length @ ..0x80 => (usize::from(length), rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            if bytes.len() > 4 {
                return None;
            }
            (bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

const MIN_RSA_BITS: usize = 2048;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
/// 1.2.840.113549.1.1.1
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_an_rsa_key_is_that_of_its_modulus() {
        // SEQUENCE { SEQUENCE { rsaEncryption, NULL }, BIT STRING { SEQUENCE {
        // INTEGER of 65 bits, INTEGER 3 } } }
        let mut key_info = vec![SEQUENCE, 32, SEQUENCE, 13, OBJECT_IDENTIFIER, 9];
        key_info.extend(RSA_ENCRYPTION);
        key_info.extend([5, 0, BIT_STRING, 15, 0, SEQUENCE, 12]);
        key_info.extend([INTEGER, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, INTEGER, 1, 3]);
        let length = u8::try_from(key_info.len() - 2).unwrap();
        key_info[1] = length;
        let bit_string = key_info.iter().position(|byte| *byte == BIT_STRING).unwrap();
        key_info[bit_string + 1] = u8::try_from(key_info.len() - bit_string - 2).unwrap();
        key_info[bit_string + 4] = u8::try_from(key_info.len() - bit_string - 5).unwrap();
        assert_eq!(rsa_bits(&key_info), Some(65));
        for cut in 0..key_info.len() {
            assert_eq!(rsa_bits(&key_info[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn other_keys_are_not_measured() {
        let key = rcgen::KeyPair::generate().unwrap();
        assert_eq!(rsa_bits(&rcgen::PublicKeyData::subject_public_key_info(&key)), None);
    }
}
