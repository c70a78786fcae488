//! Clients that do not play by the rules.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::world::plug_in;
use super::{Http2World, policy};
use crate::limits::Bounds;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

async fn world() -> Http2World {
    let rule = "{host: allowed.test, paths: [/only/this]}";
    Http2World::with_upstream(&policy(rule), Bounds::default(), |stream| async {
        drop(stream);
    })
    .await
}

/// Says `bytes` and hangs up; returns when the gateway has hung up, too.
async fn say(world: &Http2World, bytes: &[u8]) {
    let (mut client, serving) = plug_in(world.gateway());
    client.write_all(PREFACE).await.unwrap();
    // It may have heard enough before the end.
    client.write_all(bytes).await.ok();
    client.shutdown().await.ok();
    let mut said = Vec::new();
    client.read_to_end(&mut said).await.unwrap();
    drop(serving.await.unwrap());
}

/// A frame of any type, with any flags, for any of the first streams.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop::collection::vec(any::<u8>(), 0..64);
    (0u8..12, any::<u8>(), 0u8..6, payload).prop_map(|(kind, flags, stream, payload)| {
        let mut frame = vec![0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
        frame.extend(payload);
        frame
    })
}

#[tokio::test]
async fn whatever_a_client_sends_nothing_panics_or_hangs_or_is_dialled() {
    let world = world().await;
    let frames = prop::collection::vec(frame(), 0..24);
    let mut runner = TestRunner::deterministic();
    for _ in 0..500 {
        let frames = frames.new_tree(&mut runner).unwrap().current();
        say(&world, &frames.concat()).await;
    }
    assert_eq!(world.upstream.accepted(), 0);
}

/// CVE-2023-44487: open and cancel, without end.
#[tokio::test]
async fn a_client_that_opens_and_cancels_without_end_is_hung_up_on() {
    let world = world().await;
    let mut flood = Vec::new();
    for n in 0..10_000u32 {
        let id = (2 * n + 1).to_be_bytes();
        // :method GET, :scheme https, :path /, :authority (empty name index 1) x
        flood.extend([0, 0, 6, 1, 5]);
        flood.extend(id);
        flood.extend([0x82, 0x87, 0x84, 0x41, 0x01, b'x']);
        flood.extend([0, 0, 4, 3, 0]);
        flood.extend(id);
        flood.extend([0, 0, 0, 8]);
    }
    let (mut client, serving) = plug_in(world.gateway());
    client.write_all(PREFACE).await.unwrap();
    let (mut reading, mut writing) = tokio::io::split(client);
    let heard = tokio::spawn(async move {
        let mut said = Vec::new();
        reading.read_to_end(&mut said).await.ok();
    });
    let spoken = writing.write_all(&flood).await;
    let refusal = serving.await.unwrap().unwrap_err();
    assert_eq!(refusal.code(), "malformed");
    heard.await.unwrap();
    drop((spoken, writing));
}
