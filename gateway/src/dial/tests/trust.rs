//! Whom we believe: ATTACKS G9.

use std::sync::Arc;

use policies::Scheme;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, date_time_ymd};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::distrust::Distrust;
use super::*;

async fn dial(
    authority: &TestAuthority,
    config: Arc<ServerConfig>,
) -> Result<super::super::Http1Upstream, DialError> {
    let server = TestServer::tls(config, |mut stream| async move {
        let mut byte = [0; 1];
        stream.read_exact(&mut byte).await.ok();
        stream.write_all(b"yes").await.ok();
        stream.flush().await.ok();
        stream.read_exact(&mut byte).await.ok();
    })
    .await;
    let dialer = authority.dialer(&[("allowed.test", server.at)]);
    dialer.http1(&public(), Scheme::Https, &to("allowed.test:443"), false).await
}

fn params(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.into()]).unwrap()
}

#[tokio::test]
async fn a_trusted_upstream_is_reached_and_its_facts_are_known() {
    let authority = TestAuthority::new();
    let config = authority.serving("allowed.test", &["http/1.1"]);
    let mut upstream = dial(&authority, config).await.unwrap();

    upstream.io().write_all(b"?").await.unwrap();
    let mut answer = [0; 3];
    upstream.io().read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"yes");

    let facts = upstream.facts();
    let tls = facts.tls.as_ref().unwrap();
    assert_eq!((tls.version, tls.alpn, tls.resumed), ("1.3", Some("http/1.1"), false));
    assert!(tls.cipher.starts_with("TLS_"), "{}", tls.cipher);
    assert!(tls.certificate.is_some());
    assert!(!facts.reused && !facts.proxied);
}

#[tokio::test]
async fn a_certificate_that_is_not_believed_ends_the_attempt_with_the_reason() {
    let authority = TestAuthority::new();
    let mut expired = params("allowed.test");
    expired.not_before = date_time_ymd(2020, 1, 1);
    expired.not_after = date_time_ymd(2021, 1, 1);
    let mut early = params("allowed.test");
    early.not_before = date_time_ymd(2999, 1, 1);
    let mut client = params("allowed.test");
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];

    for (config, expected) in [
        (authority.serving_as(expired, &[]), Distrust::Expired),
        (authority.serving_as(early, &[]), Distrust::NotYetValid),
        (authority.serving("other.test", &[]), Distrust::WrongName),
        (authority.serving("wild.allowed.test", &[]), Distrust::WrongName),
        (authority.serving_as(client, &[]), Distrust::WrongPurpose),
        (TestAuthority::named("x").serving("allowed.test", &[]), Distrust::UnknownIssuer),
        (TestAuthority::new().serving("allowed.test", &[]), Distrust::BadSignature),
        (self_signed("allowed.test"), Distrust::UnknownIssuer),
    ] {
        let err = dial(&authority, config).await.unwrap_err();
        assert_eq!((err.status(), err.code()), (502, "upstream_untrusted"), "{err}");
        let DialError::Untrusted { reason, .. } = err else { panic!("{err}") };
        assert_eq!(reason, expected);
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_speak_tls_is_unreachable_not_untrusted() {
    let server = TestServer::tcp(|mut stream| async move {
        stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await.ok();
    })
    .await;
    let dialer = TestAuthority::new().dialer(&[("allowed.test", server.at)]);
    let to = to("allowed.test:443");
    let err = dialer.http1(&public(), Scheme::Https, &to, false).await.unwrap_err();
    assert_eq!((err.status(), err.code()), (502, "upstream_unreachable"), "{err}");
}

#[tokio::test]
async fn an_upstream_that_never_shakes_hands_is_a_timeout() {
    let server = TestServer::tcp(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let authority = TestAuthority::new();
    let mut dialer = authority.dialer(&[("allowed.test", server.at)]);
    dialer.settings.timeouts.handshake = std::time::Duration::from_millis(50);
    let to = to("allowed.test:443");
    let err = dialer.http1(&public(), Scheme::Https, &to, false).await.unwrap_err();
    assert_eq!((err.status(), err.code()), (504, "upstream_timeout"), "{err}");
}

#[tokio::test]
async fn a_closed_port_is_unreachable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    drop(listener);
    let dialer = TestAuthority::new().dialer(&[("allowed.test", at)]);
    let to = to("allowed.test:80");
    let err = dialer.http1(&public(), Scheme::Http, &to, false).await.unwrap_err();
    assert_eq!((err.status(), err.code()), (502, "upstream_unreachable"), "{err}");
}
