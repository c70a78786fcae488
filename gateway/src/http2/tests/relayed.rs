//! What goes out, and comes back.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::RecvStream;
use h2::ext::Protocol;
use http::{HeaderMap, Method, Request, Response};

use super::*;

const ANY: &str = "{host: allowed.test, methods: [GET, POST, HEAD], paths: [\"/**\"]}";

/// Sends everything back, as it comes.
async fn echo((request, mut respond): Asked) {
    let mut body = request.into_body();
    let end = body.is_end_stream();
    let mut send = respond.send_response(Response::new(()), end).unwrap();
    if end {
        return;
    }
    while let Some(Ok(data)) = body.data().await {
        body.flow_control().release_capacity(data.len()).unwrap();
        if send_all(&mut send, data).await.is_err() {
            return;
        }
    }
    match body.trailers().await {
        Ok(Some(trailers)) => send.send_trailers(trailers).unwrap(),
        _ => send.send_data(Bytes::new(), true).unwrap(),
    }
}

async fn send_all(send: &mut h2::SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        send.reserve_capacity(data.len());
        let room = match send.capacity() {
            0 => match std::future::poll_fn(|cx| send.poll_capacity(cx)).await {
                Some(room) => room?,
                None => return Err(h2::Reason::CANCEL.into()),
            },
            room => room,
        };
        send.send_data(data.split_to(room.min(data.len())), false)?;
    }
    Ok(())
}

