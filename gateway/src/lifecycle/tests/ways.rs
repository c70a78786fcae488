//! Every way in: allowed for one host, refused for another with the same words.

use super::world::{World, ask, read_answer, read_head, read_rest, send};
use crate::listen::ListenerKind;

const GET: &str = "GET /a?b HTTP/1.1\r\nHost: allowed.test\r\nX-Keep: yes\r\n\r\n";

#[tokio::test]
async fn a_request_in_a_tunnel_is_relayed_and_recorded() {
    let world = World::new("allowed.test").await;
    let mut tls = world.secure().await;
    let answer = ask(&mut tls, GET).await;
    assert_eq!((answer.status(), answer.body.as_str()), (200, "hello"));
    assert_eq!(answer.header("x-up"), Some("1"));
    assert_eq!(world.heard(), ["GET /a?b HTTP/1.1\r\nHost: allowed.test\r\nX-Keep: yes\r\n\r\n"]);
    drop(tls);

    let requests = world.requests().await;
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].verdict(), "relayed allow allowed");
    assert_eq!(requests[0].get("url.path"), "/a");
    assert_eq!(requests[0].get("http.response.status_code"), "200");
    let connections = world.connections().await;
    assert_eq!(connections.len(), 1);
    assert_eq!(connections[0].verdict(), "relayed allow allowed");
    assert_eq!(connections[0].get("sluice.requests"), "1");
}

#[tokio::test]
async fn a_tunnel_to_another_host_is_refused_before_anything_is_dialled() {
    let world = World::new("allowed.test").await;
    let mut stream = world.connect(ListenerKind::Proxy).await;
    let answer = ask(&mut stream, "CONNECT evil.test:443 HTTP/1.1\r\n\r\n").await;
    assert_eq!(answer.refusal(), "403 no_rule");
    assert!(answer.head.starts_with("HTTP/1.1 403 Refused by policy (no_rule)\r\n"));
    assert!(answer.body.contains("add to `net.allow`: evil.test"), "{}", answer.body);
    assert_eq!(read_rest(&mut stream).await, "");
    assert_eq!(world.dialled(), 0);
    drop(stream);
    assert_eq!(world.connections().await[0].verdict(), "refused deny no_rule");
}

#[tokio::test]
async fn a_url_is_relayed_or_refused_by_its_host_one_connection_for_both() {
    let world = World::new("{host: plain.test, protocol: http}").await;
    let mut stream = world.connect(ListenerKind::Proxy).await;
    let good = ask(&mut stream, "GET http://plain.test/x HTTP/1.1\r\nHost: plain.test\r\n\r\n");
    assert_eq!(good.await.status(), 200);
    let bad = ask(&mut stream, "GET http://evil.test/x HTTP/1.1\r\nHost: evil.test\r\n\r\n");
    assert_eq!(bad.await.refusal(), "403 no_rule");
    let good = ask(&mut stream, "GET http://plain.test/y HTTP/1.1\r\nHost: plain.test\r\n\r\n");
    assert_eq!(good.await.status(), 200);
    assert_eq!(world.heard().len(), 2);
    assert!(world.heard()[0].starts_with("GET /x HTTP/1.1\r\nHost: plain.test\r\n"));
    drop(stream);
    let verdicts: Vec<_> = world.requests().await.iter().map(|r| r.verdict()).collect();
    assert_eq!(
        verdicts,
        ["relayed allow allowed", "refused deny no_rule", "relayed allow allowed"]
    );
}

#[tokio::test]
async fn captured_tls_goes_where_its_name_says() {
    let world = World::new("allowed.test").await;
    let stream = world.connect(ListenerKind::CapturedHttps).await;
    let mut tls = world.handshake(stream, Some("allowed.test"), &[]).await.unwrap();
    assert_eq!(ask(&mut tls, GET).await.status(), 200);
}

#[tokio::test]
async fn captured_tls_to_another_host_is_told_so_in_each_answer() {
    let world = World::new("allowed.test").await;
    let stream = world.connect(ListenerKind::CapturedHttps).await;
    let mut tls = world.handshake(stream, Some("evil.test"), &["http/1.1"]).await.unwrap();
    for path in ["/", "/again"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: evil.test\r\n\r\n");
        assert_eq!(ask(&mut tls, &request).await.refusal(), "403 no_rule");
    }
    assert_eq!(world.dialled(), 0);
    drop(tls);
    assert_eq!(world.requests().await.len(), 2);
    assert_eq!(world.connections().await[0].verdict(), "refused deny no_rule");
}

