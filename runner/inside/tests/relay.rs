//! `sluice-launch relay` as a program: its network, its walls, and when it ends.
//!
//! The tests are the runner, the gateway (they hold its sockets) and the hostile end
//! inside the sandbox (they speak on the channel).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use inside::passing::{line, receive_line, send_all};
use protocol::launcher::{LauncherCommand, LauncherMessage, ListenerSpec, RelaySpec, SocketKind};
use protocol::relay::RelayFrame;

#[path = "../../../tests/src/skip.rs"]
mod skip;

const DOORS: Ipv4Addr = Ipv4Addr::new(127, 18, 0, 1);
/// Whom it becomes when a test is root.
const NOBODY: u32 = 65534;
/// Reached only by a test that fails.
const TEST_DEADLINE: Duration = Duration::from_secs(60);

/// A launcher that has answered, and its runner's end.
struct Launched {
    child: Child,
    runner: UnixStream,
    sockets: Vec<OwnedFd>,
}

fn listener(kind: SocketKind, address: Ipv4Addr, port: u16) -> ListenerSpec {
    ListenerSpec { name: format!("{kind:?}"), address, port, kind }
}

fn usual() -> Vec<ListenerSpec> {
    vec![listener(SocketKind::Tcp, DOORS, 443), listener(SocketKind::Udp, DOORS, 53)]
}

/// Starts it; what it answers, and the sockets that come with that.
fn answer_to(spec: &RelaySpec) -> (LauncherMessage, Launched) {
    let (runner, far) = UnixStream::pair().unwrap();
    runner.set_read_timeout(Some(TEST_DEADLINE)).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_sluice-launch"))
        .arg("relay")
        .stdin(OwnedFd::from(far))
        .stdout(Stdio::null())
        .env_clear()
        .spawn()
        .unwrap();
    send_all(&runner, &line(spec).unwrap(), &[]).unwrap();
    let (answer, sockets) = receive_line(&runner).unwrap();
    (answer, Launched { child, runner, sockets })
}

impl Launched {
    /// Nothing, and a line that says so, where nobody may make namespaces.
    fn start(listeners: Vec<ListenerSpec>, session: bool) -> Option<Self> {
        let count = listeners.len();
        let (answer, launched) =
            answer_to(&RelaySpec { listeners, user: NOBODY, group: NOBODY, session });
        match answer {
            LauncherMessage::ListenersOpened => {
                assert_eq!(launched.sockets.len(), count);
                Some(launched)
            }
            LauncherMessage::Failed { step, .. } if step == "have a network of its own" => {
                skip::skip("user namespaces");
                None
            }
            other => panic!("{other:?}"),
        }
    }

    /// Gives it a channel; the end that would be in the sandbox.
    fn give_channel(&self) -> Inside {
        let (channel, far) = UnixStream::pair().unwrap();
        channel.set_read_timeout(Some(TEST_DEADLINE)).unwrap();
        send_all(&self.runner, &line(&LauncherCommand::Relay).unwrap(), &[far.as_fd()]).unwrap();
        Inside { channel, last: 0 }
    }

    fn tcp(&mut self) -> TcpListener {
        TcpListener::from(self.sockets.remove(0))
    }

