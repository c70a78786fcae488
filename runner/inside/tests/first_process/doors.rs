//! Doors that the first process opens itself, and relays.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::thread;

use inside::passing::{line, receive_line, send_all};
use protocol::init::CommandEnd;
use protocol::launcher::{LauncherCommand, LauncherMessage, ListenerSpec, RelaySpec, SocketKind};
use protocol::relay::RelayFrame;

use crate::sandbox::{
    NAMESPACES, NETWORK_FOR_DOORS, Sandbox, TEST_DEADLINE, args_with_doors, can_be_made,
    first_process, last, printed, shell,
};
use crate::skip;

fn door(kind: SocketKind, port: u16) -> ListenerSpec {
    let address = DOORS;
    ListenerSpec { name: format!("{kind:?}"), address, port, kind }
}

const DOORS: Ipv4Addr = Ipv4Addr::new(127, 18, 0, 1);

/// The next frame of the channel, as the bytes that `expected` has.
fn expect(mut channel: &UnixStream, expected: RelayFrame<'_>) {
    let mut bytes = Vec::new();
    expected.write_to(&mut bytes);
    let mut came = vec![0; bytes.len()];
    channel.read_exact(&mut came).unwrap();
    assert_eq!(RelayFrame::parse(&came).unwrap().map(|(frame, _)| frame), Some(expected));
}

fn tell(mut channel: &UnixStream, frame: RelayFrame<'_>) {
    let mut bytes = Vec::new();
    frame.write_to(&mut bytes);
    channel.write_all(&bytes).unwrap();
}

#[test]
fn doors_that_it_opens_are_there_before_it_is_ready_and_close_with_their_channel() {
    if !skip::is_installed("bash") {
        return;
    }
    let doors = [door(SocketKind::Tcp, 443), door(SocketKind::Udp, 53)];
    let Some((sandbox, channel)) = Sandbox::with_doors(&doors) else { return };
    let connect = "exec 3<>/dev/tcp/127.18.0.1/443";
    let script = format!("bash -c '{connect}; echo hello >&3; cat <&3'");
    let command = sandbox.run(shell(&script));
    let address = SocketAddrV4::new(DOORS, 443);
    expect(&channel, RelayFrame::Open { id: 1, address });
    expect(&channel, RelayFrame::Data { id: 1, bytes: b"hello\n" });
    tell(&channel, RelayFrame::Data { id: 1, bytes: b"and to you\n" });
    tell(&channel, RelayFrame::End { id: 1 });
    expect(&channel, RelayFrame::Done { id: 1 });
    let spool = command.spool.clone();
    assert_eq!(last(command.told), Some(CommandEnd::Exited(0)));
    assert_eq!(printed(&spool).0, "and to you\n");
    expect(&channel, RelayFrame::End { id: 1 });
    tell(&channel, RelayFrame::Done { id: 1 });

    let asking =
        sandbox.run(shell("bash -c 'exec 3<>/dev/udp/127.18.0.1/53; printf q >&3; head -c 1 <&3'"));
    let address = SocketAddrV4::new(DOORS, 53);
    expect(&channel, RelayFrame::Datagram { id: 2, address, bytes: b"q" });
    tell(&channel, RelayFrame::Datagram { id: 2, address, bytes: b"a" });
    let spool = asking.spool.clone();
    assert_eq!(last(asking.told), Some(CommandEnd::Exited(0)));
    assert_eq!(printed(&spool).0, "a");

    // Without the other end there is no network, and the sandbox lives on.
    let stuck = sandbox.run(shell(&format!("bash -c '{connect}; echo connected; cat <&3'")));
    stuck.wait_for("connected");
    expect(&channel, RelayFrame::Open { id: 3, address: SocketAddrV4::new(DOORS, 443) });
    drop(channel);
    assert_eq!(last(stuck.told), Some(CommandEnd::Exited(1)));
    let refused = sandbox.run(shell(&format!("bash -c '{connect}'")));
    let spool = refused.spool.clone();
    assert_eq!(last(refused.told), Some(CommandEnd::Exited(1)));
    assert!(printed(&spool).0.contains("refused"), "{}", printed(&spool).0);
    sandbox.hello();
}

