//! Both ends with real sockets, and what a hostile end inside can do to the other.
//!
//! The gateway is a few servers on this machine's loopback: where the product has a
//! network of its own for them, the twin here is told which is meant.

#![expect(clippy::disallowed_methods, reason = "clients of a relay, on loopback")]

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use protocol::launcher::{ListenerSpec, SocketKind};
use protocol::relay::{MAX_DATA_BYTES, MAX_DATAGRAM_BYTES, RelayFrame};
use rustix::net::sockopt;

use super::RelayEnd;
use super::doors::RelayDoors;
use super::table::RelayViolation;
use super::twin::Twin;
use crate::passing;

/// Reached only by a test that fails.
const TEST_DEADLINE: Duration = Duration::from_secs(60);
const NOWHERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

/// Two ends, a door for connections and one for questions.
struct Rig {
    tcp: SocketAddrV4,
    udp: SocketAddrV4,
    /// Both ends of the channel, to cut it.
    channel: [UnixStream; 2],
    ends: [JoinHandle<RelayEnd>; 2],
}

fn listener(kind: SocketKind) -> ListenerSpec {
    ListenerSpec { name: "door".to_owned(), address: Ipv4Addr::LOCALHOST, port: 0, kind }
}

fn twin(tcp: SocketAddrV4, udp: SocketAddrV4, question_life: Duration) -> Twin {
    let reach = move |kind, _| match kind {
        SocketKind::Tcp => Some(tcp),
        SocketKind::Udp => Some(udp),
        SocketKind::RawTcp | SocketKind::RawUdp => None,
    };
    Twin::with(question_life, Box::new(reach))
}

impl Rig {
    /// A relay to the gateway that listens at `server`.
    fn to(server: SocketAddrV4) -> Self {
        Self::start(twin(server, NOWHERE, TEST_DEADLINE), usize::MAX)
    }

    fn start(twin: Twin, max_streams: usize) -> Self {
        let doors = [SocketKind::Tcp, SocketKind::Udp].map(listener);
        let doors = RelayDoors::open(&doors).unwrap().with_max_streams(max_streams);
        let addresses = doors.addresses();
        let (near, far) = UnixStream::pair().unwrap();
        let channel = [near.try_clone().unwrap(), far.try_clone().unwrap()];
        let ends = [
            thread::spawn(move || doors.serve(OwnedFd::from(near))),
            thread::spawn(move || twin.serve(OwnedFd::from(far), None)),
        ];
        Self { tcp: addresses[0], udp: addresses[1], channel, ends }
    }

    fn connect(&self) -> TcpStream {
        client(self.tcp)
    }

    fn cut(self) -> [RelayEnd; 2] {
        self.channel[0].shutdown(std::net::Shutdown::Both).unwrap();
        self.ends.map(|end| end.join().unwrap())
    }
}

fn client(at: SocketAddrV4) -> TcpStream {
    with_deadline(TcpStream::connect(at).unwrap())
}

fn with_deadline(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(TEST_DEADLINE)).unwrap();
    stream.set_write_timeout(Some(TEST_DEADLINE)).unwrap();
    stream
}

/// A server with a thread for each connection.
fn server(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddrV4 {
    let listener = TcpListener::bind(NOWHERE).unwrap();
    let address = address_of(listener.local_addr());
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, serve) = (with_deadline(client.unwrap()), serve.clone());
            thread::spawn(move || serve(client));
        }
    });
    address
}

fn address_of(address: io::Result<std::net::SocketAddr>) -> SocketAddrV4 {
    let std::net::SocketAddr::V4(address) = address.unwrap() else { panic!("IPv6") };
    address
}

fn echo(mut client: TcpStream) {
    let mut reading = client.try_clone().unwrap();
    drop(io::copy(&mut reading, &mut client));
}

/// A server that hands its connections to the test.
fn handed_over() -> (SocketAddrV4, mpsc::Receiver<TcpStream>) {
    let (hand, accepted) = mpsc::channel();
    (server(move |client| hand.send(client).unwrap()), accepted)
}

/// Sends it and reads as much; whether that is the same.
fn ping(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    let mut echoed = vec![0; bytes.len()];
    stream.write_all(bytes).unwrap();
    stream.read_exact(&mut echoed).unwrap();
    echoed == bytes
}

fn reset(stream: TcpStream) {
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

/// How reading from it ends.
fn end_of(mut stream: &TcpStream) -> Result<usize, ErrorKind> {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).map_err(|err| err.kind())
}

