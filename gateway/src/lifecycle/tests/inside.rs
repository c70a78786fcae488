//! What a client may try once it is inside: other names, other protocols, other
//! requests behind the first.

use super::world::{World, ask, read_answer, read_rest, send};
use crate::listen::ListenerKind;

const ALLOW: &str = "allowed.test, {host: plain.test, protocol: http}";

/// What each request gets, on one connection to `plain.test`; nothing may reach
/// an upstream.
async fn refused_inside(request: &str) -> String {
    let world = World::new(ALLOW).await;
    let mut stream = world.tunnel("plain.test:80").await;
    send(&mut stream, request).await;
    let refusal = read_answer(&mut stream).await.refusal();
    assert_eq!(world.dialled(), 0, "{request:?}");
    refusal
}

macro_rules! refused {
    ($claim:ident, $request:expr, $refusal:expr) => {
        #[tokio::test]
        async fn $claim() {
            assert_eq!(refused_inside($request).await, $refusal);
        }
    };
}

// B3, B6
refused!(another_host, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "421 name_mismatch");
refused!(another_port, "GET / HTTP/1.1\r\nHost: plain.test:81\r\n\r\n", "421 name_mismatch");
refused!(no_host, "GET / HTTP/1.1\r\n\r\n", "400 malformed");
refused!(an_empty_host, "GET / HTTP/1.1\r\nHost:\r\n\r\n", "400 bad_authority");
refused!(
    two_hosts,
    "GET / HTTP/1.1\r\nHost: plain.test\r\nHost: plain.test\r\n\r\n",
    "400 ambiguous"
);
refused!(
    a_user_name,
    "GET http://plain.test@evil.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\n",
    "400 bad_authority"
);
refused!(
    a_url_beside_another_host,
    "GET http://plain.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "400 ambiguous"
);
refused!(
    a_url_for_another_host,
    "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "421 name_mismatch"
);
// B10, B12
refused!(
    a_tunnel_in_a_tunnel,
    "CONNECT evil.test:443 HTTP/1.1\r\nHost: plain.test\r\n\r\n",
    "403 denied"
);
refused!(http2_in_the_clear, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400 malformed");
// C7
refused!(
    a_path_with_dots,
    "GET /ok/../secret HTTP/1.1\r\nHost: plain.test\r\n\r\n",
    "400 ambiguous"
);
refused!(
    a_path_with_hidden_dots,
    "GET /ok/%2e%2e/secret HTTP/1.1\r\nHost: plain.test\r\n\r\n",
    "400 ambiguous"
);
// C8
refused!(a_method_in_lower_case, "get / HTTP/1.1\r\nHost: plain.test\r\n\r\n", "403 denied");
refused!(a_made_up_method, "SPY / HTTP/1.1\r\nHost: plain.test\r\n\r\n", "403 denied");
refused!(trace, "TRACE / HTTP/1.1\r\nHost: plain.test\r\n\r\n", "403 denied");
refused!(
    a_method_in_disguise,
    "GET / HTTP/1.1\r\nHost: plain.test\r\nX-HTTP-Method-Override: delete\r\n\r\n",
    "403 no_rule"
);
refused!(
    an_unreadable_disguise,
    "GET / HTTP/1.1\r\nHost: plain.test\r\nX-HTTP-Method: SPY\r\n\r\n",
    "403 denied"
);
refused!(
    two_disguises,
    "GET / HTTP/1.1\r\nHost: plain.test\r\nX-HTTP-Method: GET\r\nX-Method-Override: HEAD\r\n\r\n",
    "400 ambiguous"
);
// C1 to C4
refused!(
    a_length_beside_a_coding,
    "GET / HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "400 malformed"
);
refused!(
    two_lengths,
    "GET / HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "400 malformed"
);
refused!(
    a_space_before_the_colon,
    "GET / HTTP/1.1\r\nHost: plain.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "400 malformed"
);
refused!(
    another_coding,
    "GET / HTTP/1.1\r\nHost: plain.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "400 malformed"
);
refused!(
    a_folded_header,
    "GET / HTTP/1.1\r\nHost: plain.test\r\nX: a\r\n b\r\n\r\n",
    "400 malformed"
);
refused!(bare_line_feeds, "GET / HTTP/1.1\nHost: plain.test\n\n", "400 malformed");
refused!(
    a_return_in_a_value,
    "GET / HTTP/1.1\r\nHost: plain.test\r\nX: a\rEvil: b\r\n\r\n",
    "400 malformed"
);
refused!(a_nul_in_a_value, "GET / HTTP/1.1\r\nHost: plain.test\r\nX: \0\r\n\r\n", "400 malformed");

#[tokio::test]
async fn after_a_malformed_request_the_connection_is_closed() {
    let world = World::new(ALLOW).await;
    let mut stream = world.tunnel("plain.test:80").await;
    let both =
        "GET / HTTP/1.1\r\nHost : plain.test\r\n\r\nGET / HTTP/1.1\r\nHost: plain.test\r\n\r\n";
    let answer = ask(&mut stream, both).await;
    assert_eq!(answer.refusal(), "400 malformed");
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(read_rest(&mut stream).await, "");
    assert_eq!(world.dialled(), 0);
    drop(stream);
    let requests = world.requests().await;
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].verdict(), "refused deny malformed");
}

