//! What a request needs to know of the connection it came in on.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use audit::{Client, Ticket};
use policies::{Admission, Destination, Scheme};
use uuid::Uuid;

use crate::admit::HostPermit;
use crate::gateway::Gateway;
use crate::limits::LimitReached;
use crate::record::{ConnectionRecord, Tally};
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
    pub(super) standing: Standing,
    pub(super) facts: Facts,
    /// Whether the destination is known to be in the log.
    pub(super) opened: AtomicBool,
}

/// What every record of this connection says alike. Made once, cloned cheaply.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) client: Client,
    pub(super) destination: audit::Destination,
    pub(super) tally: Arc<Tally>,
}

/// Whether the connection was let in.
#[derive(Debug)]
pub(super) enum Standing {
    /// Each request is judged.
    Admitted,
    /// The destination was refused; every request is told so.
    Doomed(Doom),
}

/// Why every request of a connection is refused.
#[derive(Clone, Debug)]
pub(crate) enum Doom {
    ConnectInside,
    Denied(Denial),
    Misnamed {
        admitted: String,
        named: String,
    },
    /// Not even its name may leave.
    Spent(LimitReached),
}

impl Doom {
    pub(crate) fn refusal(&self) -> Refusal {
        match self.clone() {
            Self::ConnectInside => Refusal::ConnectInside,
            Self::Denied(denial) => Refusal::Policy(denial),
            Self::Misnamed { admitted, named } => Refusal::NameMismatch { admitted, named },
            Self::Spent(limit) => Refusal::BudgetSpent(limit),
        }
    }
}

impl ConnectionContext {
    /// A connection whose requests are judged one by one.
    pub(crate) fn admitted(
        _permit: &HostPermit,
        gateway: &Arc<Gateway>,
        scheme: Scheme,
        destination: Destination,
        record: &ConnectionRecord,
    ) -> Self {
        Self::new(Standing::Admitted, gateway, scheme, destination, record)
    }

    /// A connection that is answered in its own protocol with one refusal,
    /// whatever it asks, and for which nothing is ever dialled.
    pub(crate) fn doomed(
        doom: Doom,
        gateway: &Arc<Gateway>,
        scheme: Scheme,
        destination: Destination,
        record: &ConnectionRecord,
    ) -> Self {
        Self::new(Standing::Doomed(doom), gateway, scheme, destination, record)
    }

    fn new(
        standing: Standing,
        gateway: &Arc<Gateway>,
        scheme: Scheme,
        destination: Destination,
        record: &ConnectionRecord,
    ) -> Self {
        let facts = Facts {
            client: record.client(),
            destination: crate::record::destination(&destination),
            tally: Arc::clone(record.tally()),
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
            standing,
            facts,
            opened: AtomicBool::new(false),
        }
    }

    /// The last that was recorded of any of its requests.
    pub(crate) fn last_recorded(&self) -> Ticket {
        self.facts.tally.last_recorded()
    }

    /// Whether an idle connection may stay, under the policy of this moment.
    pub(crate) fn still_admitted(&self) -> bool {
        let loaded = self.gateway.policy.load();
        matches!(loaded.policy.admit(&self.destination), Admission::Inspect)
    }
}
