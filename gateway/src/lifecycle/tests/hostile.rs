//! Bytes nobody meant: whatever a client sends, through whichever way, the
//! connection ends, and nothing leaves that policy did not allow.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::io::AsyncWriteExt as _;

use super::world::{World, read_rest};
use crate::listen::ListenerKind;

/// Something like what each way expects, with some bytes changed.
fn almost() -> impl Strategy<Value = (ListenerKind, Vec<u8>)> {
    let honest = prop::sample::select(vec![
        (ListenerKind::Proxy, &b"CONNECT plain.test:80 HTTP/1.1\r\nHost: plain.test\r\n\r\nGET / HTTP/1.1\r\nHost: plain.test\r\n\r\n"[..]),
        (ListenerKind::Proxy, b"GET http://plain.test/a?b HTTP/1.1\r\nHost: plain.test\r\nX: y\r\n\r\n"),
        (ListenerKind::Proxy, b"POST http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        (ListenerKind::CapturedHttp, b"GET / HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n"),
        (ListenerKind::CapturedHttps, b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"),
        (ListenerKind::Socks, b"\x05\x01\x00\x05\x01\x00\x03\x0aplain.test\x00\x50GET / HTTP/1.1\r\nHost: plain.test\r\n\r\n"),
    ]);
    let byte = prop_oneof![any::<u8>(), prop::sample::select(&b"\r\n \t:/@.%\0"[..])];
    let change = (any::<prop::sample::Index>(), byte, 0u8..3);
    (honest, prop::collection::vec(change, 0..5)).prop_map(|((way, bytes), changes)| {
        let mut bytes = bytes.to_vec();
        for (at, byte, kind) in changes {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        (way, bytes)
    })
}

#[test]
fn whatever_is_sent_the_connection_ends_and_nothing_leaves() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = runtime.block_on(World::new("nobody.test"));
    let mut runner = TestRunner::new(Config { cases: 400, ..Config::default() });
    let outcome = runner.run(&almost(), |(way, bytes)| {
        runtime.block_on(async {
            let mut stream = world.connect(way).await;
            // It may have been refused before everything was sent.
            drop(stream.write_all(&bytes).await);
            drop(stream.shutdown().await);
            read_rest(&mut stream).await;
        });
        prop_assert_eq!(world.dialled(), 0);
        Ok(())
    });
    outcome.unwrap_or_else(|failed| panic!("{failed}"));
    let connections = runtime.block_on(world.connections());
    assert!(connections.len() >= 400, "each has its record: {}", connections.len());
    for connection in connections {
        assert_ne!(connection.get("sluice.outcome"), "abandoned", "none ended by accident");
    }
}