#[test]
fn a_command_reaches_a_gateway_that_listens_in_the_twin_of_its_network() {
    if !skip::is_installed("bash") {
        return;
    }
    let doors = [door(SocketKind::Tcp, 443), door(SocketKind::Udp, 53)];
    let Some((sandbox, channel)) = Sandbox::with_doors(&doors) else { return };
    let (runner, far) = UnixStream::pair().unwrap();
    runner.set_read_timeout(Some(TEST_DEADLINE)).unwrap();
    let mut twin = Command::new(env!("CARGO_BIN_EXE_sluice-launch"))
        .arg("relay")
        .stdin(OwnedFd::from(far))
        .spawn()
        .unwrap();
    let spec = RelaySpec { listeners: doors.to_vec(), user: 1000, group: 1000, session: false };
    send_all(&runner, &line(&spec).unwrap(), &[]).unwrap();
    let (answer, mut sockets): (LauncherMessage, _) = receive_line(&runner).unwrap();
    assert_eq!(answer, LauncherMessage::ListenersOpened);
    let gateway = TcpListener::from(sockets.remove(0));
    send_all(&runner, &line(&LauncherCommand::Relay).unwrap(), &[channel.as_fd()]).unwrap();
    // From here on the relay is between the two ends alone.
    drop(channel);
    let bytes = 3_000_000;
    let answering = thread::spawn(move || {
        let (mut client, _) = gateway.accept().unwrap();
        let mut asked = [0; 3];
        client.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"go\n");
        client.write_all(&vec![b'x'; bytes]).unwrap();
    });
    let script = "bash -c 'exec 3<>/dev/tcp/127.18.0.1/443; echo go >&3; wc -c <&3'";
    let command = sandbox.run(shell(script));
    let spool = command.spool.clone();
    assert_eq!(last(command.told), Some(CommandEnd::Exited(0)));
    assert_eq!(printed(&spool).0.trim(), bytes.to_string());
    answering.join().unwrap();
    // The sandbox ends, and its relay with it.
    sandbox.end();
    assert!(twin.wait().unwrap().success());
}

#[test]
fn commands_find_no_door_to_take_and_no_descriptor_of_the_relay() {
    if !skip::is_installed("python3") {
        return;
    }
    let doors = [door(SocketKind::Tcp, 443), door(SocketKind::Udp, 53)];
    let Some((sandbox, _channel)) = Sandbox::with_doors(&doors) else { return };
    let attack = "python3 - <<'END'
import os, socket
for kind, port in (socket.SOCK_STREAM, 443), (socket.SOCK_DGRAM, 53):
    for address in '127.18.0.1', '0.0.0.0':
        for option in 0, socket.SO_REUSEADDR, socket.SO_REUSEPORT:
            taken = socket.socket(socket.AF_INET, kind)
            if option:
                taken.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                taken.bind((address, port))
                print('took', address, port)
            except OSError as err:
                print(err.strerror)
held = []
for number in range(256):
    try:
        held.append(os.readlink(f'/proc/1/fd/{number}'))
    except OSError as err:
        pass
print(held)
END";
    let command = sandbox.run(shell(attack));
    let spool = command.spool.clone();
    assert_eq!(last(command.told), Some(CommandEnd::Exited(0)));
    let expected = format!("{}[]\n", "Address already in use\n".repeat(12));
    assert_eq!(printed(&spool).0, expected);
}

#[test]
fn a_sandbox_whose_doors_cannot_be_opened_does_not_start_and_says_why() {
    let words = [&NETWORK_FOR_DOORS, &NAMESPACES[..]].concat();
    if !skip::is_installed("ip") || !can_be_made(&words) {
        return;
    }
    let twice = [door(SocketKind::Tcp, 443), door(SocketKind::Tcp, 443)];
    for (doors, why) in [
        (&twice[..], "Tcp on 127.18.0.1:443: Address already in use (os error 98)"),
        (&[door(SocketKind::RawTcp, 0)], "RawTcp on 127.18.0.1:0: a relay has no door for packets"),
        // Nobody listens for the channel.
        (&twice[..1], "relay.sock: No such file or directory (os error 2)"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let args = args_with_doors(&home, doors);
        let host = UnixListener::bind(&args.socket).unwrap();
        let output = first_process(&words, &args).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        let told = String::from_utf8(output.stderr).unwrap();
        let begin = "sluice-init: cannot open the gateway's doors: ";
        assert!(told.starts_with(begin) && told.ends_with(&format!("{why}\n")), "{told}");
        // The host is told nothing: neither a fact nor that it is ready.
        let (mut first, _) = host.accept().unwrap();
        assert_eq!(first.read(&mut [0]).unwrap(), 0);
    }
}
