//! The gateway as a whole: built, serving, drained.
//!
//! [`Server::start`] and [`build`] are one straight list. Its order matters: what can
//! fail comes first and leaves nothing behind, and the sandbox's listeners come
//! last, so that no connection is accepted before everything else is up.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use audit::{Digest, Log, LogNotice, Name, Options, PolicyRefused, Text};
use certs::{CertificateAuthority, Serving};
use protocol::control::Listening;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;
use tokio::{task, time};
use tracing::{error, info, warn};

use crate::bind::{BindError, BoundListeners, Inherited, bind};
use crate::config::{Ca, Config};
use crate::control::{
    self, Action, ActionError, ControlCaller, ControlSocket, Controller, SocketError,
};
use crate::dial::{Dialer, DialerError};
use crate::dns::NameServer;
use crate::gateway::Gateway;
use crate::lifecycle;
use crate::limits::GatewayLimits;
use crate::listen::{self, ListenerKind};
use crate::metrics::Metrics;
use crate::open_files;
use crate::phase::{DrainPhase, reached};
use crate::policy_cell::PolicyCell;
use crate::policy_file::{PolicyError, PolicyFile, ReadPolicy};
use crate::selfcheck::{self, SelfCheckError};
use crate::unanswered::{AnsweredPlaces, UnansweredPackets};
use crate::workers::{self, Workers};

