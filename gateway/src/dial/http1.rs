//! An upstream that speaks HTTP/1.1, lent for one exchange.

use std::sync::Arc;

use super::facts::UpstreamFacts;
use super::pool::{Idle, Place, Pool};
use super::stream::UpstreamStream;

/// One connection, ours until it is given back. Dropping it closes it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Http1Upstream {
    place: Place,
    connection: Idle,
    pool: Arc<Pool>,
}

impl Http1Upstream {
    pub(super) fn new(place: Place, connection: Idle, pool: Arc<Pool>) -> Self {
        Self { place, connection, pool }
    }

    pub(crate) fn io(&mut self) -> &mut UpstreamStream {
        &mut self.connection.stream
    }

    /// How it was reached. `reused` says that it may have died unseen: if it
    /// closes before any byte of an answer, the upstream is not to blame.
    pub(crate) fn facts(&self) -> &UpstreamFacts {
        &self.connection.facts
    }

    /// For an exchange that takes the connection over, such as a WebSocket.
    pub(crate) fn into_io(self) -> UpstreamStream {
        self.connection.stream
    }

    /// Keeps the connection for the next request to the same place.
    ///
    /// Only for an exchange that ended clean: the whole request was sent, the
    /// whole answer read, and neither side wants to close.
    pub(crate) fn give_back(self) {
        let Self { place, connection, pool } = self;
        pool.put(place, connection);
    }
}
