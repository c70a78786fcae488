//! The one outbound socket.
//!
//! Takes addresses that were checked, in the order they should be tried. The
//! next one is tried as soon as the last has failed, or is slow (RFC 8305); the
//! first that answers is taken and the others are dropped.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time;

use super::route::Dialable;

/// Connects to the first of `addresses` that answers.
pub(super) async fn first_of(addresses: &[Dialable]) -> io::Result<(TcpStream, Dialable)> {
    // The usual case needs no task.
    if let [only] = addresses {
        return Ok((connect_one(only.get()).await?, *only));
    }
    let mut waiting = addresses.iter().copied();
    let mut trying = JoinSet::new();
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "no address to connect to");
    loop {
        match waiting.next() {
            Some(next) => {
                trying.spawn(async move { (connect_one(next.get()).await, next) });
            }
            None if trying.is_empty() => return Err(last),
            None => {}
        }
        let more = waiting.len() > 0;
        tokio::select! {
            Some(tried) = trying.join_next() => match tried {
                Ok((Ok(stream), address)) => return Ok((stream, address)),
                Ok((Err(err), _)) => last = err,
                Err(err) => last = io::Error::other(err),
            },
            () = time::sleep(NEXT_ADDRESS_DELAY), if more => {}
        }
    }
}

async fn connect_one(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
    #[expect(clippy::disallowed_methods, reason = "the one outbound socket")]
    socket.connect(address).await
}

/// How long an address may take before the next is tried beside it.
const NEXT_ADDRESS_DELAY: Duration = Duration::from_millis(250);

/// After a minute of silence we ask whether the peer is there; two minutes
/// later we know.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_RETRIES: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dial::Pin;
    use tokio::net::TcpListener;

    fn dialable(at: SocketAddr) -> Dialable {
        Dialable::pinned(Pin::new(at.ip(), None).unwrap(), at.port())
    }

    async fn closed_port() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    }

    #[tokio::test]
    async fn the_next_address_is_tried_when_one_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = dialable(listener.local_addr().unwrap());
        let closed = dialable(closed_port().await);
        let (stream, at) = first_of(&[closed, closed, open, closed]).await.unwrap();
        assert_eq!((stream.peer_addr().unwrap(), at), (open.get(), open));
        assert!(stream.nodelay().unwrap());
        assert!(SockRef::from(&stream).keepalive().unwrap());
    }

    #[tokio::test]
    async fn when_all_fail_the_error_is_theirs() {
        let closed = [dialable(closed_port().await), dialable(closed_port().await)];
        let err = first_of(&closed).await.unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::ConnectionRefused);
    }
}
