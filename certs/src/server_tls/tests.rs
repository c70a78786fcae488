//! Real handshakes, in memory: which leaf is shown, which protocol is agreed,
//! and which tickets open which sessions.

use std::io;

use rustls::client::Resumption;
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, RootCertStore,
    ServerConnection, SupportedProtocolVersion,
};
use rustls_pki_types::ServerName;

use super::*;
use crate::certificate_authority::Lifetime;

#[test]
fn each_alpn_set_agrees_on_what_it_names() {
    let world = World::new();
    let agreed = |alpn: Alpn, offered: &[&str]| {
        let mut client = world.client(&TLS13);
        client.alpn_protocols = offered.iter().map(|one| one.as_bytes().to_vec()).collect();
        let met = world.meet("a.test", alpn, &Arc::new(client), "a.test")?;
        Ok::<_, String>(met.alpn.map(|agreed| String::from_utf8(agreed).unwrap()))
    };

    let both = &["http/1.1", "h2"];
    assert_eq!(agreed(Alpn::H2OrHttp1, both).unwrap().as_deref(), Some("h2"));
    assert_eq!(agreed(Alpn::H2OrHttp1, &["http/1.1"]).unwrap().as_deref(), Some("http/1.1"));
    assert_eq!(agreed(Alpn::H2OrHttp1, &[]).unwrap(), None);
    assert_eq!(agreed(Alpn::Http1, both).unwrap().as_deref(), Some("http/1.1"));
    assert_eq!(agreed(Alpn::None, both).unwrap(), None);
    let err = agreed(Alpn::Http1, &["h2"]).unwrap_err();
    assert!(err.contains("no known protocol") || err.contains("NoApplicationProtocol"), "{err}");
}

#[test]
fn the_fastest_cipher_is_taken_whatever_the_client_likes_best() {
    let world = World::new();
    let mut reversed = CryptoProvider::clone(&provider());
    reversed.cipher_suites.reverse();
    let meet = |provider: CryptoProvider| {
        let client = Arc::new(client(&[&world.authority], &TLS13, Arc::new(provider)));
        world.meet("a.test", Alpn::None, &client, "a.test").unwrap()
    };
    let met = meet(reversed);
    // Without instructions for AES a client knows better.
    assert_eq!(met.cipher == CipherSuite::TLS13_AES_128_GCM_SHA256, has_aes(), "{met:?}");

    let mut strict = CryptoProvider::clone(&provider());
    let wanted = CipherSuite::TLS13_AES_256_GCM_SHA384;
    strict.cipher_suites.retain(|cipher| cipher.suite() == wanted);
    assert_eq!(meet(strict).cipher, wanted, "one that insists gets it");
}

#[test]
fn the_leaf_is_the_admitted_hosts_whatever_the_client_says() {
    let world = World::new();
    let client = Arc::new(world.client(&TLS13));
    world.meet("a.test", Alpn::None, &client, "a.test").unwrap();

    let err = world.meet("a.test", Alpn::None, &client, "b.test").unwrap_err();
    assert!(err.contains("NotValidForName"), "{err}");
}

#[test]
fn a_client_without_a_server_name_gets_the_admitted_address() {
    let world = World::new();
    for address in ["10.0.0.1", "2001:db8::1"] {
        let client = Arc::new(world.client(&TLS13));
        world.meet(address, Alpn::None, &client, address).unwrap();
    }
}

#[test]
fn sessions_resume_in_both_versions_though_each_connection_has_its_own_config() {
    for version in [&TLS13, &TLS12] {
        let world = World::new();
        let client = Arc::new(world.client(version));
        let first = world.meet("a.test", Alpn::H2OrHttp1, &client, "a.test").unwrap();
        let second = world.meet("a.test", Alpn::H2OrHttp1, &client, "a.test").unwrap();
        assert_eq!(first.version, version.version);
        assert_eq!(first.kind, HandshakeKind::Full, "{version:?}");
        assert_eq!(second.kind, HandshakeKind::Resumed, "{version:?}");
    }
}

#[test]
fn a_session_resumes_across_alpn_sets_of_one_host() {
    let world = World::new();
    let client = Arc::new(world.client(&TLS13));
    world.meet("a.test", Alpn::H2OrHttp1, &client, "a.test").unwrap();
    let second = world.meet("a.test", Alpn::Http1, &client, "a.test").unwrap();
    assert_eq!(second.kind, HandshakeKind::Resumed);
}