#[tokio::test]
async fn captured_tls_without_a_name_is_refused() {
    let world = World::new("allowed.test").await;
    let stream = world.connect(ListenerKind::CapturedHttps).await;
    let err = world.handshake(stream, None, &[]).await.unwrap_err();
    assert!(err.to_string().contains("UnrecognisedName"), "{err}");
    assert_eq!(world.connections().await[0].verdict(), "refused deny no_server_name");
}

#[tokio::test]
async fn captured_http_goes_where_its_host_says() {
    let world = World::new("{host: plain.test, protocol: http}").await;
    let mut stream = world.connect(ListenerKind::CapturedHttp).await;
    let good = ask(&mut stream, "GET / HTTP/1.1\r\nHost: plain.test\r\n\r\n").await;
    assert_eq!(good.status(), 200);
    let bad = ask(&mut stream, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n").await;
    assert_eq!(bad.refusal(), "403 no_rule");
}

#[tokio::test]
async fn socks_leads_to_the_same_answers() {
    let world = World::new("allowed.test").await;
    let mut stream = world.connect(ListenerKind::Socks).await;
    assert_eq!(socks(&mut stream, "allowed.test", 443).await, 0);
    let mut tls = world.handshake(stream, Some("allowed.test"), &[]).await.unwrap();
    assert_eq!(ask(&mut tls, GET).await.status(), 200);

    let mut stream = world.connect(ListenerKind::Socks).await;
    assert_eq!(socks(&mut stream, "evil.test", 443).await, 0, "it is told inside");
    let mut tls = world.handshake(stream, Some("evil.test"), &[]).await.unwrap();
    let answer = ask(&mut tls, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n").await;
    assert_eq!(answer.refusal(), "403 no_rule");

    let mut stream = world.connect(ListenerKind::Socks).await;
    assert_eq!(socks(&mut stream, "evil.test", 5432).await, 2, "not allowed by ruleset");
    assert_eq!(world.upstream.accepted(), 1);
}

#[tokio::test]
async fn plain_http_inside_a_tunnel_is_judged_as_such() {
    let world = World::new("{host: plain.test, protocol: http}").await;
    let mut stream = world.tunnel("plain.test:80").await;
    let answer = ask(&mut stream, "GET / HTTP/1.1\r\nHost: plain.test\r\n\r\n").await;
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn a_tcp_rule_relays_bytes_and_half_closes() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let echo_after_end = |mut stream: tokio::net::TcpStream| async move {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        all.reverse();
        stream.write_all(&all).await.unwrap();
    };
    let rule = "{host: tcp.test, port: 5432, protocol: tcp}";
    let world = World::with_upstream(rule, Default::default(), echo_after_end).await;
    let mut stream = world.tunnel("tcp.test:5432").await;
    send(&mut stream, "abc").await;
    stream.shutdown().await.unwrap();
    assert_eq!(read_rest(&mut stream).await, "cba");
    drop(stream);
    let connections = world.connections().await;
    assert_eq!(connections[0].verdict(), "relayed allow allowed");
    assert_eq!(connections[0].get("sluice.handling"), "tcp");
    assert_eq!(connections[0].get("sluice.bytes.received"), "3");
    assert_eq!(connections[0].get("sluice.bytes.sent"), "11", "the name counts, too");
}

/// Asks a SOCKS5 server for a tunnel; returns its reply code.
async fn socks(stream: &mut tokio::net::TcpStream, host: &str, port: u16) -> u8 {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    stream.write_all(&[5, 1, 0]).await.unwrap();
    let mut choice = [0; 2];
    stream.read_exact(&mut choice).await.unwrap();
    assert_eq!(choice, [5, 0]);
    let mut request = vec![5, 1, 0, 3, host.len() as u8];
    request.extend(host.as_bytes());
    request.extend(port.to_be_bytes());
    stream.write_all(&request).await.unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await.unwrap();
    reply[1]
}

#[tokio::test]
async fn what_comes_after_a_connect_in_the_same_packet_is_not_lost() {
    let world = World::new("{host: plain.test, protocol: http}").await;
    let mut stream = world.connect(ListenerKind::Proxy).await;
    let both = "CONNECT plain.test:80 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: plain.test\r\n\r\n";
    send(&mut stream, both).await;
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200 Connection"));
    assert_eq!(read_answer(&mut stream).await.body, "hello");
}