/// Why a gateway does not start. Nothing is served then.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot open the audit log, and nothing is relayed without one")]
    Audit(#[from] audit::OpenError),
    #[error("cannot set up the certificate authority")]
    Authority(#[from] certs::CertificateAuthorityError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Control(#[from] SocketError),
    #[error("cannot set up upstream connections")]
    Dialer(#[from] DialerError),
    #[error("cannot start serving the listeners")]
    Io(#[from] io::Error),
    #[error("cannot mint certificates")]
    Mint(#[from] certs::MintError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("cannot write the trust kit for the sandbox")]
    TrustKit(#[from] certs::TrustKitError),
    #[error("cannot write to the audit log: {0}")]
    Unrecorded(#[from] audit::Unavailable),
    #[error(transparent)]
    SelfCheckError(#[from] SelfCheckError),
}

/// A gateway that serves.
#[derive(Debug)]
pub struct Server {
    gateway: Arc<Gateway>,
    controller: Arc<Controller>,
    listening: Vec<Listening>,
    /// Accepts connections; ends with the drain.
    accepting: task::JoinHandle<()>,
    /// They accept connections as well, each on a thread of its own.
    _workers: Workers,
    /// The name server and the control socket; they end with the server.
    others: JoinSet<()>,
    /// What finds no listener, with sockets of its own for the end.
    unanswered: Option<(Arc<UnansweredPackets>, Vec<OwnedFd>)>,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Drained {
    /// Every connection had ended.
    All,
    /// The time limit passed, and this many connections were cut.
    Cut { connections: u32 },
}

impl Server {
    /// Builds everything and begins to serve.
    pub async fn start(config: Config, inherited: Inherited) -> Result<Self, StartError> {
        selfcheck::check(config.topology)?;
        let control = ControlSocket::bind(&config.control)?;
        let log = open_log(&config)?;
        match build(config, control, log.clone(), inherited).await {
            Ok(server) => Ok(server),
            Err(err) => {
                // A closed log says that the gateway stopped in order.
                if let Err(unclosed) = log.close().await {
                    warn!(%unclosed, "the audit log was not closed");
                }
                Err(err)
            }
        }
    }

    /// Every socket that the sandbox can reach.
    pub fn listening(&self) -> &[Listening] {
        &self.listening
    }

    /// Reads the policy file again. What comes of it is logged and recorded.
    pub async fn reload(&self) {
        match self.controller.handle(Action::Reload { text: None }, ControlCaller::Signal).await {
            // A policy that was refused has said so.
            Ok(_) | Err(ActionError::Policy(_)) => {}
            Err(err) => warn!(%err, "cannot reload the policy"),
        }
    }

    /// Resolves when an operator asks the gateway to stop.
    pub async fn asked_to_drain(&self) {
        reached(&mut self.controller.phases(), DrainPhase::Draining).await;
    }

    /// Stops accepting, waits for open connections to end, and closes the log.
    pub async fn drain(mut self) -> Drained {
        if let Err(err) = self.controller.handle(Action::Drain, ControlCaller::Signal).await {
            warn!(%err, "cannot record the drain; stopping anyway");
        }
        let limits = &self.gateway.limits;
        let limit = limits.bounds().drain;
        info!(connections = limits.open_connections(), ?limit, "draining");
        let drained = match time::timeout(limit, limits.all_slots_free()).await {
            Ok(()) => Drained::All,
            Err(_) => {
                let connections = limits.open_connections();
                warn!(
                    connections,
                    "the drain limit has passed; cutting the connections that are left"
                );
                self.controller.advance(DrainPhase::Cut);
                Drained::Cut { connections }
            }
        };
        if let Err(err) = (&mut self.accepting).await {
            warn!(%err, "the accepting task did not end in order");
        }
        if let Some((packets, sockets)) = &self.unanswered {
            packets.finish(sockets);
        }
        match time::timeout(LOG_CLOSE_TIMEOUT, self.gateway.log.close()).await {
            Ok(Ok(head)) => info!(lines = head.seq, "the audit log is closed"),
            Ok(Err(err)) => warn!(%err, "the audit log was not closed"),
            Err(_) => warn!("the audit log was not closed: records are still open"),
        }
        // Last: a runner that finds the control socket closed may kill us.
        self.others.shutdown().await;
        drained
    }
}

/// The rest of the start, with a log to record it in.
async fn build(
    config: Config,
    control: ControlSocket,
    log: Log,
    mut inherited: Inherited,
) -> Result<Server, StartError> {
    let policy_file = PolicyFile::new(&config);
    let ReadPolicy { policy, hash } = read_policy(&policy_file, &log).await?;
    let tls = Serving::new(Arc::new(authority(&config)?))?;
    if let Some(kit) = &config.trust_kit {
        // Before the control socket answers: who waits for `ready` finds the kit.
        certs::TrustKit::write(kit, tls.authority().certificate(), &config.upstream.roots)?;
    }
    let dialer = Dialer::new(config.upstream)?;
    let limits = GatewayLimits::new(config.limits, &policy.net.limits);
    open_files::make_room_for(limits.bounds().connections);
    let bound = bind(&config.listen, &config.dns, &mut inherited)?;

    let listening = listening(&bound)?;
    let policy = PolicyCell::new(policy, hash.as_str());
    let gateway = Arc::new(Gateway::new(policy, tls, dialer, log, limits, Metrics::new()));
    let controller =
        Arc::new(Controller::new(Arc::clone(&gateway), policy_file, listening.clone()));

    let mut others = JoinSet::new();
    others.spawn(control::serve(control, Arc::clone(&controller)));
    let names = Arc::new(NameServer::new(Arc::clone(&gateway), config.dns));
    let answered = answered(&bound)?;
    serve_names(names, bound.names_udp, bound.names_tcp, &mut others)?;
    let mut unanswered = None;
    if !bound.unanswered.is_empty() {
        let packets = Arc::new(UnansweredPackets::new(Arc::clone(&gateway), answered));
        let cloned = bound.unanswered.iter().map(|socket| Ok(socket.try_clone()?.into()));
        let cloned = cloned.collect::<io::Result<Vec<OwnedFd>>>()?;
        unanswered = Some((Arc::clone(&packets), cloned));
        for socket in bound.unanswered {
            let packets = Arc::clone(&packets);
            others.spawn(async move { packets.watch(socket).await });
        }
        others.spawn(async move { packets.report_drops().await });
    }

    let phases = controller.phases();
    let listeners = workers::clone_listeners(&bound.connections)?;
    let _workers = workers::start(config.workers, &bound.connections, &gateway, &phases)?;
    let accepting = listen::listen(listeners, Arc::clone(&gateway), lifecycle::serve, phases);
    let accepting = tokio::spawn(accepting);
    Ok(Server { gateway, controller, listening, accepting, _workers, others, unanswered })
}

fn open_log(config: &Config) -> Result<Log, StartError> {
    let options = Options {
        writer: Text::constant(concat!("sluice-gateway ", env!("CARGO_PKG_VERSION"))),
        // An `opened` line is on disk before its request leaves. A closing line may
        // wait: a sync for each answer would cost more than the answer.
        sync: audit::SyncPolicy::Awaited(RECORD_SYNC_DELAY),
        max_bytes: config.limits.audit,
        pins: config.upstream.hosts.written().into_iter().map(Text::from).collect(),
        roots: config.upstream.roots.files.iter().map(|file| named_root(file)).collect(),
        unanswered: Some(Text::constant(match config.listen.unanswered {
            Some(_) => "recorded",
            None => "not_seen",
        })),
        origin: config.origin.clone(),
        report,
        ..Options::new(config.run.as_str())
    };
    let (log, opening) = Log::open(&config.audit, options)?;
    if let Some(recovered) = opening.recovered {
        warn!(bytes = recovered.bytes, "the audit log ended in a torn line, which was cut off");
    }
    Ok(log)
}

/// A file of authorities, by its name and what is in it.
fn named_root(file: &Path) -> Name {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let digest = File::open(file).and_then(Digest::of_reader);
    // One that cannot be read is an error of its own, a little later.
    let digest = digest.map_or_else(|err| err.to_string(), |(digest, _)| digest.to_string());
    format!("{name}={digest}").into()
}

/// Tells the operator what happened to the audit log: without it all traffic stops.
fn report(notice: &LogNotice<'_>) {
    match *notice {
        LogNotice::Ended { folder, why } => error!(
            folder = %folder.display(), %why,
            "the audit log has ended, so nothing passes any more; start the gateway anew to go on"
        ),
        LogNotice::Paused { folder, why } => error!(
            folder = %folder.display(), why,
            "the audit log has no room, so nothing passes; \
             make room on that disk and the gateway goes on by itself"
        ),
        LogNotice::Resumed { folder, paused, refused } => info!(
            folder = %folder.display(), ?paused, refused,
            "the audit log has room again, and the gateway goes on"
        ),
    }
}

/// Reads the policy, and records it, also when it is refused.
async fn read_policy(file: &PolicyFile, log: &Log) -> Result<ReadPolicy, StartError> {
    let path: Text = format_args!("{}", file.path().display()).into();
    match file.read() {
        Ok(read) => {
            log.record_safely(read.loaded(path, None)).await?;
            Ok(read)
        }
        Err(err) => {
            let detail = format_args!("{err}").into();
            log.record_safely(PolicyRefused { file: Some(path), detail, kept: None }).await?;
            Err(err.into())
        }
    }
}

fn authority(config: &Config) -> Result<CertificateAuthority, certs::CertificateAuthorityError> {
    match &config.ca {
        Ca::Directory { path, lifetime } => {
            CertificateAuthority::in_directory(path, &config.run, *lifetime)
        }
        Ca::Memory { lifetime } => CertificateAuthority::in_memory(&config.run, *lifetime),
    }
}

fn serve_names(
    names: Arc<NameServer>,
    udp: Vec<std::net::UdpSocket>,
    tcp: Vec<std::net::TcpListener>,
    tasks: &mut JoinSet<()>,
) -> io::Result<()> {
    if udp.is_empty() && tcp.is_empty() {
        return Ok(());
    }
    for socket in udp {
        let (names, socket) = (Arc::clone(&names), UdpSocket::from_std(socket)?);
        tasks.spawn(async move { names.serve_udp(socket).await });
    }
    for listener in tcp {
        tasks.spawn(Arc::clone(&names).serve_tcp(TcpListener::from_std(listener)?));
    }
    tasks.spawn(async move { names.report_drops().await });
    Ok(())
}

/// Where packets are answered.
fn answered(bound: &BoundListeners) -> io::Result<AnsweredPlaces> {
    let connections = bound.connections.iter().map(|(_, listener)| listener.local_addr());
    let names = bound.names_tcp.iter().map(|listener| listener.local_addr());
    Ok(AnsweredPlaces {
        tcp: connections.chain(names).collect::<io::Result<_>>()?,
        udp: bound.names_udp.iter().map(|socket| socket.local_addr()).collect::<io::Result<_>>()?,
    })
}

fn listening(bound: &BoundListeners) -> io::Result<Vec<Listening>> {
    let mut all = Vec::new();
    let mut add = |way: &str, address: io::Result<SocketAddr>| {
        all.push(Listening { way: way.to_owned(), address: address?.to_string() });
        io::Result::Ok(())
    };
    for (way, listener) in &bound.connections {
        let name = match way {
            ListenerKind::CapturedHttp => "http".to_owned(),
            ListenerKind::CapturedHttps => "https".to_owned(),
            ListenerKind::CapturedPort(port) => format!("port:{port}"),
            ListenerKind::Proxy => "proxy".to_owned(),
            ListenerKind::Socks => "socks".to_owned(),
            ListenerKind::Tcp(to) => format!("tcp:{to}"),
        };
        add(&name, listener.local_addr())?;
    }
    for socket in &bound.names_udp {
        add("dns/udp", socket.local_addr())?;
    }
    for listener in &bound.names_tcp {
        add("dns/tcp", listener.local_addr())?;
    }
    Ok(all)
}

/// How long a closing record may be written but not yet on disk.
const RECORD_SYNC_DELAY: Duration = Duration::from_millis(50);

/// How long writing the last records may take at the end.
const LOG_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
