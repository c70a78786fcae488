//! The kinds that have a beginning and an end.
//!
//! Each is held by an [`Entry`](crate::Entry) while it happens and is written
//! once, when it ends. An [`OpenedEvent`] line with the same id comes earlier when
//! the first byte must not leave before the record of it is safe.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::EventBody;
use super::groups::{
    ClientRecord, DecisionRecord, DestinationRecord, FailureRecord, Handling, Http, NegotiatedTls,
    Timing, TrafficRecord,
};
use crate::secret_name::RecordedSecrets;
use crate::text::{Name, Text};
use crate::time::Millis;

/// How an entry ended.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryOutcome {
    /// Nobody said how: the task was dropped or panicked.
    #[default]
    Abandoned,
    /// It was allowed, and then something broke.
    Failed,
    /// We said no.
    Refused,
    /// It went through.
    Relayed,
}

impl EntryOutcome {
    /// The name in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Abandoned => "abandoned",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Relayed => "relayed",
        }
    }
}

/// One request, from its head to the last byte of its answer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct RequestFacts {
    #[serde(rename = "sluice.outcome")]
    pub outcome: EntryOutcome,
    /// The connection it came in on.
    #[serde(rename = "sluice.connection", skip_serializing_if = "Option::is_none")]
    pub connection: Option<Uuid>,
    #[serde(flatten)]
    pub client: ClientRecord,
    #[serde(flatten)]
    pub destination: DestinationRecord,
    #[serde(flatten)]
    pub http: Http,
    #[serde(flatten)]
    pub decision: DecisionRecord,
    /// What it was recognised as: `git.push`, `pip.install` and the like.
    #[serde(rename = "sluice.capability", skip_serializing_if = "Option::is_none")]
    pub capability: Option<Name>,
    /// The secrets that were put into it.
    #[serde(rename = "sluice.secrets", skip_serializing_if = "RecordedSecrets::is_empty")]
    pub secrets: RecordedSecrets,
    #[serde(flatten)]
    pub tls: NegotiatedTls,
    #[serde(flatten)]
    pub traffic: TrafficRecord,
    #[serde(flatten)]
    pub timing: Timing,
    #[serde(flatten)]
    pub failure: FailureRecord,
}

/// One connection, from accept to close.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ConnectionFacts {
    #[serde(rename = "sluice.outcome")]
    pub outcome: EntryOutcome,
    #[serde(flatten)]
    pub client: ClientRecord,
    #[serde(flatten)]
    pub destination: DestinationRecord,
    /// `tcp` or `udp`, of a packet that found no door.
    #[serde(rename = "network.transport", skip_serializing_if = "Option::is_none")]
    pub transport: Option<Text<16>>,
    #[serde(rename = "sluice.handling", skip_serializing_if = "Option::is_none")]
    pub handling: Option<Handling>,
    #[serde(flatten)]
    pub decision: DecisionRecord,
    #[serde(flatten)]
    pub tls: NegotiatedTls,
    /// How many requests it carried; none when it was not opened for them.
    #[serde(rename = "sluice.requests", skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    #[serde(flatten)]
    pub traffic: TrafficRecord,
    #[serde(flatten)]
    pub timing: Timing,
    #[serde(flatten)]
    pub failure: FailureRecord,
}

/// One question to the gateway's name server.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DnsFacts {
    #[serde(rename = "sluice.outcome")]
    pub outcome: EntryOutcome,
    #[serde(flatten)]
    pub client: ClientRecord,
    /// In lower case, which is what a search by host looks for.
    #[serde(rename = "dns.question.name", skip_serializing_if = "Option::is_none")]
    pub name: Option<Text>,
    #[serde(rename = "dns.question.type", skip_serializing_if = "Option::is_none")]
    pub record: Option<Text<16>>,
    /// `udp` or `tcp`.
    #[serde(rename = "network.transport", skip_serializing_if = "Option::is_none")]
    pub transport: Option<Text<16>>,
    /// `NOERROR`, `NXDOMAIN`, `REFUSED` and so on.
    #[serde(rename = "dns.response_code", skip_serializing_if = "Option::is_none")]
    pub response: Option<Text<16>>,
    #[serde(flatten)]
    pub decision: DecisionRecord,
    #[serde(flatten)]
    pub timing: Timing,
    #[serde(flatten)]
    pub failure: FailureRecord,
}