/// The client here presents the ticket it got for one host while the gateway
/// has admitted another: what a sandbox would do to confuse us.
#[test]
fn a_ticket_of_one_host_does_not_resume_a_session_for_another() {
    for version in [&TLS13, &TLS12] {
        for (ours, theirs) in [("a.test", "b.test"), ("10.0.0.1", "10.0.0.2")] {
            let world = World::new();
            let client = Arc::new(world.client(version));
            let first = world.meet(ours, Alpn::None, &client, ours).unwrap();
            assert_eq!(first.kind, HandshakeKind::Full);
            // Not resumed, so the leaf of the other host is shown, and the
            // client sees that it is not the one it asked for.
            let err = world.meet(theirs, Alpn::None, &client, ours).unwrap_err();
            assert!(err.contains("NotValidForName"), "{version:?} {ours}: {err}");
        }
    }
}

#[test]
fn a_ticket_of_one_sandbox_means_nothing_to_another() {
    let (ours, theirs) = (World::new(), World::new());
    // It trusts both, so that only the ticket can make the difference.
    let client = Arc::new(client(&[&ours.authority, &theirs.authority], &TLS13, provider()));
    ours.meet("a.test", Alpn::None, &client, "a.test").unwrap();
    let met = theirs.meet("a.test", Alpn::None, &client, "a.test").unwrap();
    assert_eq!(met.kind, HandshakeKind::Full);
}

#[test]
fn a_template_that_was_not_filled_in_fails_closed() {
    let world = World::new();
    let client = Arc::new(world.client(&TLS13));
    let template = Arc::new(world.serving.template.clone());
    let err = handshake(template, &client, "a.test").unwrap_err();
    assert!(err.contains("no server certificate chain resolved"), "{err}");
}

/// One sandbox's side and what its clients trust.
struct World {
    authority: Arc<CertificateAuthority>,
    serving: Serving,
}

/// What a finished handshake agreed on, as the server saw it.
#[derive(Debug)]
struct Met {
    alpn: Option<Vec<u8>>,
    cipher: CipherSuite,
    kind: HandshakeKind,
    version: ProtocolVersion,
}

impl World {
    fn new() -> Self {
        let authority =
            Arc::new(CertificateAuthority::in_memory("test", Lifetime::default()).unwrap());
        let serving = Serving::new(Arc::clone(&authority)).unwrap();
        Self { authority, serving }
    }

    fn client(&self, version: &'static SupportedProtocolVersion) -> ClientConfig {
        client(&[&self.authority], version, provider())
    }

    /// A client that asks for `name` meets a gateway that has admitted `host`.
    fn meet(
        &self,
        host: &str,
        alpn: Alpn,
        client: &Arc<ClientConfig>,
        name: &str,
    ) -> Result<Met, String> {
        let config = self.serving.config(&Subject::parse(host).unwrap(), alpn).unwrap();
        handshake(config, client, name)
    }
}

fn client(
    trusted: &[&CertificateAuthority],
    version: &'static SupportedProtocolVersion,
    provider: Arc<CryptoProvider>,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for authority in trusted {
        roots.add(authority.certificate().clone()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(8);
    config
}

fn handshake(
    server: Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    name: &str,
) -> Result<Met, String> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    // Also after the handshake, while there is anything to say: tickets come last.
    while client.wants_write() || server.wants_write() {
        pass(&mut client, &mut server)?;
        pass(&mut server, &mut client)?;
    }
    Ok(Met {
        alpn: server.alpn_protocol().map(<[u8]>::to_vec),
        cipher: server.negotiated_cipher_suite().unwrap().suite(),
        kind: server.handshake_kind().unwrap(),
        version: server.protocol_version().unwrap(),
    })
}

fn pass<A, B, S, T>(from: &mut A, to: &mut B) -> Result<(), String>
where
    A: std::ops::DerefMut<Target = rustls::ConnectionCommon<S>>,
    B: std::ops::DerefMut<Target = rustls::ConnectionCommon<T>>,
    S: rustls::SideData,
    T: rustls::SideData,
{
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    let mut bytes = io::Cursor::new(bytes);
    while bytes.position() < bytes.get_ref().len() as u64 {
        to.read_tls(&mut bytes).unwrap();
        to.process_new_packets().map_err(|err| format!("{err} {err:?}"))?;
    }
    Ok(())
}
