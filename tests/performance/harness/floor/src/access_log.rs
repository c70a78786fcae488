//! One line for each request, written in large pieces by a thread of its own.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};

pub(crate) struct AccessLog(Arc<Mutex<BufWriter<File>>>);

/// What one line says besides when and who.
pub(crate) struct AccessEntry<'e> {
    pub(crate) verdict: &'e str,
    pub(crate) method: &'e str,
    pub(crate) host: &'e str,
    pub(crate) path: &'e str,
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
}

impl AccessLog {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        let log = Arc::new(Mutex::new(BufWriter::with_capacity(BUFFER_BYTES, file)));
        let flushed = Arc::clone(&log);
        thread::spawn(move || {
            loop {
                thread::sleep(FLUSH_INTERVAL);
                lock(&flushed).flush().ok();
            }
        });
        Ok(Self(log))
    }

    /// A line that cannot be written is lost: this is no product.
    pub(crate) fn record(&self, client: SocketAddr, entry: &AccessEntry<'_>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let AccessEntry { verdict, method, host, path, status, body_bytes } = entry;
        let (seconds, micros) = (now.as_secs(), now.subsec_micros());
        let mut log = lock(&self.0);
        writeln!(
            log,
            "{seconds}.{micros:06} {client} {verdict} {method} {host} {path} {status} {body_bytes}"
        )
        .ok();
    }
}

/// Whole lines are in it also if another thread panicked.
fn lock(log: &Mutex<BufWriter<File>>) -> MutexGuard<'_, BufWriter<File>> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

const BUFFER_BYTES: usize = 64 << 10;
const FLUSH_INTERVAL: Duration = Duration::from_millis(200);
