//! B8: handshakes that do not say their name.

use std::fs;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::{EchGreaseConfig, EchMode};
use rustls::crypto::aws_lc_rs::{self, hpke};
use rustls::crypto::hpke::HpkePublicKey;
use rustls::pki_types::ServerName;
use tests::world::policy;
use tests::{Plan, Sandbox, Way, World, within};

/// B8, where TLS is opened.
#[tokio::test]
async fn a_handshake_without_a_name_is_the_tunnels_or_nobodys() {
    let world = World::new().start().await;
    let mut nameless = world.sandbox.client_config(&["http/1.1"]);
    nameless.enable_sni = false;
    let nameless = Arc::new(nameless);
    let name = ServerName::try_from("allowed.test").unwrap();

    let line = world.sandbox.connect("allowed.test:443").await.unwrap();
    let mut line = line.tls(&name, &nameless).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    line.reply().await.assert_relayed(200);

    let line = world.sandbox.captured_https().await;
    let failed = within("a handshake", line.tls(&name, &nameless)).await.unwrap_err();
    assert!(failed.to_string().contains("UnrecognisedName"), "an alert says why: {failed}");
    world.assert_denied("", "no_server_name").await;

    // A name that is encrypted is not looked for: the one in the clear counts.
    let sealed = Arc::new(with_encrypted_hello(&world.sandbox));
    let line = world.sandbox.captured_https().await;
    let mut line = within("a handshake", line.tls(&name, &sealed)).await.unwrap();
    line.send("GET /ech HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    line.reply().await.assert_relayed(200);
    world.end().await;
}

/// B8, where TLS is passed on.
#[tokio::test]
async fn what_is_passed_on_unopened_says_its_name_in_the_clear() {
    let world = World::new()
        .policy(&format!("{}  passthrough: [pass.test]\n", policy(&["{host: allowed.test}"])))
        .upstream("pass.test", Plan::echoing())
        .start()
        .await;
    let roots = fs::read_to_string(world.folder().join("upstreams.pem")).unwrap();
    let sandbox = Sandbox::new(world.sandbox.doors.clone(), &roots);
    let pass = ServerName::try_from("pass.test").unwrap();

    let mut nameless = sandbox.client_config(&[]);
    nameless.enable_sni = false;
    let sealed = with_encrypted_hello(&sandbox);
    for config in [nameless, sealed] {
        let line = sandbox.connect("pass.test:443").await.unwrap();
        let failed = within("a handshake", line.tls(&pass, &Arc::new(config))).await.unwrap_err();
        assert!(failed.to_string().contains("AccessDenied"), "{failed}");
        world.upstream("pass.test").assert_never_contacted();
        world.assert_denied("pass.test", "sealed_name_unreadable").await;
    }
    // Another name than the tunnel's, and no TLS at all.
    let line = sandbox.connect("pass.test:443").await.unwrap();
    let failed = sandbox.handshake(line, "evil.test", &[]).await.unwrap_err();
    assert!(failed.to_string().contains("AccessDenied"), "{failed}");
    world.assert_denied("pass.test", "name_mismatch").await;
    let mut line = sandbox.connect("pass.test:443").await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: pass.test\r\n\r\n").await;
    line.assert_ends().await;
    world.upstream("pass.test").assert_never_contacted();
    world.assert_denied("pass.test", "sealed_name_unreadable").await;

    // With its name it is passed on, and the certificate is the upstream's own.
    for way in Way::ALL {
        let mut line = sandbox.tls(way, "pass.test", &[]).await.unwrap();
        line.send("GET / HTTP/1.1\r\nHost: pass.test\r\n\r\n").await;
        line.reply().await.assert_relayed(200);
    }
    world.end().await;
}

/// A client that sends an encrypted ClientHello beside the one in the clear.
fn with_encrypted_hello(sandbox: &Sandbox) -> ClientConfig {
    let key = HpkePublicKey(vec![9; 32]);
    let grease = EchGreaseConfig::new(hpke::DH_KEM_X25519_HKDF_SHA256_AES_128, key);
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_ech(EchMode::Grease(grease))
        .unwrap()
        .with_root_certificates(sandbox.roots())
        .with_no_client_auth()
}
