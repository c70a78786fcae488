//! `download` and `upload`: one large transfer for each connection, all at once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use futures_util::future::join_all;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::args::Workload;
use super::get::issuer_remark;
use super::window::Window;
use super::{Figures, Load};
use crate::connection::get_request;
use crate::tunnel::OriginConnection;

pub(super) async fn run(load: &Arc<Load>) -> Result<Figures> {
    let mut connections = Vec::new();
    for _ in 0..load.args.conns {
        connections.push(load.within(load.route.open(&load.args.host)).await?.0);
    }
    if let Some(first) = connections.first() {
        load.tally.remark(issuer_remark(first));
    }

    let window = Window::open(&load.watched);
    let transfers = join_all(connections.iter_mut().map(|one| transfer(load, one, &window)));
    let limit = Duration::from_secs_f64(load.args.timeout * TRANSFER_FACTOR);
    let bytes = match timeout(limit, transfers).await {
        Ok(transferred) => transferred.iter().sum(),
        Err(_) => {
            load.tally.error("timed out");
            0
        }
    };
    let window = window.close();
    let mut figures = window.figures(load.args.conns as u64);
    figures.extend(window.transfer_figures(bytes));
    Ok(figures)
}

/// How many bytes were transferred: all of them or, after an error, none.
async fn transfer(load: &Load, connection: &mut OriginConnection, window: &Window<'_>) -> u64 {
    let done = match load.args.workload {
        Workload::Download => download(load, connection, window).await,
        _ => upload(load, connection).await,
    };
    match done {
        Ok(()) => load.args.bytes,
        Err(err) => {
            load.tally.error(&err);
            0
        }
    }
}

async fn download(
    load: &Load,
    connection: &mut OriginConnection,
    window: &Window<'_>,
) -> Result<()> {
    connection.send(&get_request(&load.args.host, &load.path())).await?;
    let mut has_begun = false;
    let note_first = |_: &[u8]| {
        if !std::mem::replace(&mut has_begun, true) {
            load.tally.delay("first_byte", window.elapsed());
        }
    };
    connection.receive(note_first).await?.expect_bytes(load.args.bytes)
}

async fn upload(load: &Load, connection: &mut OriginConnection) -> Result<()> {
    let (host, bytes) = (&load.args.host, load.args.bytes);
    let head = format!("POST /upload HTTP/1.1\r\nHost: {host}\r\nUser-Agent: pbench\r\n");
    let body = format!("Content-Type: application/octet-stream\r\nContent-Length: {bytes}\r\n\r\n");
    connection.send((head + &body).as_bytes()).await?;
    let block = vec![b'u'; BLOCK_BYTES];
    let mut left = bytes;
    while left > 0 {
        let piece = block.get(..usize::try_from(left)?).unwrap_or(&block);
        connection.stream.write_all(piece).await?;
        left -= piece.len() as u64;
    }
    connection.stream.flush().await?;
    let mut answer = Vec::new();
    let received = connection.receive(|piece| answer.extend_from_slice(piece)).await?;
    let answer = String::from_utf8_lossy(&answer);
    if received.status != 200 || answer != bytes.to_string() {
        bail!("status {} answer {answer:?}", received.status);
    }
    Ok(())
}

const BLOCK_BYTES: usize = 64 << 10;
/// A transfer may take so many times as long as a small exchange.
const TRANSFER_FACTOR: f64 = 20.0;
