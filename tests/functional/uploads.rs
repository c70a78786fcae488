//! Uploads that are answered before they have arrived.

use std::process::Stdio;

use bytes::Bytes;
use http::{Request, Response};
use tests::available::is_installed;
use tests::{
    Answer, Http2Request, Peer, Plan, Way, World, answering_http2, speaking_http2, within,
};
use tokio::process::Command;

const MIB: usize = 1 << 20;

fn two() -> Plan {
    answering_http2(|_| tests::Reply { status: 200, ..tests::Reply::default() })
}

/// curl uploads and is refused: it prints what it was told, every time.
#[tokio::test]
async fn a_refused_upload_keeps_its_explanation() {
    if !is_installed("curl") {
        return;
    }
    let world = World::allowing(&[
        "{host: allowed.test}",
        "{host: one.test, methods: [PUT], paths: [/ok]}",
        "{host: two.test, methods: [PUT], paths: [/ok]}",
    ])
    .upstream("one.test", Plan::answering(|_| Answer::new(200, "stored")))
    .upstream("two.test", two())
    .start_program()
    .await;
    let ca = world.folder().join("ca.pem");
    std::fs::write(&ca, world.control.get("/ca.pem").await.body).unwrap();
    let proxy = format!("http://{}", world.sandbox.doors.proxy);
    for (size, times) in [(64 * 1024, 20), (10 * MIB, 20), (64 * MIB, 3)] {
        let file = world.folder().join(format!("{size}.bin"));
        std::fs::write(&file, vec![b'x'; size]).unwrap();
        for (version, host) in [("--http2", "two.test"), ("--http1.1", "one.test")] {
            let mut lost = Vec::new();
            for _ in 0..times {
                let ran = Command::new("curl")
                    .args(["-sS", "--max-time", "60", version, "--proxy", &proxy, "--cacert"])
                    .arg(&ca)
                    .arg("-T")
                    .arg(&file)
                    .arg(format!("https://{host}/refused"))
                    .stdin(Stdio::null())
                    .output();
                let ran = within("curl to end", ran).await.unwrap();
                let said = String::from_utf8_lossy(&ran.stdout).into_owned();
                if !ran.status.success() || !said.contains(r#""code":"no_rule""#) {
                    lost.push((
                        ran.status.code(),
                        String::from_utf8_lossy(&ran.stderr).into_owned(),
                    ));
                }
            }
            assert!(
                lost.is_empty(),
                "{size} {version}: {} of {times}: {:?}",
                lost.len(),
                lost.first()
            );
        }
    }
    world.end().await;
}

/// The same where the upstream answers early, and wants no more.
#[tokio::test]
async fn an_upload_that_the_upstream_declines_keeps_its_answer() {
    if !is_installed("curl") {
        return;
    }
    let declines = speaking_http2(false, |mut asked: Http2Request| async move {
        let response = Response::builder().status(413).body(()).unwrap();
        let mut back = asked.respond.send_response(response, false).unwrap();
        // And with that its stream is dropped, which resets it.
        back.send_data("too much".into(), true).ok();
    });
    let hangs_up = Plan::scripted(|mut peer: Peer| async move {
        if peer.line.head().await.is_ok() {
            let answer =
                "HTTP/1.1 413 No\r\nContent-Length: 8\r\nConnection: close\r\n\r\ntoo much";
            peer.line.send(answer).await;
            peer.line.finish().await;
            peer.line.rest().await;
        }
    });
    let world = World::allowing(&[
        "{host: allowed.test}",
        "{host: one.test, methods: [PUT]}",
        "{host: two.test, methods: [PUT]}",
    ])
    .upstream("one.test", hangs_up)
    .upstream("two.test", declines)
    .start_program()
    .await;
    let ca = world.folder().join("ca.pem");
    std::fs::write(&ca, world.control.get("/ca.pem").await.body).unwrap();
    let proxy = format!("http://{}", world.sandbox.doors.proxy);
    let file = world.folder().join("upload.bin");
    std::fs::write(&file, vec![b'x'; 10 * MIB]).unwrap();
    for (version, host) in [("--http2", "two.test"), ("--http1.1", "one.test")] {
        let mut lost = Vec::new();
        for _ in 0..20 {
            let ran = Command::new("curl")
                .args(["-sS", "--max-time", "60", version, "--proxy", &proxy, "--cacert"])
                .arg(&ca)
                .arg("-T")
                .arg(&file)
                .arg(format!("https://{host}/"))
                .stdin(Stdio::null())
                .output();
            let ran = within("curl to end", ran).await.unwrap();
            if !ran.status.success() || ran.stdout != b"too much" {
                lost.push((ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned()));
            }
        }
        assert!(lost.is_empty(), "{version}: {} of 20: {:?}", lost.len(), lost.first());
    }
    world.end().await;
}

/// A client that goes on sending after it was refused is not listened to for
/// ever, and what it sends is not kept.
#[tokio::test]
async fn a_refused_upload_without_end_is_cut_off() {
    let world = World::allowing(&["{host: allowed.test}", "{host: two.test, paths: [/ok]}"])
        .upstream("two.test", two())
        .start_program()
        .await;
    let mut session = world.sandbox.http2(Way::Proxy, "two.test").await;
    let before = tests::memory::resident(world.pid());
    let endless = Request::put("https://two.test/refused").body(()).unwrap();
    let (response, mut stream) = session.begin(endless, false).await;
    let reply = tests::sandbox::read_http2(response).await.unwrap();
    reply.assert_refused(403, "no_rule");
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    let sent = within("the end of the stream", async {
        let mut sent = 0;
        loop {
            stream.reserve_capacity(piece.len());
            match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(Ok(room)) => {
                    let part = piece.slice(..room.min(piece.len()));
                    sent += part.len();
                    if stream.send_data(part, false).is_err() {
                        return sent;
                    }
                }
                _ => return sent,
            }
        }
    })
    .await;
    assert!(sent < 256 * MIB, "{sent} bytes were listened to");
    let grown = tests::memory::peak(world.pid()).saturating_sub(before);
    assert!(grown < 32 << 20, "the gateway grew by {grown} bytes");
    world.audit.refused("two.test", "no_rule").await;
    drop((stream, session));
    world.end().await;
}
