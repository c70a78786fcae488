//! The record of one connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use audit::{
    ClientRecord, Entry, EntryOutcome, Handling, Name, Text, Ticket, TrafficRecord, Unavailable,
    VerdictRecord,
};
use parking_lot::Mutex;
use policies::Destination;
use uuid::Uuid;

use super::request::{destination, write_reason};
use crate::dial::{DialError, UpstreamFacts};
use crate::gateway::Gateway;
use crate::inspect::TrafficMeter;
use crate::limits::HostCount;
use crate::metrics::Metrics;
use crate::refuse::{BlanketRefusal, Refusal, Reply};

/// One connection that has begun and must end.
#[derive(Debug)]
#[must_use = "a connection's record that is dropped is recorded as abandoned"]
pub(crate) struct ConnectionRecord {
    entry: Option<Entry<audit::ConnectionFacts>>,
    totals: Arc<ConnectionTotals>,
    refused: Option<EntryOutcome>,
    metrics: Arc<Metrics>,
}

/// What the requests of one connection add up to.
#[derive(Debug, Default)]
pub(crate) struct ConnectionTotals {
    requests: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    /// How far the log has to be written to hold what was recorded of them.
    recorded: Mutex<Ticket>,
}

impl ConnectionTotals {
    pub(super) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, traffic: &TrafficRecord) {
        self.sent.fetch_add(traffic.sent, Ordering::Relaxed);
        self.received.fetch_add(traffic.received, Ordering::Relaxed);
    }

    pub(super) fn recorded(&self, ticket: Ticket) {
        let mut last = self.recorded.lock();
        *last = ticket.max(*last);
    }

    /// The last that was recorded of any of them.
    pub(crate) fn last_recorded(&self) -> Ticket {
        *self.recorded.lock()
    }

    fn traffic(&self) -> TrafficRecord {
        TrafficRecord {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
        }
    }
}

impl ConnectionRecord {
    /// Begins a record, or says why nothing may be relayed.
    pub(crate) fn begin(gateway: &Gateway, client: ClientRecord) -> Result<Self, Unavailable> {
        let entry = gateway.log.begin(audit::ConnectionFacts { client, ..Default::default() })?;
        let metrics = Arc::clone(&gateway.metrics);
        Ok(Self { entry: Some(entry), totals: Arc::default(), refused: None, metrics })
    }

    pub(crate) fn id(&self) -> Uuid {
        self.entry.as_ref().map(Entry::id).unwrap_or_default()
    }

    pub(crate) fn client(&self) -> ClientRecord {
        self.entry.as_ref().map(|entry| entry.client.clone()).unwrap_or_default()
    }

    pub(crate) fn totals(&self) -> &Arc<ConnectionTotals> {
        &self.totals
    }

    /// Its destination. The first one stays: a connection in the clear may
    /// name another with every request, and each request has its own record.
    pub(crate) fn destination(&mut self, to: &Destination) {
        if let Some(entry) = &mut self.entry
            && entry.destination.host.is_none()
        {
            entry.destination = destination(to);
        }
    }

    /// Policy let it in, to be handled like this.
    pub(crate) fn admitted(&mut self, handling: Handling, rule: Option<Name>, policy: &Name) {
        let Some(entry) = &mut self.entry else { return };
        entry.handling = Some(handling);
        entry.decision.verdict = Some(VerdictRecord::Allow);
        entry.decision.reason = Some(Text::constant("allowed"));
        entry.decision.rule = rule;
        entry.decision.policy = Some(policy.clone());
    }

    /// TLS towards the sandbox.
    pub(crate) fn tls(&mut self, tls: audit::NegotiatedTls) {
        if let Some(entry) = &mut self.entry {
            entry.tls = tls;
        }
    }

    pub(crate) fn dialled(&mut self, facts: &UpstreamFacts) {
        let Some(entry) = &mut self.entry else { return };
        self.metrics.dialled(facts);
        entry.destination.dialled(&facts.address);
        entry.timing.resolve = Some(facts.resolve.into());
        entry.timing.connect = Some(facts.connect.into());
    }

    /// Dials for the connection itself. Its name is counted first, because under a
    /// wildcard a client can choose it, and the connection is in the log.
    pub(crate) async fn dial<T>(
        &mut self,
        gateway: &Arc<Gateway>,
        to: &Destination,
        dial: impl Future<Output = Result<T, DialError>>,
    ) -> Result<Result<T, DialError>, Refusal> {
        // Whoever looks the name up learns it, and not the host.
        let meter = TrafficMeter::new(Arc::clone(gateway), HostCount::default());
        let name = meter.reserve(to.host.to_string().len())?;
        self.write_opened().await?;
        let dialled = dial.await;
        meter.settle(name, &dialled);
        self.totals.add(&meter.traffic());
        Ok(dialled)
    }

    /// Resolves when the `opened` line is safe. Only then may a byte leave.
    async fn write_opened(&mut self) -> Result<(), Unavailable> {
        match &mut self.entry {
            Some(entry) => entry.opened().await,
            None => Ok(()),
        }
    }

    /// Notes why it is refused. What ends a connection is noted once.
    pub(crate) fn refused(&mut self, refusal: &Refusal) -> Reply {
        if let Some(entry) = &mut self.entry {
            let facts = &mut **entry;
            write_reason(&mut facts.decision, &mut facts.failure, refusal);
        }
        self.refused = Some(refusal.outcome());
        Reply::new(refusal, self.id())
    }

    /// Notes why every request of it will be refused.
    pub(crate) fn refused_all(&mut self, refusal: BlanketRefusal) -> BlanketRefusal {
        drop(self.refused(&refusal.refusal()));
        refusal
    }

    /// Refuses a request that has no record of its own, while the connection goes
    /// on: the reply waits for the connection's `opened` line.
    pub(crate) fn refused_request(&mut self, refusal: &Refusal) -> Reply {
        let mut reply = self.refused(refusal);
        if let Some(entry) = &mut self.entry {
            reply.recorded = entry.open();
        }
        reply
    }

    /// Refuses the connection: the reply waits for its record.
    pub(crate) fn refused_for_good(&mut self, refusal: &Refusal) -> Reply {
        let mut reply = self.refused(refusal);
        reply.recorded = self.end(refusal.outcome());
        reply
    }

    /// How it ended, if nothing else is known: it was refused, or it went well.
    pub(crate) fn outcome(&self) -> EntryOutcome {
        self.refused.unwrap_or(EntryOutcome::Relayed)
    }

    /// Ends the record.
    pub(crate) fn close(mut self, outcome: EntryOutcome) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: EntryOutcome) -> Ticket {
        let Some(mut entry) = self.entry.take() else { return Ticket::default() };
        entry.traffic = self.totals.traffic();
        if !matches!(entry.handling, Some(Handling::Passthrough | Handling::Tcp)) {
            entry.requests = Some(self.totals.requests.load(Ordering::Relaxed));
        }
        if let Some(way) = entry.client.way_in {
            self.metrics.connection(way, outcome);
        }
        entry.close(outcome)
    }
}

impl Drop for ConnectionRecord {
    fn drop(&mut self) {
        self.end(EntryOutcome::Abandoned);
    }
}
