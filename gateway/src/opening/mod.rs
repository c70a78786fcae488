//! Step 2 of 10: whom a connection is for.
//!
//! Comes after accept, before policy. A client names its destination in one of
//! five ways: CONNECT, a whole URL, a SOCKS5 request, the name in a ClientHello,
//! a `Host` header. Whichever it was, what comes out is one [`Destination`],
//! parsed once; everything after this step reads only that.
//!
//! Nothing has been decided yet, so nothing is answered here but refusals, and
//! everything has a bound in bytes and in time.

pub(crate) mod answer;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub(crate) mod hello;
mod proxy;
pub(crate) mod socks;

use std::time::Duration;

use policies::{Destination, HostName};
use tokio::net::TcpStream;
use tokio::time;

use crate::gateway::Gateway;
use crate::listen::Way;
use crate::refuse::Refusal;
use crate::relay::Inbox;
use hello::{Hello, HelloError};

/// What a connection has said of itself, and the bytes it sent beyond that.
#[derive(Debug)]
pub(crate) enum Opening {
    /// Requests in the clear, each of which names its own destination.
    Requests { proxy: bool, inbox: Inbox },
    /// Everything on it is for one destination.
    Tunnel(Opened),
}

/// A connection to one destination, not yet let in.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) to: Destination,
    pub(crate) by: By,
    pub(crate) inbox: Inbox,
    /// Read already, if it was what named the destination.
    pub(crate) hello: Option<Box<Hello>>,
}

/// What the client did to open it, and therefore what it waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum By {
    /// An HTTP response.
    Connect,
    /// Nothing: it was captured, and is in the middle of its handshake.
    Hello,
    /// A SOCKS reply.
    Socks,
}

/// A connection that did not get as far as naming a destination.
#[derive(Debug)]
pub(crate) struct Unopened {
    pub(crate) refusal: Refusal,
    pub(crate) answer: Answer,
}

/// How a client can be told.
#[derive(Debug)]
pub(crate) enum Answer {
    /// As an HTTP/1.1 response.
    Http,
    /// It has been told, or there is no way to.
    Nothing,
    /// As a TLS alert.
    Tls(Vec<u8>),
}

/// Reads what a connection says of itself.
pub(crate) async fn read(
    stream: &mut TcpStream,
    way: Way,
    gateway: &Gateway,
) -> Result<Opening, Unopened> {
    let limit = gateway.limits.opening();
    match way {
        // Its first head says whom it is for, and is read as every other.
        Way::CapturedHttp => Ok(Opening::Requests { proxy: false, inbox: Inbox::new() }),
        Way::CapturedHttps => captured(stream, limit).await.map(Opening::Tunnel),
        Way::Proxy => within(limit, proxy::read(stream, gateway)).await,
        Way::Socks => match socks::negotiate(stream, limit).await {
            Ok(to) => {
                Ok(Opening::Tunnel(Opened { to, by: By::Socks, inbox: Inbox::new(), hello: None }))
            }
            Err(refused) => Err(Unopened { refusal: refused.into(), answer: Answer::Nothing }),
        },
    }
}

/// A captured TLS connection is for whom its ClientHello names.
async fn captured(stream: &mut TcpStream, limit: Duration) -> Result<Opened, Unopened> {
    let mut inbox = Inbox::new();
    let hello =
        within(limit, async { hello::read(stream, &mut inbox).await.map_err(Unopened::from) })
            .await?;
    let Some(name) = &hello.server_name else {
        let answer = Answer::Tls(hello::alert(hello::UNRECOGNIZED_NAME));
        return Err(Unopened { refusal: Refusal::NoServerName, answer });
    };
    let to = match HostName::parse(name) {
        Ok(name) => Destination { host: name.into(), port: 443 },
        Err(err) => {
            let answer = Answer::Tls(hello::alert(hello::UNRECOGNIZED_NAME));
            return Err(Unopened { refusal: Refusal::BadName(err), answer });
        }
    };
    Ok(Opened { to, by: By::Hello, inbox, hello: Some(Box::new(hello)) })
}

async fn within<T>(
    limit: Duration,
    opening: impl Future<Output = Result<T, Unopened>>,
) -> Result<T, Unopened> {
    match time::timeout(limit, opening).await {
        Ok(opened) => opened,
        Err(_elapsed) => {
            let refusal = Refusal::OpeningTimeout { limit };
            Err(Unopened { refusal, answer: Answer::Nothing })
        }
    }
}

impl From<HelloError> for Unopened {
    fn from(err: HelloError) -> Self {
        let answer = match &err {
            HelloError::NotTls => Answer::Http,
            HelloError::Malformed { alert, .. } => Answer::Tls(alert.clone()),
            HelloError::TooLong => Answer::Tls(hello::alert(hello::DECODE_ERROR)),
            HelloError::Gone(_) => Answer::Nothing,
        };
        Self { refusal: err.into(), answer }
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

impl From<socks::SocksRefusal> for Refusal {
    fn from(refused: socks::SocksRefusal) -> Self {
        match refused {
            socks::SocksRefusal::Host(err) => Self::BadName(err),
            socks::SocksRefusal::Io(err) => Self::ClientGone(err.to_string()),
            socks::SocksRefusal::Timeout(limit) => Self::OpeningTimeout { limit },
            socks::SocksRefusal::AddressType(_)
            | socks::SocksRefusal::Malformed(_)
            | socks::SocksRefusal::UnsupportedCommand(_)
            | socks::SocksRefusal::Version(_)
            | socks::SocksRefusal::WantsAuthentication => Self::Malformed(refused.to_string()),
        }
    }
}
