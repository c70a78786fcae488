//! The bounds themselves: what the operator set and what the policy asks for,
//! the stricter of each.

use std::time::Duration;

use policies::{NetLimits, Size, Span};

/// How much one sandbox may take. A bound that is missing is no bound; those
/// that keep the gateway itself alive are never missing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bounds {
    /// Bytes to upstreams over the gateway's whole life.
    pub upload: Option<u64>,
    /// Bytes from upstreams over the gateway's whole life.
    pub download: Option<u64>,
    /// Bytes to any one host over the gateway's whole life.
    pub host_upload: Option<u64>,
    /// Bytes of one request's body.
    pub body: Option<u64>,
    /// Hosts that are reached.
    pub hosts: Option<u32>,
    /// Bytes of names that stand for a `*`.
    pub wildcard_names: Option<u64>,
    /// Bytes of paths and queries, each URL counted once.
    pub urls: Option<u64>,
    pub requests_per_minute: Option<u32>,
    /// Connections open at once.
    pub connections: u32,
    /// Bytes of one head, request or response.
    pub header_bytes: usize,
    /// Headers in one head.
    pub headers: usize,
    /// From accept to a known destination, TLS included.
    pub opening: Duration,
    /// From a head's first byte to its last.
    pub header: Duration,
    /// Without a byte in either direction.
    pub idle: Duration,
    /// One request or tunnel, in all.
    pub total: Option<Duration>,
    /// From the order to stop until what is still open is cut.
    pub drain: Duration,
    /// Bytes of the audit log: what is refused is recorded too, and a sandbox may
    /// be refused as often as it likes.
    pub audit: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            upload: None,
            download: None,
            host_upload: None,
            body: None,
            hosts: None,
            wildcard_names: None,
            urls: None,
            requests_per_minute: None,
            connections: 1024,
            // Cookies and signed URLs reach 32 KiB in honest traffic.
            header_bytes: 64 * 1024,
            headers: 128,
            opening: Duration::from_secs(10),
            header: Duration::from_secs(30),
            // A model may think for minutes before its first token.
            idle: Duration::from_secs(600),
            total: None,
            drain: Duration::from_secs(30),
            // Millions of requests.
            audit: 1 << 30,
        }
    }
}

impl Bounds {
    /// The stricter of these and a policy's, bound by bound.
    #[must_use]
    pub(super) fn and(self, policy: &NetLimits) -> Self {
        let bytes = |own, policys: Option<Size>| stricter(own, policys.map(Size::bytes));
        Self {
            upload: bytes(self.upload, policy.upload),
            download: bytes(self.download, policy.download),
            host_upload: bytes(self.host_upload, policy.host_upload),
            body: bytes(self.body, policy.body),
            hosts: stricter(self.hosts, policy.hosts),
            wildcard_names: bytes(self.wildcard_names, policy.wildcard_names),
            urls: bytes(self.urls, policy.urls),
            requests_per_minute: stricter(self.requests_per_minute, policy.requests_per_minute),
            connections: policy.connections.map_or(self.connections, |n| n.min(self.connections)),
            idle: policy.idle.map_or(self.idle, |idle| idle.get().min(self.idle)),
            total: stricter(self.total, policy.total.map(Span::get)),
            ..self
        }
    }
}

fn stricter<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_of_settings_and_policy_is_in_force() {
        let configured = Bounds {
            upload: Some(1000),
            download: Some(10),
            connections: 8,
            idle: Duration::from_secs(60),
            ..Bounds::default()
        };
        let policy = NetLimits {
            upload: Size::from_bytes(500),
            download: Size::from_bytes(500),
            body: Size::from_bytes(7),
            connections: Some(9),
            idle: Span::from_millis(1000),
            total: Span::from_millis(5000),
            ..NetLimits::default()
        };
        let bounds = configured.and(&policy);
        assert_eq!(bounds.upload, Some(500));
        assert_eq!(bounds.download, Some(10));
        assert_eq!(bounds.body, Some(7));
        assert_eq!(bounds.connections, 8);
        assert_eq!(bounds.idle, Duration::from_secs(1));
        assert_eq!(bounds.total, Some(Duration::from_secs(5)));
    }

    #[test]
    fn a_policy_that_says_nothing_loosens_nothing() {
        let configured = Bounds { upload: Some(1), total: None, ..Bounds::default() };
        assert_eq!(configured.and(&NetLimits::default()), configured);
    }

    /// Each bound by itself, the smaller one on either side.
    #[test]
    fn the_stricter_is_taken_whichever_side_says_it() {
        for (set, asked) in [(5, 9), (9, 5)] {
            let configured = Bounds {
                upload: Some(set),
                download: Some(set),
                host_upload: Some(set),
                body: Some(set),
                hosts: Some(u32::try_from(set).unwrap()),
                wildcard_names: Some(set),
                urls: Some(set),
                requests_per_minute: Some(u32::try_from(set).unwrap()),
                connections: u32::try_from(set).unwrap(),
                idle: Duration::from_millis(set),
                total: Some(Duration::from_millis(set)),
                ..Bounds::default()
            };
            let policy = NetLimits {
                upload: Size::from_bytes(asked),
                download: Size::from_bytes(asked),
                host_upload: Size::from_bytes(asked),
                body: Size::from_bytes(asked),
                hosts: Some(u32::try_from(asked).unwrap()),
                wildcard_names: Size::from_bytes(asked),
                urls: Size::from_bytes(asked),
                requests_per_minute: Some(u32::try_from(asked).unwrap()),
                connections: Some(u32::try_from(asked).unwrap()),
                idle: Span::from_millis(asked),
                total: Span::from_millis(asked),
            };
            let bounds = configured.and(&policy);
            assert_eq!((bounds.upload, bounds.download, bounds.body), (Some(5), Some(5), Some(5)));
            assert_eq!((bounds.host_upload, bounds.wildcard_names), (Some(5), Some(5)));
            assert_eq!((bounds.hosts, bounds.urls), (Some(5), Some(5)));
            assert_eq!((bounds.requests_per_minute, bounds.connections), (Some(5), 5));
            let five = Duration::from_millis(5);
            assert_eq!((bounds.idle, bounds.total), (five, Some(five)));
        }
    }
}
