//! From the first word to the host until the sandbox serves commands.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::exit;
use std::thread;

use protocol::init::{InitArgs, InitMessage, InitOrder, RelayArgs, SandboxLifetime};
use rustix::process::{DumpableBehavior, getpid, set_dumpable_behavior};

use super::server::CommandServer;
use super::{measure, pids_limit};
use crate::passing;
use crate::relay::doors::RelayDoors;

/// The exit code when the host refused, or cannot be spoken to.
pub(super) const REFUSED: i32 = 125;

/// Does the whole job; what it returns is the sandbox's exit code.
#[expect(clippy::print_stderr, reason = "an engine keeps it as the sandbox's log")]
pub fn start(args: InitArgs) -> i32 {
    // Who ends everybody has to be in a sandbox: elsewhere that is the machine.
    if !getpid().is_init() {
        return REFUSED;
    }
    // The command has our user: without this it could write into our memory, and
    // open our descriptors through `/proc/1/fd`.
    if set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        return REFUSED;
    }
    let Ok(host) = UnixStream::connect(&args.socket) else { return REFUSED };
    // Before anybody else is here who could take a door's port.
    if let Some(relay) = args.relay
        && let Err(err) = open_doors(&relay)
    {
        eprintln!("sluice-init: cannot open the gateway's doors: {err}");
        return REFUSED;
    }
    let facts = measure::before();
    pids_limit::watch();
    let facts = facts.into_iter().map(|(name, value)| InitMessage::Fact { name, value });
    // A host that is gone is noticed by the read below.
    facts.chain([InitMessage::Ready]).try_for_each(|message| say(&host, &message)).ok();
    let Some(listener) = receive_listener(&host) else { return REFUSED };

    let server = CommandServer::new(args.grace, args.bounded);
    match args.lifetime {
        // Our threads come first: a command may leave no room for them.
        SandboxLifetime::Attached => {
            let server = server.clone();
            if thread::Builder::new().spawn(move || end_with(host, &server)).is_err() {
                return REFUSED;
            }
        }
        SandboxLifetime::Until(until) => {
            // Whoever started us is not needed any more.
            drop(host);
            let server = server.clone();
            if thread::Builder::new().spawn(move || server.expire_at(until)).is_err() {
                return REFUSED;
            }
        }
    }
    server.serve(listener)
}

/// Opens the doors and relays them, from a thread that shares nothing with others: a
/// relay that breaks or waits is no matter to them.
fn open_doors(RelayArgs { socket, doors }: &RelayArgs) -> io::Result<()> {
    let doors = RelayDoors::open(doors)?;
    let named = |err: io::Error| io::Error::new(err.kind(), format!("{}: {err}", socket.display()));
    let channel = OwnedFd::from(UnixStream::connect(socket).map_err(named)?);
    // When it ends there is no network any more, and nobody to tell but those who find out.
    thread::Builder::new().name("relay".to_owned()).spawn(move || doors.serve(channel))?;
    Ok(())
}

/// The socket that commands are served on, and the order to do so.
fn receive_listener(host: &UnixStream) -> Option<UnixListener> {
    let (InitOrder::Serve, descriptors) = passing::receive_line(host).ok()?;
    let [listener] = <[OwnedFd; 1]>::try_from(descriptors).ok()?;
    Some(listener.into())
}

/// Ends everything when whoever started us is gone.
fn end_with(mut host: UnixStream, server: &CommandServer) {
    // It says nothing more: whatever this returns for, it is gone.
    drop(host.read(&mut [0]));
    server.end_everybody();
    exit(REFUSED);
}

/// One message, whole.
pub(super) fn say(mut to: &UnixStream, message: &InitMessage) -> io::Result<()> {
    to.write_all(&passing::line(message)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn outside_a_sandbox_it_does_not_even_ask_for_orders() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("runner.sock");
        let host = UnixListener::bind(&socket).unwrap();
        host.set_nonblocking(true).unwrap();
        let lifetime = SandboxLifetime::Attached;
        let args =
            InitArgs { socket, grace: Duration::ZERO, bounded: Vec::new(), lifetime, relay: None };
        // Whoever got past it would wait for the host's word.
        let started = thread::spawn(move || start(args));
        assert_eq!(started.join().unwrap(), REFUSED);
        assert!(host.accept().is_err(), "it asked the host for orders");
    }
}