#[test]
fn two_hundred_connections_at_once_each_have_their_own_bytes() {
    let rig = Rig::to(server(echo));
    let mut clients: Vec<TcpStream> = (0..200).map(|_| rig.connect()).collect();
    let text = |number: usize, round: usize| format!("{number} {round} ").repeat(700).into_bytes();
    for round in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            client.write_all(&text(number, round)).unwrap();
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let mut echoed = vec![0; text(number, round).len()];
            client.read_exact(&mut echoed).unwrap();
            assert_eq!(echoed, text(number, round));
        }
    }
    // All of them end, and then there is room for others.
    for client in &clients {
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(end_of(client), Ok(0));
    }
    assert!(ping(&mut rig.connect(), b"still there"));
    assert_eq!(rig.cut(), [RelayEnd::Channel; 2]);
}

#[test]
fn a_stream_that_always_has_bytes_lets_others_have_theirs() {
    let rig = Rig::to(server(echo));
    let (mut one, mut other) = (rig.connect(), rig.connect());
    let are_answered = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut reading = one.try_clone().unwrap();
        let sender = scope.spawn(|| {
            let piece: Vec<u8> =
                (0..65_521_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let mut sent = 0_u64;
            // It has bytes for as long as the other is not answered, and 64 MiB at least.
            while sent < 64 << 20 || !are_answered.load(Ordering::Relaxed) {
                one.write_all(&piece).unwrap();
                sent += piece.len() as u64;
            }
            one.shutdown(std::net::Shutdown::Write).unwrap();
            sent
        });
        let receiver = scope.spawn(move || {
            let (mut received, mut piece) = (0_u64, vec![0; 65_521]);
            while reading.read_exact(&mut piece).is_ok() {
                let is_right = |(at, byte): (usize, &u8)| usize::from(*byte) == at % 251;
                assert!(piece.iter().enumerate().all(is_right), "after {received}");
                received += piece.len() as u64;
            }
            received
        });
        for round in 0..100_u8 {
            assert!(ping(&mut other, &[round; 100]));
        }
        are_answered.store(true, Ordering::Relaxed);
        assert_eq!(sender.join().unwrap(), receiver.join().unwrap());
    });
}

#[test]
fn whoever_does_not_read_holds_up_nobody_else() {
    let (address, accepted) = handed_over();
    let rig = Rig::to(address);
    let stuck = rig.connect();
    let mut sending = accepted.recv_timeout(TEST_DEADLINE).unwrap();
    sending.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let mut other = rig.connect();
    let mut answering = accepted.recv_timeout(TEST_DEADLINE).unwrap();
    let mut rounds_without_room = 0;
    // Until nothing more has gone through in many rounds of the other's.
    while rounds_without_room < 100 {
        match sending.write(&[7; 4096]) {
            Ok(some) => (sent, rounds_without_room) = (sent + some, 0),
            Err(err) => {
                assert_eq!(err.kind(), ErrorKind::WouldBlock);
                rounds_without_room += 1;
            }
        }
        other.write_all(b"ping").unwrap();
        let mut heard = [0; 4];
        answering.read_exact(&mut heard).unwrap();
        answering.write_all(b"pong").unwrap();
        other.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"pong");
    }
    // And what waited is all there.
    drop(sending);
    assert_eq!(end_of(&stuck), Ok(sent));
}

#[test]
fn a_direction_that_ends_leaves_the_other_open() {
    let (address, accepted) = handed_over();
    let rig = Rig::to(address);
    for is_clients in [true, false] {
        let client = rig.connect();
        let served = accepted.recv_timeout(TEST_DEADLINE).unwrap();
        let (mut first, mut second) = if is_clients { (client, served) } else { (served, client) };
        first.write_all(b"all that I have").unwrap();
        first.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(end_of(&second), Ok(15));
        let long = vec![1; 300_000];
        second.write_all(&long).unwrap();
        drop(second);
        assert_eq!(end_of(&first), Ok(long.len()));
    }
}

