//! Step 2 of 10: the destination of a connection.
//!
//! Comes after accept, before policy. A client names its destination in one of
//! six ways: CONNECT, a whole URL, a SOCKS5 request, the name in a ClientHello,
//! a `Host` header, or the door of one host that it connects to. Whichever it was, what comes out is one [`Destination`],
//! parsed once; everything after this step reads only that.
//!
//! Nothing has been decided yet, so nothing is answered here but refusals, and
//! everything has a bound in bytes and in time.

pub(crate) mod client_hello;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod proxy;
pub(crate) mod reply;
pub(crate) mod socks;

use std::time::Duration;

use policies::{Destination, HostName};
use tokio::net::TcpStream;
use tokio::time;

use crate::gateway::Gateway;
use crate::http1::ClearDoor;
use crate::inbox::Inbox;
use crate::listen::ListenerKind;
use crate::refuse::Refusal;
use client_hello::{ClientHello, HelloError};

/// What a connection asks for, and the bytes it sent beyond that.
#[derive(Debug)]
pub(crate) enum Opening {
    /// Requests in the clear, each of which names its own destination.
    Requests { door: ClearDoor, inbox: Inbox },
    /// Everything on it is for one destination.
    Tunnel(TunnelOpening),
}

/// A connection to one destination, before policy is asked.
#[derive(Debug)]
pub(crate) struct TunnelOpening {
    pub(crate) to: Destination,
    pub(crate) by: OpenedBy,
    pub(crate) inbox: Inbox,
    /// Read already, if it was what named the destination.
    pub(crate) hello: Option<Box<ClientHello>>,
}

/// How the client opened it, and therefore which reply it waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OpenedBy {
    /// An HTTP response.
    Connect,
    /// Nothing: the door it came in by says whom it means.
    Door,
    /// Nothing: it was captured, and is in the middle of its handshake.
    Hello,
    /// A SOCKS reply.
    Socks,
}

/// A connection that did not get as far as naming a destination.
#[derive(Debug)]
pub(crate) struct OpeningError {
    pub(crate) refusal: Refusal,
    pub(crate) reply: OpeningReply,
}

/// How a client can be told.
#[derive(Debug)]
pub(crate) enum OpeningReply {
    /// As an HTTP/1.1 response.
    Http,
    /// It has been told, or there is no way to.
    Nothing,
    /// As a TLS alert.
    Tls(Vec<u8>),
}

/// Reads what a connection asks for.
pub(crate) async fn read(
    stream: &mut TcpStream,
    kind: &ListenerKind,
    gateway: &Gateway,
) -> Result<Opening, OpeningError> {
    let limit = gateway.limits.bounds().opening;
    match kind {
        // Its first head names the destination, and is read as every other.
        ListenerKind::CapturedHttp => {
            Ok(Opening::Requests { door: ClearDoor::Captured, inbox: Inbox::new() })
        }
        ListenerKind::CapturedHttps => captured(stream, HTTPS_PORT, None, limit).await,
        ListenerKind::CapturedPort(port) => {
            captured(stream, *port, Some(ClearDoor::CapturedPort(*port)), limit).await
        }
        ListenerKind::Proxy => within(limit, proxy::read(stream, gateway)).await,
        ListenerKind::Socks => match socks::negotiate(stream, limit).await {
            Ok(to) => Ok(Opening::Tunnel(TunnelOpening {
                to,
                by: OpenedBy::Socks,
                inbox: Inbox::new(),
                hello: None,
            })),
            Err(refused) => {
                Err(OpeningError { refusal: refused.into(), reply: OpeningReply::Nothing })
            }
        },
        ListenerKind::Tcp(to) => Ok(Opening::Tunnel(TunnelOpening {
            to: Destination::clone(to),
            by: OpenedBy::Door,
            inbox: Inbox::new(),
            hello: None,
        })),
    }
}

