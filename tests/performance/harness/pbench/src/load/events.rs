//! `sse`: how much later than they were made events arrive.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::get::issuer_remark;
use super::window::Window;
use super::{Figures, Load};
use crate::clock::monotonic_ns;
use crate::connection::get_request;

pub(super) async fn run(load: &Arc<Load>) -> Result<Figures> {
    let window = Window::open(&load.watched);
    let streams = join_all((0..load.args.conns).map(|_| async {
        if let Err(err) = stream(load).await {
            load.tally.error(&err);
        }
    }));
    let lasting = Duration::from_millis(load.args.events * load.args.every);
    if timeout(lasting + Duration::from_secs_f64(load.args.timeout), streams).await.is_err() {
        load.tally.error("timed out");
    }
    Ok(window.close().figures(load.tally.operations()))
}

async fn stream(load: &Load) -> Result<()> {
    let (mut connection, _) = load.within(load.route.open(&load.args.host)).await?;
    load.tally.remark(issuer_remark(&connection));
    let path = format!("/sse?n={}&ms={}", load.args.events, load.args.every);
    connection.send(&get_request(&load.args.host, &path)).await?;
    let mut reader = EventReader::default();
    connection
        .receive(|piece| {
            let now = monotonic_ns();
            for made in reader.read(piece) {
                // The first ones pay for the beginning of a stream.
                if reader.events > WARMUP_EVENTS {
                    load.tally.event(Duration::from_nanos(now.saturating_sub(made)));
                }
            }
        })
        .await?;
    if reader.events != load.args.events {
        bail!("{} of {} events", reader.events, load.args.events);
    }
    Ok(())
}

/// Finds events in pieces that end anywhere.
#[derive(Default)]
struct EventReader {
    text: Vec<u8>,
    events: u64,
}

impl EventReader {
    /// When the next whole events were made.
    fn read(&mut self, piece: &[u8]) -> Vec<u64> {
        self.text.extend_from_slice(piece);
        let mut made = Vec::new();
        while let Some(end) = self.text.windows(2).position(|pair| pair == b"\n\n") {
            let event: Vec<u8> = self.text.drain(..end + 2).collect();
            let event = String::from_utf8_lossy(&event);
            let data: Option<u64> =
                event.lines().find_map(|line| line.strip_prefix("data: ")?.parse().ok());
            made.extend(data);
        }
        self.events += made.len() as u64;
        made
    }
}

const WARMUP_EVENTS: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_wherever_pieces_end() {
        let text = b"id: 0\ndata: 17\n\n: a remark\n\nid: 1\ndata: 23\n\n";
        for piece in 1..text.len() {
            let mut reader = EventReader::default();
            let made: Vec<u64> = text.chunks(piece).flat_map(|one| reader.read(one)).collect();
            assert_eq!((made, reader.events), (vec![17, 23], 2), "{piece}");
        }
    }
}