#[test]
fn a_reset_arrives_as_one_in_both_directions() {
    let (address, accepted) = handed_over();
    let rig = Rig::to(address);
    for is_clients in [true, false] {
        for has_ended in [false, true] {
            let client = rig.connect();
            let served = accepted.recv_timeout(TEST_DEADLINE).unwrap();
            let (first, second) = if is_clients { (client, served) } else { (served, client) };
            if has_ended {
                // Also of one that had said before that it has no more.
                first.shutdown(std::net::Shutdown::Write).unwrap();
                assert_eq!(end_of(&second), Ok(0));
                (&second).write_all(b"what nobody reads").unwrap();
                first.peek(&mut [0]).unwrap();
            }
            reset(first);
            if has_ended {
                // A socket that has read the end is told when it writes.
                let told = (0..).find_map(|_| (&second).write_all(&[0; 4096]).err());
                let told = told.unwrap().kind();
                assert!(matches!(told, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe));
            } else {
                assert_eq!(end_of(&second), Err(ErrorKind::ConnectionReset));
            }
        }
    }
    // Nothing of it is left in anybody's way.
    assert!({
        let mut client = rig.connect();
        let served = accepted.recv_timeout(TEST_DEADLINE).unwrap();
        thread::spawn(move || echo(served));
        ping(&mut client, b"still there")
    });
}

#[test]
fn a_door_behind_which_nobody_listens_resets() {
    let nobody = address_of(TcpListener::bind(NOWHERE).unwrap().local_addr());
    let rig = Rig::to(nobody);
    for _ in 0..3 {
        assert_eq!(end_of(&rig.connect()), Err(ErrorKind::ConnectionReset));
    }
    let unreachable = Twin::with(TEST_DEADLINE, Box::new(|_, _| None));
    let rig = Rig::start(unreachable, usize::MAX);
    assert_eq!(end_of(&rig.connect()), Err(ErrorKind::ConnectionReset));
}

#[test]
fn connections_over_the_limit_wait_until_others_have_ended() {
    let rig = Rig::start(twin(server(echo), NOWHERE, TEST_DEADLINE), 2);
    let mut clients: Vec<TcpStream> = (0..10).map(|_| rig.connect()).collect();
    for client in &mut clients {
        client.write_all(b"hello").unwrap();
    }
    for client in clients {
        let mut echoed = [0; 5];
        (&client).read_exact(&mut echoed).unwrap();
        assert_eq!(&echoed, b"hello");
    }
}

#[test]
fn a_question_gets_its_answer_and_no_other() {
    let gateway = UdpSocket::bind(NOWHERE).unwrap();
    let address = address_of(gateway.local_addr());
    thread::spawn(move || {
        let mut question = [0; MAX_DATAGRAM_BYTES];
        while let Ok((length, asker)) = gateway.recv_from(&mut question) {
            if &question[..length] != b"say nothing" {
                gateway.send_to(&question[..length], asker).unwrap();
            }
        }
    });
    // Questions without an answer do not stand in the way for long.
    let rig = Rig::start(twin(NOWHERE, address, Duration::from_millis(100)), usize::MAX);
    let asker = || {
        let asker = UdpSocket::bind(NOWHERE).unwrap();
        asker.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        asker.connect(rig.udp).unwrap();
        asker
    };
    // A datagram may be lost on a busy machine; whoever asks asks again.
    let answer = |asker: &UdpSocket, question: &[u8]| {
        let mut answer = [0; MAX_DATAGRAM_BYTES];
        for _ in 0..20 {
            asker.send(question).unwrap();
            if let Ok(length) = asker.recv(&mut answer) {
                return answer[..length].to_vec();
            }
        }
        panic!("no answer");
    };
    let askers: Vec<UdpSocket> = (0..20).map(|_| asker()).collect();
    for round in 0..300 {
        askers[0].send(b"say nothing").unwrap();
        let question = format!("question {round}").into_bytes();
        let asker = &askers[1 + round % 19];
        assert_eq!(answer(asker, &question), question);
        // What came twice is not taken for the next answer.
        asker.set_nonblocking(true).unwrap();
        while asker.recv(&mut [0; 64]).is_ok() {}
        asker.set_nonblocking(false).unwrap();
    }
    let longest = vec![7; MAX_DATAGRAM_BYTES];
    assert_eq!(answer(&askers[1], &longest), longest);
}

/// An end inside that says what it wants.
struct Liar {
    channel: UnixStream,
    end: JoinHandle<RelayEnd>,
}

impl Liar {
    fn to(server: SocketAddrV4) -> Self {
        let (channel, far) = UnixStream::pair().unwrap();
        channel.set_read_timeout(Some(TEST_DEADLINE)).unwrap();
        let twin = twin(server, NOWHERE, TEST_DEADLINE);
        Self { channel, end: thread::spawn(move || twin.serve(OwnedFd::from(far), None)) }
    }

    fn say(&mut self, frame: RelayFrame<'_>) {
        let mut bytes = Vec::new();
        frame.write_to(&mut bytes);
        // Whoever is cut off finds out.
        drop(self.channel.write_all(&bytes));
    }

