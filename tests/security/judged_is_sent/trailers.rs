//! C20: what comes after a body does not say whom or what the request was for.

use http::HeaderMap;
use tests::{Plan, Received, Reply, Way, World, answering_http2, sandbox};

use super::{BY_HEADER, assert_still_serves, world_over};

/// What a head says, and a trailer may not.
const CONTROL: [(&str, &str); 22] = [
    ("host", "evil.test"),
    ("authorization", "Bearer other"),
    ("cookie", "session=other"),
    ("content-length", "3"),
    ("content_length", "3"),
    ("content-type", "text/html"),
    ("content-encoding", "gzip"),
    ("trailer", "x"),
    ("expect", "100-continue"),
    ("te", "trailers"),
    ("range", "bytes=0-1"),
    ("if-match", "x"),
    ("proxy-authorization", "Basic eDp5"),
    ("x-http-method-override", "DELETE"),
    ("x_http_method_override", "DELETE"),
    ("x-original-url", "/admin"),
    ("x-forwarded-host", "evil.test"),
    ("x-forwarded-proto", "http"),
    ("x-forwarded-prefix", "/x"),
    ("forwarded", "host=evil.test"),
    ("x-sluice-code", "no_rule"),
    // The policy judges this one, by another spelling.
    ("x_danger", "off"),
];

#[tokio::test]
async fn http2_trailers_that_belong_in_a_head_are_refused() {
    let world = world_over(true, BY_HEADER).await;
    for (name, value) in CONTROL {
        let mut session = world.sandbox.http2(Way::Proxy, "allowed.test").await;
        let request = http::Request::post("https://allowed.test/calm").body(()).unwrap();
        let (response, mut stream) = session.begin(request, false).await;
        stream.send_data("hello".into(), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert(http::HeaderName::try_from(name).unwrap(), value.parse().unwrap());
        stream.send_trailers(trailers).unwrap();
        let reply = sandbox::read_http2(response).await.unwrap();
        assert_eq!(reply.status, 400, "{name}: {reply:?}\n{}", reply.text());
        reply.assert_refused(400, "malformed");
        world.audit.refused("allowed.test", "malformed").await;
    }
    assert_still_serves(&world, true).await;
    world.end().await;
}

#[tokio::test]
async fn http1_trailers_that_belong_in_a_head_are_refused() {
    let world = world_over(false, BY_HEADER).await;
    for (name, value) in CONTROL {
        let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
        line.send(format!(
            "POST /calm HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n\
             5\r\nhello\r\n0\r\n{name}: {value}\r\n\r\n"
        ))
        .await;
        let reply = line.reply().await;
        assert_eq!(reply.status, 400, "{name}: {reply:?}\n{}", reply.text());
        reply.assert_refused(400, "malformed");
        line.assert_ends().await;
    }
    assert!(world.upstream("allowed.test").requests().is_empty(), "none was complete");
    assert_still_serves(&world, false).await;
    world.end().await;
}

/// What an upstream sends after its body is passed on, but for what frames,
/// what is between us and it, and what only we say.
#[tokio::test]
async fn trailers_of_an_answer_cannot_frame_nor_speak_for_us() {
    let sent = [
        ("x-kept", "1"),
        ("content-length", "5"),
        ("transfer_encoding", "chunked"),
        ("x-sluice-code", "no_rule"),
        ("X-Sluice-Request-Id", "2"),
        ("proxy-authenticate", "Basic"),
        ("alt-svc", "h3=\":443\""),
        ("set-cookie", "a=b"),
        ("grpc-status", "0"),
    ];
    let chunked: String = sent.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let http1 = Plan::sending(format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n{chunked}\r\n"
    ));
    let http2 = answering_http2(move |_: &Received| Reply {
        status: 200,
        body: b"ok".to_vec(),
        trailers: sent.iter().map(|(n, v)| (n.to_lowercase(), v.to_string())).collect(),
        ..Reply::default()
    });
    for (plan, over_http2) in [(http1, false), (http2, true)] {
        let world = World::new().upstream("allowed.test", plan).start().await;
        let ask = world.sandbox.ask("GET", "https://allowed.test/");
        let ask = if over_http2 { ask.over_http2() } else { ask };
        let reply = ask.send().await;
        reply.assert_relayed(200);
        assert_eq!(reply.text(), "ok");
        let names: Vec<&str> = reply.trailers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["x-kept", "grpc-status"], "http2: {over_http2}");
        world.end().await;
    }
}
