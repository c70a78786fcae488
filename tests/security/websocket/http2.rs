//! WebSockets on HTTP/2 (RFC 8441): the same, on a stream.

use bytes::Bytes;
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use tests::websocket::{CLOSE, Frame, TEXT};
use tests::{Http2, Http2Request, Plan, Way, World, speaking_http2, within};

use super::{ACCEPT, KEY, number};

/// A status, headers, and the bytes after them.
type Scripted = (u16, Vec<(&'static str, &'static str)>, Vec<u8>);

/// An upstream that answers with one of these, by the number in the path.
fn answering(answers: Vec<Scripted>) -> Plan {
    let answers = std::sync::Arc::new(answers);
    speaking_http2(true, move |mut asked: Http2Request| {
        let answers = answers.clone();
        async move {
            let path = asked.request.uri().path().to_owned();
            if path == "/plain" {
                let ok = Response::builder().status(200).body(()).unwrap();
                asked.respond.send_response(ok, true).ok();
                return;
            }
            let (status, headers, bytes) = answers[number(&path)].clone();
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            let response = response.body(()).unwrap();
            let Ok(mut back) = asked.respond.send_response(response, false) else { return };
            back.send_data(bytes.into(), false).ok();
            // What the client sends is heard to the end.
            asked.body().await;
            back.send_data(Bytes::new(), true).ok();
        }
    })
}

async fn world(plan: Plan) -> (World, Http2) {
    let world = World::allowing(&[
        "{host: allowed.test}",
        "{host: ws.test, paths: [/plain]}",
        "{host: ws.test, websocket: true}",
    ])
    .upstream("ws.test", plan)
    .start()
    .await;
    let mut session = world.sandbox.http2(Way::Proxy, "ws.test").await;
    // The offer is made once the upstream's is known.
    while !session.sender.is_extended_connect_protocol_enabled() {
        session.get("https://ws.test/plain").await.assert_relayed(200);
    }
    (world, session)
}

fn asking(number: usize, headers: &[(&str, &str)]) -> Request<()> {
    let uri = format!("https://ws.test/{number}");
    let mut request = Request::builder().method("CONNECT").uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(()).unwrap();
    request.extensions_mut().insert(Protocol::from("websocket"));
    request
}

const VERSION: (&str, &str) = ("sec-websocket-version", "13");

async fn ask(
    session: &mut Http2,
    request: Request<()>,
) -> (http::response::Parts, RecvStream, SendStream<Bytes>) {
    let (response, stream) = session.begin(request, false).await;
    let (parts, body) = within("an answer", response).await.unwrap().into_parts();
    (parts, body, stream)
}

/// All that comes, until the end or a reset.
async fn rest(body: &mut RecvStream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(Ok(piece)) = within("the end", body.data()).await {
        all.extend_from_slice(&piece);
        body.flow_control().release_capacity(piece.len()).ok();
    }
    all
}

fn code(parts: &http::response::Parts) -> &str {
    parts.headers.get("x-sluice-code").map_or("", |code| code.to_str().unwrap())
}

#[tokio::test]
async fn on_http2_too_no_request_leaves_that_asks_for_half_a_websocket() {
    let cases = [
        ("no version", vec![]),
        ("an old version", vec![("sec-websocket-version", "8")]),
        ("two versions", vec![VERSION, VERSION]),
        ("a key, which is of HTTP/1.1", vec![VERSION, ("sec-websocket-key", KEY)]),
        ("an accept", vec![VERSION, ("sec-websocket-accept", ACCEPT)]),
        ("a length", vec![VERSION, ("content-length", "5")]),
        ("an extension that is none", vec![VERSION, ("sec-websocket-extensions", "a b")]),
    ];
    let (world, mut session) = world(answering(vec![(200, vec![], vec![])])).await;
    let mut passed = Vec::new();
    for (case, headers) in cases {
        let (parts, _, _) = ask(&mut session, asking(0, &headers)).await;
        if parts.status != 400 || code(&parts) != "malformed" {
            passed.push((case, parts.status));
            continue;
        }
        world.audit.refused("ws.test", "malformed").await;
    }
    assert_eq!(passed, []);
    let arrived = world.upstream("ws.test").requests();
    assert!(arrived.iter().all(|request| request.method != "CONNECT"), "{arrived:?}");
    drop(session);
    world.end().await;
}

