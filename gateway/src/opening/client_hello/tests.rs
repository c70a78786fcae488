use std::sync::Arc;

use proptest::prelude::*;
use rustls::client::{EchGreaseConfig, EchMode};
use rustls::crypto::aws_lc_rs::{self, hpke};
use rustls::crypto::hpke::Hpke as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;
use crate::testing::Dice;

/// What a client sends first.
fn hello_of(config: ClientConfig, name: &str) -> Vec<u8> {
    let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

fn plain(alpn: &[&str]) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// A client that sends the outer form of ECH, as some do always.
fn greasing() -> ClientConfig {
    let suite = hpke::DH_KEM_X25519_HKDF_SHA256_AES_128;
    let (key, _) = suite.generate_key_pair().unwrap();
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_ech(EchMode::Grease(EchGreaseConfig::new(suite, key)))
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth()
}

/// Reads `bytes` as they come from a socket that gives `piece` of them at a time.
async fn read_in_pieces(bytes: &[u8], piece: usize) -> Result<(ClientHello, Inbox), HelloError> {
    let mut reader = tokio_test_reader(bytes, piece);
    let mut inbox = Inbox::new();
    let hello = read(&mut reader, &mut inbox).await?;
    Ok((hello, inbox))
}

/// A reader that ends after `bytes`.
fn tokio_test_reader(bytes: &[u8], piece: usize) -> impl AsyncRead + Unpin {
    let (mut ours, theirs) = tokio::io::duplex(piece);
    let bytes = bytes.to_vec();
    tokio::spawn(async move {
        // Whoever reads may stop early.
        drop(tokio::io::AsyncWriteExt::write_all(&mut ours, &bytes).await);
    });
    theirs
}

#[tokio::test]
async fn a_hello_says_the_same_in_whatever_pieces_it_comes() {
    let bytes = hello_of(plain(&["h2", "http/1.1"]), "allowed.test");
    for piece in [1, 7, 100, 100_000] {
        let (hello, inbox) = read_in_pieces(&bytes, piece).await.unwrap();
        assert_eq!(hello.server_name.as_deref(), Some("allowed.test"));
        assert!(hello.offers_h2 && !hello.hides_a_name);
        assert_eq!(inbox.filled(), bytes, "what was read can be passed on");
    }
}

#[tokio::test]
async fn an_encrypted_name_is_seen_to_be_one() {
    let bytes = hello_of(greasing(), "allowed.test");
    let (hello, _) = read_in_pieces(&bytes, 100_000).await.unwrap();
    assert_eq!(hello.server_name.as_deref(), Some("allowed.test"));
    assert!(hello.hides_a_name);
}

#[tokio::test]
async fn an_encrypted_name_is_seen_across_records() {
    let bytes = hello_of(greasing(), "allowed.test");
    let message = handshake_bytes(&bytes);
    let mut divided = Vec::new();
    for part in message.chunks(100) {
        divided.extend([HANDSHAKE, 3, 1, 0, part.len() as u8]);
        divided.extend(part);
    }
    let (hello, _) = read_in_pieces(&divided, 100_000).await.unwrap();
    assert!(hello.hides_a_name);
}

#[tokio::test]
async fn what_is_not_tls_is_left_where_it_is() {
    let mut reader = &b"GET / HTTP/1.1\r\n"[..];
    let mut inbox = Inbox::new();
    let err = read(&mut reader, &mut inbox).await.unwrap_err();
    assert!(matches!(err, HelloError::NotTls), "{err}");
    assert_eq!(inbox.filled(), b"GET / HTTP/1.1\r\n");
}

#[tokio::test]
async fn a_hello_that_never_ends_is_given_up() {
    // Records that each promise more of one endless message.
    let mut endless = vec![HANDSHAKE, 3, 1, 0x40, 0, CLIENT_HELLO, 0, 0xff, 0xff];
    endless.extend(vec![0; 0x4000 - 4]);
    for _ in 0..4 {
        endless.extend([HANDSHAKE, 3, 1, 0x40, 0]);
        endless.extend(vec![0; 0x4000]);
    }
    let mut inbox = Inbox::new();
    let err = read(&mut &endless[..], &mut inbox).await.unwrap_err();
    assert!(matches!(err, HelloError::TooLong), "{err}");
    assert!(inbox.filled().len() <= 64 * 1024);
}

#[tokio::test]
async fn a_hello_that_is_wrong_is_answered_with_an_alert() {
    let mut bytes = hello_of(plain(&[]), "allowed.test");
    let last = bytes.len() - 1;
    bytes[5] = 0xee;
    bytes[last] = 0;
    match read_in_pieces(&bytes, 100_000).await.unwrap_err() {
        HelloError::Malformed { alert, .. } => assert_eq!(alert.first(), Some(&21)),
        other => panic!("{other}"),
    }
}

/// A hello with some bytes changed, dropped or doubled.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let honest = prop::sample::select(vec![
        hello_of(plain(&["h2"]), "allowed.test"),
        hello_of(greasing(), "allowed.test"),
    ]);
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0u8..4);
    (honest, prop::collection::vec(change, 0..8)).prop_map(|(mut bytes, changes)| {
        for (at, byte, kind) in changes {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                2 if bytes.len() > 1 => drop(bytes.remove(at)),
                3 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, byte),
            }
        }
        bytes
    })
}

proptest! {
    #[test]
    fn hostile_hellos_never_panic_and_never_hang(bytes in mutated()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut inbox = Inbox::new();
        // The reader ends, so reading must.
        drop(runtime.block_on(read(&mut bytes.as_slice(), &mut inbox)));
    }

    #[test]
    fn looking_for_extensions_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        hides_a_name(&bytes);
        if let Some(found) = extensions(&bytes) {
            found.for_each(drop);
        }
    }
}

#[test]
fn of_a_hundred_thousand_spoilt_hellos_each_is_read_or_refused() {
    let honest = [hello_of(plain(&["h2"]), "allowed.test"), hello_of(greasing(), "allowed.test")];
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut dice = Dice::new(2);
    let mut understood = 0;
    for round in 0..100_000 {
        let bytes = dice.spoil(&honest[round % honest.len()]);
        let mut inbox = Inbox::new();
        understood +=
            usize::from(runtime.block_on(read(&mut bytes.as_slice(), &mut inbox)).is_ok());
    }
    assert!((100..99_900).contains(&understood), "{understood} were understood");
}
