//! One question on a control socket, for a health check from the same program.
//!
//! A runner has a real client. Here the answer is our own, whole and short, on a
//! connection that ends after it.

use std::io;
use std::path::Path;

use protocol::control::Status;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// How the gateway at `socket` stands.
pub async fn status(socket: &Path) -> io::Result<Status> {
    match ask(socket, "GET", "/status", "").await? {
        (200, body) => Ok(serde_json::from_str(&body)?),
        (code, body) => Err(io::Error::other(format!("it answered {code}: {body}"))),
    }
}

/// The status and the body of what the gateway answers.
pub async fn ask(socket: &Path, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket).await?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer).await?;
    let parts = answer.split_once("\r\n\r\n").and_then(|(head, body)| {
        let code = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        Some((code, body.to_owned()))
    });
    parts.ok_or_else(|| io::Error::other("its answer is no HTTP"))
}

/// Metrics are the longest answer, and their series are bounded.
const MAX_ANSWER_BYTES: u64 = 16 * 1024 * 1024;
