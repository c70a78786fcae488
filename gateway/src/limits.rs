//! How much one sandbox may take, and how much it has taken.
//!
//! [`Bounds`] say how much, from the settings and the policy, the strictest of
//! both. [`GatewayLimits`] count against them. The two are apart because a policy
//! may be replaced while the gateway runs: new bounds take effect at once, and what
//! was counted stays counted. A reload is no way to a fresh budget.
//!
//! Counting comes before sending: a byte that would exceed a budget is refused,
//! not regretted.

mod bounds;
mod destinations;
mod slots;
mod urls;
mod window;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use policies::{Destination, Host, NetLimits};
use tokio::time::Instant;

pub(crate) use bounds::Bounds;
pub(crate) use destinations::HostCount;
use destinations::ReachedHosts;
pub(crate) use slots::ConnectionSlot;
use slots::ConnectionSlots;
use urls::AskedUrls;
use window::RequestWindow;

/// The counts of one gateway, and the bounds they are held to.
#[derive(Debug)]
pub(crate) struct GatewayLimits {
    configured: Bounds,
    bounds: ArcSwap<Bounds>,
    slots: Arc<ConnectionSlots>,
    /// A lock, not atomics: the count of a minute and the minute it is of must
    /// change together, and holding it costs less than a hash of the host name.
    requests: Mutex<RequestWindow>,
    reached: Mutex<ReachedHosts>,
    urls: Mutex<AskedUrls>,
    uploaded: AtomicU64,
    downloaded: AtomicU64,
}

impl GatewayLimits {
    /// Nothing counted yet, held to the stricter of `configured` and `policy`.
    pub(crate) fn new(configured: Bounds, policy: &NetLimits) -> Self {
        let bounds = configured.and(policy);
        Self {
            slots: Arc::new(ConnectionSlots::new(bounds.connections)),
            bounds: ArcSwap::from_pointee(bounds),
            configured,
            requests: Mutex::default(),
            reached: Mutex::default(),
            urls: Mutex::default(),
            uploaded: AtomicU64::new(0),
            downloaded: AtomicU64::new(0),
        }
    }

    /// Holds what was counted, and what comes, to another policy's limits.
    pub(crate) fn rebind(&self, policy: &NetLimits) {
        let bounds = self.configured.and(policy);
        self.slots.resize(bounds.connections);
        self.bounds.store(Arc::new(bounds));
    }

    /// Counts one request, or says that this minute has had enough of them.
    pub(crate) fn admit_request(&self) -> Result<(), LimitReached> {
        self.admit_request_at(Instant::now())
    }

    fn admit_request_at(&self, now: Instant) -> Result<(), LimitReached> {
        let bound = self.bounds.load().requests_per_minute;
        self.requests.lock().take(now, bound).map_err(|full| LimitReached {
            limit: LimitKind::RequestsPerMinute,
            value: u64::from(full.bound),
            reached: u64::from(full.bound) + 1,
            retry_after: Some(full.retry_after),
        })
    }

    /// Counts a host that is about to be reached, unless it was before. `chosen` is how
    /// many bytes of its name the sandbox chose.
    pub(crate) fn reach(&self, host: &Host, chosen: usize) -> Result<HostCount, LimitReached> {
        self.reached.lock().reach(host, chosen as u64, &self.bounds.load())
    }

    /// Counts the bytes of a URL, unless it was asked for before. Nothing is remembered
    /// while there is no bound.
    pub(crate) fn ask_url(
        &self,
        to: &Destination,
        path: &str,
        query: &str,
    ) -> Result<(), LimitReached> {
        match self.bounds.load().urls {
            Some(bound) => self.urls.lock().ask(to, path, query, bound),
            None => Ok(()),
        }
    }

