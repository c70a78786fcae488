//! TLS towards the sandbox.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind};
use tests::{Line, World, within};

async fn get_with(world: &World, config: &Arc<ClientConfig>) {
    let name = ServerName::try_from("allowed.test").unwrap();
    let line = world.sandbox.captured_https().await;
    let mut line: Line = within("a handshake", line.tls(&name, config)).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n").await;
    line.reply().await.assert_relayed(200);
    line.assert_ends().await;
}

/// A client that comes back need not prove anything twice.
#[tokio::test]
async fn a_session_is_resumed() {
    let world = World::new().start().await;
    let config = Arc::new(world.sandbox.client_config(&["http/1.1"]));
    let mut records = Vec::new();
    for number in 1..=3 {
        get_with(&world, &config).await;
        // One after the other, so that their records are in order too.
        let all = || Some(world.audit.of_kind("connection")).filter(|all| all.len() == number);
        records = tests::until("the record of a connection", all).await;
    }
    let resumed: Vec<_> = records.iter().map(|record| record["tls.resumed"] == true).collect();
    assert_eq!(resumed, [false, true, true]);
    assert_eq!(records[1]["tls.client.server_name"], "allowed.test");
    world.end().await;
}

/// Old clients speak TLS 1.2; the record says who did.
#[tokio::test]
async fn tls_1_2_is_spoken_to_those_who_need_it() {
    let world = World::new().start().await;
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(world.sandbox.roots())
        .with_no_client_auth();
    get_with(&world, &Arc::new(config)).await;
    let record = world.audit.find("the record", |event| event["kind"] == "connection").await;
    assert_eq!(record["tls.protocol.version"], "1.2");
    let upstream = world.audit.find("the record", |event| event["kind"] == "request").await;
    assert_eq!(upstream["tls.protocol.version"], "1.3", "with the upstream it is another");
    world.end().await;
}

/// A leaf says one name, and each host has its own.
#[tokio::test]
async fn a_leaf_is_for_one_host() {
    let world = World::new().start().await;
    // evil.test is refused, in TLS of its own; the leaf of one is not the other's.
    for (connect_as, asked) in [("allowed.test", "evil.test"), ("evil.test", "allowed.test")] {
        let config = Arc::new(world.sandbox.client_config(&["http/1.1"]));
        let stream = world.sandbox.captured_https().await.into_stream();
        let connector = tokio_rustls::TlsConnector::from(config);
        let name = ServerName::try_from(connect_as).unwrap();
        let stream = within("a handshake", connector.connect(name, stream)).await.unwrap();
        let (_, session) = stream.get_ref();
        assert_eq!(session.handshake_kind(), Some(HandshakeKind::Full));
        let leaf = session.peer_certificates().unwrap()[0].clone();
        let leaf = rustls::server::ParsedCertificate::try_from(&leaf).unwrap();
        let says = |name: &str| {
            let name = ServerName::try_from(name.to_owned()).unwrap();
            rustls::client::verify_server_name(&leaf, &name).is_ok()
        };
        assert!(says(connect_as) && !says(asked));
    }
    world.end().await;
}
