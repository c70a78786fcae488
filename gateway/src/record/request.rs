//! The record of one request, and the meter that fills in its traffic.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use audit::{
    DecisionRecord, Entry, EntryOutcome, ErrorChain, FailureRecord, Long, Name, Text, Ticket,
    Unavailable,
};
use policies::{Destination, PolicyQuestion, Scheme};
use uuid::Uuid;

use super::connection::ConnectionTotals;
use crate::authorize::{RequestPermit, authorize};
use crate::dial::UpstreamFacts;
use crate::gateway::Gateway;
use crate::http_version::HttpVersion;
use crate::inspect::TrafficMeter;
use crate::limits::HostCount;
use crate::policy_cell::LoadedPolicy;
use crate::refuse::{Refusal, Reply};
use crate::request::{ParsedRequest, RawRequest};

/// One request that has begun and must end.
#[derive(Debug)]
#[must_use = "a request's record that is dropped is recorded as abandoned"]
pub(crate) struct RequestRecord {
    id: Uuid,
    /// How far the log has to be written before the client is answered.
    recorded: Ticket,
    is_opened: bool,
    /// Gone once the closing record is handed over.
    entry: Option<Entry<audit::RequestFacts>>,
    meter: TrafficMeter,
    totals: Arc<ConnectionTotals>,
    code: &'static str,
}

impl RequestRecord {
    /// Begins a record, or says why nothing may be relayed.
    pub(crate) fn begin(
        gateway: &Arc<Gateway>,
        facts: audit::RequestFacts,
        totals: Arc<ConnectionTotals>,
        host: HostCount,
    ) -> Result<Self, Unavailable> {
        let entry = gateway.log.begin(facts)?;
        gateway.in_flight.here().up();
        totals.request();
        let meter = TrafficMeter::new(Arc::clone(gateway), host);
        let (id, recorded) = (entry.id(), Ticket::default());
        Ok(Self {
            id,
            recorded,
            is_opened: false,
            entry: Some(entry),
            meter,
            totals,
            code: "allowed",
        })
    }

    /// The id that the record and the refusal share.
    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    pub(crate) fn meter(&self) -> &TrafficMeter {
        &self.meter
    }

    /// What was asked, as parsed.
    pub(crate) fn request(&mut self, scheme: Scheme, request: &ParsedRequest<'_>) {
        let Some(entry) = &mut self.entry else { return };
        let http = &mut entry.http;
        http.method = Some(Text::constant(request.method.as_str()));
        http.scheme = Some(Text::constant(scheme.as_str()));
        http.path = Some(Long::new(request.path.as_str()));
        http.query = request.query.as_ref().map(|query| Long::new(query.as_str()));
        http.version = Some(Text::constant(request.version.as_str()));
        http.protocol = Some(Text::constant(match (request.websocket, request.grpc) {
            (true, _) => "websocket",
            (false, true) => "grpc",
            (false, false) => "http",
        }));
    }

    /// What was asked, as it was sent: it could not be parsed.
    pub(crate) fn unreadable(&mut self, asked: &RawRequest<'_>) {
        let Some(entry) = &mut self.entry else { return };
        let http = &mut entry.http;
        http.method = Some(String::from_utf8_lossy(asked.method).as_ref().into());
        http.path = Some(String::from_utf8_lossy(asked.target).as_ref().into());
        http.version = Some(Text::constant(asked.version.as_str()));
    }

    /// Nothing of what was asked is known but how.
    pub(crate) fn unread(&mut self, version: HttpVersion) {
        if let Some(entry) = &mut self.entry {
            entry.http.version = Some(Text::constant(version.as_str()));
        }
    }

    /// Step 6: asks policy. Without an open entry nothing is permitted.
    pub(crate) fn authorize(
        &mut self,
        loaded: &LoadedPolicy,
        question: &PolicyQuestion<'_>,
    ) -> Result<RequestPermit, Refusal> {
        let entry = self.entry.as_mut().ok_or(Unavailable::Closed)?;
        let (permit, code) = authorize(entry, loaded, question)?;
        self.code = code;
        Ok(permit)
    }

    /// Resolves when the `opened` line is safe. Only then may a byte leave.
    pub(crate) async fn write_opened(&mut self) -> Result<(), Unavailable> {
        let Some(entry) = &mut self.entry else { return Ok(()) };
        entry.opened().await?;
        self.queue_opened();
        Ok(())
    }

    /// Hands over the `opened` line, unless it was: an answer begins, and how it
    /// ends is not known yet.
    pub(crate) fn queue_opened(&mut self) {
        if let Some(entry) = &mut self.entry {
            self.recorded = entry.open();
            self.is_opened = true;
            self.totals.recorded(self.recorded);
        }
    }

