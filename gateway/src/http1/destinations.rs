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

/// Where requests in the clear came in, and so what their heads must say.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ClearDoor {
    /// Port 80. `Host` names the destination.
    Captured,
    /// A further port, which is the port of every destination.
    CapturedPort(u16),
    /// A target must be a whole URL.
    Proxy,
}

/// A connection in the clear.
#[derive(Debug)]
pub(crate) struct ClearConnection<'c> {
    gateway: Arc<Gateway>,
    record: &'c mut ConnectionRecord,
    door: ClearDoor,
    /// Consecutive requests usually go to one place.
    last: Option<(u64, Arc<ConnectionContext>)>,
}

impl<'c> Destinations<'c> {
    pub(crate) fn per_request(
        gateway: &Arc<Gateway>,
        record: &'c mut ConnectionRecord,
        door: ClearDoor,
    ) -> Self {
        Self::PerRequest(ClearConnection { gateway: Arc::clone(gateway), record, door, last: None })
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

impl ClearDoor {
    fn destination(self, raw: &RawRequest<'_>) -> Result<(Scheme, Destination), Refusal> {
        let only = match self {
            Self::Captured | Self::Proxy => None,
            Self::CapturedPort(port) => Some(port),
        };
        let usual = only.unwrap_or(Scheme::Http.default_port());
        let (scheme, to) = request::destination(raw, usual)?;
        match only {
            // The client connected to one port and says that it means another.
            Some(port) if to.port != port => {
                let named = to.to_string();
                Err(request::mismatch(&Destination { port, ..to }, format_args!("{named}")))
            }
            _ => Ok((scheme, to)),
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
        if self.door == ClearDoor::Proxy && raw.target.first() == Some(&b'/') {
            let why = "this is a proxy; ask it for a whole URL, as in `GET http://example.com/`";
            return Err(Refusal::Malformed(why.to_owned()));
        }
        let (scheme, to) = self.door.destination(raw)?;
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
        let admission = admit(&gateway.policy, &gateway.limits, &to).map_err(BlanketRefusal::from);
        if let Ok(Admitted { rule, policy, .. }) = &admission {
            record.admitted(audit::Handling::Inspect, rule.clone(), policy);
        }
        let admission = admission.as_ref().map_err(Clone::clone);
        ConnectionContext::new(admission, gateway, scheme, to, record)
    }
}

#[cfg(test)]
mod tests;
