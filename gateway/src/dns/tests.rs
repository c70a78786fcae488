//! The name server on real sockets.

#![expect(clippy::disallowed_methods, reason = "a test is on the sandbox's side of the gateway")]

use std::collections::BTreeMap;

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};

use super::*;
use crate::bind::{Inherited, bind};
use crate::dial::testing::{Script, TestAuthority};
use crate::limits::Bounds;
use crate::testing::{ALLOWED_TEST, Stage};

const SETTINGS: config::DnsSettings = config::DnsSettings {
    answer: None,
    hosts: BTreeMap::new(),
    ttl: Duration::from_secs(5),
    queries_per_second: 50,
};

fn question(name: &str, record: RecordType) -> Vec<u8> {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    let labels = name.split_terminator('.').map(str::as_bytes);
    message.add_query(Query::query(Name::from_labels(labels).expect("they are labels"), record));
    message.to_vec().expect("it can be written")
}

async fn ask_udp(server: SocketAddr, message: &[u8]) -> Message {
    let client = UdpSocket::bind("127.0.0.1:0").await.expect("a port is free");
    client.send_to(message, server).await.expect("loopback works");
    let mut reply = [0; 1024];
    let (length, from) = client.recv_from(&mut reply).await.expect("an answer comes");
    assert_eq!(from, server);
    Message::from_vec(&reply[..length]).expect("it can be read")
}

async fn start(stage: &Stage, settings: config::DnsSettings) -> (Arc<NameServer>, SocketAddr) {
    start_at("127.0.0.1:0", stage, settings).await
}

async fn start_at(
    door: &str,
    stage: &Stage,
    settings: config::DnsSettings,
) -> (Arc<NameServer>, SocketAddr) {
    let server = Arc::new(NameServer::new(Arc::clone(&stage.gateway), settings.clone()));
    let door = config::Door::try_from(door.to_owned()).expect("it is a door");
    let listen = config::Listen { dns: vec![door], ..config::Listen::default() };
    let mut bound = bind(&listen, &settings, &mut Inherited::nothing()).expect("a port is free");
    let (udp, tcp) = (bound.names_udp.pop(), bound.names_tcp.pop());
    let udp = UdpSocket::from_std(udp.expect("it is bound")).expect("it can be served");
    let tcp = TcpListener::from_std(tcp.expect("it is bound")).expect("it can be served");
    let at = udp.local_addr().expect("it is bound");
    let serving = Arc::clone(&server);
    tokio::spawn(async move { serving.serve_udp(udp).await });
    tokio::spawn(Arc::clone(&server).serve_tcp(tcp));
    (server, at)
}