    /// Its `opened` line was handed over.
    pub(crate) fn is_opened(&self) -> bool {
        self.is_opened
    }

    /// Ready once what was handed over last, `opened` or closing, is with the
    /// kernel. No byte of an answer reaches the client before.
    pub(crate) fn poll_recorded(&self, cx: &mut Context<'_>) -> Poll<Result<(), Unavailable>> {
        self.meter.gateway().log.poll_written(self.recorded, cx)
    }

    /// Others are under way on this worker, so that some may end at the same time.
    pub(crate) fn others_under_way(&self) -> bool {
        let own = u32::from(self.entry.is_some());
        self.meter.gateway().in_flight.here().get() > own
    }

    /// An upstream connection was made or reused for it.
    pub(crate) fn dialled(&mut self, facts: &UpstreamFacts) {
        let Some(entry) = &mut self.entry else { return };
        self.meter.gateway().metrics.dialled(facts);
        entry.destination.dialled(&facts.address);
        if !facts.reused {
            entry.timing.resolve = Some(facts.resolve.into());
            entry.timing.connect = Some(facts.connect.into());
        }
        if let Some(tls) = &facts.tls {
            if !facts.reused {
                entry.timing.tls = Some(facts.handshake.into());
            }
            entry.tls.version = Some(Text::constant(tls.version));
            entry.tls.cipher = Some(Text::constant(tls.cipher));
            entry.tls.next_protocol = tls.alpn.map(Text::constant);
            entry.tls.resumed = Some(tls.resumed);
            entry.tls.server_hash = tls.certificate;
        }
    }

    /// The head of the answer was there at `at`.
    pub(crate) fn answered(&mut self, status: u16, at: Instant) {
        if let Some(entry) = &mut self.entry {
            entry.http.status = Some(status);
            entry.timing.first_byte = Some(at.saturating_duration_since(entry.begun()).into());
        }
    }

    pub(crate) fn grpc_status(&mut self, status: u32) {
        if let Some(entry) = &mut self.entry {
            entry.http.grpc_status = Some(status);
        }
    }

    /// It went through.
    pub(crate) fn relayed(mut self) {
        self.end(EntryOutcome::Relayed);
    }

    /// All of its answer is at hand, and is sent once the record is written.
    pub(crate) fn relayed_in_full(&mut self) {
        self.end(EntryOutcome::Relayed);
    }

    /// It ended before the answer began. The reply says why.
    pub(crate) fn refused(mut self, refusal: &Refusal) -> Reply {
        let mut reply = Reply::new(refusal, self.id);
        if let Some(entry) = &mut self.entry {
            entry.http.status = Some(reply.status);
        }
        self.end_refused(refusal);
        reply.recorded = self.recorded;
        reply
    }

    /// It ended after the answer began: nothing more can be said to the client.
    pub(crate) fn broken(mut self, refusal: &Refusal) {
        self.end_refused(refusal);
    }

    fn end_refused(&mut self, refusal: &Refusal) {
        self.code = refusal.code();
        if let Some(entry) = &mut self.entry {
            let facts = &mut **entry;
            write_reason(&mut facts.decision, &mut facts.failure, refusal);
        }
        self.end(refusal.outcome());
    }

    fn end(&mut self, outcome: EntryOutcome) {
        let Some(mut entry) = self.entry.take() else { return };
        self.meter.gateway().in_flight.here().down();
        entry.traffic = self.meter.traffic();
        self.totals.add(&entry.traffic);
        let rule = entry.decision.rule.as_ref().map(Name::as_str);
        let metrics = &self.meter.gateway().metrics;
        metrics.request(self.code, rule, outcome, entry.begun().elapsed());
        self.recorded = entry.close(outcome);
        self.totals.recorded(self.recorded);
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        self.end(EntryOutcome::Abandoned);
    }
}

/// Writes why something ended: as a decision of policy, or as a failure.
pub(super) fn write_reason(
    decision: &mut DecisionRecord,
    failure: &mut FailureRecord,
    refusal: &Refusal,
) {
    if let Some(verdict) = refusal.verdict() {
        decision.verdict = Some(verdict);
        decision.reason = Some(Text::constant(refusal.code()));
        decision.detail = Some(format_args!("{refusal}").into());
        if let Some(rule) = refusal.rule() {
            decision.rule = Some(rule.clone());
        }
    } else {
        *failure = FailureRecord::new(refusal.code(), ErrorChain(refusal));
    }
}

/// A destination, as records name it.
pub(crate) fn destination(to: &Destination) -> audit::DestinationRecord {
    audit::DestinationRecord::new(format_args!("{}", to.host), to.port)
}
