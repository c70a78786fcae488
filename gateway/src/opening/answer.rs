//! What a client is told while its connection opens, in each way's own words.

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{By, socks};
use crate::http1::{self, Afterwards};
use crate::refuse::{Refusal, Reply};

/// Tells the client that it may go on.
pub(crate) async fn say_yes(stream: &mut TcpStream, by: By) -> Result<(), Refusal> {
    let told = match by {
        By::Connect => stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await,
        By::Hello => Ok(()),
        By::Socks => socks::reply(stream, socks::Reply::Succeeded).await,
    };
    told.map_err(|err| Refusal::ClientGone(err.to_string()))
}

/// Refuses as HTTP/1.1.
pub(crate) async fn tell_http(stream: &mut TcpStream, reply: &Reply) {
    let mut out = Vec::new();
    let reason = reply.reason_phrase();
    http1::write_refusal(&reply.wire(false), &reason, false, Afterwards::Close, &mut out);
    if stream.write_all(&out).await.is_ok() {
        http1::linger(stream).await;
    }
}

/// Refuses as an alert.
pub(crate) async fn tell_tls(stream: &mut TcpStream, alert: &[u8]) {
    if stream.write_all(alert).await.is_ok() {
        http1::linger(stream).await;
    }
}
