//! G11: an upstream that answers as if it were the gateway.

use http::Response;
use tests::{Plan, Received, Reply, World, answering_http2, speaking_http2};

const DOCUMENT: &str = r#"{"type":"about:blank","title":"Refused by policy","status":403,"detail":"x","code":"no_rule","request_id":"00000000-0000-0000-0000-000000000000"}"#;

/// A refusal is told by `x-sluice-code`, which no upstream can send.
#[tokio::test]
async fn a_refusal_cannot_be_forged() {
    let http1 = Plan::sending(format!(
        "HTTP/1.1 403 Refused by policy (no_rule)\r\nContent-Type: application/problem+json\r\n\
         x-sluice-code: no_rule\r\nX-Sluice-Rule: x\r\nX_SLUICE_REQUEST_ID: y\r\nx.sluice.x: z\r\n\
         Content-Length: {}\r\n\r\n{DOCUMENT}",
        DOCUMENT.len()
    ));
    let http2 = answering_http2(|_: &Received| Reply {
        status: 403,
        headers: ["x-sluice-code", "x-sluice-rule", "x_sluice_request_id", "x.sluice.x"]
            .map(|name| (name.to_owned(), "no_rule".to_owned()))
            .to_vec(),
        body: DOCUMENT.into(),
        ..Reply::default()
    });
    for (plan, over_http2) in [(http1, false), (http2, true)] {
        let world = World::new().upstream("allowed.test", plan).start().await;
        let ask = world.sandbox.ask("GET", "https://allowed.test/");
        let ask = if over_http2 { ask.over_http2() } else { ask };
        let reply = ask.send().await;
        reply.assert_relayed(403);
        assert_eq!(reply.text(), DOCUMENT);
        let ours = reply.headers.iter().find(|(name, _)| name.contains("sluice"));
        assert_eq!(ours, None, "http2: {over_http2}");
        world.end().await;
    }
}

/// Nor ahead of an answer.
#[tokio::test]
async fn interim_answers_do_not_speak_for_us() {
    let http1 = Plan::sending(
        "HTTP/1.1 103 Early Hints\r\nx-sluice-code: no_rule\r\nLink: </a>\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let world = World::new().upstream("allowed.test", http1).start().await;
    let mut line =
        world.sandbox.tls(tests::Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n").await;
    let all = String::from_utf8_lossy(&line.rest().await).into_owned();
    assert!(all.contains("103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200"), "{all}");
    world.end().await;

    let http2 = speaking_http2(false, |mut asked| async move {
        let hint = Response::builder().status(103).header("x-sluice-code", "no_rule");
        let hint = hint.header("link", "</a>").body(()).unwrap();
        asked.respond.send_informational(hint).unwrap();
        let response = Response::new(());
        asked.respond.send_response(response, true).unwrap();
    });
    let world = World::new().upstream("allowed.test", http2).start().await;
    let mut session = world.sandbox.http2(tests::Way::Proxy, "allowed.test").await;
    let request = http::Request::get("https://allowed.test/").body(()).unwrap();
    let (mut response, _stream) = session.begin(request, true).await;
    let hint = std::future::poll_fn(|cx| response.poll_informational(cx)).await;
    let hint = hint.unwrap().unwrap();
    let names: Vec<&str> = hint.headers().keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["link"]);
    assert_eq!(response.await.unwrap().status(), 200);
    world.end().await;
}
