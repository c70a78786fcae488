//! What each upstream speaks, once it has told us.
//!
//! A client that offers h2 must be answered before we know whether its upstream
//! can follow, so the first connection to a destination is made early and the
//! answer kept. It is a hint: a wrong one costs a redial, never a protocol we
//! did not negotiate.

use std::time::Duration;

use policies::Destination;
use quick_cache::sync::Cache;
use tokio::time::Instant;

/// Remembers who speaks HTTP/2, for some time and for so many.
#[derive(Debug)]
pub(super) struct UpstreamCapabilities {
    known: Cache<Destination, Capabilities>,
}

#[derive(Clone, Copy, Debug)]
struct Capabilities {
    http2: bool,
    /// RFC 8441. Unknown until the upstream's settings have arrived.
    extended_connect: Option<bool>,
    until: Instant,
}

impl UpstreamCapabilities {
    pub(super) fn new() -> Self {
        Self { known: Cache::new(MAX_DESTINATIONS) }
    }

    pub(super) fn http2(&self, to: &Destination) -> Option<bool> {
        self.current(to).map(|known| known.http2)
    }

    pub(super) fn extended_connect(&self, to: &Destination) -> Option<bool> {
        self.current(to).and_then(|known| known.extended_connect)
    }

    pub(super) fn learn(&self, to: &Destination, http2: bool) {
        let until = Instant::now() + CACHE_LIFETIME;
        let extended_connect = self.current(to).and_then(|known| known.extended_connect);
        self.known.insert(to.clone(), Capabilities { http2, extended_connect, until });
    }

    pub(super) fn learn_extended_connect(&self, to: &Destination, extended_connect: bool) {
        let until = Instant::now() + CACHE_LIFETIME;
        let extended_connect = Some(extended_connect);
        self.known.insert(to.clone(), Capabilities { http2: true, extended_connect, until });
    }

    fn current(&self, to: &Destination) -> Option<Capabilities> {
        self.known.get(to).filter(|known| Instant::now() < known.until)
    }
}

const MAX_DESTINATIONS: usize = 1024;
const CACHE_LIFETIME: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_an_upstream_speaks_is_asked_again_after_a_while() {
        let to = Destination::parse("allowed.test:443").unwrap();
        let capabilities = UpstreamCapabilities::new();
        assert_eq!(capabilities.http2(&to), None);
        capabilities.learn(&to, true);
        assert_eq!(capabilities.http2(&to), Some(true));
        tokio::time::advance(CACHE_LIFETIME).await;
        assert_eq!(capabilities.http2(&to), None);
    }

    #[tokio::test]
    async fn what_is_remembered_is_bounded() {
        let capabilities = UpstreamCapabilities::new();
        for n in 0..5_000 {
            let to = Destination::parse(&format!("h{n}.test:443")).unwrap();
            capabilities.learn(&to, true);
        }
        assert!(capabilities.known.len() <= MAX_DESTINATIONS);
    }
}
