//! What a request needs to know of the connection it came in on.
//!
//! [`ConnectionContext::authorize`] is the one function between "a head was read"
//! and "an upstream may be dialled": it begins the record, reads the request, counts
//! it and asks the policy of that moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use audit::{ClientRecord, Ticket};
use policies::{Admission, Destination, Scheme};
use uuid::Uuid;

use crate::admit::Admitted;
use crate::authorize::{RequestPermit, reconsider};
use crate::gateway::Gateway;
use crate::http_version::HttpVersion;
use crate::limits::HostCount;
use crate::record::{self, ConnectionRecord, ConnectionTotals, RequestRecord};
use crate::refuse::{BlanketRefusal, Refusal, Reply};
use crate::request::{ParsedRequest, RawRequest};

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
    blanket_refusal: Option<BlanketRefusal>,
    facts: RecordFacts,
    /// What the destination's host was sent on all connections.
    host: HostCount,
    /// Whether the destination is known to be in the log.
    destination_recorded: AtomicBool,
}

/// What every record of this connection says alike. Made once, cloned cheaply.
#[derive(Debug)]
struct RecordFacts {
    client: ClientRecord,
    destination: audit::DestinationRecord,
    totals: Arc<ConnectionTotals>,
}

/// A request that may go out, with its record begun.
pub(crate) struct Authorized<'h> {
    pub(crate) permit: RequestPermit,
    pub(crate) request: ParsedRequest<'h>,
    pub(crate) record: RequestRecord,
}

impl ConnectionContext {
    /// A connection whose requests are judged one by one; or one that is answered
    /// in its own protocol with one refusal, whatever it asks, and for which nothing
    /// is ever dialled.
    pub(crate) fn new(
        admission: Result<&Admitted, BlanketRefusal>,
        gateway: &Arc<Gateway>,
        scheme: Scheme,
        destination: Destination,
        record: &ConnectionRecord,
    ) -> Self {
        let facts = RecordFacts {
            client: record.client(),
            destination: record::destination(&destination),
            totals: Arc::clone(record.totals()),
        };
        let authority = if destination.port == scheme.default_port() {
            destination.host.to_string()
        } else {
            destination.to_string()
        };
        let (host, blanket_refusal) = match admission {
            Ok(admitted) => (admitted.host.clone(), None),
            // It is sent nothing.
            Err(refusal) => (HostCount::default(), Some(refusal)),
        };
        Self {
            gateway: Arc::clone(gateway),
            destination,
            scheme,
            authority,
            id: record.id(),
            blanket_refusal,
            facts,
            host,
            destination_recorded: AtomicBool::new(false),
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

    /// Steps 5 and 6 for one request. A refusal is already recorded.
    pub(crate) async fn authorize<'h>(&self, raw: RawRequest<'h>) -> Result<Authorized<'h>, Reply> {
        let mut record = self.begin()?;
        match self.judge(raw, &mut record).await {
            Ok((permit, request)) => Ok(Authorized { permit, request, record }),
            Err(refusal) => Err(record.refused(&refusal)),
        }
    }

    /// Records a request that could not even be read.
    pub(crate) fn refuse(&self, refusal: &Refusal) -> Reply {
        match self.begin() {
            Ok(record) => record.refused(refusal),
            Err(reply) => reply,
        }
    }

    /// Records a request that was never read: the library reset its stream.
    pub(crate) fn record_unread(&self, refusal: &Refusal) {
        // Without a log it cannot be recorded, and nothing was relayed.
        if let Ok(mut record) = self.begin() {
            record.unread(HttpVersion::Http2);
            record.broken(refusal);
        }
    }

    fn begin(&self) -> Result<RequestRecord, Reply> {
        let facts = audit::RequestFacts {
            connection: Some(self.id),
            client: self.facts.client.clone(),
            destination: self.facts.destination.clone(),
            ..audit::RequestFacts::default()
        };
        let totals = Arc::clone(&self.facts.totals);
        // Without a record there is only the connection's id to go by.
        RequestRecord::begin(&self.gateway, facts, totals, self.host.clone())
            .map_err(|err| Reply::new(&err.into(), self.id))
    }

    async fn judge<'h>(
        &self,
        raw: RawRequest<'h>,
        record: &mut RequestRecord,
    ) -> Result<(RequestPermit, ParsedRequest<'h>), Refusal> {
        let read = ParsedRequest::read(&raw, self.scheme, &self.destination, &self.authority);
        let request = match read {
            Ok(request) => request,
            Err(refusal) => {
                record.unreadable(&raw);
                return Err(self.blanket_refusal().unwrap_or(refusal));
            }
        };
        record.request(self.scheme, &request);
        if let Some(refusal) = self.blanket_refusal() {
            return Err(refusal);
        }
        self.gateway.limits.admit_request()?;
        let permit = self.ask(&request, record)?;
        let query = request.query.as_ref().map_or("", |query| query.as_str());
        self.gateway.limits.ask_url(&self.destination, request.path.as_str(), query)?;
        self.record_before_sending(&request, record).await?;
        Ok((permit, request))
    }

    /// Asks the policy of this moment.
    fn ask(
        &self,
        request: &ParsedRequest<'_>,
        record: &mut RequestRecord,
    ) -> Result<RequestPermit, Refusal> {
        let question = request.question(self.scheme, &self.destination);
        record.authorize(&self.gateway.policy.load(), &question)
    }

    /// Whether a request that is under way would still be allowed, under the
    /// policy of this moment.
    pub(crate) fn reconsider(&self, request: &ParsedRequest<'_>) -> Result<(), Refusal> {
        let question = request.question(self.scheme, &self.destination);
        Ok(reconsider(&self.gateway.policy.load().policy, &question)?)
    }

    /// The first request to a destination, and every request that may change
    /// something, is in the log before it leaves.
    async fn record_before_sending(
        &self,
        request: &ParsedRequest<'_>,
        record: &mut RequestRecord,
    ) -> Result<(), Refusal> {
        let known = self.destination_recorded.load(Ordering::Acquire);
        if request.mutates() || !(known || self.gateway.recorded.has(&self.destination)) {
            record.write_opened().await?;
            self.gateway.recorded.remember(&self.destination);
        }
        if !known {
            self.destination_recorded.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn blanket_refusal(&self) -> Option<Refusal> {
        self.blanket_refusal.as_ref().map(BlanketRefusal::refusal)
    }
}

#[cfg(test)]
mod tests;
