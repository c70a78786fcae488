//! Answers to a client whose connection opens, in the protocol it came in.

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::OpenedBy;
use super::socks::{self, SocksReply};
use crate::http1::{self, ConnectionOption};
use crate::refuse::{Refusal, Reply};

/// Tells the client that it may go on.
pub(crate) async fn confirm(stream: &mut TcpStream, by: OpenedBy) -> Result<(), Refusal> {
    let told = match by {
        OpenedBy::Connect => stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await,
        OpenedBy::Door | OpenedBy::Hello => Ok(()),
        OpenedBy::Socks => socks::reply(stream, SocksReply::Succeeded).await,
    };
    told.map_err(|err| Refusal::ClientGone(err.to_string()))
}

/// Refuses as HTTP/1.1.
pub(crate) async fn refuse_as_http(stream: &mut TcpStream, reply: &Reply) {
    let mut out = Vec::new();
    let reason = reply.reason_phrase();
    http1::write_refusal(&reply.wire(false), &reason, false, ConnectionOption::Close, &mut out);
    if stream.write_all(&out).await.is_ok() {
        http1::linger(stream).await;
    }
}

/// Refuses as an alert.
pub(crate) async fn refuse_as_tls(stream: &mut TcpStream, alert: &[u8]) {
    if stream.write_all(alert).await.is_ok() {
        http1::linger(stream).await;
    }
}
