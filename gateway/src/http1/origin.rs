//! Whom the requests of a connection are for.

use std::sync::Arc;

use policies::{Destination, Scheme};

use crate::admit::admit;
use crate::connection::{ConnectionContext, Doom};
use crate::gateway::Gateway;
use crate::record::ConnectionRecord;
use crate::refuse::{Refusal, Reply};
use crate::request::{self, Asked};

/// Where a request's destination is found.
#[derive(Debug)]
pub(crate) enum Origin<'c> {
    /// In the request: in the clear, each names its own.
    Each(Clear<'c>),
    /// In the connection, which was opened for it.
    One(Arc<ConnectionContext>),
}

/// A connection in the clear.
#[derive(Debug)]
pub(crate) struct Clear<'c> {
    gateway: Arc<Gateway>,
    record: &'c mut ConnectionRecord,
    /// Whether it came to the proxy, where a target must be a whole URL.
    proxy: bool,
    /// Consecutive requests usually go to one place.
    last: Option<(u64, Arc<ConnectionContext>)>,
}

impl<'c> Origin<'c> {
    pub(crate) fn each(
        gateway: &Arc<Gateway>,
        record: &'c mut ConnectionRecord,
        proxy: bool,
    ) -> Self {
        Self::Each(Clear { gateway: Arc::clone(gateway), record, proxy, last: None })
    }

    pub(crate) fn gateway(&self) -> &Arc<Gateway> {
        match self {
            Self::Each(clear) => &clear.gateway,
            Self::One(context) => &context.gateway,
        }
    }

    /// The context a request is to be judged in.
    pub(crate) fn context(&mut self, asked: &Asked<'_>) -> Result<Arc<ConnectionContext>, Refusal> {
        match self {
            Self::Each(clear) => clear.context(asked),
            Self::One(context) => Ok(Arc::clone(context)),
        }
    }

    /// Records what could not be read, and says so.
    pub(crate) fn refuse(&mut self, refusal: &Refusal) -> Reply {
        match self {
            Self::One(context) => context.refuse(refusal),
            // It was for nobody we know, least of all for whom the last one was.
            Self::Each(clear) => clear.record.refused_request(refusal),
        }
    }

    /// Whether an idle connection may stay, under the policy of this moment.
    pub(crate) fn may_stay(&self) -> bool {
        match self {
            // It is for nobody until its next request says so.
            Self::Each(_) => true,
            Self::One(context) => context.still_admitted(),
        }
    }
}

impl Clear<'_> {
    fn context(&mut self, asked: &Asked<'_>) -> Result<Arc<ConnectionContext>, Refusal> {
        if asked.method == b"CONNECT" {
            // Refused whoever it is for, but the record says who that was.
            let to = Destination::parse_bytes(asked.target)?;
            let (gateway, record) = (&self.gateway, &*self.record);
            let doom = Doom::ConnectInside;
            let context = ConnectionContext::doomed(doom, gateway, Scheme::Http, to, record);
            return Ok(Arc::new(context));
        }
        if self.proxy && asked.target.first() == Some(&b'/') {
            let why = "this is a proxy; ask it for a whole URL, as in `GET http://example.com/`";
            return Err(Refusal::Malformed(why.to_owned()));
        }
        let (scheme, to) = request::destination(asked)?;
        let generation = self.gateway.policy.load().generation;
        if let Some((under, last)) = &self.last
            && *under == generation
            && last.destination == to
            && last.scheme == scheme
        {
            return Ok(Arc::clone(last));
        }
        let context = Arc::new(self.admit(scheme, to)?);
        self.last = Some((generation, Arc::clone(&context)));
        Ok(context)
    }

    fn admit(&mut self, scheme: Scheme, to: Destination) -> Result<ConnectionContext, Refusal> {
        self.record.destination(&to);
        let Self { gateway, record, .. } = self;
        match admit(gateway, &to) {
            Ok(admitted) => {
                record.admitted(audit::Handling::Inspect, admitted.rule, &admitted.policy);
                Ok(ConnectionContext::admitted(&admitted.permit, gateway, scheme, to, record))
            }
            Err(Refusal::Policy(denial)) => {
                let doom = Doom::Denied(denial);
                Ok(ConnectionContext::doomed(doom, gateway, scheme, to, record))
            }
            Err(refusal) => Err(refusal),
        }
    }
}

#[cfg(test)]
mod tests;
