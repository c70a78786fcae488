//! Answers that break off: real clients notice, in every version of HTTP.

use std::net::Shutdown;
use std::process::Stdio;
use std::sync::Arc;

use h2::Reason;
use http::Response;
use tests::available::is_installed;
use tests::{Answer, Http2Request, Peer, Plan, World, speaking_http2, within};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::Notify;

/// The client has what was sent.
type Heard = Arc<Notify>;

const HALF: &str = "only this";

/// Sends half of an answer, and resets the stream.
fn reset_http2(reason: Reason, length: &'static str, heard: Heard) -> Plan {
    speaking_http2(false, move |mut asked: Http2Request| {
        let heard = Arc::clone(&heard);
        async move {
            let mut response = Response::builder().status(200);
            if !length.is_empty() {
                response = response.header("content-length", length);
            }
            let response = response.body(()).unwrap();
            let Ok(mut back) = asked.respond.send_response(response, false) else { return };
            back.send_data(HALF.into(), false).ok();
            heard.notified().await;
            back.send_reset(reason);
        }
    })
}

/// Ends a stream before all that was announced.
fn short_http2() -> Plan {
    speaking_http2(false, |mut asked: Http2Request| async move {
        let response = Response::builder().header("content-length", "1000").body(()).unwrap();
        let Ok(mut back) = asked.respond.send_response(response, false) else { return };
        back.send_data(HALF.into(), true).ok();
    })
}

/// Answers over HTTP/2, and then the connection ends: with a goodbye, or without.
fn lost_http2(goodbye: bool, heard: Heard) -> Plan {
    Plan::scripted(move |peer: Peer| {
        let heard = Arc::clone(&heard);
        async move {
            let Peer { line, socket, .. } = peer;
            let handshake = h2::server::handshake(line.into_stream());
            let Ok(mut connection) = handshake.await else { return };
            let Some(Ok((_, mut respond))) = connection.accept().await else { return };
            let Ok(mut back) = respond.send_response(Response::new(()), false) else { return };
            back.send_data(HALF.into(), false).ok();
            tokio::select! {
                () = heard.notified() => {}
                _ = connection.accept() => return,
            }
            if goodbye {
                connection.abrupt_shutdown(Reason::NO_ERROR);
                drop(connection.accept().await);
            }
            socket.shutdown(Shutdown::Both).ok();
        }
    })
    .alpn(&["h2"])
}

/// Sends half of an answer, and ends the connection: as TLS wants it, or not.
fn half_of_http1(head: &'static str, body: &'static str, cut: bool, heard: Heard) -> Plan {
    Plan::scripted(move |mut peer: Peer| {
        let heard = Arc::clone(&heard);
        async move {
            peer.request().await;
            peer.line.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}")).await;
            heard.notified().await;
            if cut {
                peer.socket.shutdown(Shutdown::Both).ok();
            } else {
                peer.line.finish().await;
                peer.line.rest().await;
            }
        }
    })
}

/// The same in the clear, where only a reset can be told from an end.
fn reset_http1(heard: Heard) -> Plan {
    Plan::scripted(move |mut peer: Peer| {
        let heard = Arc::clone(&heard);
        async move {
            peer.request().await;
            peer.line.send(format!("HTTP/1.1 200 OK\r\n\r\n{HALF}")).await;
            heard.notified().await;
            peer.reset();
        }
    })
}

fn cases(heard: &Heard) -> Vec<(&'static str, Plan)> {
    let plain = |head, body, cut| half_of_http1(head, body, cut, Arc::clone(heard));
    let reset = |reason, length| reset_http2(reason, length, Arc::clone(heard));
    let chunked = "Transfer-Encoding: chunked\r\n";
    vec![
        ("length", plain("Content-Length: 1000\r\n", HALF, false)),
        ("chunked", plain(chunked, "9\r\nonly this\r\n", false)),
        ("in-a-chunk", plain(chunked, "100\r\nonly this", false)),
        ("cut-length", plain("Content-Length: 1000\r\n", HALF, true)),
        ("cut-chunked", plain(chunked, "9\r\nonly this\r\n", true)),
        ("cut-until-close", plain("", HALF, true)),
        ("clear", reset_http1(Arc::clone(heard))),
        ("h2-no-error", reset(Reason::NO_ERROR, "")),
        ("h2-no-error-length", reset(Reason::NO_ERROR, "1000")),
        ("h2-cancel", reset(Reason::CANCEL, "")),
        ("h2-internal", reset(Reason::INTERNAL_ERROR, "")),
        ("h2-refused", reset(Reason::REFUSED_STREAM, "")),
        ("h2-http11", reset(Reason::HTTP_1_1_REQUIRED, "")),
        ("h2-short", short_http2()),
        ("h2-goodbye", lost_http2(true, Arc::clone(heard))),
        ("h2-lost", lost_http2(false, Arc::clone(heard))),
    ]
}

/// As HTTP/1.0 has no name that TLS could agree on, it goes without.
fn alpn(version: &str) -> &'static str {
    if version == "--http1.0" { "--no-alpn" } else { "--alpn" }
}

/// Whether an upstream waits for its client before it breaks off.
fn waits(name: &str) -> bool {
    !matches!(name, "h2-short" | "whole")
}

#[tokio::test]
async fn a_client_notices_that_its_answer_broke_off() {
    if !is_installed("curl") {
        return;
    }
    let heard = Heard::default();
    let cases = cases(&heard);
    let mut setup = World::allowing(&[
        "{host: allowed.test}",
        "{host: \"*.breaks.test\"}",
        "{host: \"*.breaks.test\", protocol: http}",
    ]);
    for (name, plan) in &cases {
        setup = setup.upstream(&format!("{name}.breaks.test"), plan.clone());
    }
    let whole = Plan::answering(|_| Answer::new(200, HALF));
    let world = setup.upstream("whole.breaks.test", whole).start_program().await;
    let ca = world.folder().join("ca.pem");
    std::fs::write(&ca, world.control.get("/ca.pem").await.body).unwrap();
    let proxy = format!("http://{}", world.sandbox.doors.proxy);
    let curl = async |version: &str, name: &str| {
        let mut child = Command::new("curl")
            .args([
                "-sSfN",
                "--max-time",
                "15",
                version,
                alpn(version),
                "--proxy",
                &proxy,
                "--cacert",
            ])
            .arg(&ca)
            .arg(format!(
                "{}://{name}.breaks.test/",
                if name == "clear" { "http" } else { "https" }
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = child.stdout.take().unwrap();
        let mut half = vec![0; HALF.len()];
        let got = within("half of the answer", said.read_exact(&mut half)).await.is_ok();
        if got && waits(name) {
            heard.notify_one();
        }
        let status = within("curl to end", child.wait()).await.unwrap();
        (got, status)
    };
    let (got, status) = curl("--http2", "whole").await;
    assert!(got && status.success());
    let mut unnoticed = Vec::new();
    for (name, _) in &cases {
        let versions: &[&str] = match name.starts_with("h2") {
            true => &["--http2"],
            // An old client has no chunks: there the end of the connection must
            // not look like the end of the answer.
            false => &["--http2", "--http1.1", "--http1.0"],
        };
        for version in versions {
            let (got, status) = curl(version, name).await;
            if (waits(name) && !got) || status.success() {
                unnoticed.push(format!("{name} {version}: {got} {status}"));
            }
        }
        let record = world.audit.find("the record", |event| {
            event["kind"] == "request"
                && event["server.address"] == format!("{name}.breaks.test").as_str()
        });
        assert_eq!(record.await["sluice.outcome"], "failed", "{name}");
    }
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
    world.end().await;
}
