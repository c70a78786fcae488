//! Which connections are used twice, and by whom.

use std::sync::Arc;
use std::time::Duration;

use policies::Scheme;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::pool::{IdleConnection, Pool, PoolKey};
use super::super::route::Dialable;
use super::super::settings::PoolSizes;
use super::super::{UpstreamFacts, UpstreamStream};
use super::*;

/// Answers every byte with the same byte.
async fn echo() -> TestServer {
    TestServer::tcp(|mut stream| async move {
        let mut byte = [0; 1];
        while stream.read_exact(&mut byte).await.is_ok() {
            stream.write_all(&byte).await.ok();
        }
    })
    .await
}

/// One exchange; says whether the connection had been used before.
async fn exchange(dialer: &Dialer, destination: &str) -> bool {
    let place = to(destination);
    let mut upstream = dialer.http1(&public(), Scheme::Http, &place, false).await.unwrap();
    upstream.io().write_all(b"x").await.unwrap();
    upstream.io().read_exact(&mut [0; 1]).await.unwrap();
    let reused = upstream.facts().reused;
    upstream.give_back();
    reused
}

#[tokio::test]
async fn a_connection_is_used_again_for_the_same_destination_only() {
    let server = echo().await;
    let dialer = TestAuthority::new().dialer(&[("a.test", server.at), ("b.test", server.at)]);

    assert!(!exchange(&dialer, "a.test:80").await);
    assert!(exchange(&dialer, "a.test:80").await);
    // The same address all along, and still another name, another port.
    assert!(!exchange(&dialer, "b.test:80").await);
    assert!(!exchange(&dialer, "a.test:8080").await);
    assert_eq!(server.accepted(), 3);
}

#[tokio::test]
async fn a_connection_that_is_not_given_back_is_closed() {
    let server = echo().await;
    let dialer = TestAuthority::new().dialer(&[("a.test", server.at)]);
    let place = to("a.test:80");
    drop(dialer.http1(&public(), Scheme::Http, &place, false).await.unwrap());
    assert!(!exchange(&dialer, "a.test:80").await);
}

#[tokio::test]
async fn a_connection_the_upstream_closed_is_not_handed_out() {
    let (kept, other) = pair().await;
    let pool = Pool::new(PoolSizes::default());
    pool.put(place("a.test:80"), idle(kept, "93.184.216.34:80", &public()));
    drop(other);
    until_dropped(&pool, &place("a.test:80")).await;
}

/// An answer that nobody asked for must not become the answer to the next
/// request, which may be somebody else's.
#[tokio::test]
async fn a_connection_on_which_the_upstream_spoke_out_of_turn_is_not_handed_out() {
    let (kept, mut other) = pair().await;
    let pool = Pool::new(PoolSizes::default());
    pool.put(place("a.test:80"), idle(kept, "93.184.216.34:80", &public()));
    other.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    until_dropped(&pool, &place("a.test:80")).await;
}

/// Takes the connection out and puts it back until what the other end did has
/// arrived; never ends if the pool does not care.
async fn until_dropped(pool: &Arc<Pool>, place: &PoolKey) {
    while pool.len() > 0 {
        if let Some(taken) = pool.take(Permit::Request(&public()), place) {
            pool.put(place.clone(), taken);
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_connection_is_not_used_by_a_request_whose_reach_does_not_hold_its_address() {
    let (kept, _other) = pair().await;
    let office = within(&["10.0.0.0/8"]);
    let pool = Pool::new(PoolSizes::default());
    pool.put(place("db.test:80"), idle(kept, "10.0.0.7:80", &office));

    assert!(pool.take(Permit::Request(&public()), &place("db.test:80")).is_none());
    assert!(pool.take(Permit::Request(&within(&["10.9.0.0/16"])), &place("db.test:80")).is_none());
    assert!(pool.take(Permit::Request(&office), &place("db.test:80")).is_some());
}

#[tokio::test]
async fn what_is_kept_is_bounded_per_destination_and_in_all() {
    let sizes = PoolSizes { idle_per_destination: 2, idle_total: 3, ..PoolSizes::default() };
    let pool = Pool::new(sizes);
    let mut others = Vec::new();
    for destination in ["a.test:80", "a.test:80", "a.test:80", "b.test:80", "c.test:80"] {
        let (kept, other) = pair().await;
        others.push(other);
        pool.put(place(destination), idle(kept, "93.184.216.34:80", &public()));
    }
    assert_eq!(pool.len(), 3);
    assert!(pool.take(Permit::Request(&public()), &place("c.test:80")).is_none());
}

#[tokio::test]
async fn an_idle_connection_is_closed_even_if_nobody_asks_again() {
    let (kept, mut other) = pair().await;
    let sizes = PoolSizes { idle_timeout: Duration::from_millis(20), ..PoolSizes::default() };
    let pool = Pool::new(sizes);
    pool.put(place("a.test:80"), idle(kept, "93.184.216.34:80", &public()));
    assert_eq!(pool.len(), 1);
    // Ends when our side was closed, and not before.
    assert_eq!(other.read(&mut [0; 1]).await.unwrap(), 0);
    assert_eq!(pool.len(), 0);
}

#[tokio::test]
async fn what_a_new_policy_does_not_know_is_let_go() {
    let server = echo().await;
    let dialer = TestAuthority::new().dialer(&[("a.test", server.at), ("b.test", server.at)]);
    exchange(&dialer, "a.test:80").await;
    exchange(&dialer, "b.test:80").await;
    dialer.close_unless(|destination| destination.host.to_string() == "b.test");
    assert!(!exchange(&dialer, "a.test:80").await);
    assert!(exchange(&dialer, "b.test:80").await);
}

fn place(destination: &str) -> PoolKey {
    PoolKey { scheme: Scheme::Http, to: to(destination) }
}

fn idle(stream: TcpStream, at: &str, permit: &RequestPermit) -> IdleConnection {
    let at: Dialable = permit.reach().check(at.parse().unwrap()).unwrap().into();
    let facts = UpstreamFacts {
        address: at.get().into(),
        proxied: false,
        tls: None,
        reused: false,
        resolve: Duration::ZERO,
        connect: Duration::ZERO,
        handshake: Duration::ZERO,
    };
    IdleConnection::new(UpstreamStream::Plain(stream), at, facts)
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    #[expect(clippy::disallowed_methods, reason = "the other end of a wire on loopback")]
    let (one, other) = tokio::join!(TcpStream::connect(at), listener.accept());
    (one.unwrap(), other.unwrap().0)
}
