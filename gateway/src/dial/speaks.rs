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
pub(super) struct Speaks {
    known: Cache<Destination, Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    http2: bool,
    /// RFC 8441. Unknown until the upstream's settings have arrived.
    extended_connect: Option<bool>,
    until: Instant,
}

impl Speaks {
    pub(super) fn new() -> Self {
        Self { known: Cache::new(DESTINATIONS) }
    }

    pub(super) fn http2(&self, to: &Destination) -> Option<bool> {
        self.current(to).map(|known| known.http2)
    }

    pub(super) fn extended_connect(&self, to: &Destination) -> Option<bool> {
        self.current(to).and_then(|known| known.extended_connect)
    }

    pub(super) fn learn(&self, to: &Destination, http2: bool) {
        let until = Instant::now() + LIFETIME;
        let extended_connect = self.current(to).and_then(|known| known.extended_connect);
        self.known.insert(to.clone(), Known { http2, extended_connect, until });
    }

    pub(super) fn learn_extended_connect(&self, to: &Destination, extended_connect: bool) {
        let until = Instant::now() + LIFETIME;
        let extended_connect = Some(extended_connect);
        self.known.insert(to.clone(), Known { http2: true, extended_connect, until });
    }

    fn current(&self, to: &Destination) -> Option<Known> {
        self.known.get(to).filter(|known| Instant::now() < known.until)
    }
}

const DESTINATIONS: usize = 1024;
const LIFETIME: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_an_upstream_speaks_is_asked_again_after_a_while() {
        let to = Destination::parse("allowed.test:443").unwrap();
        let speaks = Speaks::new();
        assert_eq!(speaks.http2(&to), None);
        speaks.learn(&to, true);
        assert_eq!(speaks.http2(&to), Some(true));
        tokio::time::advance(LIFETIME).await;
        assert_eq!(speaks.http2(&to), None);
    }

    #[tokio::test]
    async fn what_is_remembered_is_bounded() {
        let speaks = Speaks::new();
        for n in 0..5_000 {
            let to = Destination::parse(&format!("h{n}.test:443")).unwrap();
            speaks.learn(&to, true);
        }
        assert!(speaks.known.len() <= DESTINATIONS);
    }
}
