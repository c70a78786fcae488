//! The record of one request, and the meter that fills in its traffic.

use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use audit::{Decision, Entry, Failure, Long, Name, Outcome, Text, Ticket, Unavailable, Verdict};
use policies::{Destination, Scheme};
use uuid::Uuid;

use super::connection::Tally;
use crate::dial::UpstreamFacts;
use crate::gateway::Gateway;
use crate::inspect::Meter;
use crate::refuse::{Refusal, Reply};
use crate::request::{Asked, Request, Version};

/// One request that has begun and must end.
#[derive(Debug)]
#[must_use = "an exchange that is dropped is recorded as abandoned"]
pub(crate) struct Exchange {
    id: Uuid,
    /// How far the log has to be written before the client hears anything.
    recorded: Ticket,
    is_opened: bool,
    /// Gone once the closing record is handed over.
    entry: Option<Entry<audit::Request>>,
    meter: Meter,
    tally: Arc<Tally>,
    code: &'static str,
}

impl Exchange {
    /// Begins a record, or says why nothing may be relayed.
    pub(crate) fn begin(
        gateway: &Arc<Gateway>,
        facts: audit::Request,
        tally: Arc<Tally>,
    ) -> Result<Self, Unavailable> {
        let entry = gateway.log.begin(facts)?;
        gateway.exchanges.here().up();
        tally.request();
        let meter = Meter::new(Arc::clone(gateway));
        let (id, recorded) = (entry.id(), Ticket::default());
        Ok(Self {
            id,
            recorded,
            is_opened: false,
            entry: Some(entry),
            meter,
            tally,
            code: "allowed",
        })
    }

    /// The id that the record and the refusal share.
    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// What was asked, in its one reading.
    pub(crate) fn asked(&mut self, scheme: Scheme, request: &Request<'_>) {
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

    /// What was asked, as it was sent: it has no reading.
    pub(crate) fn unreadable(&mut self, asked: &Asked<'_>) {
        let Some(entry) = &mut self.entry else { return };
        let http = &mut entry.http;
        http.method = Some(String::from_utf8_lossy(asked.method).as_ref().into());
        http.path = Some(String::from_utf8_lossy(asked.target).as_ref().into());
        http.version = Some(Text::constant(asked.version.as_str()));
    }

    /// Nothing of what was asked is known but how.
    pub(crate) fn unseen(&mut self, version: Version) {
        if let Some(entry) = &mut self.entry {
            entry.http.version = Some(Text::constant(version.as_str()));
        }
    }

    /// The policy that is being asked.
    pub(crate) fn judged_by(&mut self, policy: &Name) {
        if let Some(entry) = &mut self.entry {
            entry.decision.policy = Some(policy.clone());
            entry.timing.decide = Some(entry.begun().elapsed().into());
        }
    }

    /// Policy let it pass.
    pub(crate) fn allowed(&mut self, verdict: Verdict, rule: Option<Name>, reason: &'static str) {
        self.code = reason;
        if let Some(entry) = &mut self.entry {
            let decision = &mut entry.decision;
            decision.verdict = Some(verdict);
            decision.rule = rule;
            decision.reason = Some(Text::constant(reason));
        }
    }

    /// Resolves when the `opened` line is safe. Only then may a byte leave.
    pub(crate) async fn opened(&mut self) -> Result<(), Unavailable> {
        let Some(entry) = &mut self.entry else { return Ok(()) };
        entry.opened().await?;
        self.open();
        Ok(())
    }

    /// Hands over the `opened` line, unless it was: an answer begins, and how it
    /// ends is not known yet.
    pub(crate) fn open(&mut self) {
        if let Some(entry) = &mut self.entry {
            self.recorded = entry.open();
            self.is_opened = true;
            self.tally.recorded(self.recorded);
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
    pub(crate) fn is_one_of_many(&self) -> bool {
        let own = u32::from(self.entry.is_some());
        self.meter.gateway().exchanges.here().get() > own
    }

    /// An upstream connection was made or reused for it.
    pub(crate) fn dialled(&mut self, facts: &UpstreamFacts) {
        let Some(entry) = &mut self.entry else { return };
        self.meter.gateway().metrics.dialled(facts);
        entry.destination.dialled(facts.address);
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
        self.end(Outcome::Relayed);
    }

    /// All of its answer is at hand, and is sent once the record is written.
    pub(crate) fn relayed_whole(&mut self) {
        self.end(Outcome::Relayed);
    }

    /// It ended before the answer began. The reply says why.
    pub(crate) fn refused(mut self, refusal: &Refusal) -> Reply {
        let mut reply = Reply::new(refusal, self.id);
        if let Some(entry) = &mut self.entry {
            entry.http.status = Some(reply.status);
        }
        self.break_off(refusal);
        reply.recorded = self.recorded;
        reply
    }

    /// It ended after the answer began: nothing more can be said to the client.
    pub(crate) fn broken(mut self, refusal: &Refusal) {
        self.break_off(refusal);
    }

    fn break_off(&mut self, refusal: &Refusal) {
        self.code = refusal.code();
        if let Some(entry) = &mut self.entry {
            let facts = &mut **entry;
            note(&mut facts.decision, &mut facts.failure, refusal);
        }
        self.end(refusal.outcome());
    }

    fn end(&mut self, outcome: Outcome) {
        let Some(mut entry) = self.entry.take() else { return };
        self.meter.gateway().exchanges.here().down();
        entry.traffic = self.meter.traffic();
        self.tally.add(&entry.traffic);
        let rule = entry.decision.rule.as_ref().map(Name::as_str);
        let metrics = &self.meter.gateway().metrics;
        metrics.request(self.code, rule, outcome, entry.begun().elapsed());
        self.recorded = entry.close(outcome);
        self.tally.recorded(self.recorded);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end(Outcome::Abandoned);
    }
}

/// Writes down why something ended: as policy's word, or as what went wrong.
pub(super) fn note(decision: &mut Decision, failure: &mut Failure, refusal: &Refusal) {
    if let Some(verdict) = refusal.verdict() {
        decision.verdict = Some(verdict);
        decision.reason = Some(Text::constant(refusal.code()));
        decision.detail = Some(format_args!("{refusal}").into());
        if let Some(rule) = refusal.rule() {
            decision.rule = Some(rule.clone());
        }
    } else {
        *failure = Failure::new(refusal.code(), with_causes(refusal));
    }
}

/// An error and what led to it, on one line: here the cause belongs.
fn with_causes(refusal: &Refusal) -> String {
    let mut line = refusal.to_string();
    let mut cause = refusal.source();
    while let Some(err) = cause {
        let told = err.to_string();
        // Errors that speak for their cause would say it twice.
        if !line.ends_with(&told) {
            write!(line, ": {told}").expect("writing to a string cannot fail");
        }
        cause = err.source();
    }
    line
}

/// Whom it is for, as records name it.
pub(crate) fn destination(to: &Destination) -> audit::Destination {
    audit::Destination::new(format_args!("{}", to.host), to.port)
}
