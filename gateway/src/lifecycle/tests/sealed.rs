//! Passthrough: TLS that is not opened still has to say whom it is for.

use std::sync::Arc;

use rustls::client::{EchGreaseConfig, EchMode};
use rustls::crypto::aws_lc_rs::{self, hpke};
use rustls::crypto::hpke::Hpke as _;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::world::{World, ask};
use crate::listen::ListenerKind;

async fn world() -> World {
    World::under(
        "version: 1\nname: test\nnet:\n  enabled: true\n  passthrough: [allowed.test]\n",
        |_| super::world::OK,
    )
    .await
}

const GET: &str = "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n";

#[tokio::test]
async fn the_client_sees_the_upstreams_own_certificate() {
    let world = world().await;
    let stream = world.tunnel("allowed.test:443").await;
    let mut tls = world.handshake_upstream(stream, "allowed.test").await.unwrap();
    assert_eq!(ask(&mut tls, GET).await.status(), 200);
    drop(tls);
    let connections = world.connections().await;
    assert_eq!(connections[0].verdict(), "relayed allow allowed");
    assert_eq!(connections[0].get("sluice.handling"), "passthrough");
    assert_eq!(world.requests().await.len(), 0);
    assert_eq!(world.stage.events_of("opened").await.len(), 1, "before the first byte leaves");
}

#[tokio::test]
async fn a_captured_connection_can_be_sealed_too() {
    let world = world().await;
    let stream = world.connect(ListenerKind::CapturedHttps).await;
    let mut tls = world.handshake_upstream(stream, "allowed.test").await.unwrap();
    assert_eq!(ask(&mut tls, GET).await.status(), 200);
}

#[tokio::test]
async fn another_name_is_refused() {
    let world = world().await;
    let stream = world.tunnel("allowed.test:443").await;
    let err = world.handshake(stream, Some("evil.test"), &[]).await.unwrap_err();
    assert!(err.to_string().contains("AccessDenied"), "{err}");
    assert_eq!(world.dialled(), 0);
    assert_eq!(world.connections().await[0].verdict(), "refused deny name_mismatch");
}

#[tokio::test]
async fn no_name_is_refused() {
    let world = world().await;
    let stream = world.tunnel("allowed.test:443").await;
    let err = world.handshake(stream, None, &[]).await.unwrap_err();
    assert!(err.to_string().contains("AccessDenied"), "{err}");
    assert_eq!(world.dialled(), 0);
    assert_eq!(world.connections().await[0].verdict(), "refused deny sealed_name_unreadable");
}

#[tokio::test]
async fn a_name_that_may_hide_another_is_refused() {
    let world = world().await;
    let stream = world.tunnel("allowed.test:443").await;
    let suite = hpke::DH_KEM_X25519_HKDF_SHA256_AES_128;
    let (key, _) = suite.generate_key_pair().unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_ech(EchMode::Grease(EchGreaseConfig::new(suite, key)))
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("allowed.test").unwrap();
    let err = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap_err();
    assert!(err.to_string().contains("AccessDenied"), "{err}");
    assert_eq!(world.dialled(), 0);
    assert_eq!(world.connections().await[0].verdict(), "refused deny sealed_name_unreadable");
}

#[tokio::test]
async fn what_is_not_tls_is_refused() {
    let world = world().await;
    let mut stream = world.tunnel("allowed.test:443").await;
    super::world::send(&mut stream, GET).await;
    assert_eq!(super::world::read_rest(&mut stream).await, "");
    assert_eq!(world.dialled(), 0);
}
