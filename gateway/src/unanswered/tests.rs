//! What is recorded of packets, and what is not.

use std::net::UdpSocket as StdUdpSocket;
use std::os::unix::net::UnixDatagram;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::time;

use super::testing::{tcp, udp};
use super::*;
use crate::testing::{ALLOWED_TEST, Stage};

const SYN: u8 = 2;
const CLIENT: &str = "198.18.255.1:40000";

fn at(places: &[&str]) -> Vec<SocketAddr> {
    places.iter().map(|place| place.parse().unwrap()).collect()
}

fn watching(stage: &Stage) -> UnansweredPackets {
    let answered =
        AnsweredPlaces { tcp: at(&["0.0.0.0:443", "198.19.0.1:5432"]), udp: at(&["0.0.0.0:53"]) };
    UnansweredPackets::new(Arc::clone(&stage.gateway), answered)
}

async fn recorded(stage: &Stage) -> Vec<String> {
    let told = |event: &serde_json::Value| {
        let field = |name: &str| event[name].as_str().unwrap_or("-").to_owned();
        let words = ["sluice.outcome", "sluice.verdict", "sluice.reason", "network.transport"];
        let words = words.map(field).join(" ");
        format!("{words} {}:{}", field("server.address"), event["server.port"])
    };
    stage.events_of("connection").await.iter().map(told).collect()
}

#[tokio::test]
async fn a_packet_that_finds_no_door_is_one_record() {
    let stage = Stage::new(ALLOWED_TEST);
    let packets = watching(&stage);
    for bytes in [
        tcp(CLIENT, "192.0.2.7:22", SYN),
        udp(CLIENT, "192.0.2.7:443"),
        // Another address than the one that has a door on this port.
        tcp(CLIENT, "198.19.0.2:5432", SYN),
    ] {
        packets.see(&bytes);
    }
    assert_eq!(
        recorded(&stage).await,
        [
            "refused deny no_door tcp 192.0.2.7:22",
            "refused deny no_door udp 192.0.2.7:443",
            "refused deny no_door tcp 198.19.0.2:5432",
        ]
    );
}

#[tokio::test]
async fn what_has_a_door_or_stays_in_the_sandbox_is_none() {
    let stage = Stage::new(ALLOWED_TEST);
    let packets = watching(&stage);
    for bytes in [
        tcp(CLIENT, "192.0.2.7:443", SYN),
        tcp(CLIENT, "198.19.0.1:5432", SYN),
        udp(CLIENT, "8.8.8.8:53"),
        // The gateway's own answer.
        udp("8.8.8.8:53", CLIENT),
        tcp(CLIENT, "127.0.0.1:8000", SYN),
        tcp(CLIENT, "198.18.255.1:8000", SYN),
        b"not a packet".to_vec(),
        Vec::new(),
    ] {
        packets.see(&bytes);
    }
    assert_eq!(recorded(&stage).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_flood_is_counted_and_not_written_line_by_line() {
    let stage = Stage::new(ALLOWED_TEST);
    let packets = watching(&stage);
    time::pause();
    for port in 1000..2000 {
        packets.see(&tcp(CLIENT, &format!("192.0.2.7:{port}"), SYN));
    }
    assert!(time::timeout(Duration::from_secs(5), packets.report_drops()).await.is_err());
    time::resume();
    assert_eq!(recorded(&stage).await.len(), MAX_RECORDS_PER_SECOND as usize);
    let limits = stage.events_of("limit").await;
    let [limit] = limits.as_slice() else { panic!("one record stands for all: {limits:?}") };
    assert_eq!(limit["sluice.limit.name"], "unanswered.packets_per_second");
    assert_eq!(limit["sluice.limit.reached"], 1000);
}

/// A sandbox's last attempts come when the gateway is about to end.
#[tokio::test]
async fn at_the_end_what_was_not_read_is_recorded_and_what_was_counted_is_told() {
    let stage = Stage::new(ALLOWED_TEST);
    let packets = watching(&stage);
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let sent = (1000..2000)
        .take_while(|port| theirs.send(&tcp(CLIENT, &format!("192.0.2.7:{port}"), SYN)).is_ok());
    let sent = sent.count() as u64;
    packets.finish(&[ours.into()]);
    let bound = u64::from(MAX_RECORDS_PER_SECOND);
    let alone = sent.min(bound);
    assert_eq!(recorded(&stage).await.len() as u64, alone);
    let limits = stage.events_of("limit").await;
    let told: Vec<_> = limits.iter().map(|it| it["sluice.limit.reached"].clone()).collect();
    // A socket of this kind holds few of them; then none was only counted.
    assert_eq!(told, if sent > bound { vec![serde_json::json!(sent)] } else { Vec::new() });
}

#[tokio::test]
async fn packets_are_read_until_the_socket_fails_and_then_no_more() {
    let stage = Stage::new(ALLOWED_TEST);
    let packets = watching(&stage);
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    for bytes in [tcp(CLIENT, "192.0.2.7:22", SYN), vec![0xff; 4000]] {
        theirs.send(&bytes).unwrap();
    }
    let watched = time::timeout(Duration::from_millis(200), packets.watch(ours));
    assert!(watched.await.is_err(), "it goes on");
    assert_eq!(recorded(&stage).await, ["refused deny no_door tcp 192.0.2.7:22"]);

    // No socket to read from: a stream that was never connected.
    let broken = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    broken.set_nonblocking(true).unwrap();
    time::timeout(Duration::from_secs(5), packets.watch(broken)).await.expect("it ends");
}

/// The real thing, which root alone can open outside a sandbox.
#[tokio::test]
async fn a_datagram_that_comes_in_is_recorded_once() {
    let stage = Stage::new(ALLOWED_TEST);
    let socket = match Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)) {
        Ok(socket) => socket,
        Err(err) => return eprintln!("SKIP: a raw socket cannot be opened: {err}"),
    };
    socket.set_nonblocking(true).unwrap();
    // Of all that comes in on this machine, what is for this address, which is a loopback
    // address that nobody has; the record wants another.
    let packets = UnansweredPackets::new(Arc::clone(&stage.gateway), AnsweredPlaces::default());
    let unbound = StdUdpSocket::bind("127.0.0.1:0").unwrap();
    unbound.send_to(b"x", "127.77.0.1:9").unwrap();
    let mut bytes = [0; MAX_PACKET_BYTES];
    let socket = UnixDatagram::from(std::os::fd::OwnedFd::from(socket));
    let socket = tokio::net::UnixDatagram::from_std(socket).unwrap();
    let seen = async {
        loop {
            let read =
                socket.async_io(Interest::READABLE, || read_one(socket.as_raw_fd(), &mut bytes));
            let length = read.await.unwrap();
            let packet = &mut bytes[..length];
            if packet.get(16..20) == Some(&[127, 77, 0, 1]) {
                packet[16..20].copy_from_slice(&[198, 51, 100, 77]);
                return packets.see(packet);
            }
        }
    };
    time::timeout(Duration::from_secs(20), seen).await.expect("it is seen");
    assert_eq!(recorded(&stage).await, ["refused deny no_door udp 198.51.100.77:9"]);
}