    fn status(&self, what: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
        line.unwrap().split_whitespace().next().unwrap().to_owned()
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The end in the sandbox, which says what it wants.
struct Inside {
    channel: UnixStream,
    last: u32,
}

impl Inside {
    fn say(&mut self, frame: RelayFrame<'_>) {
        let mut bytes = Vec::new();
        frame.write_to(&mut bytes);
        self.channel.write_all(&bytes).unwrap();
    }

    fn open(&mut self, address: SocketAddrV4) -> u32 {
        self.last += 1;
        self.say(RelayFrame::Open { id: self.last, address });
        self.last
    }

    /// The next frame, as the bytes that `expected` has.
    fn expect(&mut self, expected: RelayFrame<'_>) {
        let mut bytes = Vec::new();
        expected.write_to(&mut bytes);
        let mut came = vec![0; bytes.len()];
        self.channel.read_exact(&mut came).unwrap();
        assert_eq!(RelayFrame::parse(&came).unwrap().map(|(frame, _)| frame), Some(expected));
    }

    fn is_refused(&mut self, address: SocketAddrV4) {
        let id = self.open(address);
        self.expect(RelayFrame::Reset { id });
        self.say(RelayFrame::Reset { id });
    }
}

fn accepted(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(TEST_DEADLINE)).unwrap();
    stream
}

#[test]
fn a_connection_that_is_announced_reaches_the_gateway() {
    let Some(mut launched) = Launched::start(usual(), false) else { return };
    let door = launched.tcp();
    assert_eq!(door.local_addr().unwrap(), SocketAddrV4::new(DOORS, 443).into());
    let names = UdpSocket::from(launched.sockets.remove(0));
    let mut inside = launched.give_channel();

    let id = inside.open(SocketAddrV4::new(DOORS, 443));
    let mut served = accepted(&door);
    inside.say(RelayFrame::Data { id, bytes: b"hello" });
    let mut heard = [0; 5];
    served.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    served.write_all(b"and to you").unwrap();
    inside.expect(RelayFrame::Data { id, bytes: b"and to you" });
    inside.say(RelayFrame::End { id });
    inside.expect(RelayFrame::Done { id });
    assert_eq!(served.read(&mut heard).unwrap(), 0);

    let address = SocketAddrV4::new(DOORS, 53);
    inside.last += 1;
    let id = inside.last;
    inside.say(RelayFrame::Datagram { id, address, bytes: b"where is it?" });
    let mut question = [0; 100];
    let (length, asker) = names.recv_from(&mut question).unwrap();
    assert_eq!(&question[..length], b"where is it?");
    names.send_to(b"there", asker).unwrap();
    inside.expect(RelayFrame::Datagram { id, address, bytes: b"there" });
}

#[test]
fn nothing_but_the_gateways_sockets_can_be_reached() {
    let host = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    host.set_nonblocking(true).unwrap();
    let std::net::SocketAddr::V4(at) = host.local_addr().unwrap() else { panic!("IPv6") };
    // The gateway has a socket with the number of the host's port, on every address.
    let everywhere = listener(SocketKind::Tcp, Ipv4Addr::UNSPECIFIED, at.port());
    let listeners = [usual(), vec![everywhere]].concat();
    let Some(mut launched) = Launched::start(listeners, false) else { return };
    let mut inside = launched.give_channel();
    for address in ["127.0.0.1:443", "127.18.0.1:444", "127.18.0.1:53", "192.0.2.1:443"] {
        inside.is_refused(address.parse().unwrap());
    }
    let other = SocketAddrV4::new(Ipv4Addr::LOCALHOST, at.port().wrapping_add(1));
    inside.is_refused(other);
    // Where the host's would be, the gateway's is; and an address of another network, which
    // that one would serve, leads nowhere.
    inside.is_refused(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), at.port()));
    let everywhere = TcpListener::from(launched.sockets.remove(2));
    let id = inside.open(at);
    let mut served = accepted(&everywhere);
    served.write_all(b"the gateway").unwrap();
    inside.expect(RelayFrame::Data { id, bytes: b"the gateway" });
    assert_eq!(host.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn it_keeps_no_socket_of_the_gateways() {
    let Some(mut launched) = Launched::start(usual(), false) else { return };
    let mut inside = launched.give_channel();
    // The gateway ends, and with it the network.
    launched.sockets.clear();
    inside.is_refused(SocketAddrV4::new(DOORS, 443));
}

#[test]
fn it_stands_behind_its_walls_before_it_is_given_a_channel() {
    let Some(launched) = Launched::start(usual(), false) else { return };
    for (what, is) in [
        ("CapBnd", "0000000000000000"),
        ("CapEff", "0000000000000000"),
        ("CapPrm", "0000000000000000"),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
    ] {
        assert_eq!(launched.status(what), is, "{what}");
    }
    assert_ne!(launched.status("Uid"), "0");
    let own = |namespace: &str| {
        let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/{namespace}"));
        match of(&launched.child.id().to_string()) {
            Ok(theirs) => theirs != of("self").unwrap(),
            // It has become somebody into whom we cannot look.
            Err(err) => err.kind() == ErrorKind::PermissionDenied,
        }
    };
    assert!(own("net") && own("mnt"));
    match fs::read_dir(format!("/proc/{}/root/", launched.child.id())) {
        Ok(root) => assert_eq!(root.count(), 0),
        Err(err) => assert_eq!(err.kind(), ErrorKind::PermissionDenied),
    }
}

#[test]
fn it_ends_with_its_runner_unless_it_serves_a_session() {
    let Some(mut launched) = Launched::start(usual(), false) else { return };
    let mut inside = launched.give_channel();
    inside.is_refused(SocketAddrV4::new(DOORS, 1));
    launched.runner.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(launched.child.wait().unwrap().success());

    let mut launched = Launched::start(usual(), true).unwrap();
    let mut inside = launched.give_channel();
    launched.runner.shutdown(std::net::Shutdown::Both).unwrap();
    for _ in 0..100 {
        inside.is_refused(SocketAddrV4::new(DOORS, 1));
    }
    drop(inside);
    assert!(launched.child.wait().unwrap().success());
}

#[test]
fn it_ends_when_the_sandbox_lies() {
    let Some(mut launched) = Launched::start(usual(), true) else { return };
    let mut inside = launched.give_channel();
    inside.say(RelayFrame::End { id: 1 });
    assert_eq!(launched.child.wait().unwrap().code(), Some(1));
}

#[test]
fn what_is_no_channel_is_not_served() {
    for channels in [0, 2] {
        let Some(mut launched) = Launched::start(usual(), true) else { return };
        let (channel, _far) = UnixStream::pair().unwrap();
        let given = vec![channel.as_fd(); channels];
        send_all(&launched.runner, &line(&LauncherCommand::Relay).unwrap(), &given).unwrap();
        assert_eq!(launched.child.wait().unwrap().code(), Some(2));
    }
    let mut launched = Launched::start(usual(), true).unwrap();
    let file = fs::File::open("/dev/null").unwrap();
    send_all(&launched.runner, &line(&LauncherCommand::Relay).unwrap(), &[file.as_fd()]).unwrap();
    assert_eq!(launched.child.wait().unwrap().code(), Some(2));
}

#[test]
fn a_socket_that_cannot_be_opened_is_an_answer() {
    if Launched::start(usual(), false).is_none() {
        return;
    }
    for (listener, expected) in [
        (listener(SocketKind::RawUdp, DOORS, 0), "a relay has none for packets"),
        (
            listener(SocketKind::Tcp, Ipv4Addr::new(192, 0, 2, 1), 443),
            "Tcp on 192.0.2.1:443: Cannot assign requested address (os error 99)",
        ),
    ] {
        let spec =
            RelaySpec { listeners: vec![listener], user: NOBODY, group: NOBODY, session: false };
        let (answer, mut launched) = answer_to(&spec);
        let step = "open the gateway's sockets".to_owned();
        assert_eq!(answer, LauncherMessage::Failed { step, why: expected.to_owned() });
        assert!(!launched.child.wait().unwrap().success());
    }
}

#[test]
fn root_becomes_somebody_else_or_nothing_starts() {
    if !rustix::process::geteuid().is_root() {
        return skip::skip("root");
    }
    let spec = RelaySpec { listeners: usual(), user: 0, group: NOBODY, session: false };
    let (answer, _launched) = answer_to(&spec);
    assert!(matches!(answer, LauncherMessage::Failed { step, .. } if step == "choose a user"));
}
