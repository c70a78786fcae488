//! The destination of each request of an HTTP/1.1 connection.

use std::sync::Arc;

use policies::{Destination, Scheme};

use crate::admit::{Admitted, admit};
use crate::connection::ConnectionContext;
use crate::gateway::Gateway;
use crate::record::ConnectionRecord;
use crate::refuse::{BlanketRefusal, Refusal, Reply};
use crate::request::{self, RawRequest};

/// Where a request's destination is found.
#[derive(Debug)]
pub(crate) enum Destinations<'c> {
    /// In the request: in the clear, each names its own.
    PerRequest(ClearConnection<'c>),
    /// In the connection, which was opened for it.
    PerConnection(Arc<ConnectionContext>),
}

/// A connection in the clear.
#[derive(Debug)]
pub(crate) struct ClearConnection<'c> {
    gateway: Arc<Gateway>,
    record: &'c mut ConnectionRecord,
    /// Whether it came to the proxy, where a target must be a whole URL.
    proxy: bool,
    /// Consecutive requests usually go to one place.
    last: Option<(u64, Arc<ConnectionContext>)>,
}

impl<'c> Destinations<'c> {
    pub(crate) fn per_request(
        gateway: &Arc<Gateway>,
        record: &'c mut ConnectionRecord,
        proxy: bool,
    ) -> Self {
        Self::PerRequest(ClearConnection {
            gateway: Arc::clone(gateway),
            record,
            proxy,
            last: None,
        })
    }

    pub(crate) fn gateway(&self) -> &Arc<Gateway> {
        match self {
            Self::PerRequest(clear) => &clear.gateway,
            Self::PerConnection(context) => &context.gateway,
        }
    }

    /// The context a request is to be judged in.
    pub(crate) fn context(
        &mut self,
        raw: &RawRequest<'_>,
    ) -> Result<Arc<ConnectionContext>, Refusal> {
        match self {
            Self::PerRequest(clear) => clear.context(raw),
            Self::PerConnection(context) => Ok(Arc::clone(context)),
        }
    }

    /// Records what could not be read, and says so.
    pub(crate) fn refuse(&mut self, refusal: &Refusal) -> Reply {
        match self {
            Self::PerConnection(context) => context.refuse(refusal),
            // Its destination is not known; the last request's is not its own.
            Self::PerRequest(clear) => clear.record.refused_request(refusal),
        }
    }

    /// Whether an idle connection may stay, under the policy of this moment.
    pub(crate) fn may_stay_idle(&self) -> bool {
        match self {
            // It has no destination until its next request names one.
            Self::PerRequest(_) => true,
            Self::PerConnection(context) => context.still_admitted(),
        }
    }
}

impl ClearConnection<'_> {
    fn context(&mut self, raw: &RawRequest<'_>) -> Result<Arc<ConnectionContext>, Refusal> {
        if raw.method == b"CONNECT" {
            // Refused for every destination, but the record names it.
            let to = Destination::parse_bytes(raw.target)?;
            let (gateway, record) = (&self.gateway, &*self.record);
            let refusal = Err(BlanketRefusal::ConnectInside);
            let context = ConnectionContext::new(refusal, gateway, Scheme::Http, to, record);
            return Ok(Arc::new(context));
        }
        if self.proxy && raw.target.first() == Some(&b'/') {
            let why = "this is a proxy; ask it for a whole URL, as in `GET http://example.com/`";
            return Err(Refusal::Malformed(why.to_owned()));
        }
        let (scheme, to) = request::destination(raw)?;
        let generation = self.gateway.policy.load().generation;
        if let Some((under, last)) = &self.last
            && *under == generation
            && last.destination == to
            && last.scheme == scheme
        {
            return Ok(Arc::clone(last));
        }
        let context = Arc::new(self.admit(scheme, to));
        self.last = Some((generation, Arc::clone(&context)));
        Ok(context)
    }

    fn admit(&mut self, scheme: Scheme, to: Destination) -> ConnectionContext {
        self.record.destination(&to);
        let Self { gateway, record, .. } = self;
        match admit(&gateway.policy, &to) {
            Ok(Admitted { permit, rule, policy, .. }) => {
                record.admitted(audit::Handling::Inspect, rule, &policy);
                ConnectionContext::new(Ok(&permit), gateway, scheme, to, record)
            }
            Err(denial) => {
                let refusal = Err(BlanketRefusal::Denied(denial));
                ConnectionContext::new(refusal, gateway, scheme, to, record)
            }
        }
    }
}

#[cfg(test)]
mod tests;
