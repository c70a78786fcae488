//! Sends without end, until the other side has had enough.

use std::time::{Duration, Instant};

use tests::within;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time;

use super::frames::Flood;

/// How much was sent, and why no more.
#[derive(Clone, Copy)]
pub(super) struct Poured {
    pub(super) sent: u64,
    pub(super) how: How,
}

#[derive(Clone, Copy)]
pub(super) enum How {
    /// The gateway took no more for a while.
    Blocked,
    /// The gateway hung up.
    Ended,
    /// All of it went in.
    Taken,
}

impl How {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Blocked => "held back",
            Self::Ended => "hung up",
            Self::Taken => "taken",
        }
    }

    pub(super) fn is_ended(self) -> bool {
        matches!(self, Self::Ended)
    }
}

/// The whole of a flood, and its longest time: neither is asserted, they only
/// make an attack that succeeds come to an end.
const MOST: u64 = 32 << 20;
const LONGEST: Duration = Duration::from_secs(15);
/// A write that takes longer is being held back.
const HELD_BACK: Duration = Duration::from_secs(5);

pub(super) async fn pour<W: AsyncWrite + Unpin>(to: &mut W, stream: u32, flood: &Flood) -> Poured {
    pour_each(to, |round| (flood.some)(stream, round)).await
}

/// The same bytes again and again.
pub(super) async fn pour_bytes<W: AsyncWrite + Unpin>(to: &mut W, bytes: &[u8]) -> Poured {
    pour_each(to, |_| bytes.to_vec()).await
}

async fn pour_each<W: AsyncWrite + Unpin>(to: &mut W, each: impl Fn(u32) -> Vec<u8>) -> Poured {
    let began = Instant::now();
    let mut sent = 0;
    let mut round = 0;
    while sent < MOST && began.elapsed() < LONGEST {
        let some = each(round);
        round += 1;
        match time::timeout(HELD_BACK, write(to, &some)).await {
            Ok(Ok(())) => sent += some.len() as u64,
            Ok(Err(_)) => return Poured { sent, how: How::Ended },
            Err(_) => return Poured { sent, how: How::Blocked },
        }
    }
    Poured { sent, how: How::Taken }
}

/// Says something to whoever may be gone already.
pub(super) async fn say<W: AsyncWrite + Unpin>(to: &mut W, bytes: &[u8]) {
    drop(within("saying", write(to, bytes)).await);
}

/// Says something; whether anybody was there.
pub(super) async fn try_say<W: AsyncWrite + Unpin>(to: &mut W, bytes: &[u8]) -> bool {
    within("saying", write(to, bytes)).await.is_ok()
}

async fn write<W: AsyncWrite + Unpin>(to: &mut W, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

/// Reads until the end, and forgets it.
pub(super) async fn drain<R: AsyncRead + Unpin>(mut from: R) {
    let mut waste = vec![0; 64 * 1024];
    while !matches!(from.read(&mut waste).await, Ok(0) | Err(_)) {}
}

/// The stream of the next head, after so many bytes of something else.
pub(super) async fn next_head<R: AsyncRead + Unpin>(from: &mut R, skip: usize) -> Option<u32> {
    from.read_exact(&mut vec![0; skip]).await.ok()?;
    loop {
        let mut header = [0; 9];
        from.read_exact(&mut header).await.ok()?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        from.read_exact(&mut payload).await.ok()?;
        if header[3] == 1 {
            return Some(u32::from_be_bytes([header[5], header[6], header[7], header[8]]));
        }
    }
}
