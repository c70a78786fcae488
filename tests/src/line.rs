//! One connection, seen from the side that a test plays.
//!
//! Speaks bytes. What it reads as HTTP it reads naively, the way the peers do
//! that attacks are made for: it is no second opinion on what is well formed.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio_rustls::TlsConnector;

use crate::deadline::within;
use crate::reply::{Reply, first};
use crate::websocket::Frame;

/// Anything that bytes go over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// One connection.
pub struct Line {
    stream: BufReader<Box<dyn Stream>>,
    /// What TLS agreed to speak inside.
    pub alpn: Option<Vec<u8>>,
}

/// One head: its first line and its headers, names in lower case.
#[derive(Clone, Debug, Default)]
pub struct Head {
    pub first_line: String,
    pub headers: Vec<(String, String)>,
    pub raw: Vec<u8>,
}

impl Line {
    pub fn new(stream: impl Stream + 'static) -> Self {
        Self { stream: BufReader::new(Box::new(stream)), alpn: None }
    }

    /// Sends, as far as anyone is there to listen: a peer that refuses early
    /// closes early, and what it answered is what a test asks about.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = within("sending", async {
            self.stream.write_all(bytes.as_ref()).await?;
            self.stream.flush().await
        });
        drop(sent.await);
    }

    /// Sends, or says that nobody is there.
    pub async fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Says that nothing more will be sent.
    pub async fn finish(&mut self) {
        drop(within("half-closing", self.stream.shutdown()).await);
    }

    /// The answer to a request that has a body as its head says.
    #[track_caller]
    pub fn reply(&mut self) -> impl Future<Output = Reply> {
        self.reply_to("GET")
    }

    /// The answer to a request with this method: HEAD has no body.
    #[track_caller]
    pub fn reply_to(&mut self, method: &str) -> impl Future<Output = Reply> {
        let method = method.to_owned();
        within("a reply", async move {
            self.read_reply(&method).await.unwrap_or_else(|err| panic!("no reply: {err}"))
        })
    }

    /// The answer, or nothing when the connection ends instead.
    #[track_caller]
    pub fn reply_or_end(&mut self) -> impl Future<Output = Option<Reply>> {
        within("a reply or the end", async move { self.read_reply("GET").await.ok() })
    }

    /// Asserts that the peer closes and sends nothing before it does.
    #[track_caller]
    pub fn assert_ends(&mut self) -> impl Future<Output = ()> {
        within("the end", async move {
            let mut rest = Vec::new();
            // A reset is an end as well.
            drop(self.stream.read_to_end(&mut rest).await);
            assert!(rest.is_empty(), "more came: {:?}", String::from_utf8_lossy(&rest));
        })
    }

    /// Reads until the peer closes.
    #[track_caller]
    pub fn rest(&mut self) -> impl Future<Output = Vec<u8>> {
        within("the rest", async move {
            let mut rest = Vec::new();
            drop(self.stream.read_to_end(&mut rest).await);
            rest
        })
    }

    /// Reads exactly so many bytes.
    #[track_caller]
    pub fn take(&mut self, length: usize) -> impl Future<Output = Vec<u8>> {
        within("bytes", async move {
            let mut bytes = vec![0; length];
            self.stream.read_exact(&mut bytes).await.unwrap();
            bytes
        })
    }

    /// Reads what comes next, as much as there is.
    #[track_caller]
    pub fn some(&mut self) -> impl Future<Output = Vec<u8>> {
        within("some bytes", async move {
            let mut bytes = vec![0; 64 * 1024];
            let read = self.stream.read(&mut bytes).await.unwrap_or(0);
            bytes.truncate(read);
            bytes
        })
    }

    /// Reads until something has come, and returns all until then.
    #[track_caller]
    pub fn read_through(&mut self, marker: &[u8]) -> impl Future<Output = Vec<u8>> {
        let marker = marker.to_vec();
        within("a marker", async move {
            let mut bytes = Vec::new();
            while !bytes.ends_with(&marker) {
                bytes.push(self.stream.read_u8().await.unwrap());
            }
            bytes
        })
    }

    /// The next WebSocket frame, or nothing at the end.
    pub async fn frame(&mut self) -> Option<Frame> {
        Frame::read(&mut self.stream).await
    }

    /// The next head, or nothing at the end.
    pub async fn head(&mut self) -> io::Result<Head> {
        let mut raw = Vec::new();
        loop {
            let before = raw.len();
            if self.stream.read_until(b'\n', &mut raw).await? == 0 {
                let what = format!("ended within {:?}", String::from_utf8_lossy(&raw));
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
            if matches!(raw.get(before..), Some(b"\r\n" | b"\n")) {
                return Ok(Head::read(raw));
            }
        }
    }

    async fn read_reply(&mut self, method: &str) -> io::Result<Reply> {
        let mut interim = Vec::new();
        loop {
            let head = self.head().await?;
            let mut words = head.first_line.splitn(3, ' ').skip(1);
            let status = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            let reason = words.next().unwrap_or_default().to_owned();
            let mut reply = Reply { status, reason, headers: head.headers, ..Reply::default() };
            match status {
                101 | 204 | 304 => {}
                100..200 => {
                    interim.push(status);
                    continue;
                }
                _ if method == "HEAD" => {}
                200 if method == "CONNECT" => {}
                _ => match Framing::of(&reply.headers) {
                    Framing::Chunked => {
                        (reply.body, reply.trailers) = self.chunked().await?;
                    }
                    Framing::Length(length) => reply.body = self.exactly(length).await?,
                    Framing::Nothing => {
                        self.stream.read_to_end(&mut reply.body).await?;
                    }
                },
            }
            reply.interim = interim;
            return Ok(reply);
        }
    }

    pub(crate) async fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok(body)
    }

    /// A chunked body and its trailers.
    pub(crate) async fn chunked(&mut self) -> io::Result<(Vec<u8>, Vec<(String, String)>)> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).await?;
            let size = line.trim().split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(size, 16)
                .map_err(|err| io::Error::other(format!("{err}: {line:?}")))?;
            if size == 0 {
                break;
            }
            body.extend(self.exactly(size).await?);
            self.exactly(2).await?;
        }
        let mut raw = Vec::from(*b"\n");
        loop {
            let before = raw.len();
            self.stream.read_until(b'\n', &mut raw).await?;
            if matches!(raw.get(before..), Some(b"\r\n" | b"\n" | b"") | None) {
                return Ok((body, Head::read(raw).headers));
            }
        }
    }

    /// Speaks TLS from here on. Whatever was read ahead would be lost.
    pub async fn tls(
        self,
        name: &ServerName<'static>,
        config: &Arc<ClientConfig>,
    ) -> io::Result<Self> {
        assert!(self.stream.buffer().is_empty(), "the peer spoke before the handshake");
        let connector = TlsConnector::from(Arc::clone(config));
        let stream = connector.connect(name.clone(), self.stream.into_inner()).await?;
        let alpn = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        Ok(Self { alpn, ..Self::new(stream) })
    }

    /// The connection itself.
    pub fn into_stream(self) -> Box<dyn Stream> {
        assert!(self.stream.buffer().is_empty(), "bytes were read ahead");
        self.stream.into_inner()
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("alpn", &self.alpn).finish_non_exhaustive()
    }
}

impl Head {
    fn read(raw: Vec<u8>) -> Self {
        let text = String::from_utf8_lossy(&raw).into_owned();
        let mut lines = text.lines();
        let first_line = lines.next().unwrap_or_default().to_owned();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Self { first_line, headers, raw }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        first(&self.headers, name)
    }
}

/// Where a body ends, as a naive reader decides it: anything that mentions
/// `chunked` wins, else the first length.
pub(crate) enum Framing {
    Chunked,
    Length(usize),
    Nothing,
}

impl Framing {
    pub(crate) fn of(headers: &[(String, String)]) -> Self {
        if first(headers, "transfer-encoding").is_some_and(|value| value.contains("chunked")) {
            return Self::Chunked;
        }
        match first(headers, "content-length").and_then(|value| value.parse().ok()) {
            Some(length) => Self::Length(length),
            None => Self::Nothing,
        }
    }
}
