//! One body, from one side to the other, as it is framed.

use std::io;

use anyhow::{Result, anyhow, bail};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::buffer::PendingBytes;
use crate::read_ahead::AHEAD_BYTES;

#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum BodyFraming {
    Absent,
    Chunked,
    Length(u64),
    UntilClose,
}

impl BodyFraming {
    /// What headers say; `default` where they say nothing.
    pub(crate) fn of(headers: &[httparse::Header<'_>], default: Self) -> Result<Self> {
        let mut framing = default;
        for header in headers {
            if header.name.eq_ignore_ascii_case("content-length") {
                framing = Self::Length(std::str::from_utf8(header.value)?.trim().parse()?);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                framing = Self::Chunked;
            }
        }
        Ok(framing)
    }

    /// Of so many bytes that came with a head, how many are the body's and may leave
    /// with it, and what is left then.
    pub(crate) fn split(self, available: usize) -> (usize, Self) {
        match self {
            Self::Length(length) => {
                let part = usize::try_from(length).unwrap_or(usize::MAX).min(available);
                (part, Self::Length(length - part as u64))
            }
            other => (0, other),
        }
    }
}

/// Sends a body on, beginning with what is pending; how many bytes it had.
pub(crate) async fn copy<R, W>(
    framing: BodyFraming,
    pending: &mut PendingBytes,
    from: &mut R,
    to: &mut W,
) -> Result<u64>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    match framing {
        BodyFraming::Absent => Ok(0),
        BodyFraming::Chunked => copy_chunks(pending, from, to).await,
        BodyFraming::Length(length) => {
            copy_length(length, pending, from, to).await?;
            to.flush().await?;
            Ok(length)
        }
        BodyFraming::UntilClose => Ok(copy_until_close(pending, from, to).await?),
    }
}

async fn copy_length<R, W>(
    length: u64,
    pending: &mut PendingBytes,
    from: &mut R,
    to: &mut W,
) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut left = length;
    while left > 0 {
        if pending.is_empty() {
            if pending.fill(from, AHEAD_BYTES).await? == 0 {
                bail!("a body breaks off");
            }
            if left > AHEAD_BYTES as u64 {
                pending.fill_at_once(from, AHEAD_BYTES).await;
            }
        }
        let part = pending.first(left);
        to.write_all(part).await?;
        let sent = part.len();
        pending.sent(sent);
        left -= sent as u64;
    }
    Ok(())
}

/// With the sizes of chunks, which are sent on as they are.
async fn copy_chunks<R, W>(pending: &mut PendingBytes, from: &mut R, to: &mut W) -> Result<u64>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut total = 0;
    loop {
        let (size_line, size) = loop {
            let parsed = httparse::parse_chunk_size(pending.get());
            match parsed.map_err(|_| anyhow!("no size of a chunk"))? {
                httparse::Status::Complete(size) => break size,
                httparse::Status::Partial if pending.fill(from, AHEAD_BYTES).await? == 0 => {
                    bail!("a body breaks off");
                }
                httparse::Status::Partial => {}
            }
        };
        let whole = size_line as u64 + size + LINE_END_BYTES;
        copy_length(whole, pending, from, to).await?;
        to.flush().await?;
        total += whole;
        if size == 0 {
            return Ok(total);
        }
    }
}

async fn copy_until_close<R, W>(
    pending: &mut PendingBytes,
    from: &mut R,
    to: &mut W,
) -> io::Result<u64>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut total = 0;
    loop {
        let part = pending.get();
        if !part.is_empty() {
            to.write_all(part).await?;
            to.flush().await?;
            let sent = part.len();
            pending.sent(sent);
            total += sent as u64;
        }
        // Some servers leave without a farewell.
        if pending.fill(from, AHEAD_BYTES).await.unwrap_or(0) == 0 {
            return Ok(total);
        }
    }
}

const LINE_END_BYTES: u64 = 2;
