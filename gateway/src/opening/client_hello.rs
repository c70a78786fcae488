//! The first message of a TLS connection, read without answering it.
//!
//! It names the host and the protocols that the client speaks. The bytes are kept:
//! a passthrough connection relays them unchanged, and a connection whose TLS ends
//! here goes on with the handshake.

use std::io;

use rustls::server::{Accepted, Acceptor};
use tokio::io::AsyncRead;

use crate::inbox::Inbox;

/// A ClientHello.
pub(crate) struct ClientHello {
    /// As the client wrote it.
    pub(crate) server_name: Option<String>,
    pub(crate) offers_h2: bool,
    /// The real name may be another one, which is encrypted (ECH).
    pub(crate) hides_a_name: bool,
    /// The handshake so far, ready to be answered. All that was read is in it.
    pub(crate) accepted: Accepted,
}

impl std::fmt::Debug for ClientHello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientHello")
            .field("server_name", &self.server_name)
            .field("offers_h2", &self.offers_h2)
            .field("hides_a_name", &self.hides_a_name)
            .finish_non_exhaustive()
    }
}

/// Why there is no ClientHello.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HelloError {
    #[error("the client went away before it said whom it wants: {0}")]
    Gone(io::Error),
    #[error("the ClientHello is wrong: {why}")]
    Malformed { why: rustls::Error, alert: Vec<u8> },
    #[error("TLS is spoken here, and the client speaks something else")]
    NotTls,
    #[error("the ClientHello is too long")]
    TooLong,
}

/// Longer than any real one, post-quantum keys included.
const MAX_HELLO_BYTES: usize = 32 * 1024;

/// Reads until the ClientHello is complete. What was read stays in `inbox`.
pub(crate) async fn read<R: AsyncRead + Unpin>(
    from: &mut R,
    inbox: &mut Inbox,
) -> Result<ClientHello, HelloError> {
    let mut acceptor = Acceptor::default();
    let mut fed = 0;
    loop {
        if let Some(hello) = feed(&mut acceptor, inbox.filled(), &mut fed)? {
            return Ok(hello);
        }
        if inbox.filled().len() >= MAX_HELLO_BYTES {
            return Err(HelloError::TooLong);
        }
        match inbox.fill(from).await {
            Ok(0) => return Err(HelloError::Gone(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => {}
            Err(err) => return Err(HelloError::Gone(err)),
        }
    }
}

/// Hands the bytes after the first `fed` to the acceptor.
fn feed(
    acceptor: &mut Acceptor,
    bytes: &[u8],
    fed: &mut usize,
) -> Result<Option<ClientHello>, HelloError> {
    if bytes.first().is_some_and(|byte| *byte != HANDSHAKE) {
        return Err(HelloError::NotTls);
    }
    let mut rest = bytes.get(*fed..).unwrap_or_default();
    while !rest.is_empty() {
        match acceptor.read_tls(&mut rest) {
            // It takes no more until what it has is looked at.
            Ok(0) => break,
            Ok(_) => {}
            // Reading from memory fails for one reason: there is no room for more.
            Err(_) => return Err(HelloError::TooLong),
        }
    }
    *fed = bytes.len() - rest.len();
    let accepted = match acceptor.accept() {
        Ok(None) => return Ok(None),
        Ok(Some(accepted)) => accepted,
        Err((why, mut alert)) => {
            let mut bytes = Vec::new();
            alert.write_all(&mut bytes).expect("writing to memory cannot fail");
            // Not every mistake has an alert of its own.
            if bytes.is_empty() {
                bytes = self::alert(UNEXPECTED_MESSAGE);
            }
            return Err(HelloError::Malformed { why, alert: bytes });
        }
    };
    // Nothing may follow a hello before it is answered, except for what a client
    // sends early; and that is not more than this.
    if !rest.is_empty() {
        return Err(HelloError::TooLong);
    }
    let hello = accepted.client_hello();
    let server_name = hello.server_name().map(str::to_owned);
    let offers_h2 = hello.alpn().is_some_and(|mut offered| offered.any(|name| name == b"h2"));
    let hides_a_name = hides_a_name(bytes);
    Ok(Some(ClientHello { server_name, offers_h2, hides_a_name, accepted }))
}

/// A TLS alert that ends the connection.
pub(crate) fn alert(description: u8) -> Vec<u8> {
    vec![21, 3, 3, 0, 2, 2, description]
}

pub(crate) const DECODE_ERROR: u8 = 50;
pub(crate) const ACCESS_DENIED: u8 = 49;
pub(crate) const UNRECOGNIZED_NAME: u8 = 112;
const UNEXPECTED_MESSAGE: u8 = 10;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// Whether the hello carries another one, encrypted (the *outer* form of ECH).
///
/// Some clients send a dummy of the same shape, so that nobody can tell. We
/// cannot tell either, and take it for real.
fn hides_a_name(records: &[u8]) -> bool {
    let message = handshake_bytes(records);
    extensions(&message).is_some_and(|mut found| {
        found.any(|(kind, data)| kind == ENCRYPTED_CLIENT_HELLO && data.first() == Some(&0))
    })
}

/// The handshake's bytes without the records they came in.
fn handshake_bytes(records: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(records.len());
    let mut rest = records;
    while let [HANDSHAKE, _, _, high, low, after @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(after.len());
        let (data, next) = after.split_at(length);
        message.extend_from_slice(data);
        rest = next;
    }
    message
}

/// The extensions of a ClientHello, by number. It has been parsed by others
/// before; what does not add up here has none.
fn extensions(message: &[u8]) -> Option<impl Iterator<Item = (u16, &[u8])>> {
    let [CLIENT_HELLO, _, _, _, body @ ..] = message else { return None };
    let (_, rest) = body.split_at_checked(2 + 32)?;
    let (_, rest) = counted::<1>(rest)?;
    let (_, rest) = counted::<2>(rest)?;
    let (_, rest) = counted::<1>(rest)?;
    let (mut list, _) = counted::<2>(rest)?;
    Some(std::iter::from_fn(move || {
        let (kind, rest) = list.split_first_chunk::<2>()?;
        let (data, rest) = counted::<2>(rest)?;
        list = rest;
        Some((u16::from_be_bytes(*kind), data))
    }))
}

/// Bytes that are preceded by their count, in `N` bytes; then the rest.
fn counted<const N: usize>(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<N>()?;
    let count = count.iter().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
    rest.split_at_checked(count)
}

#[cfg(test)]
mod tests;