    fn open(&mut self, id: u32) {
        self.say(RelayFrame::Open { id, address: SocketAddrV4::new([127, 18, 0, 1].into(), 443) });
    }
}

type Lie = fn(&mut Liar);

#[test]
fn an_end_that_lies_is_cut_off_with_all_that_it_had() {
    let lies: [(&str, Lie, RelayViolation); 6] = [
        ("garbage", |liar| drop(liar.channel.write_all(&[0xff; 100])), RelayViolation::Malformed),
        (
            "more than its credit, to a server that does not read",
            |liar| {
                let mut data = Vec::new();
                RelayFrame::Data { id: 1, bytes: &[0; MAX_DATA_BYTES] }.write_to(&mut data);
                while liar.channel.write_all(&data).is_ok() {}
            },
            RelayViolation::Credit,
        ),
        (
            "five thousand streams",
            |liar| (2..5000).for_each(|id| liar.open(id)),
            RelayViolation::TooMany,
        ),
        (
            "credit for what was not sent",
            |liar| liar.say(RelayFrame::Credit { id: 1, bytes: 1 }),
            RelayViolation::Credit,
        ),
        ("a stream again", |liar| liar.open(1), RelayViolation::Number),
        ("a stream of nobody", |liar| liar.say(RelayFrame::End { id: 2 }), RelayViolation::Unknown),
    ];
    for (what, lie, violation) in lies {
        let (address, accepted) = handed_over();
        let mut liar = Liar::to(address);
        liar.open(1);
        let served = accepted.recv_timeout(TEST_DEADLINE).unwrap();
        lie(&mut liar);
        assert_eq!(liar.end.join().unwrap(), RelayEnd::Violation(violation), "{what}");
        assert_eq!(end_of(&served), Err(ErrorKind::ConnectionReset), "{what}");
    }
}

#[test]
fn opening_and_resetting_without_end_takes_nothing() {
    let mut liar = Liar::to(server(echo));
    for id in 1..=5000 {
        liar.open(id);
        liar.say(RelayFrame::Reset { id });
        let mut answer = [0; protocol::relay::HEADER_BYTES];
        liar.channel.read_exact(&mut answer).unwrap();
        assert_eq!(RelayFrame::parse(&answer).unwrap().unwrap().0, RelayFrame::Reset { id });
    }
    drop(liar.channel);
    assert_eq!(liar.end.join().unwrap(), RelayEnd::Channel);
}

#[test]
fn descriptors_that_come_over_the_channel_are_closed() {
    let mut liar = Liar::to(server(echo));
    let (mut reading, writing) = io::pipe().unwrap();
    let mut open = Vec::new();
    RelayFrame::Open { id: 1, address: NOWHERE }.write_to(&mut open);
    passing::send_all(&liar.channel, &open, &[writing.as_fd()]).unwrap();
    drop(writing);
    // Whoever has the other end of the pipe would keep this waiting.
    assert_eq!(reading.read(&mut [0]).unwrap(), 0);
    liar.say(RelayFrame::Data { id: 1, bytes: b"x" });
    let mut echoed = [0; 10];
    liar.channel.read_exact(&mut echoed).unwrap();
    let (frame, _) = RelayFrame::parse(&echoed).unwrap().unwrap();
    assert_eq!(frame, RelayFrame::Data { id: 1, bytes: b"x" });
}

#[test]
fn when_the_channel_is_cut_everything_is_reset_and_the_doors_are_closed() {
    let (address, accepted) = handed_over();
    let rig = Rig::to(address);
    let clients: Vec<TcpStream> = (0..5).map(|_| rig.connect()).collect();
    let served: Vec<TcpStream> =
        (0..5).map(|_| accepted.recv_timeout(TEST_DEADLINE).unwrap()).collect();
    let door = rig.tcp;
    assert_eq!(rig.cut(), [RelayEnd::Channel; 2]);
    for stream in clients.iter().chain(&served) {
        assert_eq!(end_of(stream), Err(ErrorKind::ConnectionReset));
    }
    assert_eq!(TcpStream::connect(door).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn an_end_outside_ends_with_its_owner() {
    let (owner, mine) = UnixStream::pair().unwrap();
    let (_channel, far) = UnixStream::pair().unwrap();
    let twin = twin(NOWHERE, NOWHERE, TEST_DEADLINE);
    let end = thread::spawn(move || twin.serve(OwnedFd::from(far), Some(mine.as_fd())));
    drop(owner);
    assert_eq!(end.join().unwrap(), RelayEnd::Owner);
}
