//! Answers of policy other than a plain yes or no, and refusals in other tongues.

use super::world::{OK, World, ask, read_head, send};
use crate::listen::ListenerKind;

const GET: &str = "GET / HTTP/1.1\r\nHost: plain.test\r\n\r\n";

async fn under(net: &str) -> World {
    World::under(&format!("version: 1\nname: test\nnet:\n  enabled: true\n{net}"), |_| OK).await
}

#[tokio::test]
async fn observing_lets_pass_what_nobody_spoke_of_and_says_so() {
    let world = under("  mode: observe\n  deny: [{host: tcp.test}]\n").await;
    let mut stream = world.tunnel("plain.test:80").await;
    assert_eq!(ask(&mut stream, GET).await.status(), 200);
    let mut denied = world.connect(ListenerKind::Proxy).await;
    let answer = ask(&mut denied, "CONNECT tcp.test:80 HTTP/1.1\r\n\r\n").await;
    assert_eq!(answer.refusal(), "403 denied", "a deny is a deny");
    drop((stream, denied));
    assert_eq!(world.requests().await[0].verdict(), "relayed would_deny no_rule");
}

#[tokio::test]
async fn what_a_person_must_approve_is_refused_until_somebody_can() {
    let world = under("  ask: [{host: plain.test, protocol: http}]\n").await;
    let mut stream = world.tunnel("plain.test:80").await;
    let answer = ask(&mut stream, GET).await;
    assert_eq!(answer.refusal(), "403 not_approved");
    assert_eq!(answer.header("x-sluice-rule"), Some("net.ask[0]"));
    assert_eq!(world.dialled(), 0);
    drop(stream);
    assert_eq!(world.requests().await[0].verdict(), "refused ask not_approved");
}

#[tokio::test]
async fn a_rule_with_a_secret_is_not_carried_out_without_it() {
    let policy = "version: 1\nname: test\nnet:\n  enabled: true\n  allow:\n    \
                  - {host: allowed.test, secret: KEY}\nsecrets:\n  KEY: {from: {env: KEY}, \
                  hosts: [allowed.test], header: x-api-key}\n";
    let world = World::under(policy, |_| OK).await;
    let mut tls = world.secure().await;
    let request = "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n";
    assert_eq!(ask(&mut tls, request).await.refusal(), "403 secret_unavailable");
    assert_eq!(world.dialled(), 0);
}

#[tokio::test]
async fn with_the_network_off_nothing_leaves() {
    let world = World::under("version: 1\nname: test\nnet:\n  enabled: false\n", |_| OK).await;
    let mut stream = world.connect(ListenerKind::Proxy).await;
    let answer = ask(&mut stream, "CONNECT plain.test:80 HTTP/1.1\r\n\r\n").await;
    assert_eq!(answer.refusal(), "403 network_off");
}

#[tokio::test]
async fn a_grpc_client_on_http1_gets_a_status() {
    let world = under("  allow: [{host: plain.test, protocol: http}]\n").await;
    let mut stream = world.tunnel("plain.test:80").await;
    let request = "POST /pkg.Service/Method HTTP/1.1\r\nHost: plain.test\r\n\
                   Content-Type: application/grpc+proto\r\nContent-Length: 0\r\n\r\n";
    send(&mut stream, request).await;
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("\r\ngrpc-status: 7\r\n"), "{head}");
    assert!(head.contains("\r\nx-sluice-code: no_rule\r\n"), "{head}");
}

#[tokio::test]
async fn a_refused_host_is_told_so_over_http2_as_well() {
    let world = under("  allow: [allowed.test]\n").await;
    let stream = world.connect(ListenerKind::CapturedHttps).await;
    let tls = world.handshake(stream, Some("evil.test"), &["h2"]).await.unwrap();
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut client, connection) = h2::client::handshake(tls).await.unwrap();
    let driving = tokio::spawn(connection);
    let request = http::Request::get("https://evil.test/").body(()).unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), 403);
    assert_eq!(response.headers()["x-sluice-code"], "no_rule");
    assert_eq!(world.dialled(), 0);
    driving.abort();
}

#[tokio::test]
async fn an_upstream_that_is_not_trusted_is_named_in_the_answer() {
    let world = under("  allow: [wrong.test]\n").await;
    let stream = world.tunnel("wrong.test:443").await;
    let mut tls = world.handshake(stream, Some("wrong.test"), &["http/1.1"]).await.unwrap();
    let answer = ask(&mut tls, "GET / HTTP/1.1\r\nHost: wrong.test\r\n\r\n").await;
    assert_eq!(answer.refusal(), "502 upstream_untrusted");
}
