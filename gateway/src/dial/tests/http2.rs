//! Shared connections, and what is known about who speaks what.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use policies::Scheme;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::super::Http2Upstream;
use super::*;
use crate::admit::HostPermit;

/// Answers each request with an empty 200; says goodbye after `requests`.
async fn answer(stream: TlsStream<TcpStream>, requests: usize) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let mut answered = 0;
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        respond.send_response(Response::new(()), true).unwrap();
        answered += 1;
        if answered == requests {
            connection.graceful_shutdown();
        }
    }
}

async fn http2_server(authority: &TestAuthority, requests: usize) -> TestServer {
    let config = authority.serving("a.test", &["h2", "http/1.1"]);
    TestServer::tls(config, move |stream| answer(stream, requests)).await
}

async fn get(upstream: &mut Http2Upstream) -> u16 {
    let head = Request::get("https://a.test/").body(()).unwrap();
    let (response, _) = upstream.send(&public(), head, true).unwrap();
    response.await.unwrap().status().as_u16()
}

#[tokio::test]
async fn sixty_four_requests_at_once_share_one_connection() {
    let authority = TestAuthority::new();
    let server = http2_server(&authority, usize::MAX).await;
    let dialer = Arc::new(authority.dialer(&[("a.test", server.at)]));
    let asking: Vec<_> = (0..64)
        .map(|_| {
            let dialer = Arc::clone(&dialer);
            tokio::spawn(async move {
                let place = to("a.test:443");
                let mut upstream = dialer.http2(Permit::Request(&public()), &place).await.unwrap();
                get(&mut upstream).await
            })
        })
        .collect();
    for answered in asking {
        assert_eq!(answered.await.unwrap(), 200);
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn after_a_goodbye_the_next_request_gets_another_connection() {
    let authority = TestAuthority::new();
    let server = http2_server(&authority, 1).await;
    let dialer = authority.dialer(&[("a.test", server.at)]);
    let place = to("a.test:443");
    for round in 1..=3 {
        let mut upstream = dialer.http2(Permit::Request(&public()), &place).await.unwrap();
        assert!(!upstream.facts().reused);
        assert_eq!(get(&mut upstream).await, 200);
        // The goodbye is on its way; requests that cross it are refused unharmed
        // and are the relay's to repeat.
        drop(upstream);
        while server.accepted() == round {
            let Ok(mut upstream) = dialer.http2(Permit::Request(&public()), &place).await else {
                panic!("cannot dial")
            };
            if !upstream.facts().reused {
                break;
            }
            let head = Request::get("https://a.test/").body(()).unwrap();
            if let Ok((response, _)) = upstream.send(&public(), head, true) {
                response.await.ok();
            }
        }
        dialer.shared.here().close_unless(|_| false);
    }
}

#[tokio::test]
async fn what_an_upstream_speaks_is_found_out_once_and_the_connection_kept() {
    let authority = TestAuthority::new();
    let server = http2_server(&authority, usize::MAX).await;
    let dialer = authority.dialer(&[("a.test", server.at)]);
    let place = to("a.test:443");
    assert!(dialer.speaks_h2(&HostPermit::for_test(Reach::public()), &place).await.unwrap());
    assert!(dialer.speaks_h2(&HostPermit::for_test(Reach::public()), &place).await.unwrap());
    let mut upstream = dialer.http2(Permit::Request(&public()), &place).await.unwrap();
    assert!(upstream.facts().reused);
    assert_eq!(get(&mut upstream).await, 200);
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn an_upstream_without_http2_is_asked_once_and_its_connection_kept_for_http1() {
    let authority = TestAuthority::new();
    let config = authority.serving("a.test", &["http/1.1"]);
    let server = TestServer::tls(config, |stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let dialer = authority.dialer(&[("a.test", server.at)]);
    let place = to("a.test:443");
    assert!(!dialer.speaks_h2(&HostPermit::for_test(Reach::public()), &place).await.unwrap());
    assert!(!dialer.speaks_h2(&HostPermit::for_test(Reach::public()), &place).await.unwrap());
    let upstream = dialer.http1(&public(), Scheme::Https, &place, false).await.unwrap();
    assert!(upstream.facts().reused);
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_full_connection_gets_a_second_one_beside_it() {
    let authority = TestAuthority::new();
    let config = authority.serving("a.test", &["h2"]);
    let server = TestServer::tls(config, |stream| async move {
        let mut builder = h2::server::Builder::new();
        builder.max_concurrent_streams(2);
        let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else { return };
        let mut held = Vec::new();
        while let Some(Ok(request)) = connection.accept().await {
            held.push(request);
        }
    })
    .await;
    let dialer = authority.dialer(&[("a.test", server.at)]);
    let place = to("a.test:443");
    let mut held = Vec::new();
    let first = dialer.http2(Permit::Request(&public()), &place).await.unwrap();
    // Its limit is known once its settings have arrived.
    while first.max_streams() != 2 {
        tokio::task::yield_now().await;
    }
    held.push(first);
    for _ in 0..3 {
        held.push(dialer.http2(Permit::Request(&public()), &place).await.unwrap());
    }
    assert_eq!(server.accepted(), 2);
    drop(held);
}