#[tokio::test]
async fn on_http2_too_no_answer_is_relayed_that_is_not_a_websocket() {
    let cases = [
        ("an accept, which is of HTTP/1.1", vec![("sec-websocket-accept", ACCEPT)]),
        ("a subprotocol nobody offered", vec![("sec-websocket-protocol", "other")]),
        ("an extension nobody offered", vec![("sec-websocket-extensions", "permessage-bzip2")]),
        ("an extension nobody knows", vec![("sec-websocket-extensions", "x-tunnel")]),
    ];
    let answers = cases.clone().map(|(_, headers)| (200, headers, b"raw bytes".to_vec()));
    let (world, mut session) = world(answering(answers.to_vec())).await;
    let offers = [
        VERSION,
        ("sec-websocket-protocol", "chat"),
        ("sec-websocket-extensions", "permessage-deflate, x-tunnel"),
    ];
    let mut passed = Vec::new();
    for (index, (case, _)) in cases.iter().enumerate() {
        let (parts, _, _) = ask(&mut session, asking(index, &offers)).await;
        if parts.status != 502 || code(&parts) != "upstream_malformed" {
            passed.push((*case, parts.status));
            continue;
        }
        world.audit.refused("ws.test", "upstream_malformed").await;
    }
    assert_eq!(passed, []);
    drop(session);
    world.end().await;
}

#[tokio::test]
async fn on_http2_too_a_side_that_sends_no_frames_is_hung_up_on() {
    let close = Frame { last: true, opcode: CLOSE, payload: vec![3, 232] };
    let bad = |masked: bool| {
        let after = [close.bytes(masked), Frame::text("hi").bytes(masked)].concat();
        vec![
            b"GET /secret HTTP/1.1\r\n\r\n".to_vec(),
            Frame::text("hi").bytes(!masked),
            Frame { last: true, opcode: 3, payload: vec![] }.bytes(masked),
            Frame { last: true, opcode: 0, payload: vec![] }.bytes(masked),
            Frame { last: false, opcode: CLOSE, payload: vec![] }.bytes(masked),
            after,
        ]
    };
    let mut answers: Vec<_> = bad(false).into_iter().map(|bytes| (200, vec![], bytes)).collect();
    let silent = answers.len();
    answers.push((200, vec![], Vec::new()));
    let (world, mut session) = world(answering(answers)).await;
    let told = Frame { last: true, opcode: CLOSE, payload: vec![3, 234] }.bytes(false);
    let mut passed = Vec::new();
    for index in 0..silent {
        let (parts, mut body, _stream) = ask(&mut session, asking(index, &[VERSION])).await;
        assert_eq!(parts.status, 200);
        match rest(&mut body).await {
            got if got == told => {
                world.audit.refused("ws.test", "upstream_malformed").await;
            }
            got => passed.push(("upstream", index, got)),
        }
    }
    for (index, bytes) in bad(true).into_iter().enumerate() {
        let (parts, mut body, mut stream) = ask(&mut session, asking(silent, &[VERSION])).await;
        assert_eq!(parts.status, 200);
        stream.send_data(bytes.into(), true).unwrap();
        match rest(&mut body).await {
            got if got == told => {
                world.audit.refused("ws.test", "websocket_malformed").await;
            }
            got => passed.push(("client", index, got)),
        }
    }
    assert_eq!(passed, []);
    drop(session);
    world.end().await;
}

/// What a client sends before it knows whether there is a WebSocket waits; where
/// there is none it goes nowhere.
#[tokio::test]
async fn on_http2_what_a_client_sends_to_an_upstream_that_declines_goes_nowhere() {
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let plan = speaking_http2(true, move |mut asked: Http2Request| {
        let heard = heard.clone();
        async move {
            let declines = asked.request.method() == "CONNECT";
            let status = if declines { 403 } else { 200 };
            let response = Response::builder().status(status).body(()).unwrap();
            let mut back = asked.respond.send_response(response, !declines).unwrap();
            if declines {
                let body = asked.body().await.map(|(body, _)| body);
                back.send_data("no".into(), true).ok();
                heard.send(body).unwrap();
            }
        }
    });
    let (world, mut session) = world(plan).await;
    let (response, mut stream) = session.begin(asking(0, &[VERSION]), false).await;
    let frame = Frame { last: true, opcode: TEXT, payload: b"early".to_vec() };
    stream.send_data(frame.bytes(true).into(), false).unwrap();
    let (parts, mut body) = within("an answer", response).await.unwrap().into_parts();
    assert_eq!(parts.status, 403);
    let body_heard = within("the upstream to hear the end", hears.recv()).await.unwrap();
    assert_eq!(body_heard.unwrap_or_default(), b"", "it heard what was not for it");
    assert_eq!(rest(&mut body).await, b"no");
    drop((stream, session));
    world.end().await;
}
