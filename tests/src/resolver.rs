//! A name server that answers from a script and remembers every question.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// The only name server the gateway knows of.
#[derive(Debug)]
pub struct Resolver {
    pub at: SocketAddr,
    script: Arc<Mutex<Script>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Script {
    answers: HashMap<String, VecDeque<ScriptedAnswer>>,
    asked: Vec<(String, RecordType)>,
}

/// One answer: addresses, perhaps behind another name.
#[derive(Clone, Debug)]
struct ScriptedAnswer {
    alias: Option<String>,
    addresses: Vec<IpAddr>,
}

impl Resolver {
    pub async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let at = socket.local_addr().unwrap();
        let script = Arc::new(Mutex::new(Script::default()));
        let task = tokio::spawn(serve(socket, Arc::clone(&script)));
        Self { at, script, task }
    }

    /// Answers `name` with these addresses. Told more than once, it gives the
    /// answers one after the other, and the last one for ever.
    pub fn answer(&self, name: &str, addresses: &[&str]) {
        self.tell(name, None, addresses);
    }

    /// Answers `name` with another name that has these addresses.
    pub fn alias(&self, name: &str, other: &str, addresses: &[&str]) {
        self.tell(name, Some(other.to_owned()), addresses);
    }

    /// Forgets what it was told about a name.
    pub fn forget(&self, name: &str) {
        lock(&self.script).answers.remove(name);
    }

    fn tell(&self, name: &str, alias: Option<String>, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let mut script = lock(&self.script);
        script
            .answers
            .entry(name.to_owned())
            .or_default()
            .push_back(ScriptedAnswer { alias, addresses });
    }

    /// Every name that was asked for, in order. Questions for A and for AAAA come
    /// together and are one, whichever is first.
    pub fn asked(&self) -> Vec<String> {
        let script = lock(&self.script);
        let of = |kind| script.asked.iter().filter(move |(_, record)| *record == kind);
        let mut names: Vec<String> = of(RecordType::A).map(|(name, _)| name.clone()).collect();
        for (name, _) in script.asked.iter().filter(|(_, record)| *record != RecordType::A) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// How often the addresses of a name were asked for.
    pub fn times_asked(&self, name: &str) -> usize {
        let script = lock(&self.script);
        let of = |kind| script.asked.iter().filter(|(n, r)| n == name && *r == kind).count();
        of(RecordType::A).max(of(RecordType::AAAA))
    }

    #[track_caller]
    pub fn assert_never_asked(&self) {
        let asked = self.asked();
        assert!(asked.is_empty(), "the resolver was asked for {asked:?}");
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(socket: UdpSocket, script: Arc<Mutex<Script>>) {
    let mut bytes = vec![0; 4096];
    while let Ok((length, peer)) = socket.recv_from(&mut bytes).await {
        let Some(asked) = bytes.get(..length).and_then(|m| Message::from_vec(m).ok()) else {
            continue;
        };
        let reply = lock(&script).reply(&asked);
        socket.send_to(&reply.to_vec().unwrap(), peer).await.ok();
    }
}

impl Script {
    fn reply(&mut self, asked: &Message) -> Message {
        let mut reply = asked.clone();
        reply.metadata.message_type = MessageType::Response;
        reply.metadata.recursion_available = true;
        let Some(query) = asked.queries.first() else { return reply };
        let name = query.name().to_ascii().trim_end_matches('.').to_ascii_lowercase();
        let kind = query.query_type();
        self.asked.push((name.clone(), kind));
        match self.next(&name, kind) {
            Some(told) => {
                for record in told.records(query.name(), kind) {
                    reply.add_answer(record);
                }
            }
            None => reply.metadata.response_code = ResponseCode::NXDomain,
        }
        reply
    }

    /// A and AAAA are asked for together: the script moves on with the A.
    fn next(&mut self, name: &str, kind: RecordType) -> Option<ScriptedAnswer> {
        let answers = self.answers.get_mut(name)?;
        if kind == RecordType::A && answers.len() > 1 {
            answers.pop_front()
        } else {
            answers.front().cloned()
        }
    }
}

impl ScriptedAnswer {
    fn records(self, name: &Name, kind: RecordType) -> Vec<Record> {
        let mut records = Vec::new();
        let mut owner = name.clone();
        if let Some(alias) = self.alias {
            let alias = Name::from_ascii(format!("{alias}.")).unwrap();
            records.push(Record::from_rdata(owner, 0, RData::CNAME(CNAME(alias.clone()))));
            owner = alias;
        }
        for address in self.addresses {
            let data = match (address, kind) {
                (IpAddr::V4(address), RecordType::A) => RData::A(A(address)),
                (IpAddr::V6(address), RecordType::AAAA) => RData::AAAA(AAAA(address)),
                _ => continue,
            };
            records.push(Record::from_rdata(owner.clone(), 0, data));
        }
        records
    }
}

fn lock(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}
