//! An HTTP/1.1 server as naive as those that attacks are made for.

use super::Peer;
use crate::line::{Framing, Line};
use crate::reply::first;

/// One request as an upstream read it.
#[derive(Clone, Debug, Default)]
pub struct Received {
    pub method: String,
    pub target: String,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// The head, byte for byte.
    pub head: Vec<u8>,
}

/// What an upstream sends back.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Answer {
    pub fn new(status: u16, body: impl AsRef<[u8]>) -> Self {
        Self { status, headers: String::new(), body: body.as_ref().to_vec() }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    fn bytes(&self, method: &str) -> Vec<u8> {
        let Self { status, headers, body } = self;
        let length = match status {
            204 | 304 => String::new(),
            _ => format!("Content-Length: {}\r\n", body.len()),
        };
        let mut bytes = format!("HTTP/1.1 {status} Scripted\r\n{headers}{length}\r\n").into_bytes();
        if method != "HEAD" && !matches!(status, 204 | 304) {
            bytes.extend(body);
        }
        bytes
    }
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        first(&self.headers, name)
    }

    /// Every value of a header.
    pub fn values(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(known, _)| known == name);
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// `GET /path at host, 3 bytes`.
    pub fn echo(&self) -> Answer {
        let host = self.header("host").unwrap_or("nobody");
        let length = self.body.len();
        Answer::new(200, format!("{} {} at {host}, {length} bytes", self.method, self.target))
    }
}

/// Answers requests until there are none.
pub(super) async fn serve(mut peer: Peer, answer: &(dyn Fn(&Received) -> Answer + Send + Sync)) {
    while let Some(received) = peer.request().await {
        let bytes = answer(&received).bytes(&received.method);
        peer.line.send(bytes).await;
    }
}

/// One request with its body.
pub(super) async fn read(line: &mut Line) -> Option<Received> {
    let head = line.head().await.ok()?;
    if head.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        line.send("HTTP/1.1 100 Continue\r\n\r\n").await;
    }
    let (body, trailers) = match Framing::of(&head.headers) {
        Framing::Chunked => line.chunked().await.ok()?,
        Framing::Length(length) => (line.exactly(length).await.ok()?, Vec::new()),
        Framing::Nothing => (Vec::new(), Vec::new()),
    };
    let mut words = head.first_line.split(' ');
    let method = words.next().unwrap_or_default().to_owned();
    let target = words.next().unwrap_or_default().to_owned();
    Some(Received { method, target, headers: head.headers, body, trailers, head: head.raw })
}
