//! Any bytes as the opening of a connection: a ClientHello or SOCKS5.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use policies::{Destination, Host};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};

use super::client_hello as hello;
use super::socks;
use crate::fuzz_input::piece_size;
use crate::inbox::Inbox;

/// A ClientHello reads the same whole or in pieces, and all of it is kept.
pub fn client_hello(input: &[u8]) {
    let (piece, bytes) = piece_size(input);
    let whole = read_hello(bytes, bytes.len().max(1));
    let pieces = read_hello(bytes, piece);
    match (&whole, &pieces) {
        // What follows a hello is refused only if it comes along with it.
        (Err(_), Ok(read)) => assert!(read.kept < bytes.len(), "{whole:?}, {pieces:?}"),
        // What follows it is kept too, as far as it came along.
        (Ok(whole), Ok(pieces)) => {
            assert_eq!(whole.facts(), pieces.facts(), "in pieces of {piece}");
            assert!(whole.kept >= pieces.kept, "{whole:?}, {pieces:?}");
        }
        _ => assert_eq!(whole, pieces, "in pieces of {piece}"),
    }
}

/// What matters of a hello, and of why there is none.
#[derive(Debug, Eq, PartialEq)]
struct ReadHello {
    server_name: Option<String>,
    offers_h2: bool,
    hides_a_name: bool,
    /// Bytes that a tunnel would pass on.
    kept: usize,
}

impl ReadHello {
    /// What was said, without how much was read for it.
    fn facts(&self) -> (Option<&str>, bool, bool) {
        (self.server_name.as_deref(), self.offers_h2, self.hides_a_name)
    }
}

fn read_hello(bytes: &[u8], piece: usize) -> Result<ReadHello, String> {
    block_on(async {
        let (mut peer, mut inbox) = (Peer::new(bytes, piece), Inbox::new());
        let read = hello::read(&mut peer, &mut inbox).await;
        let taken = bytes.len() - peer.unread.len();
        assert_eq!(Some(inbox.filled()), bytes.get(..taken), "what was read is kept as it was");
        let hello = read.map_err(|err| err.to_string())?;
        Ok(ReadHello {
            server_name: hello.server_name,
            offers_h2: hello.offers_h2,
            hides_a_name: hello.hides_a_name,
            kept: taken,
        })
    })
}

/// A SOCKS5 negotiation reads exactly its own bytes, names the destination that
/// a plain reading of RFC 1928 names, and answers in the protocol's words.
pub fn socks5_opening(input: &[u8]) {
    let (piece, bytes) = piece_size(input);
    let negotiate = |piece| {
        block_on(async {
            let mut peer = Peer::new(bytes, piece);
            let outcome = socks::negotiate(&mut peer, Duration::from_secs(5)).await;
            (outcome.map_err(|err| err.to_string()), peer.unread.len(), peer.told)
        })
    };
    let (outcome, left, told) = negotiate(bytes.len().max(1));
    assert_eq!(negotiate(piece), (outcome.clone(), left, told.clone()), "in pieces of {piece}");

    let expected = plain_socks5(bytes);
    let read = outcome.as_ref().ok().map(|to| (to.clone(), left));
    assert_eq!(read, expected);
    match (outcome, told.as_slice()) {
        // Success is said by whoever dials; so far only the method is agreed.
        (Ok(_), told) => assert_eq!(told, [5, 0]),
        (Err(_), [] | [5, 0 | 0xff] | [0, 91, ..]) => {}
        (Err(_), [5, 0, 5, code, 0, 1, 0, 0, 0, 0, 0, 0]) => assert_ne!(*code, 0),
        (Err(why), told) => panic!("{why}: told {told:?}"),
    }
}

/// RFC 1928, read from a slice: the destination, and how much is left.
fn plain_socks5(bytes: &[u8]) -> Option<(Destination, usize)> {
    let [5, count, rest @ ..] = bytes else { return None };
    let (methods, rest) = rest.split_at_checked(usize::from(*count))?;
    let [5, 1, 0, kind, rest @ ..] = rest else { return None };
    let (host, rest) = match kind {
        1 => {
            let (address, rest) = rest.split_first_chunk::<4>()?;
            (Host::from(IpAddr::V4(Ipv4Addr::from(*address))), rest)
        }
        4 => {
            let (address, rest) = rest.split_first_chunk::<16>()?;
            (Host::from(IpAddr::V6(Ipv6Addr::from(*address))), rest)
        }
        3 => {
            let (length, rest) = rest.split_first()?;
            let (name, rest) = rest.split_at_checked(usize::from(*length))?;
            (Host::parse_bytes(name).ok()?, rest)
        }
        _ => return None,
    };
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let port = u16::from_be_bytes(*port);
    (methods.contains(&0) && port != 0).then_some((Destination { host, port }, rest.len()))
}

/// A client whose bytes arrive in pieces, after which it sends nothing more.
struct Peer<'b> {
    unread: &'b [u8],
    piece: usize,
    told: Vec<u8>,
}

impl<'b> Peer<'b> {
    fn new(unread: &'b [u8], piece: usize) -> Self {
        Self { unread, piece, told: Vec::new() }
    }
}

impl AsyncRead for Peer<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.piece.min(out.remaining()).min(self.unread.len());
        let (arrived, unread) = self.unread.split_at(count);
        out.put_slice(arrived);
        self.unread = unread;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Peer<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.told.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Runs to its end what never has to wait.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: RefCell<Runtime> = RefCell::new(
            Builder::new_current_thread().enable_time().build().expect("a runtime can be made"),
        );
    }
    RUNTIME.with_borrow(|runtime| runtime.block_on(work))
}
