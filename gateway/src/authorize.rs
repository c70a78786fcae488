//! Step 6 of 10: policy on the request.
//!
//! [`ConnectionContext::authorize`] is the one door between "a head was read" and
//! "an upstream may be dialled": it reads the request, counts it, asks the policy
//! of that moment, and begins the record. HTTP/1.1 and HTTP/2 both come through
//! it, and what it returns is the only way to a [`RequestPermit`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use audit::{Name, Verdict};
use policies::{Decision, Mode, NotDoneYet, Question, Reach};

use crate::connection::{ConnectionContext, Standing};
use crate::gateway::Loaded;
use crate::record::Exchange;
use crate::refuse::{Denial, Refusal, Reply};
use crate::request::{Asked, Request, Version};

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
}

/// A request that may go out, with its record begun.
pub(crate) struct Authorized<'h> {
    pub(crate) permit: RequestPermit,
    pub(crate) request: Request<'h>,
    pub(crate) exchange: Exchange,
}

/// What policy said, without borrowing it.
struct Ruling {
    permit: RequestPermit,
    verdict: Verdict,
    rule: Option<Name>,
    reason: &'static str,
}

impl ConnectionContext {
    /// Steps 5 and 6 for one request. A refusal is already recorded.
    pub(crate) async fn authorize<'h>(&self, asked: Asked<'h>) -> Result<Authorized<'h>, Reply> {
        let mut exchange = self.begin()?;
        match self.judge(asked, &mut exchange).await {
            Ok((permit, request)) => Ok(Authorized { permit, request, exchange }),
            Err(refusal) => Err(exchange.refused(&refusal)),
        }
    }

    /// Records a request that could not even be read.
    pub(crate) fn refuse(&self, refusal: &Refusal) -> Reply {
        match self.begin() {
            Ok(exchange) => exchange.refused(refusal),
            Err(reply) => reply,
        }
    }

    /// Records a request that nobody got to see: its stream was reset beneath us.
    pub(crate) fn record_unread(&self, refusal: &Refusal) {
        // Without a log there is nobody to tell, either.
        if let Ok(mut exchange) = self.begin() {
            exchange.unseen(Version::Http2);
            exchange.broken(refusal);
        }
    }

    fn begin(&self) -> Result<Exchange, Reply> {
        let facts = audit::Request {
            connection: Some(self.id),
            client: self.facts.client.clone(),
            destination: self.facts.destination.clone(),
            ..audit::Request::default()
        };
        let tally = Arc::clone(&self.facts.tally);
        // Without a record there is only the connection's id to go by.
        Exchange::begin(&self.gateway, facts, tally).map_err(|err| Reply::new(&err.into(), self.id))
    }

    async fn judge<'h>(
        &self,
        asked: Asked<'h>,
        exchange: &mut Exchange,
    ) -> Result<(RequestPermit, Request<'h>), Refusal> {
        let read = Request::read(&asked, self.scheme, &self.destination, &self.authority);
        let request = match read {
            Ok(request) => request,
            Err(refusal) => {
                exchange.unreadable(&asked);
                return Err(self.doom().unwrap_or(refusal));
            }
        };
        exchange.asked(self.scheme, &request);
        if let Some(doom) = self.doom() {
            return Err(doom);
        }
        self.gateway.limits.admit_request()?;
        let ruling = self.ask(&request, exchange)?;
        exchange.allowed(ruling.verdict, ruling.rule, ruling.reason);
        self.open(&request, exchange).await?;
        Ok((ruling.permit, request))
    }

    /// Asks the policy of this moment.
    fn ask(&self, request: &Request<'_>, exchange: &mut Exchange) -> Result<Ruling, Refusal> {
        let loaded = self.gateway.policy.load();
        let ruling = self.rule_on(&loaded, request);
        exchange.judged_by(&loaded.hash);
        ruling
    }

    /// Whether a request that is under way would still be allowed, under the
    /// policy of this moment.
    pub(crate) fn reconsider(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let loaded = self.gateway.policy.load();
        self.rule_on(&loaded, request).map(drop)
    }

    fn rule_on(&self, loaded: &Loaded, request: &Request<'_>) -> Result<Ruling, Refusal> {
        let decision = loaded.policy.decide(&Question {
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
                if decision.yields_to_observing() && loaded.policy.net.mode == Mode::Observe =>
            {
                Ok(Ruling {
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
    async fn open(&self, request: &Request<'_>, exchange: &mut Exchange) -> Result<(), Refusal> {
        let known = self.opened.load(Ordering::Acquire);
        if request.mutates() || !(known || self.gateway.seen.has(&self.destination)) {
            exchange.opened().await?;
            self.gateway.seen.remember(&self.destination);
        }
        if !known {
            self.opened.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn doom(&self) -> Option<Refusal> {
        match &self.standing {
            Standing::Admitted => None,
            Standing::Doomed(doom) => Some(doom.refusal()),
        }
    }
}

/// An allow that asks for more than can be done yet is not carried out by half.
fn allowed(decision: &Decision<'_>) -> Result<Ruling, Refusal> {
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
    Ok(Ruling { permit, verdict: Verdict::Allow, rule, reason: decision.code() })
}

#[cfg(test)]
mod tests;