// ATTACKS D1: a name is data on its way out, so it goes nowhere.
#[tokio::test]
async fn every_name_is_answered_with_the_address_that_was_asked_and_recorded() {
    let stage = Stage::new(ALLOWED_TEST);
    let (_server, at) = start(&stage, SETTINGS).await;
    for name in
        ["gateway.sluice.", "allowed.test.", "c2VjcmV0.evil.test.", "127.0.0.1.", "a b.test."]
    {
        let reply = ask_udp(at, &question(name, RecordType::A)).await;
        let addresses: Vec<_> =
            reply.answers.iter().map(|record| record.data.to_string()).collect();
        assert_eq!(addresses, ["127.0.0.1"], "{name}");
    }
    let events = stage.events_of("dns").await;
    let told: Vec<String> = events
        .iter()
        .map(|event| {
            let field = |name: &str| event.get(name).and_then(|v| v.as_str()).unwrap_or("-");
            let decided =
                ["sluice.outcome", "sluice.verdict", "sluice.reason"].map(field).join(" ");
            format!("{} {} {decided}", field("dns.question.name"), field("dns.response_code"))
        })
        .collect();
    expect_test::expect![[r#"
        gateway.sluice NOERROR relayed - -
        allowed.test NOERROR relayed - -
        c2vjcmv0.evil.test NOERROR refused deny no_rule
        127.0.0.1 NOERROR refused deny no_rule
        a\040b.test NOERROR refused deny bad_authority"#]]
    .assert_eq(&told.join("\n"));
}

/// Waits for an answer as most clients do: from the address that was asked alone.
async fn ask_connected(server: SocketAddr, name: &str) -> Vec<String> {
    let client = UdpSocket::bind("127.0.0.1:0").await.expect("a port is free");
    client.connect(server).await.expect("it can be chosen");
    client.send(&question(name, RecordType::A)).await.expect("loopback works");
    let mut reply = [0; 1024];
    let answered = time::timeout(Duration::from_secs(5), client.recv(&mut reply)).await;
    let length = answered.expect("an answer arrives").expect("loopback works");
    let reply = Message::from_vec(&reply[..length]).expect("it can be read");
    reply.answers.iter().map(|record| record.data.to_string()).collect()
}

#[tokio::test]
async fn an_answer_comes_from_the_address_that_was_asked() {
    let stage = Stage::new(ALLOWED_TEST);
    let settings = config::DnsSettings { answer: Some(Ipv4Addr::new(198, 18, 0, 1)), ..SETTINGS };
    let (_server, at) = start_at("0.0.0.0:0", &stage, settings).await;
    for asked in ["127.0.0.2", "127.0.0.3", "127.0.0.1"] {
        let server = SocketAddr::new(asked.parse().unwrap(), at.port());
        assert_eq!(ask_connected(server, "allowed.test.").await, ["198.18.0.1"], "{asked}");
    }
}

#[tokio::test]
async fn a_name_with_an_address_of_its_own_is_answered_with_it() {
    let stage = Stage::new(ALLOWED_TEST);
    let name = policies::HostName::parse("db.test").unwrap();
    let hosts = BTreeMap::from([(name, Ipv4Addr::new(198, 19, 0, 1))]);
    let (_server, at) = start(&stage, config::DnsSettings { hosts, ..SETTINGS }).await;
    for (name, answer) in [
        ("db.test.", "198.19.0.1"),
        ("DB.Test.", "198.19.0.1"),
        ("other.db.test.", "127.0.0.1"),
        ("db.test.other.", "127.0.0.1"),
        ("test.", "127.0.0.1"),
    ] {
        assert_eq!(ask_connected(at, name).await, [answer], "{name}");
    }
}

#[tokio::test]
async fn a_name_is_judged_on_every_port_that_a_rule_names() {
    let stage = Stage::new(
        "version: 1\nnet:\n  enabled: true\n  allow:\n    \
         - {host: db.test, port: 5432, protocol: tcp}\n    \
         - {host: web.test, port: 8443}\n    \
         - {host: '*.below.test', port: 8444}\n",
    );
    let (_server, at) = start(&stage, SETTINGS).await;
    let names = ["db.test.", "web.test.", "a.below.test.", "evil.test.", "a.db.test."];
    for name in names {
        ask_udp(at, &question(name, RecordType::A)).await;
    }
    let events = stage.events_of("dns").await;
    let outcomes: Vec<_> = events.iter().map(|event| event["sluice.outcome"].clone()).collect();
    assert_eq!(outcomes, ["relayed", "relayed", "relayed", "refused", "refused"]);
}

// ATTACKS D1: the same, seen from the other side.
#[tokio::test]
async fn no_question_ever_reaches_a_resolver() {
    let resolver = Script::new().then("allowed.test", &["192.0.2.1"]);
    let authority = TestAuthority::new();
    let dialer = authority.dialer_asking(Arc::clone(&resolver));
    let stage = Stage::with_dialer(ALLOWED_TEST, Bounds::default(), dialer);
    let (_server, at) = start(&stage, SETTINGS).await;
    for name in ["allowed.test.", "c2VjcmV0.evil.test."] {
        for record in [RecordType::A, RecordType::AAAA, RecordType::TXT, RecordType::ANY] {
            ask_udp(at, &question(name, record)).await;
        }
    }
    assert_eq!(resolver.asked(), Vec::<String>::new());
    assert_eq!(stage.events_of("dns").await.len(), 8);
}

#[tokio::test]
async fn several_questions_are_answered_on_one_tcp_connection() {
    let stage = Stage::new(ALLOWED_TEST);
    let (_server, at) = start(&stage, SETTINGS).await;
    let mut stream = TcpStream::connect(at).await.expect("it listens");
    for record in [RecordType::A, RecordType::AAAA] {
        let message = question("allowed.test.", record);
        stream.write_u16(u16::try_from(message.len()).unwrap()).await.expect("it is open");
        stream.write_all(&message).await.expect("it is open");
        let reply = read_message(&mut stream).await.expect("it is open").expect("an answer comes");
        let reply = Message::from_vec(&reply).expect("it can be read");
        assert_eq!(reply.answers.len(), usize::from(record == RecordType::A));
    }
    // Longer than any question: the connection ends instead of waiting for it.
    stream.write_u16(u16::MAX).await.expect("it is open");
    assert!(read_message(&mut stream).await.expect("it ends in order").is_none());
    assert_eq!(stage.events_of("dns").await.len(), 2);
}

#[tokio::test]
async fn a_flood_is_dropped_and_recorded_as_one_number() {
    let stage = Stage::new(ALLOWED_TEST);
    let settings = config::DnsSettings { queries_per_second: 10, ..SETTINGS };
    let server = NameServer::new(Arc::clone(&stage.gateway), settings);
    let peer = SocketAddr::from(([127, 0, 0, 1], 9));
    let message = question("evil.test.", RecordType::A);
    time::pause();
    let answered = (0..1000)
        .filter(|_| server.reply(&message, peer, Ipv4Addr::LOCALHOST, Transport::Udp).is_some())
        .count();
    assert_eq!(answered, 10);
    let reporting = server.report_drops();
    assert!(time::timeout(Duration::from_secs(5), reporting).await.is_err(), "it never ends");
    time::resume();

    assert_eq!(stage.events_of("dns").await.len(), 10);
    let limits = stage.events_of("limit").await;
    let [limit] = limits.as_slice() else { panic!("one record stands for all: {limits:?}") };
    assert_eq!(limit["sluice.limit.name"], "dns.queries_per_second");
    assert_eq!(limit["sluice.limit.reached"], 1000);
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_answered() {
    let stage = Stage::new(ALLOWED_TEST);
    let server = NameServer::new(Arc::clone(&stage.gateway), SETTINGS);
    stage.gateway.log.close().await.expect("the log can be ended");
    let peer = SocketAddr::from(([127, 0, 0, 1], 9));
    let message = question("allowed.test.", RecordType::A);
    assert_eq!(server.reply(&message, peer, Ipv4Addr::LOCALHOST, Transport::Udp), None);
}

#[test]
fn an_address_that_is_none_is_never_the_answer() {
    let told = config::DnsSettings { answer: Some(Ipv4Addr::new(10, 0, 0, 2)), ..SETTINGS };
    for (local, alone) in [
        ("10.89.0.2:53", Some(Ipv4Addr::new(10, 89, 0, 2))),
        ("0.0.0.0:53", None),
        ("[::1]:53", None),
        ("[::ffff:10.89.0.2]:53", Some(Ipv4Addr::new(10, 89, 0, 2))),
    ] {
        let local = local.parse().expect("it is an address");
        assert_eq!(NameServer::answer_at(&SETTINGS, local), alone, "{local}");
        assert_eq!(NameServer::answer_at(&told, local), told.answer);
    }
}

#[tokio::test]
async fn a_record_says_who_asked_how_and_under_which_policy() {
    let stage = Stage::new(ALLOWED_TEST);
    let server = NameServer::new(Arc::clone(&stage.gateway), SETTINGS);
    let peer = SocketAddr::from(([192, 0, 2, 7], 4711));
    let message = question("evil.test.", RecordType::AAAA);
    for transport in [Transport::Udp, Transport::Tcp] {
        assert!(server.reply(&message, peer, Ipv4Addr::LOCALHOST, transport).is_some());
    }
    let events = stage.events_of("dns").await;
    let [udp, tcp] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(udp["network.transport"], "udp");
    assert_eq!(tcp["network.transport"], "tcp");
    for event in [udp, tcp] {
        assert_eq!(event["client.address"], "192.0.2.7");
        assert_eq!(event["client.port"], 4711);
        assert_eq!(event["sluice.policy.hash"], "hash");
        assert_eq!(event["dns.question.type"], "AAAA");
    }
}

#[tokio::test]
async fn a_name_that_policy_would_refuse_is_told_so() {
    let stage = Stage::new(ALLOWED_TEST);
    let server = NameServer::new(Arc::clone(&stage.gateway), SETTINGS);
    let peer = SocketAddr::from(([127, 0, 0, 1], 9));
    for (name, told) in [
        ("evil.test.", "policy would refuse this name: no_rule"),
        ("allowed.test.", "every name leads"),
    ] {
        let mut message = Message::from_vec(&question(name, RecordType::A)).unwrap();
        message.set_edns(hickory_proto::op::Edns::new());
        let message = message.to_vec().unwrap();
        let reply = server.reply(&message, peer, Ipv4Addr::LOCALHOST, Transport::Udp).unwrap();
        assert!(String::from_utf8_lossy(&reply).contains(told), "{name}");
    }
}

#[tokio::test]
async fn a_dropped_question_is_recorded_with_the_bound() {
    let stage = Stage::new(ALLOWED_TEST);
    let settings = config::DnsSettings { queries_per_second: 2, ..SETTINGS };
    let server = NameServer::new(Arc::clone(&stage.gateway), settings);
    let peer = SocketAddr::from(([127, 0, 0, 1], 9));
    let message = question("evil.test.", RecordType::A);
    time::pause();
    for _ in 0..5 {
        drop(server.reply(&message, peer, Ipv4Addr::LOCALHOST, Transport::Udp));
    }
    assert!(time::timeout(Duration::from_secs(5), server.report_drops()).await.is_err());
    time::resume();
    let limits = stage.events_of("limit").await;
    let [limit] = limits.as_slice() else { panic!("{limits:?}") };
    assert_eq!(
        (&limit["sluice.limit.value"], &limit["sluice.limit.reached"]),
        (&2.into(), &5.into())
    );
}

/// What a server makes of these bytes on a TCP connection that ends after them.
async fn read_bytes(sent: &[u8]) -> io::Result<Option<usize>> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let at = listener.local_addr().expect("it is bound");
    let mut client = TcpStream::connect(at).await.expect("it listens");
    let (mut stream, _) = listener.accept().await.expect("a client is there");
    client.write_all(sent).await.expect("it is open");
    drop(client);
    Ok(read_message(&mut stream).await?.map(|message| message.len()))
}

#[tokio::test]
async fn a_message_may_be_as_long_as_it_may_be() {
    let framed = |length: usize| {
        let announced = u16::try_from(length).unwrap().to_be_bytes();
        [announced.as_slice(), &vec![0; length]].concat()
    };
    assert_eq!(read_bytes(&framed(MAX_MESSAGE_BYTES)).await.unwrap(), Some(MAX_MESSAGE_BYTES));
    assert_eq!(read_bytes(&framed(MAX_MESSAGE_BYTES + 1)).await.unwrap(), None);
    assert_eq!(read_bytes(&framed(MAX_MESSAGE_BYTES + 9)).await.unwrap(), None);
    assert_eq!(read_bytes(&[]).await.unwrap(), None, "it ended in order");
    assert!(read_bytes(&[0, 9, 1]).await.is_err(), "it ended in the middle");
}
