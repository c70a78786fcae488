//! Workloads that repeat an operation for a time, or so often: get, conn, deny.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::task::{self, JoinHandle, LocalSet};
use tokio::time::{sleep, timeout};

use super::args::Workload;
use super::window::Window;
use super::{Figures, Load, deny, get, get_h2, new_connections};

pub(super) async fn run(load: &Arc<Load>) -> Result<Figures> {
    LocalSet::new().run_until(measured(load)).await
}

async fn measured(load: &Arc<Load>) -> Result<Figures> {
    let clients: Vec<_> = (0..load.args.conns).map(|_| client(Arc::clone(load))).collect();
    let is_counted = load.args.count.is_some();
    if !is_counted {
        sleep(Duration::from_secs_f64(load.args.warmup)).await;
    }

    let window = Window::open(&load.watched);
    load.tally.measure(true);
    let left = if is_counted {
        for client in clients {
            client.await?;
        }
        Vec::new()
    } else {
        sleep(Duration::from_secs_f64(load.args.duration)).await;
        clients
    };
    load.tally.measure(false);
    let window = window.close();

    load.tally.stop();
    for client in left {
        // What is under way may end; nobody waits for what hangs.
        timeout(FAREWELL, client).await.ok();
    }
    Ok(window.figures(load.tally.operations()))
}

fn client(load: Arc<Load>) -> JoinHandle<()> {
    task::spawn_local(async move {
        match load.args.workload {
            Workload::Deny => deny::repeat(&load).await,
            Workload::Get if load.args.h2 => get_h2::repeat(&load).await,
            Workload::Get => get::repeat(&load).await,
            _ => new_connections::repeat(&load).await,
        }
    })
}

const FAREWELL: Duration = Duration::from_secs(2);
