//! Further ports, and doors of one host.

use policies::{Destination, NoFiles, Source};
use std::sync::Arc;

use super::world::{OK, World, ask, policy, read_rest, send};
use crate::listen::ListenerKind;

const PORT: ListenerKind = ListenerKind::CapturedPort(8443);

fn door_of(to: &str) -> ListenerKind {
    ListenerKind::Tcp(Arc::new(Destination::parse(to).unwrap()))
}

#[tokio::test]
async fn tls_on_a_further_port_goes_to_its_name_on_that_port() {
    let world = World::new("{host: allowed.test, port: 8443}").await;
    let stream = world.connect(PORT).await;
    let mut tls = world.handshake(stream, Some("allowed.test"), &[]).await.unwrap();
    let answer = ask(&mut tls, "GET / HTTP/1.1\r\nHost: allowed.test:8443\r\n\r\n").await;
    assert_eq!(answer.status(), 200);
    drop(tls);
    let connections = world.connections().await;
    assert_eq!(connections[0].verdict(), "relayed allow allowed");
    assert_eq!(connections[0].get("server.port"), "8443");
    assert_eq!(connections[0].get("sluice.way_in"), "captured_port");
}

#[tokio::test]
async fn a_host_that_is_allowed_on_another_port_is_refused_on_this_one() {
    let world = World::new("allowed.test, {host: other.test, port: 8443}").await;
    let stream = world.connect(PORT).await;
    let mut tls = world.handshake(stream, Some("allowed.test"), &[]).await.unwrap();
    let answer = ask(&mut tls, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    assert_eq!(answer.refusal(), "403 no_rule");
    assert_eq!(world.dialled(), 0);
}

#[tokio::test]
async fn http_in_the_clear_on_a_further_port_goes_to_its_host_on_that_port() {
    let world = World::new("{host: plain.test, protocol: http, port: [80, 8443]}").await;
    let mut stream = world.connect(PORT).await;
    for host in ["plain.test", "plain.test:8443"] {
        let answer = ask(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert_eq!(answer.status(), 200, "{host}");
    }
    // It is allowed, but this is not the port for it.
    let answer = ask(&mut stream, "GET / HTTP/1.1\r\nHost: plain.test:80\r\n\r\n").await;
    assert_eq!(answer.refusal(), "421 name_mismatch");
    let answer = ask(&mut stream, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n").await;
    assert_eq!(answer.refusal(), "403 no_rule");
    drop(stream);
    let ports: Vec<_> = world.requests().await.iter().map(|r| r.get("server.port")).collect();
    assert_eq!(ports, ["8443", "8443", "8443"]);
    assert_eq!(world.heard().len(), 2);
}

#[tokio::test]
async fn a_door_leads_to_its_host_whatever_is_spoken() {
    let echo = |mut stream: tokio::net::TcpStream| async move {
        let (mut from, mut to) = stream.split();
        drop(tokio::io::copy(&mut from, &mut to).await);
    };
    let rule = "{host: tcp.test, port: 5432, protocol: tcp}";
    let world = World::with_upstream(rule, Default::default(), echo).await;
    let mut stream = world.connect(door_of("tcp.test:5432")).await;
    send(&mut stream, "\u{16}\u{3} no handshake\n").await;
    tokio::io::AsyncWriteExt::shutdown(&mut stream).await.unwrap();
    assert_eq!(read_rest(&mut stream).await, "\u{16}\u{3} no handshake\n");
    drop(stream);
    let connections = world.connections().await;
    assert_eq!(connections[0].verdict(), "relayed allow allowed");
    assert_eq!(connections[0].get("sluice.handling"), "tcp");
    assert_eq!(connections[0].get("sluice.way_in"), "tcp");
    assert_eq!(connections[0].get("server.address"), "tcp.test");
}

#[tokio::test]
async fn a_host_that_policy_no_longer_allows_is_cut_off_at_its_door() {
    use tokio::io::AsyncReadExt as _;
    let world = World::new("{host: tcp.test, port: 5432, protocol: tcp}").await;
    let source = Source::new("p", policy("allowed.test"));
    world.gateway().load_policy(policies::read(&source, &NoFiles).unwrap(), "next");
    let mut stream = world.connect(door_of("tcp.test:5432")).await;
    let err = stream.read(&mut [0; 9]).await.unwrap_err();
    assert_eq!(err.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(world.connections().await[0].verdict(), "refused deny no_rule");
    assert_eq!(world.dialled(), 0);
}

#[tokio::test]
async fn a_door_whose_host_is_now_inspected_has_its_requests_judged() {
    let world = World::answering("{host: plain.test, protocol: http, port: 8080}", |_| OK).await;
    let mut stream = world.connect(door_of("plain.test:8080")).await;
    let answer = ask(&mut stream, "GET / HTTP/1.1\r\nHost: plain.test:8080\r\n\r\n").await;
    assert_eq!(answer.status(), 200);
    let answer = ask(&mut stream, "POST / HTTP/1.1\r\nHost: plain.test:8080\r\n\r\n").await;
    assert_eq!(answer.refusal(), "403 no_rule");
}
