//! The sandbox's name server: every name leads to the gateway.
//!
//! A name that is looked up is a message to whoever runs its zone, so no name is
//! ever looked up for a sandbox. Every A question is answered with the gateway's
//! own address, whatever policy thinks of the name: a program that connects
//! there is told why not, in its own protocol, instead of "host not found". A name
//! that has a door of its own is answered with the address of that.
//! Other types have no data, so programs fall back to A.
//!
//! **Invariant:** nothing in this folder opens a socket or sends anything but
//! answers to whom they were asked by.
//!
//! Every question is one record. A sandbox can ask faster than anyone can read,
//! so beyond a bound questions are dropped, and one record a second says how
//! many.

mod answer;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod udp;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use audit::{ClientRecord, EntryOutcome, Text, WayIn};
use policies::{Admission, Decision, Destination, Host, HostError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time;
use tracing::{debug, error};

use crate::config;
use crate::gateway::Gateway;
use crate::listen::back_off;
use crate::rate_limit::RateLimit;
use answer::{DnsReply, Question, QuestionError};
use udp::QuestionSocket;

/// Answers questions, over UDP and TCP alike.
#[derive(Debug)]
pub(crate) struct NameServer {
    gateway: Arc<Gateway>,
    settings: config::DnsSettings,
    rate_limit: RateLimit,
}

/// How a question came in.
#[derive(Clone, Copy, Debug)]
enum Transport {
    Tcp,
    Udp,
}

impl NameServer {
    pub(crate) fn new(gateway: Arc<Gateway>, settings: config::DnsSettings) -> Self {
        let rate_limit = RateLimit::new(settings.queries_per_second);
        Self { gateway, settings, rate_limit }
    }

    /// The address names are answered with when asked at `local`. Nothing when
    /// that is no IPv4 address and none was configured.
    pub(crate) fn answer_at(settings: &config::DnsSettings, local: SocketAddr) -> Option<Ipv4Addr> {
        settings.answer.or(match local.ip().to_canonical() {
            IpAddr::V4(address) if !address.is_unspecified() => Some(address),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        })
    }

    /// Answers on a UDP socket, for ever.
    pub(crate) async fn serve_udp(&self, socket: UdpSocket) {
        let Some(address) = socket.local_addr().ok().and_then(|at| self.address(at)) else {
            return;
        };
        let socket = match QuestionSocket::new(socket) {
            Ok(socket) => socket,
            Err(err) => return error!(%err, "names cannot be answered over UDP"),
        };
        let mut message = vec![0; MAX_MESSAGE_BYTES];
        loop {
            match socket.receive(&mut message).await {
                Ok(received) => {
                    let (message, peer) = (message.get(..received.length), received.peer);
                    let message = message.unwrap_or_default();
                    if let Some(reply) = self.reply(message, peer, address, Transport::Udp)
                        && let Err(err) = socket.answer(&reply, &received).await
                    {
                        debug!(%peer, %err, "cannot answer");
                    }
                }
                Err(err) => back_off("dns", &err).await,
            }
        }
    }

    /// Answers on TCP connections, for ever.
    pub(crate) async fn serve_tcp(self: Arc<Self>, listener: TcpListener) {
        let room = Arc::new(Semaphore::new(MAX_TCP_CONNECTIONS));
        loop {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let server = Arc::clone(&self);
                    tokio::spawn(async move {
                        if let Err(err) = server.serve_connection(stream, peer).await {
                            debug!(%peer, %err, "a conversation about names ended early");
                        }
                        drop(permit);
                    });
                }
                Err(err) => back_off("dns", &err).await,
            }
        }
    }

    /// Answers one TCP connection's questions, one after the other.
    async fn serve_connection(&self, mut stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let Some(address) = self.address(stream.local_addr()?) else { return Ok(()) };
        loop {
            let message = match time::timeout(MESSAGE_TIMEOUT, read_message(&mut stream)).await {
                Ok(Ok(Some(message))) => message,
                Ok(Ok(None)) | Err(_) => return Ok(()),
                Ok(Err(err)) => return Err(err),
            };
            let Some(reply) = self.reply(&message, peer, address, Transport::Tcp) else {
                return Ok(());
            };
            let length = u16::try_from(reply.len()).map_err(io::Error::other)?;
            let framed = [&length.to_be_bytes(), reply.as_slice()].concat();
            time::timeout(MESSAGE_TIMEOUT, stream.write_all(&framed)).await??;
        }
    }

    fn address(&self, local: SocketAddr) -> Option<Ipv4Addr> {
        Self::answer_at(&self.settings, local)
    }

    /// The reply to one message, if it gets one. It is recorded first: what
    /// cannot be recorded is not answered.
    fn reply(
        &self,
        message: &[u8],
        peer: SocketAddr,
        address: Ipv4Addr,
        transport: Transport,
    ) -> Option<Vec<u8>> {
        if !self.rate_limit.admits() {
            return None;
        }
        let mut record = audit::DnsFacts {
            client: ClientRecord::new(peer, WayIn::Dns),
            transport: Some(Text::constant(transport.name())),
            ..audit::DnsFacts::default()
        };
        let question = match Question::parse(message) {
            Ok(question) => question,
            Err(QuestionError::Unanswerable) => return None,
            Err(QuestionError::Refused(reply)) => return self.recorded(record, reply, "none"),
        };
        let name = question.name();
        record.name = Some(name.as_str().into());
        record.record = Some(format_args!("{}", question.record()).into());
        let host = Host::parse(&name);
        let address = match &host {
            Ok(Host::Name(name)) => *self.settings.hosts.get(name).unwrap_or(&address),
            Ok(Host::Address(_)) | Err(_) => address,
        };
        record.decision = self.judge(&name, host);
        let blocked = match record.decision.verdict {
            Some(audit::VerdictRecord::Deny) => record.decision.reason.clone(),
            _ => None,
        };
        let ttl = u32::try_from(self.settings.ttl.as_secs()).unwrap_or(u32::MAX);
        let reply = question.answer(address, ttl, blocked.as_ref().map(|code| code.as_str()));
        self.recorded(record, reply, question.label())
    }

    fn recorded(
        &self,
        mut record: audit::DnsFacts,
        reply: DnsReply,
        label: &'static str,
    ) -> Option<Vec<u8>> {
        record.response = Some(Text::constant(reply.response));
        let denied = record.decision.verdict == Some(audit::VerdictRecord::Deny);
        record.outcome =
            if reply.refused || denied { EntryOutcome::Refused } else { EntryOutcome::Relayed };
        match self.gateway.log.record(record) {
            Ok(_) => {
                self.gateway.metrics.question(label, reply.response);
                Some(reply.bytes)
            }
            Err(err) => {
                debug!(%err, "a question is not answered");
                None
            }
        }
    }

    /// What policy would say if the name were used, on any port that a rule names.
    fn judge(&self, name: &str, host: Result<Host, HostError>) -> audit::DecisionRecord {
        let loaded = self.gateway.policy.load();
        let mut decision =
            audit::DecisionRecord { policy: Some(loaded.hash.clone()), ..Default::default() };
        // The gateway's own name is always answered.
        if name == OWN_NAME {
            return decision;
        }
        let host = match host {
            Ok(host) => host,
            Err(err) => {
                decision.verdict = Some(audit::VerdictRecord::Deny);
                decision.reason = Some(Text::constant("bad_authority"));
                decision.detail = Some(format_args!("{err}").into());
                return decision;
            }
        };
        let mut denied = None;
        let by_name = match &host {
            Host::Name(name) => Some(name),
            Host::Address(_) => None,
        };
        for port in loaded.ports_for(by_name) {
            let to = Destination { host: host.clone(), port };
            match loaded.policy.admit(&to) {
                Admission::Deny(decided) => denied = denied.or(Some(decided)),
                // Whether it is let out is decided when it is used.
                Admission::Ask(_)
                | Admission::Inspect
                | Admission::Passthrough(_)
                | Admission::Tcp(_) => return decision,
            }
        }
        if let Some(Decision { verdict, rule, reason, .. }) = denied {
            decision.verdict = Some(audit::VerdictRecord::Deny);
            decision.rule = rule.map(|rule| rule.id().into());
            decision.reason = Some(Text::constant(reason.code(verdict)));
        }
        decision
    }

    /// Says, once a second while it happens, how many questions were dropped.
    pub(crate) async fn report_drops(&self) {
        loop {
            let dropped = self.rate_limit.dropped().await;
            self.gateway.metrics.questions_dropped(dropped);
            let bound = u64::from(self.settings.queries_per_second);
            let limit = audit::LimitEvent {
                name: Text::constant("dns.queries_per_second"),
                value: bound,
                reached: bound.saturating_add(dropped),
                ..audit::LimitEvent::default()
            };
            if let Err(err) = self.gateway.log.record(limit) {
                debug!(%err, dropped, "dropped questions are not recorded");
            }
        }
    }
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// One message with its length before it; nothing at the end of the stream.
async fn read_message(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let length = match stream.read_u16().await {
        Ok(length) => usize::from(length),
        Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(err) => return Err(err),
    };
    if length > MAX_MESSAGE_BYTES {
        return Ok(None);
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(Some(message))
}

/// What sandboxes call their gateway.
const OWN_NAME: &str = "gateway.sluice";
/// A question is a name of 255 bytes and little else.
const MAX_MESSAGE_BYTES: usize = 4096;
/// TCP is for the rare client that will not use UDP.
const MAX_TCP_CONNECTIONS: usize = 64;
/// For one message to arrive, and for its answer to leave.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
