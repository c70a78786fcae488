//! Our own DNS, against a name server on loopback that remembers every question.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use parking_lot::Mutex;
use policies::HostName;
use tokio::net::UdpSocket;

use super::super::resolve::{DnsResolver, ResolveError, Resolver as _};
use super::super::settings::NameServers;

/// A name server, and the questions it was asked.
struct ScriptedNameServer {
    at: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl ScriptedNameServer {
    async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let server = Self { at: socket.local_addr().unwrap(), asked: Arc::default() };
        let asked = Arc::clone(&server.asked);
        tokio::spawn(async move {
            let mut packet = [0; 1500];
            while let Ok((size, from)) = socket.recv_from(&mut packet).await {
                let answer = answer(&Message::from_vec(&packet[..size]).unwrap(), &asked);
                socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
            }
        });
        server
    }

    fn dns(&self) -> DnsResolver {
        DnsResolver::new(&NameServers::These(vec![self.at]), Duration::from_secs(4)).unwrap()
    }

    fn asked(&self) -> Vec<String> {
        let mut asked = self.asked.lock().clone();
        asked.sort();
        asked
    }
}

fn answer(question: &Message, asked: &Mutex<Vec<String>>) -> Message {
    let query = question.queries[0].clone();
    asked.lock().push(format!("{} {}", query.name(), query.query_type()));
    let mut reply =
        Message::new(question.metadata.id, MessageType::Response, question.metadata.op_code);
    reply.metadata.recursion_available = true;
    let name = query.name().clone();
    match (name.to_string().as_str(), query.query_type()) {
        ("both.test.", RecordType::A) => {
            reply.answers.push(Record::from_rdata(name, 60, RData::A(A::new(93, 184, 216, 34))));
        }
        ("both.test.", RecordType::AAAA) => {
            let address = AAAA("2606:2800:220:1::1".parse().unwrap());
            reply.answers.push(Record::from_rdata(name, 60, RData::AAAA(address)));
        }
        ("alias.test.", RecordType::A) => {
            let target = Name::from_ascii("metadata.internal.").unwrap();
            let alias = RData::CNAME(CNAME(target.clone()));
            reply.answers.push(Record::from_rdata(name, 60, alias));
            let address = RData::A(A::new(169, 254, 169, 254));
            reply.answers.push(Record::from_rdata(target, 60, address));
        }
        ("missing.test.", _) => reply.metadata.response_code = ResponseCode::NXDomain,
        _ => {}
    }
    reply.add_query(query);
    reply
}

fn name(written: &str) -> HostName {
    HostName::parse(written).unwrap()
}

#[tokio::test]
async fn a_name_is_asked_for_as_it_is_and_for_both_families_once() {
    let server = ScriptedNameServer::start().await;
    let dns = server.dns();
    let found = dns.resolve(&name("both.test")).await.unwrap();
    let expected: [IpAddr; 2] =
        ["93.184.216.34".parse().unwrap(), "2606:2800:220:1::1".parse().unwrap()];
    assert_eq!(found, expected);
    assert_eq!(server.asked(), ["both.test. A", "both.test. AAAA"]);
}

/// D6: an alias is followed, and what it leads to is what is judged.
#[tokio::test]
async fn an_alias_yields_the_address_it_leads_to() {
    let server = ScriptedNameServer::start().await;
    let found = server.dns().resolve(&name("alias.test")).await.unwrap();
    assert_eq!(found, ["169.254.169.254".parse::<IpAddr>().unwrap()]);
}

#[tokio::test]
async fn a_name_that_does_not_exist_has_no_address() {
    let server = ScriptedNameServer::start().await;
    let err = server.dns().resolve(&name("missing.test")).await.unwrap_err();
    assert!(matches!(err, ResolveError::NoAddress), "{err}");
}