    /// Counts `bytes` that are about to leave the sandbox for a host.
    pub(crate) fn upload(&self, host: &HostCount, bytes: u64) -> Result<(), LimitReached> {
        let bounds = self.bounds.load();
        // The host's first: what is given back was in nobody else's way meanwhile.
        host.spend(bytes, bounds.host_upload)?;
        spend(&self.uploaded, bytes, bounds.upload, LimitKind::Upload)
            .inspect_err(|_| host.give_back(bytes))
    }

    /// Takes back what was counted as leaving and did not leave.
    pub(crate) fn not_uploaded(&self, host: &HostCount, bytes: u64) {
        self.uploaded.fetch_sub(bytes, Ordering::Relaxed);
        host.give_back(bytes);
    }

    /// Counts `bytes` that have come already, and says whether they were too many.
    pub(crate) fn arrived(&self, bytes: u64) -> Result<(), LimitReached> {
        let before = self.downloaded.fetch_add(bytes, Ordering::Relaxed);
        let bound = self.bounds.load().download.unwrap_or(u64::MAX);
        let reached = before.saturating_add(bytes);
        if reached > bound {
            let limit = LimitKind::Download;
            return Err(LimitReached { limit, value: bound, reached, retry_after: None });
        }
        Ok(())
    }

    /// Counts `bytes` that are about to reach the sandbox.
    pub(crate) fn download(&self, bytes: u64) -> Result<(), LimitReached> {
        spend(&self.downloaded, bytes, self.bounds.load().download, LimitKind::Download)
    }

    /// Waits for room for one more connection. It is taken until dropped.
    pub(crate) async fn connection_slot(&self) -> ConnectionSlot {
        ConnectionSlots::take(&self.slots).await
    }

    /// Waits until every slot is free: every connection has ended.
    pub(crate) async fn all_slots_free(&self) {
        self.slots.all_free().await;
    }

    /// Connections that are open now.
    pub(crate) fn open_connections(&self) -> u32 {
        self.slots.occupied()
    }

    pub(crate) fn uploaded(&self) -> u64 {
        self.uploaded.load(Ordering::Relaxed)
    }

    pub(crate) fn downloaded(&self) -> u64 {
        self.downloaded.load(Ordering::Relaxed)
    }

    /// All bounds at this moment.
    pub(crate) fn bounds(&self) -> Bounds {
        **self.bounds.load()
    }
}

/// Adds to a count, unless that would exceed its bound. A refused amount is not
/// counted: it was not sent.
fn spend(
    count: &AtomicU64,
    bytes: u64,
    bound: Option<u64>,
    limit: LimitKind,
) -> Result<(), LimitReached> {
    let bound = bound.unwrap_or(u64::MAX);
    let added = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |spent| {
        spent.checked_add(bytes).filter(|total| *total <= bound)
    });
    match added {
        Ok(_) => Ok(()),
        Err(spent) => Err(LimitReached {
            limit,
            value: bound,
            reached: spent.saturating_add(bytes),
            retry_after: None,
        }),
    }
}

/// Something would exceed its bound, and therefore does not happen.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the limit `{limit}` of {value} is reached")]
pub(crate) struct LimitReached {
    pub(crate) limit: LimitKind,
    /// The bound.
    pub(crate) value: u64,
    /// What the count would have become.
    pub(crate) reached: u64,
    /// When it is worth trying again. A budget does not come back.
    pub(crate) retry_after: Option<Duration>,
}

/// What is limited. The names are those of the policy language.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum LimitKind {
    Download,
    HostUpload,
    Hosts,
    RequestsPerMinute,
    Upload,
    Urls,
    WildcardNames,
}

impl std::fmt::Display for LimitKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Download => "download",
            Self::HostUpload => "host_upload",
            Self::Hosts => "hosts",
            Self::RequestsPerMinute => "requests_per_minute",
            Self::Upload => "upload",
            Self::Urls => "urls",
            Self::WildcardNames => "wildcard_names",
        })
    }
}

#[cfg(test)]
mod tests;
