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

/// The real thing sees packets twice on the loopback device, which root alone can
/// open.
#[tokio::test]
async fn a_packet_on_the_loopback_device_counts_once() {
    let stage = Stage::new(ALLOWED_TEST);
    let ipv4 = i32::from(0x0800_u16.to_be());
    let socket = match Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(ipv4))) {
        Ok(socket) => socket,
        Err(err) => return eprintln!("SKIP a packet socket cannot be opened: {err}"),
    };
    socket.set_nonblocking(true).unwrap();
    let packets = UnansweredPackets::new(Arc::clone(&stage.gateway), AnsweredPlaces::default());
    let watched = packets.watch(socket);
    let target = "198.51.100.77:9";
    let sent = async {
        // Only where this address leads to the loopback device; elsewhere nothing comes in.
        let client = StdUdpSocket::bind("127.0.0.1:0").unwrap();
        drop(client.send_to(b"x", target));
        time::sleep(Duration::from_millis(300)).await;
    };
    tokio::select! { () = watched => panic!("the socket failed"), () = sent => {} }
    let seen = recorded(&stage).await.iter().filter(|told| told.ends_with(target)).count();
    assert!(seen <= 1, "{seen}");
}
