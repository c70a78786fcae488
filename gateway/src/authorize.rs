//! Step 6 of 10: policy on the request.
//!
//! [`ConnectionContext::authorize`] is the one function between "a head was read"
//! and "an upstream may be dialled": it reads the request, counts it, asks the policy
//! of that moment, and begins the record. HTTP/1.1 and HTTP/2 both come through
//! it, and what it returns is the only way to a [`RequestPermit`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use audit::{Name, Verdict};
use policies::{Decision, Mode, NotDoneYet, PolicyQuestion, Reach};

use crate::connection::{BlanketRefusal, ConnectionContext};
use crate::gateway::LoadedPolicy;
use crate::http_version::HttpVersion;
use crate::record::RequestRecord;
use crate::refuse::{Denial, Refusal, Reply};
use crate::request::{RawRequest, Request};

/// Proof that policy allowed this request. Made only in this file.
///
/// ```compile_fail
/// // Nobody else can.
/// let forged = gateway::RequestPermit(policies::Reach::public());
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RequestPermit(Reach);

impl RequestPermit {
    /// Which addresses the destination may resolve to, for this request's rule.
    pub(crate) fn reach(&self) -> &Reach {
        &self.0
    }

    #[cfg(test)]
    pub(crate) fn for_test(reach: Reach) -> Self {
        Self(reach)
    }
}

/// A request that may go out, with its record begun.
pub(crate) struct Authorized<'h> {
    pub(crate) permit: RequestPermit,
    pub(crate) request: Request<'h>,
    pub(crate) record: RequestRecord,
}

/// What policy said, without borrowing it.
struct Grant {
    permit: RequestPermit,
    verdict: Verdict,
    rule: Option<Name>,
    reason: &'static str,
}

impl ConnectionContext {
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
        let facts = audit::Request {
            connection: Some(self.id),
            client: self.facts.client.clone(),
            destination: self.facts.destination.clone(),
            ..audit::Request::default()
        };
        let totals = Arc::clone(&self.facts.totals);
        // Without a record there is only the connection's id to go by.
        RequestRecord::begin(&self.gateway, facts, totals)
            .map_err(|err| Reply::new(&err.into(), self.id))
    }

    async fn judge<'h>(
        &self,
        raw: RawRequest<'h>,
        record: &mut RequestRecord,
    ) -> Result<(RequestPermit, Request<'h>), Refusal> {
        let read = Request::read(&raw, self.scheme, &self.destination, &self.authority);
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
        let grant = self.ask(&request, record)?;
        record.allowed(grant.verdict, grant.rule, grant.reason);
        self.open(&request, record).await?;
        Ok((grant.permit, request))
    }

    /// Asks the policy of this moment.
    fn ask(&self, request: &Request<'_>, record: &mut RequestRecord) -> Result<Grant, Refusal> {
        let loaded = self.gateway.policy.load();
        let grant = self.rule_on(&loaded, request);
        record.policy(&loaded.hash);
        grant
    }

    /// Whether a request that is under way would still be allowed, under the
    /// policy of this moment.
    pub(crate) fn reconsider(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let loaded = self.gateway.policy.load();
        self.rule_on(&loaded, request).map(drop)
    }

    fn rule_on(&self, loaded: &LoadedPolicy, request: &Request<'_>) -> Result<Grant, Refusal> {
        let decision = loaded.policy.decide(&PolicyQuestion {
            scheme: self.scheme,
            to: &self.destination,
            method: request.method,
            overridden: request.overridden,
            further: &request.further,
            path: &request.path,
            query: request.query.as_ref(),
            headers: request.headers,
            websocket: request.websocket,
        });
        match decision.verdict {
            policies::Verdict::Allow => allowed(&decision),
            policies::Verdict::Deny
                if decision.is_unmatched() && loaded.policy.net.mode == Mode::Observe =>
            {
                Ok(Grant {
                    permit: RequestPermit(Reach::public()),
                    verdict: Verdict::WouldDeny,
                    rule: None,
                    reason: decision.code(),
                })
            }
            policies::Verdict::Ask | policies::Verdict::Deny => Err(Refusal::Policy(
                Denial::of_request(&decision, self.scheme, &self.destination, request),
            )),
        }
    }

    /// The first request to a destination, and every request that may change
    /// something, is in the log before it leaves.
    async fn open(&self, request: &Request<'_>, record: &mut RequestRecord) -> Result<(), Refusal> {
        let known = self.opened.load(Ordering::Acquire);
        if request.mutates() || !(known || self.gateway.recorded.has(&self.destination)) {
            record.opened().await?;
            self.gateway.recorded.remember(&self.destination);
        }
        if !known {
            self.opened.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn blanket_refusal(&self) -> Option<Refusal> {
        self.blanket_refusal.as_ref().map(BlanketRefusal::refusal)
    }
}

/// An allow that asks for more than can be done yet is not carried out by half.
fn allowed(decision: &Decision<'_>) -> Result<Grant, Refusal> {
    let rule = decision.rule_id().map(Name::from);
    if let (Some(not_done_yet), Some(rule)) = (decision.not_done_yet(), &rule) {
        let rule = rule.clone();
        return Err(match not_done_yet {
            NotDoneYet::Body => Refusal::BodyNotCheckable { rule },
            NotDoneYet::Secret => Refusal::SecretUnavailable { rule },
        });
    }
    let reach = decision.rule.map(|rule| rule.reach().clone()).unwrap_or_default();
    let permit = RequestPermit(reach);
    Ok(Grant { permit, verdict: Verdict::Allow, rule, reason: decision.code() })
}

#[cfg(test)]
mod tests;