/// The first byte of an entry is about to leave.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct OpenedEvent {
    /// The kind of the closing line: `request`, `connection` or `dns`.
    #[serde(rename = "sluice.opens")]
    pub opens: Text<16>,
    #[serde(rename = "sluice.connection", skip_serializing_if = "Option::is_none")]
    pub connection: Option<Uuid>,
    #[serde(flatten)]
    pub client: ClientRecord,
    #[serde(flatten)]
    pub destination: DestinationRecord,
    #[serde(flatten)]
    pub http: Http,
    #[serde(flatten)]
    pub decision: DecisionRecord,
    #[serde(rename = "sluice.capability", skip_serializing_if = "Option::is_none")]
    pub capability: Option<Name>,
    #[serde(rename = "sluice.secrets", skip_serializing_if = "RecordedSecrets::is_empty")]
    pub secrets: RecordedSecrets,
}

/// Facts an [`Entry`](crate::Entry) can hold: those of a [`ConnectionFacts`], a
/// [`DnsFacts`] question or a [`RequestFacts`].
pub trait EntryFacts: Default + Send + sealed::Sealed + 'static {
    /// What is known before the first byte leaves.
    fn opening(&self) -> OpenedEvent;

    /// The closing record, with how it ended and how long it took.
    fn closing(self: Box<Self>, outcome: EntryOutcome, total: Millis) -> EventBody;
}

macro_rules! closed_as {
    ($kind:ident) => {
        fn closing(mut self: Box<Self>, outcome: EntryOutcome, total: Millis) -> EventBody {
            self.outcome = outcome;
            self.timing.total = Some(total);
            EventBody::$kind(self)
        }
    };
}

impl EntryFacts for ConnectionFacts {
    closed_as!(Connection);

    fn opening(&self) -> OpenedEvent {
        OpenedEvent {
            opens: Text::constant("connection"),
            client: self.client.clone(),
            destination: self.destination.clone(),
            decision: self.decision.clone(),
            ..OpenedEvent::default()
        }
    }
}

impl EntryFacts for DnsFacts {
    closed_as!(Dns);

    fn opening(&self) -> OpenedEvent {
        OpenedEvent {
            opens: Text::constant("dns"),
            client: self.client.clone(),
            decision: self.decision.clone(),
            ..OpenedEvent::default()
        }
    }
}

impl EntryFacts for RequestFacts {
    closed_as!(Request);

    fn opening(&self) -> OpenedEvent {
        OpenedEvent {
            opens: Text::constant("request"),
            connection: self.connection,
            client: self.client.clone(),
            destination: self.destination.clone(),
            // Nothing has been answered yet, even if the caller begins to guess.
            http: Http { status: None, grpc_status: None, ..self.http.clone() },
            decision: self.decision.clone(),
            capability: self.capability.clone(),
            secrets: self.secrets.clone(),
        }
    }
}

mod sealed {
    /// The format is closed: nobody else's facts have a kind.
    pub trait Sealed {}
    impl Sealed for super::ConnectionFacts {}
    impl Sealed for super::DnsFacts {}
    impl Sealed for super::RequestFacts {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;
    use crate::event::golden::sample;

    #[test]
    fn an_opening_says_who_asks_for_what_and_by_which_decision() {
        let EventBody::Connection(connection) = sample(EventKind::Connection).what else {
            panic!()
        };
        let opened = connection.opening();
        assert_eq!(opened.opens, "connection");
        assert_eq!(opened.client, connection.client);
        assert_eq!(opened.destination, connection.destination);
        assert_eq!(opened.decision, connection.decision);

        let EventBody::Dns(mut dns) = sample(EventKind::Dns).what else { panic!() };
        dns.decision.verdict = Some(crate::VerdictRecord::Deny);
        let opened = dns.opening();
        assert_eq!(opened.opens, "dns");
        assert_eq!(opened.client, dns.client);
        assert_eq!(opened.decision, dns.decision);
    }

    #[test]
    fn an_outcome_is_called_as_it_is_written() {
        let all = [
            EntryOutcome::Abandoned,
            EntryOutcome::Failed,
            EntryOutcome::Refused,
            EntryOutcome::Relayed,
        ];
        for outcome in all {
            let written = serde_json::to_string(&outcome).unwrap();
            assert_eq!(written, format!("\"{}\"", outcome.as_str()));
        }
    }
}