#[tokio::test]
async fn the_upstream_sees_what_was_judged_and_nothing_between_client_and_us() {
    async fn tell((request, mut respond): Asked) {
        let (parts, _) = request.into_parts();
        let mut seen = format!("{} {}\n", parts.method, parts.uri);
        for (name, value) in &parts.headers {
            seen.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
        }
        let response = Response::builder().header("alt-svc", "h3=\":443\"").header("x-a", "1");
        let mut send = respond.send_response(response.body(()).unwrap(), false).unwrap();
        send.send_data(seen.into(), true).unwrap();
    }
    let mut world = Http2World::new(&policy(ANY), tell).await;
    let mut request =
        Request::get("https://ALLOWED.test:443/a%7eb/@x%2Fc?q=1&r=%20").body(()).unwrap();
    let headers = request.headers_mut();
    headers.insert("host", "allowed.test".parse().unwrap());
    headers.insert("proxy-authorization", "Basic x".parse().unwrap());
    headers.insert("te", "trailers".parse().unwrap());
    headers.append("cookie", "a=1".parse().unwrap());
    headers.append("cookie", "b=2".parse().unwrap());
    let mut response = world.send(request).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-a"], "1");
    assert!(response.headers().get("alt-svc").is_none());
    let seen = read_all(response.body_mut()).await.unwrap();
    expect_test::expect![[r#"
        GET https://allowed.test/a~b/@x%2Fc?q=1&r=%20
        te: trailers
        cookie: a=1
        cookie: b=2
    "#]]
    .assert_eq(std::str::from_utf8(&seen).unwrap());
}

#[tokio::test]
async fn sixty_four_streams_at_once_each_get_their_own_answer_over_one_upstream_connection() {
    let mut world = Http2World::new(&policy(ANY), echo).await;
    let mut answers = Vec::new();
    for n in 0..64usize {
        let (response, mut body) = world.open(post(&format!("/{n}")), false);
        let text = Bytes::from(format!("{n}-").repeat(400));
        answers.push((response, text.clone()));
        body.send_data(text, true).unwrap();
    }
    for (response, expected) in answers {
        let mut response = response.await.unwrap();
        assert_eq!(read_all(response.body_mut()).await.unwrap(), expected);
    }
    assert_eq!(world.upstream.accepted(), 1);
    let events = world.hang_up().await;
    assert_eq!(events.len(), 64);
    assert!(events.iter().all(|event| event["sluice.outcome"] == "relayed"));
    assert!(events.iter().all(|event| event["http.response.status_code"] == 200));
}

#[tokio::test]
async fn trailers_travel_both_ways_and_the_grpc_status_is_recorded() {
    let mut world = Http2World::new(&policy(ANY), echo).await;
    let mut request = post("/pkg.Service/Method");
    request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    request.headers_mut().insert("te", "trailers".parse().unwrap());
    let (response, mut body) = world.open(request, false);
    body.send_data(Bytes::from_static(b"\0\0\0\0\x02hi"), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "5".parse().unwrap());
    body.send_trailers(trailers).unwrap();

    let mut response = response.await.unwrap();
    assert_eq!(read_all(response.body_mut()).await.unwrap(), b"\0\0\0\0\x02hi");
    let trailers = response.body_mut().trailers().await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "5");
    let events = world.hang_up().await;
    assert_eq!(events[0]["rpc.grpc.status_code"], 5);
    assert_eq!(events[0]["sluice.outcome"], "relayed");
}

#[tokio::test]
async fn a_conversation_goes_back_and_forth_before_either_side_is_done() {
    let mut world = Http2World::new(&policy(ANY), echo).await;
    let (response, mut body) = world.open(post("/chat"), false);
    let mut response = response.await.unwrap();
    for said in ["one", "two", "three"] {
        body.send_data(Bytes::from_static(said.as_bytes()), false).unwrap();
        let heard = response.body_mut().data().await.unwrap().unwrap();
        assert_eq!(heard, said);
    }
    body.send_data(Bytes::new(), true).unwrap();
    assert_eq!(read_all(response.body_mut()).await.unwrap(), b"");
}

#[tokio::test]
async fn large_bodies_arrive_whole_both_ways() {
    const SIZE: usize = 48 << 20;
    let mut world = Http2World::new(&policy(ANY), echo).await;
    let (response, mut body) = world.open(post("/large"), false);
    let sending = tokio::spawn(async move {
        for n in 0..SIZE / 65536 {
            send_all(&mut body, Bytes::from(vec![n as u8; 65536])).await.unwrap();
        }
        body.send_data(Bytes::new(), true).unwrap();
    });
    let mut response = response.await.unwrap();
    let mut at = 0usize;
    while let Some(data) = response.body_mut().data().await {
        let data = data.unwrap();
        for (offset, byte) in data.iter().enumerate() {
            assert_eq!(*byte, ((at + offset) / 65536) as u8);
        }
        at += data.len();
        response.body_mut().flow_control().release_capacity(data.len()).unwrap();
    }
    assert_eq!(at, SIZE);
    sending.await.unwrap();
    let events = world.hang_up().await;
    assert!(events[0]["sluice.bytes.sent"].as_u64().unwrap() >= SIZE as u64);
    assert!(events[0]["sluice.bytes.received"].as_u64().unwrap() >= SIZE as u64);
}

/// Sends until it is stopped, and says how much that was.
async fn flood((_, mut respond): Asked) {
    let mut send = respond.send_response(Response::new(()), false).unwrap();
    while send_all(&mut send, Bytes::from_static(&[0; 16384])).await.is_ok() {
        FLOODED.fetch_add(16384, Ordering::SeqCst);
    }
}

static FLOODED: AtomicUsize = AtomicUsize::new(0);

#[tokio::test]
async fn a_stream_that_is_not_read_does_not_stop_the_others() {
    async fn either((request, respond): Asked) {
        match request.uri().path() {
            "/flood" => flood((request, respond)).await,
            _ => echo((request, respond)).await,
        }
    }
    let mut world = Http2World::new(&policy(ANY), either).await;
    let mut unread: Vec<RecvStream> = Vec::new();
    for _ in 0..8 {
        unread.push(world.send(get("/flood")).await.into_body());
    }
    for n in 0..20 {
        let (response, mut body) = world.open(post("/echo"), false);
        body.send_data(Bytes::from(format!("{n}")), true).unwrap();
        let mut response = response.await.unwrap();
        assert_eq!(read_all(response.body_mut()).await.unwrap(), format!("{n}").as_bytes());
    }
    // Eight streams that nobody reads: the upstream was stopped by our window for
    // all of them together, and by what its own side and ours have buffered.
    let flooded = FLOODED.load(Ordering::SeqCst);
    assert!(flooded < 24 << 20, "{flooded} bytes were taken from the upstream");
    drop(unread);
}

#[tokio::test]
async fn interim_answers_are_relayed() {
    async fn hinting((_, mut respond): Asked) {
        let hint = Response::builder().status(103).header("link", "</a.css>").body(()).unwrap();
        respond.send_informational(hint).unwrap();
        respond.send_response(Response::new(()), true).unwrap();
    }
    let mut world = Http2World::new(&policy(ANY), hinting).await;
    let (mut response, _) = world.open(get("/"), true);
    let interim = std::future::poll_fn(|cx| response.poll_informational(cx)).await;
    let interim = interim.unwrap().unwrap();
    assert_eq!(
        (interim.status().as_u16(), &interim.headers()["link"]),
        (103, &"</a.css>".parse().unwrap())
    );
    assert_eq!(response.await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_websocket_goes_over_a_stream_where_the_upstream_takes_it() {
    let rules = format!("{ANY}\n    - {{host: allowed.test, websocket: true, paths: [/ws]}}");
    /// Answers a frame with one that says the same, unmasked.
    async fn unmasking((mut request, mut respond): Asked) {
        if request.method() != Method::CONNECT {
            respond.send_response(Response::new(()), true).unwrap();
            return;
        }
        let mut back = respond.send_response(Response::new(()), false).unwrap();
        let frame = request.body_mut().data().await.unwrap().unwrap();
        assert_eq!(frame, &b"\x82\x82\0\0\0\0ab"[..]);
        back.send_data(Bytes::from_static(b"\x82\x02ab"), false).unwrap();
        assert_eq!(read_all(request.body_mut()).await.unwrap(), b"");
        back.send_data(Bytes::new(), true).unwrap();
    }
    let mut world = Http2World::new(&policy(&rules), unmasking).await;
    // The offer is made once the upstream has made it.
    while !world.client.is_extended_connect_protocol_enabled() {
        assert_eq!(world.send(get("/")).await.status(), 200);
    }
    let mut request = Request::new(());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = "https://allowed.test/ws".parse().unwrap();
    request.headers_mut().insert("sec-websocket-version", "13".parse().unwrap());
    request.extensions_mut().insert(Protocol::from("websocket"));
    let (response, mut send) = world.open(request, false);
    let mut response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    send.send_data(Bytes::from_static(b"\x82\x82\0\0\0\0ab"), false).unwrap();
    assert_eq!(response.body_mut().data().await.unwrap().unwrap(), &b"\x82\x02ab"[..]);
    send.send_data(Bytes::new(), true).unwrap();
    assert_eq!(read_all(response.body_mut()).await.unwrap(), b"");
    let events = world.hang_up().await;
    let last = events.last().unwrap();
    assert_eq!(last["network.protocol.name"], "websocket");
    assert_eq!(last["sluice.outcome"], "relayed");
}
