//! What is recorded of a connection is what was negotiated.

use std::sync::Arc;

use policies::Scheme;
use rustls::crypto::aws_lc_rs;
use rustls::{CertificateError, CipherSuite};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::distrust::{HandshakeRefusal, refused};
use super::super::tls::cipher_name;
use super::*;

/// A server that answers on every connection, so that its tickets arrive.
async fn server(config: Arc<rustls::ServerConfig>) -> TestServer {
    TestServer::tls(config, |mut stream| async move {
        stream.write_all(b"yes").await.ok();
        stream.flush().await.ok();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.ok();
    })
    .await
}

#[tokio::test]
async fn the_tls_version_of_a_record_is_the_one_that_was_negotiated() {
    for (version, expected) in [(&rustls::version::TLS12, "1.2"), (&rustls::version::TLS13, "1.3")]
    {
        let authority = TestAuthority::new();
        let all = authority.serving("allowed.test", &["http/1.1"]);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&all.cert_resolver));
        config.alpn_protocols.clone_from(&all.alpn_protocols);
        let server = server(Arc::new(config)).await;
        let dialer = authority.dialer(&[("allowed.test", server.at)]);
        let to = to("allowed.test:443");
        for resumed in [false, true] {
            let mut upstream = dialer.http1(&public(), Scheme::Https, &to, false).await.unwrap();
            let mut answer = [0; 3];
            upstream.io().read_exact(&mut answer).await.unwrap();
            let tls = Arc::clone(upstream.facts().tls.as_ref().unwrap());
            assert_eq!((tls.version, tls.alpn), (expected, Some("http/1.1")));
            // A second handshake may use the first one's ticket, and then says so.
            assert!(!tls.resumed || resumed, "the first handshake has nothing to resume");
            if resumed && version.version == rustls::ProtocolVersion::TLSv1_3 {
                assert!(tls.resumed, "the ticket came before the answer");
            }
        }
    }
}

#[test]
fn each_fault_of_a_certificate_has_its_own_reason() {
    let told = |fault: CertificateError| {
        let err = rustls::Error::InvalidCertificate(fault);
        match refused(&std::io::Error::other(err)) {
            Some(HandshakeRefusal::Untrusted(why)) => why.to_string(),
            other => format!("{other:?}"),
        }
    };
    let time = rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::ZERO);
    for (fault, reason) in [
        (
            CertificateError::BadSignature,
            "a signature does not verify; the authority it names did not sign it, or the server \
             does not hold its key",
        ),
        (CertificateError::Expired, "it has expired"),
        (CertificateError::ExpiredContext { time, not_after: time }, "it has expired"),
        (CertificateError::NotValidYet, "it is not valid yet"),
        (CertificateError::NotValidYetContext { time, not_before: time }, "it is not valid yet"),
        (CertificateError::Revoked, "it was revoked"),
        (
            CertificateError::UnknownIssuer,
            "no authority we trust issued it; it may be self-signed, or lack its intermediate",
        ),
        (CertificateError::NotValidForName, "it was issued for another name"),
        (CertificateError::InvalidPurpose, "it was not issued for a server"),
        (CertificateError::BadEncoding, "it is not a valid certificate"),
    ] {
        assert_eq!(told(fault), reason);
    }
    let other = std::io::Error::other(rustls::Error::HandshakeNotComplete);
    assert_eq!(refused(&other), None, "that is no fault of the certificate");
}

#[test]
fn a_cipher_is_named_as_the_registry_names_it() {
    for (suite, name) in [
        (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256"),
        (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384"),
        (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256"),
        (
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        ),
    ] {
        assert_eq!(cipher_name(suite), name);
    }
}
