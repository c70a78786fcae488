//! Much, in little memory.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tests::memory::{MIB, peak, resident};
use tests::{Http2Request, Peer, Plan, Way, World, speaking_http2, within};
use tokio::time;

/// Enough that nobody could keep it, little enough to wait for.
const MUCH: u64 = 256 * MIB;
/// What a gateway may need for itself beside it: buffers, and what the allocator
/// keeps. Far from [`MUCH`], and far from what is really needed.
const LITTLE: u64 = 32 * MIB;
const PIECE: usize = 64 * 1024;

/// Sends [`MUCH`] after a head that says so.
async fn send_much(peer: &mut Peer) {
    peer.line.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {MUCH}\r\n\r\n")).await;
    let piece = vec![b'x'; PIECE];
    for _ in 0..MUCH / PIECE as u64 {
        if peer.line.try_send(&piece).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_large_download_streams() {
    let plan = Plan::scripted(|mut peer: Peer| async move {
        peer.request().await;
        send_much(&mut peer).await;
        peer.request().await;
    });
    let world = World::new().upstream("allowed.test", plan).start_program().await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    let before = resident(world.pid());
    line.send("GET /big HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    within("the head", line.head()).await.unwrap();
    // A client that stops reading for a moment is waited for, not read for.
    time::sleep(Duration::from_millis(300)).await;
    let mut read = 0;
    while read < MUCH {
        read += line.some().await.len() as u64;
    }
    let grown = peak(world.pid()).saturating_sub(before);
    assert!(grown < LITTLE, "the gateway grew by {} MiB", grown / MIB);
    drop(line);
    let record = world.audit.find("the record", |event| event["kind"] == "request").await;
    assert!(record["sluice.bytes.received"].as_u64().unwrap() >= MUCH);
    assert_eq!(record["sluice.outcome"], "relayed");
    world.end().await;
}

#[tokio::test]
async fn a_large_upload_streams() {
    let plan = Plan::scripted(|mut peer: Peer| async move {
        let Ok(head) = peer.line.head().await else { return };
        assert_eq!(head.header("content-length"), Some(MUCH.to_string().as_str()));
        // The server is busy elsewhere first.
        time::sleep(Duration::from_millis(300)).await;
        let mut read = 0;
        while read < MUCH {
            read += peer.line.some().await.len() as u64;
        }
        peer.line.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmuch").await;
        peer.request().await;
    });
    let world = World::new().upstream("allowed.test", plan).start_program().await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    let before = resident(world.pid());
    line.send(format!("PUT /big HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: {MUCH}\r\n\r\n"))
        .await;
    let piece = vec![b'x'; PIECE];
    for _ in 0..MUCH / PIECE as u64 {
        line.try_send(&piece).await.unwrap();
    }
    line.reply().await.assert_relayed(200);
    let grown = peak(world.pid()).saturating_sub(before);
    assert!(grown < LITTLE, "the gateway grew by {} MiB", grown / MIB);
    drop(line);
    let seen = world.upstream("allowed.test").seen()[0].total();
    assert!(seen >= MUCH, "{seen} bytes arrived");
    world.end().await;
}

#[tokio::test]
async fn large_streams_of_http2_stream() {
    const EACH: usize = 32 << 20;
    let plan = speaking_http2(false, |mut asked: Http2Request| async move {
        let response = Response::builder().status(200).body(()).unwrap();
        let mut back = asked.respond.send_response(response, false).unwrap();
        let mut left = EACH;
        while left > 0 {
            back.reserve_capacity(PIECE.min(left));
            match std::future::poll_fn(|cx| back.poll_capacity(cx)).await {
                Some(Ok(room)) => {
                    let piece = room.min(left);
                    left -= piece;
                    if back.send_data(Bytes::from(vec![b'x'; piece]), left == 0).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    });
    let world = World::new().upstream("allowed.test", plan).start_program().await;
    let mut session = world.sandbox.http2(Way::Proxy, "allowed.test").await;
    let before = resident(world.pid());
    let mut reading = Vec::new();
    for index in 0..4 {
        let request = Request::get(format!("https://allowed.test/{index}")).body(()).unwrap();
        let (response, _) = session.begin(request, true).await;
        reading.push(tokio::spawn(async move {
            let mut body = within("an answer", response).await.unwrap().into_body();
            let mut read = 0;
            while let Some(piece) = within("a piece", body.data()).await {
                let piece = piece.unwrap();
                read += piece.len();
                body.flow_control().release_capacity(piece.len()).unwrap();
            }
            read
        }));
    }
    for read in reading {
        assert_eq!(read.await.unwrap(), EACH);
    }
    let grown = peak(world.pid()).saturating_sub(before);
    assert!(grown < LITTLE, "the gateway grew by {} MiB", grown / MIB);
    drop(session);
    world.end().await;
}