// B14
#[tokio::test]
async fn each_of_several_requests_in_one_packet_is_judged() {
    let world = World::new("{host: plain.test, protocol: http, paths: [/ok]}").await;
    let mut stream = world.tunnel("plain.test:80").await;
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: plain.test\r\n\r\n");
    send(&mut stream, &[request("/ok"), request("/bad"), request("/ok")].concat()).await;
    assert_eq!(read_answer(&mut stream).await.status(), 200);
    assert_eq!(read_answer(&mut stream).await.refusal(), "403 no_rule");
    assert_eq!(read_answer(&mut stream).await.status(), 200);
    assert_eq!(world.heard().len(), 2);
    assert_eq!(world.plain.accepted(), 1, "the upstream's connection is kept");
}

// B2
#[tokio::test]
async fn another_name_in_the_hello_is_refused_in_words() {
    let world = World::new(ALLOW).await;
    let stream = world.tunnel("allowed.test:443").await;
    let mut tls = world.handshake(stream, Some("evil.test"), &["http/1.1"]).await.unwrap();
    for host in ["evil.test", "allowed.test"] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(ask(&mut tls, &request).await.refusal(), "421 name_mismatch");
    }
    assert_eq!(world.dialled(), 0);
    drop(tls);
    assert_eq!(world.connections().await[0].verdict(), "refused deny name_mismatch");
}

// B8
#[tokio::test]
async fn a_tunnel_without_a_name_in_its_hello_is_the_tunnels() {
    let world = World::new(ALLOW).await;
    let stream = world.tunnel("allowed.test:443").await;
    let mut tls = world.handshake(stream, None, &[]).await.unwrap();
    let answer = ask(&mut tls, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn a_request_that_is_not_a_url_gets_a_hint_from_the_proxy() {
    let world = World::new(ALLOW).await;
    let mut stream = world.connect(ListenerKind::Proxy).await;
    let answer = ask(&mut stream, "GET / HTTP/1.1\r\nHost: plain.test\r\n\r\n").await;
    assert_eq!(answer.refusal(), "400 malformed");
    assert!(answer.body.contains("this is a proxy"), "{}", answer.body);
}

#[tokio::test]
async fn a_wish_for_http2_in_the_clear_is_not_passed_on() {
    let world = World::new(ALLOW).await;
    let mut stream = world.tunnel("plain.test:80").await;
    let request = "GET / HTTP/1.1\r\nHost: plain.test\r\nConnection: Upgrade, HTTP2-Settings\r\n\
                   Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nX: y\r\n\r\n";
    assert_eq!(ask(&mut stream, request).await.status(), 200);
    assert_eq!(world.heard(), ["GET / HTTP/1.1\r\nHost: plain.test\r\nX: y\r\n\r\n"]);
}

#[tokio::test]
async fn what_a_client_says_of_its_connection_stays_on_it() {
    let world = World::new(ALLOW).await;
    let mut stream = world.tunnel("plain.test:80").await;
    let request = "GET / HTTP/1.1\r\nhOST: PLAIN.test\r\nConnection: x-mine, keep-alive\r\n\
                   X-Mine: 1\r\nKeep-Alive: 5\r\nProxy-Authorization: Basic eDp5\r\n\
                   Proxy-Connection: keep-alive\r\nTE: trailers, deflate\r\nx-Other: 2\r\n\r\n";
    assert_eq!(ask(&mut stream, request).await.status(), 200);
    let expected = "GET / HTTP/1.1\r\nhOST: plain.test\r\nConnection: te\r\nTE: trailers\r\n\
                    x-Other: 2\r\n\r\n";
    assert_eq!(world.heard(), [expected]);
}