/// The destination of a captured TLS connection is the name in its ClientHello, and
/// the port it came in by. What is not TLS is read as HTTP, where that is spoken.
async fn captured(
    stream: &mut TcpStream,
    port: u16,
    in_the_clear: Option<ClearDoor>,
    limit: Duration,
) -> Result<Opening, OpeningError> {
    let mut inbox = Inbox::new();
    let read = within(limit, async { Ok(client_hello::read(stream, &mut inbox).await) }).await?;
    let hello = match (read, in_the_clear) {
        (Ok(hello), _) => hello,
        (Err(HelloError::NotTls), Some(door)) => return Ok(Opening::Requests { door, inbox }),
        (Err(err), _) => return Err(err.into()),
    };
    let Some(name) = &hello.server_name else {
        let reply = OpeningReply::Tls(client_hello::alert(client_hello::UNRECOGNIZED_NAME));
        return Err(OpeningError { refusal: Refusal::NoServerName, reply });
    };
    let to = match HostName::parse(name) {
        Ok(name) => Destination { host: name.into(), port },
        Err(err) => {
            let reply = OpeningReply::Tls(client_hello::alert(client_hello::UNRECOGNIZED_NAME));
            return Err(OpeningError { refusal: Refusal::BadName(err), reply });
        }
    };
    let hello = Some(Box::new(hello));
    Ok(Opening::Tunnel(TunnelOpening { to, by: OpenedBy::Hello, inbox, hello }))
}

const HTTPS_PORT: u16 = 443;

impl TunnelOpening {
    /// The ClientHello, if the client speaks TLS; otherwise its first bytes are in
    /// the inbox.
    pub(crate) async fn client_hello(
        &mut self,
        stream: &mut TcpStream,
        gateway: &Gateway,
    ) -> Result<Option<ClientHello>, Refusal> {
        if let Some(hello) = self.hello.take() {
            return Ok(Some(*hello));
        }
        let limit = gateway.limits.bounds().opening;
        match time::timeout(limit, client_hello::read(stream, &mut self.inbox)).await {
            Ok(Ok(hello)) => Ok(Some(hello)),
            Ok(Err(HelloError::NotTls)) => Ok(None),
            Ok(Err(err)) => {
                if let HelloError::Malformed { alert, .. } = &err {
                    reply::refuse_as_tls(stream, alert).await;
                }
                Err(err.into())
            }
            Err(_elapsed) => Err(Refusal::OpeningTimeout { limit }),
        }
    }
}

async fn within<T>(
    limit: Duration,
    opening: impl Future<Output = Result<T, OpeningError>>,
) -> Result<T, OpeningError> {
    match time::timeout(limit, opening).await {
        Ok(opened) => opened,
        Err(_elapsed) => {
            let refusal = Refusal::OpeningTimeout { limit };
            Err(OpeningError { refusal, reply: OpeningReply::Nothing })
        }
    }
}

impl From<HelloError> for OpeningError {
    fn from(err: HelloError) -> Self {
        let reply = match &err {
            HelloError::NotTls => OpeningReply::Http,
            HelloError::Malformed { alert, .. } => OpeningReply::Tls(alert.clone()),
            HelloError::TooLong => {
                OpeningReply::Tls(client_hello::alert(client_hello::DECODE_ERROR))
            }
            HelloError::Gone(_) => OpeningReply::Nothing,
        };
        Self { refusal: err.into(), reply }
    }
}

impl From<HelloError> for Refusal {
    fn from(err: HelloError) -> Self {
        match err {
            HelloError::Gone(err) => Self::ClientGone(err.to_string()),
            HelloError::NotTls => Self::Malformed(err.to_string()),
            HelloError::Malformed { .. } | HelloError::TooLong => {
                Self::HandshakeFailed(err.to_string())
            }
        }
    }
}

impl From<socks::SocksError> for Refusal {
    fn from(refused: socks::SocksError) -> Self {
        match refused {
            socks::SocksError::Host(err) => Self::BadName(err),
            socks::SocksError::Io(err) => Self::ClientGone(err.to_string()),
            socks::SocksError::Timeout(limit) => Self::OpeningTimeout { limit },
            socks::SocksError::AddressType(_)
            | socks::SocksError::Malformed(_)
            | socks::SocksError::UnsupportedCommand(_)
            | socks::SocksError::Version(_)
            | socks::SocksError::WantsAuthentication => Self::Malformed(refused.to_string()),
        }
    }
}
