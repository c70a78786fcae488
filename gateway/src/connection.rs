//! What a request needs to know of the connection it came in on.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use audit::{Client, Ticket};
use policies::{Admission, Destination, Scheme};
use uuid::Uuid;

use crate::admit::HostPermit;
use crate::gateway::Gateway;
use crate::limits::LimitReached;
use crate::record::{ConnectionRecord, ConnectionTotals};
use crate::refuse::{Denial, Refusal};

/// One destination on one connection. HTTP/1.1 and HTTP/2 judge every request
/// through [`authorize`](ConnectionContext::authorize), and only through it.
#[derive(Debug)]
pub(crate) struct ConnectionContext {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) destination: Destination,
    pub(crate) scheme: Scheme,
    /// The destination as `Host` and `:authority` spell it.
    pub(crate) authority: String,
    /// The connection's record.
    pub(crate) id: Uuid,
    /// Set where no request is judged, because all of them are refused.
    pub(super) blanket_refusal: Option<BlanketRefusal>,
    pub(super) facts: RecordFacts,
    /// Whether the destination is known to be in the log.
    pub(super) opened: AtomicBool,
}

/// What every record of this connection says alike. Made once, cloned cheaply.
#[derive(Debug)]
pub(super) struct RecordFacts {
    pub(super) client: Client,
    pub(super) destination: audit::Destination,
    pub(super) totals: Arc<ConnectionTotals>,
}

/// Why every request of a connection is refused.
#[derive(Clone, Debug)]
pub(crate) enum BlanketRefusal {
    /// Not even its name may leave.
    BudgetSpent(LimitReached),
    ConnectInside,
    Denied(Denial),
    NameMismatch {
        admitted: String,
        named: String,
    },
}

impl BlanketRefusal {
    pub(crate) fn refusal(&self) -> Refusal {
        match self.clone() {
            Self::BudgetSpent(limit) => Refusal::BudgetSpent(limit),
            Self::ConnectInside => Refusal::ConnectInside,
            Self::Denied(denial) => Refusal::Policy(denial),
            Self::NameMismatch { admitted, named } => Refusal::NameMismatch { admitted, named },
        }
    }
}

impl ConnectionContext {
    /// A connection whose requests are judged one by one; or one that is answered
    /// in its own protocol with one refusal, whatever it asks, and for which nothing
    /// is ever dialled.
    pub(crate) fn new(
        admission: Result<&HostPermit, BlanketRefusal>,
        gateway: &Arc<Gateway>,
        scheme: Scheme,
        destination: Destination,
        record: &ConnectionRecord,
    ) -> Self {
        let facts = RecordFacts {
            client: record.client(),
            destination: crate::record::destination(&destination),
            totals: Arc::clone(record.totals()),
        };
        let authority = if destination.port == scheme.default_port() {
            destination.host.to_string()
        } else {
            destination.to_string()
        };
        Self {
            gateway: Arc::clone(gateway),
            destination,
            scheme,
            authority,
            id: record.id(),
            blanket_refusal: admission.err(),
            facts,
            opened: AtomicBool::new(false),
        }
    }

    /// The last that was recorded of any of its requests.
    pub(crate) fn last_recorded(&self) -> Ticket {
        self.facts.totals.last_recorded()
    }

    /// Whether an idle connection may stay, under the policy of this moment.
    pub(crate) fn still_admitted(&self) -> bool {
        let loaded = self.gateway.policy.load();
        matches!(loaded.policy.admit(&self.destination), Admission::Inspect)
    }
}
