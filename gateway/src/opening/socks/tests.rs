//! SOCKS5 as clients speak it, and as attackers do.

use proptest::prelude::*;
use tokio::io::duplex;

use super::*;

const LIMIT: Duration = Duration::from_secs(5);

/// Plays `sent` to a negotiation: what came of it, what the client was told, and
/// what was left for whoever comes next.
fn play(sent: &[u8]) -> (Result<Destination, SocksError>, Vec<u8>, Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        let (mut client, mut server) = duplex(4096);
        client.write_all(sent).await.expect("it fits");
        client.shutdown().await.expect("nothing more is sent");
        let outcome = negotiate(&mut server, LIMIT).await;
        let mut left = Vec::new();
        server.read_to_end(&mut left).await.expect("memory does not fail");
        drop(server);
        let mut told = Vec::new();
        client.read_to_end(&mut told).await.expect("memory does not fail");
        (outcome, told, left)
    })
}

fn ask(command: u8, address: &[u8], port: u16) -> Vec<u8> {
    let mut sent = vec![5, 1, 0, 5, command, 0];
    sent.extend_from_slice(address);
    sent.extend_from_slice(&port.to_be_bytes());
    sent
}

fn name(bytes: &[u8]) -> Vec<u8> {
    let mut address = vec![3, u8::try_from(bytes.len()).expect("a name has at most 255 bytes")];
    address.extend_from_slice(bytes);
    address
}

#[test]
fn names_and_addresses_become_one_canonical_destination() {
    let mut v6 = vec![4];
    v6.extend_from_slice(&"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
    let mut mapped = vec![4];
    mapped.extend_from_slice(&"::ffff:169.254.169.254".parse::<Ipv6Addr>().unwrap().octets());
    for (address, destination) in [
        (name(b"Allowed.TEST."), "allowed.test:443"),
        (name(b"127.1"), "127.0.0.1:443"),
        (vec![1, 192, 0, 2, 7], "192.0.2.7:443"),
        (v6, "[2001:db8::1]:443"),
        (mapped, "169.254.169.254:443"),
    ] {
        let (outcome, told, _) = play(&ask(CONNECT, &address, 443));
        assert_eq!(outcome.expect("it can be read").to_string(), destination);
        assert_eq!(told, [5, 0], "the request itself is answered by whoever dials");
    }
}

#[test]
fn what_is_sent_ahead_is_left_for_whoever_comes_next() {
    let mut sent = ask(CONNECT, &name(b"allowed.test"), 80);
    sent.extend_from_slice(b"GET / HTTP/1.1\r\n\r\n");
    let (outcome, _, left) = play(&sent);
    assert!(outcome.is_ok());
    assert_eq!(left, b"GET / HTTP/1.1\r\n\r\n");
}

// ATTACKS A1, A2.
#[test]
fn a_name_with_any_odd_byte_is_refused_before_policy_sees_it() {
    for bytes in [
        &b"evil.test\0.allowed.test"[..],
        b"allowed.test\r\nX: y",
        b"allowed.test\t",
        b" allowed.test",
        b"allowed.test\x7f",
        b"allowed.test..",
        b"a@allowed.test",
        b"allowed.test:443",
        b"allowed.test/",
        b"\xff\xfe",
        b"",
    ] {
        let (outcome, told, _) = play(&ask(CONNECT, &name(bytes), 443));
        assert!(matches!(outcome, Err(SocksError::Host(_))), "{bytes:?}: {outcome:?}");
        assert_eq!(told, [5, 0, 5, 1, 0, 1, 0, 0, 0, 0, 0, 0], "{bytes:?}");
    }
}

#[test]
fn bind_and_udp_are_refused_with_their_own_code() {
    for command in [0, 2, 3, 255] {
        let (outcome, told, _) = play(&ask(command, &name(b"allowed.test"), 443));
        assert!(matches!(outcome, Err(SocksError::UnsupportedCommand(c)) if c == command));
        assert_eq!(told.get(..4), Some(&[5, 0, 5, 7][..]));
    }
}

#[test]
fn an_unknown_address_type_is_refused_with_its_own_code() {
    let (outcome, told, _) = play(&ask(CONNECT, &[9, 1, 2, 3, 4], 443));
    assert!(matches!(outcome, Err(SocksError::AddressType(9))));
    assert_eq!(told.get(..4), Some(&[5, 0, 5, 8][..]));
}

#[test]
fn a_request_that_cannot_be_meant_is_malformed() {
    let (outcome, _, _) = play(&ask(CONNECT, &name(b"allowed.test"), 0));
    assert!(matches!(outcome, Err(SocksError::Malformed("port 0 cannot be dialled"))));
    let (outcome, told, _) = play(&[5, 1, 0, 5, 1, 1, 1, 0, 0, 0, 0, 0, 80]);
    assert!(matches!(outcome, Err(SocksError::Malformed("the reserved byte is not zero"))));
    assert_eq!(told.get(..4), Some(&[5, 0, 5, 1][..]));
}

#[test]
fn a_client_that_insists_on_a_password_is_told_that_there_is_none() {
    let (outcome, told, _) = play(&[5, 1, 2]);
    assert!(matches!(outcome, Err(SocksError::WantsAuthentication)));
    assert_eq!(told, [5, 0xff]);
    let (outcome, told, _) = play(&[5, 0]);
    assert!(matches!(outcome, Err(SocksError::WantsAuthentication)));
    assert_eq!(told, [5, 0xff]);
}

#[test]
fn socks4_and_http_are_not_socks5() {
    let (outcome, told, _) = play(b"\x04\x01\x00\x50\x01\x02\x03\x04\x00");
    assert!(matches!(outcome, Err(SocksError::Version(4))));
    assert_eq!(told, [0, 91, 0, 0, 0, 0, 0, 0]);
    let (outcome, told, _) = play(b"GET / HTTP/1.1\r\n\r\n");
    assert!(matches!(outcome, Err(SocksError::Version(b'G'))));
    assert_eq!(told, b"");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_trickles_is_cut_at_the_deadline() {
    let (mut client, mut server) = duplex(64);
    client.write_all(&[5]).await.expect("it fits");
    let outcome = negotiate(&mut server, LIMIT).await;
    assert!(matches!(outcome, Err(SocksError::Timeout(LIMIT))), "{outcome:?}");
    drop(client);
}

proptest! {
    /// Whatever is sent: no panic, no endless wait, and a destination only where
    /// the bytes spell one.
    #[test]
    fn any_bytes_come_to_an_end(sent in prop::collection::vec(any::<u8>(), 0..600)) {
        let (outcome, told, _) = play(&sent);
        prop_assert!(told.len() <= 12);
        if outcome.is_ok() {
            prop_assert_eq!(sent.first(), Some(&5));
        }
    }

    /// A name comes out as the one parser reads it, or not at all.
    #[test]
    fn a_name_is_read_as_every_other_name_is(
        bytes in prop::collection::vec(any::<u8>(), 0..=255),
        port in 1u16..,
    ) {
        let (outcome, _, left) = play(&ask(CONNECT, &name(&bytes), port));
        prop_assert!(left.is_empty());
        match Host::parse_bytes(&bytes) {
            Ok(host) => prop_assert_eq!(outcome.unwrap(), Destination { host, port }),
            Err(err) => {
                let refused = outcome.unwrap_err();
                prop_assert_eq!(refused.to_string(), err.to_string());
            }
        }
    }
}
