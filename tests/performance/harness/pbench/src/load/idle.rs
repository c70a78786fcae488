//! `idle`: connections that had one answer and are held, and what memory they take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::sleep;

use super::window::Window;
use super::{Figures, Load, origin_counters};
use crate::processes::usage;
use crate::tunnel::OriginConnection;

pub(super) async fn run(load: &Arc<Load>) -> Result<Figures> {
    let before = load.watched.each(usage);
    let begun = Instant::now();
    let held = open_all(load).await?;
    let open_seconds = begun.elapsed().as_secs_f64();
    sleep(Duration::from_secs_f64(load.args.settle)).await;

    let window = Window::open(&load.watched);
    let during = load.watched.each(usage);
    let origin = origin_counters::read(&load.args.admin).await?;
    sleep(Duration::from_secs_f64(load.args.duration.min(MAX_HOLD_SECONDS))).await;
    let mut figures = window.close().figures(held.len() as u64);

    let memory = before.iter().zip(&during).map(|(before, during)| {
        // Memory that was given back meanwhile makes it negative.
        let grown_kib = during.rss_kib as f64 - before.rss_kib as f64;
        json!({
            "before_rss_kib": before.rss_kib,
            "held_rss_kib": during.rss_kib,
            "before_pss_kib": before.pss_kib,
            "held_pss_kib": during.pss_kib,
            "kib_per_conn": grown_kib / held.len() as f64,
            "fds": during.descriptors,
            "procs": during.processes,
        })
    });
    let idle = json!({
        "held": held.len(),
        "open_seconds": open_seconds,
        "origin_open": origin.get("open"),
        "procs": load.watched.named(memory),
    });
    figures.insert("idle".into(), idle);
    Ok(figures)
}

/// Some at a time, until all are open.
async fn open_all(load: &Load) -> Result<Vec<OriginConnection>> {
    let mut held = Vec::new();
    while held.len() < load.args.conns {
        let batch = (load.args.conns - held.len()).min(BATCH);
        for opened in join_all((0..batch).map(|_| load.within(open_one(load)))).await {
            match opened {
                Ok(connection) => held.push(connection),
                Err(err) => load.tally.error(&err),
            }
        }
        if load.tally.errors() > MAX_ERRORS {
            bail!("too many errors with {} open", held.len());
        }
    }
    Ok(held)
}

async fn open_one(load: &Load) -> Result<OriginConnection> {
    let (mut connection, _) = load.route.open(&load.args.host).await?;
    connection.get(&load.args.host, "/bytes/1024").await?.expect_bytes(1024)?;
    Ok(connection)
}

const BATCH: usize = 16;
const MAX_ERRORS: u64 = 200;
const MAX_HOLD_SECONDS: f64 = 5.0;
