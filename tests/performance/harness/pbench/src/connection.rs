//! HTTP/1.1 as the client speaks it, by hand, so that the load generator itself costs
//! little and sees each piece of a body when it arrives.

use anyhow::{Result, anyhow, bail};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

pub(crate) struct HttpConnection<S> {
    pub(crate) stream: S,
    /// What was read; the first `consumed` bytes are done with.
    buffer: Vec<u8>,
    consumed: usize,
}

/// What an answer was, once its body has been read.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct ReceivedAnswer {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    /// The connection can carry another request.
    pub(crate) reusable: bool,
}

/// How the end of a body is known.
#[derive(Debug, Eq, PartialEq)]
enum BodyEnd {
    AtClose,
    Chunked,
    Length(u64),
}

/// Status line and headers, as far as they matter here.
#[derive(Debug, Eq, PartialEq)]
struct AnswerHead {
    status: u16,
    body_end: BodyEnd,
    keep_alive: bool,
}

pub(crate) fn get_request(host: &str, path: &str) -> Vec<u8> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: pbench\r\n");
    (head + "Accept: */*\r\n\r\n").into_bytes()
}

impl ReceivedAnswer {
    /// Fails unless it is a 200 with so many bytes.
    pub(crate) fn expect_bytes(&self, bytes: u64) -> Result<()> {
        if self.status != 200 || self.body_bytes != bytes {
            bail!("status {} body {}", self.status, self.body_bytes);
        }
        Ok(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> HttpConnection<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, buffer: Vec::with_capacity(READ_BYTES), consumed: 0 }
    }

    /// Sends a GET and reads the answer, whose body is only counted.
    pub(crate) async fn get(&mut self, host: &str, path: &str) -> Result<ReceivedAnswer> {
        self.send(&get_request(host, path)).await?;
        self.receive(|_| {}).await
    }

    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        Ok(())
    }

    /// Reads one answer; `sink` is given each piece of the body as it arrives, without
    /// the sizes of chunks.
    pub(crate) async fn receive(&mut self, mut sink: impl FnMut(&[u8])) -> Result<ReceivedAnswer> {
        let head = self.head().await?;
        let body_bytes = match head.body_end {
            BodyEnd::AtClose => self.until_close(&mut sink).await,
            BodyEnd::Chunked => self.chunks(&mut sink).await?,
            BodyEnd::Length(length) => self.piece(length, &mut sink).await?,
        };
        let reusable = head.keep_alive && head.body_end != BodyEnd::AtClose;
        Ok(ReceivedAnswer { status: head.status, body_bytes, reusable })
    }

    /// The head of the answer, after informational ones.
    async fn head(&mut self) -> Result<AnswerHead> {
        loop {
            if let Some((head, length)) = parse_head(self.unread())? {
                self.consumed += length;
                if !(100..200).contains(&head.status) {
                    return Ok(head);
                }
            } else if self.read_more().await? == 0 {
                bail!("connection closed before the response");
            }
        }
    }

    async fn until_close(&mut self, sink: &mut impl FnMut(&[u8])) -> u64 {
        let mut total = 0;
        loop {
            let unread = self.unread();
            total += unread.len() as u64;
            sink(unread);
            self.consumed = self.buffer.len();
            // Some servers leave without a farewell.
            if let Ok(0) | Err(_) = self.read_more().await {
                return total;
            }
        }
    }

    async fn chunks(&mut self, sink: &mut impl FnMut(&[u8])) -> Result<u64> {
        let mut total = 0;
        loop {
            let size = self.chunk_size().await?;
            total += self.piece(size, sink).await?;
            // The line's end after a chunk; after the last one, that of the trailers.
            self.piece(2, &mut |_: &[u8]| {}).await?;
            if size == 0 {
                return Ok(total);
            }
        }
    }

    async fn chunk_size(&mut self) -> Result<u64> {
        loop {
            let parsed = httparse::parse_chunk_size(self.unread());
            match parsed.map_err(|_| anyhow!("bad chunk size"))? {
                httparse::Status::Complete((length, size)) => {
                    self.consumed += length;
                    return Ok(size);
                }
                httparse::Status::Partial if self.read_more().await? == 0 => {
                    bail!("closed inside a chunked body");
                }
                httparse::Status::Partial => {}
            }
        }
    }

    /// Exactly so many bytes of a body.
    async fn piece(&mut self, length: u64, sink: &mut impl FnMut(&[u8])) -> Result<u64> {
        let mut left = length;
        while left > 0 {
            let unread = self.unread();
            let part = usize::try_from(left).unwrap_or(usize::MAX).min(unread.len());
            if part > 0 {
                sink(unread.get(..part).unwrap_or_default());
                self.consumed += part;
                left -= part as u64;
            } else if self.read_more().await? == 0 {
                bail!("closed with {left} bytes of the body missing");
            }
        }
        Ok(length)
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.consumed..).unwrap_or_default()
    }

    async fn read_more(&mut self) -> Result<usize> {
        if self.consumed == self.buffer.len() {
            self.buffer.clear();
            self.consumed = 0;
        }
        if self.buffer.capacity() - self.buffer.len() < MIN_ROOM_BYTES {
            self.buffer.reserve(READ_BYTES);
        }
        Ok(self.stream.read_buf(&mut self.buffer).await?)
    }
}

/// A head and its length, if it is whole.
fn parse_head(bytes: &[u8]) -> Result<Option<(AnswerHead, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = response.parse(bytes)? else { return Ok(None) };
    let status = response.code.unwrap_or(0);
    let mut head =
        AnswerHead { status, body_end: BodyEnd::AtClose, keep_alive: response.version == Some(1) };
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(header.value)?;
            head.body_end = BodyEnd::Length(text.trim().parse()?);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            head.body_end = BodyEnd::Chunked;
        } else if header.name.eq_ignore_ascii_case("connection") {
            head.keep_alive &= !header.value.eq_ignore_ascii_case(b"close");
        }
    }
    if status == 204 || status == 304 {
        head.body_end = BodyEnd::Length(0);
    }
    Ok(Some((head, length)))
}

const READ_BYTES: usize = 64 << 10;
const MIN_ROOM_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests;
