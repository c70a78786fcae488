//! The gateway: the one way out of a sandbox.
//!
//! To follow a request, open `lifecycle.rs`.

mod admit;
mod authorize;
mod connection;
mod dial;
mod gateway;
mod limits;
mod record;
mod refuse;
mod relay;
mod request;

pub use admit::HostPermit;
pub use authorize::RequestPermit;
pub use gateway::Gateway;

mod metrics {
    #[derive(Debug, Default)]
    pub(crate) struct Metrics;
    impl Metrics {
        pub(crate) fn request(
            &self,
            _code: &'static str,
            _rule: Option<&str>,
            _outcome: audit::Outcome,
            _total: std::time::Duration,
        ) {
        }
    }
}
