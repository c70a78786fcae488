//! An upstream that speaks HTTP/1.1, lent for one exchange.

use std::sync::Arc;

use super::facts::UpstreamFacts;
use super::pool::{IdleConnection, Pool, PoolKey};
use super::stream::UpstreamStream;

/// One connection, ours until it is given back. Dropping it closes it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Http1Upstream {
    pub(super) key: PoolKey,
    pub(super) connection: IdleConnection,
    pub(super) pool: Arc<Pool>,
}

impl Http1Upstream {
    pub(crate) fn io(&mut self) -> &mut UpstreamStream {
        &mut self.connection.stream
    }

    /// How it was reached. `reused` says that it may have died unseen: if it
    /// closes before any byte of an answer, the upstream is not to blame.
    pub(crate) fn facts(&self) -> &UpstreamFacts {
        &self.connection.facts
    }

    /// Keeps the connection for the next request to the same destination.
    ///
    /// Only for an exchange that ended clean: the whole request was sent, the
    /// whole answer read, and neither side wants to close.
    pub(crate) fn give_back(self) {
        let Self { key, connection, pool } = self;
        pool.put(key, connection);
    }
}
