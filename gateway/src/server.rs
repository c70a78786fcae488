//! The gateway as a whole: built, serving, drained.
//!
//! [`Server::start`] and [`build`] are one straight list. Its order matters: what could refuse
//! to start comes first and leaves nothing behind, and the sandbox's listeners
//! come last, so that nobody is let in before everything stands.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use audit::{Digest, Log, Name, Notice, Options, PolicyLoaded, PolicyRefused, Text};
use certs::{Authority, Serving};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;
use tokio::{task, time};
use tracing::{error, info, warn};

use crate::config::{Ca, Config};
use crate::control::{
    self, Action, ActionError, Caller, ControlSocket, Controller, Listening, SocketError,
};
use crate::dial::{Dialer, DialerError};
use crate::dns::NameServer;
use crate::gateway::{Gateway, PolicyCell};
use crate::lifecycle;
use crate::limits::Limits;
use crate::listen::{self, BindError, Bound, Inherited, Way};
use crate::metrics::Metrics;
use crate::open_files;
use crate::phase::{Phase, reached};
use crate::policy_file::{PolicyError, PolicyFile, ReadPolicy};
use crate::selfcheck::{self, Unsafe};
use crate::workers::{self, Workers};

/// Why a gateway does not start. Nothing is served then.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("there is no audit log, and without one nothing may pass")]
    Audit(#[from] audit::OpenError),
    #[error("there is no authority to mint certificates with")]
    Authority(#[from] certs::AuthorityError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Control(#[from] SocketError),
    #[error("cannot prepare the way out")]
    Dialer(#[from] DialerError),
    #[error("cannot serve a socket that was bound")]
    Io(#[from] io::Error),
    #[error("cannot mint certificates")]
    Mint(#[from] certs::MintError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("the sandbox would not know whom to trust")]
    TrustKit(#[from] certs::KitError),
    #[error("what cannot be recorded does not start: {0}")]
    Unrecorded(#[from] audit::Unavailable),
    #[error(transparent)]
    Unsafe(#[from] Unsafe),
}

/// A gateway that serves.
#[derive(Debug)]
pub struct Server {
    gateway: Arc<Gateway>,
    controller: Arc<Controller>,
    listening: Vec<Listening>,
    /// Accepts connections; ends with the drain.
    accepting: task::JoinHandle<()>,
    /// Do the same on threads of their own.
    _workers: Workers,
    /// Names and control; they end with the server.
    others: JoinSet<()>,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Drained {
    /// Everybody had left.
    All,
    /// The time was up, and so many connections were cut.
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
                // The log says in order that nothing was served.
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
        match self.controller.handle(Action::Reload { text: None }, Caller::Signal).await {
            // A policy that was refused has said so.
            Ok(_) | Err(ActionError::Policy(_)) => {}
            Err(err) => warn!(%err, "the policy was not read again"),
        }
    }

    /// Resolves when an operator asks the gateway to stop.
    pub async fn asked_to_drain(&self) {
        reached(&mut self.controller.phases(), Phase::Draining).await;
    }

    /// Lets nobody in any more, waits for those inside, and closes the log.
    pub async fn drain(mut self) -> Drained {
        if let Err(err) = self.controller.handle(Action::Drain, Caller::Signal).await {
            warn!(%err, "stopping all the same");
        }
        let limits = &self.gateway.limits;
        let patience = limits.drain();
        info!(connections = limits.open_connections(), ?patience, "draining");
        let drained = match time::timeout(patience, limits.all_rooms_free()).await {
            Ok(()) => Drained::All,
            Err(_) => {
                let connections = limits.open_connections();
                warn!(connections, "the time is up; cutting what is left");
                self.controller.advance(Phase::Cut);
                Drained::Cut { connections }
            }
        };
        if let Err(err) = (&mut self.accepting).await {
            warn!(%err, "the accepting task did not end in order");
        }
        match time::timeout(CLOSING, self.gateway.log.close()).await {
            Ok(Ok(head)) => info!(lines = head.seq, "the audit log is closed"),
            Ok(Err(err)) => warn!(%err, "the audit log was not closed"),
            Err(_) => warn!("the audit log was not closed: records are still open"),
        }
        // Last: whoever finds nobody at the control socket may end us.
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
        // Before anybody can ask whether we are ready: who waits for that finds it.
        certs::Kit::write(kit, tls.authority().certificate(), &config.upstream.roots)?;
    }
    let dialer = Dialer::new(config.upstream)?;
    let limits = Limits::new(config.limits, &policy.net.limits);
    open_files::make_room_for(limits.bounds().connections);
    let bound = listen::bind(&config.listen, &config.dns, &mut inherited)?;

    let listening = listening(&bound)?;
    let policy = PolicyCell::new(policy, hash.as_str());
    let gateway = Arc::new(Gateway::new(policy, tls, dialer, log, limits, Metrics::new()));
    let controller =
        Arc::new(Controller::new(Arc::clone(&gateway), policy_file, listening.clone()));

    let mut others = JoinSet::new();
    others.spawn(control::serve(control, Arc::clone(&controller)));
    let names = Arc::new(NameServer::new(Arc::clone(&gateway), config.dns));
    serve_names(names, bound.names_udp, bound.names_tcp, &mut others)?;

    let phases = controller.phases();
    let doors = workers::opened(&bound.connections)?;
    let _workers = workers::start(config.workers, &bound.connections, &gateway, &phases)?;
    let accepting = listen::listen(doors, Arc::clone(&gateway), lifecycle::serve, phases);
    let accepting = tokio::spawn(accepting);
    Ok(Server { gateway, controller, listening, accepting, _workers, others })
}

fn open_log(config: &Config) -> Result<Log, StartError> {
    let options = Options {
        writer: Text::constant(concat!("sluice-gateway ", env!("CARGO_PKG_VERSION"))),
        // What leaves is on disk first. What has ended can wait a moment: a sync
        // for each answer would cost more than the answer.
        sync: audit::Sync::Awaited(SYNC_WITHIN),
        most_bytes: config.limits.audit,
        pins: config.upstream.hosts.written().into_iter().map(Text::from).collect(),
        roots: config.upstream.roots.files.iter().map(|file| named_root(file)).collect(),
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

/// Says in our own log what became of the audit log: with it, all traffic stops.
fn report(notice: &Notice<'_>) {
    match *notice {
        Notice::Ended { folder, why } => error!(
            folder = %folder.display(), %why,
            "the audit log has ended, so nothing passes any more; start the gateway anew to go on"
        ),
        Notice::Paused { folder, why } => error!(
            folder = %folder.display(), why,
            "the audit log has no room, so nothing passes; \
             make room on that disk and the gateway goes on by itself"
        ),
        Notice::Resumed { folder, paused, refused } => info!(
            folder = %folder.display(), ?paused, refused,
            "the audit log has room again, and the gateway goes on"
        ),
    }
}

/// A policy that is refused at the start is recorded before we give up.
async fn read_policy(file: &PolicyFile, log: &Log) -> Result<ReadPolicy, StartError> {
    let path: Text = format_args!("{}", file.path().display()).into();
    match file.read() {
        Ok(read) => {
            let loaded = PolicyLoaded {
                hash: read.hash.as_str().into(),
                name: Some((&*read.policy.name).into()),
                file: Some(path),
                rules: read.policy.rules().count() as u64,
                replaced: None,
            };
            log.record_safely(loaded).await?;
            Ok(read)
        }
        Err(err) => {
            let detail = format_args!("{err}").into();
            log.record_safely(PolicyRefused { file: Some(path), detail, kept: None }).await?;
            Err(err.into())
        }
    }
}

fn authority(config: &Config) -> Result<Authority, certs::AuthorityError> {
    match &config.ca {
        Ca::Directory { path, lifetime } => Authority::in_directory(path, &config.run, *lifetime),
        Ca::Memory { lifetime } => Authority::in_memory(&config.run, *lifetime),
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

fn listening(bound: &Bound) -> io::Result<Vec<Listening>> {
    let mut all = Vec::new();
    let mut add = |way: &str, address: io::Result<SocketAddr>| {
        all.push(Listening { way: way.to_owned(), address: address?.to_string() });
        io::Result::Ok(())
    };
    for (way, listener) in &bound.connections {
        let name = match way {
            Way::CapturedHttp => "http",
            Way::CapturedHttps => "https",
            Way::Proxy => "proxy",
            Way::Socks => "socks",
        };
        add(name, listener.local_addr())?;
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
const SYNC_WITHIN: Duration = Duration::from_millis(50);

/// For the last records to be written.
const CLOSING: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
