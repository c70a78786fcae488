//! Looking up names from inside: the gateway is the only name server there is.

use hickory_proto::op::{Edns, Message, OpCode, Query};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{Name, RecordType};
use tokio::net::UdpSocket;

use super::{Sandbox, open};
use crate::deadline::within;

impl Sandbox {
    /// Asks over UDP.
    pub async fn look_up(&self, name: &str, record: RecordType) -> Message {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(&question(name, record), self.doors.dns).await.unwrap();
        let mut bytes = vec![0; 4096];
        let length = within("an answer about a name", socket.recv(&mut bytes)).await.unwrap();
        Message::from_vec(&bytes[..length]).unwrap()
    }

    /// Asks over TCP.
    pub async fn look_up_over_tcp(&self, name: &str, record: RecordType) -> Message {
        let mut line = open(self.doors.dns).await;
        let question = question(name, record);
        let length = u16::try_from(question.len()).unwrap();
        line.send([&length.to_be_bytes(), question.as_slice()].concat()).await;
        let length = line.take(2).await;
        let length = u16::from_be_bytes([length[0], length[1]]);
        Message::from_vec(&line.take(length.into()).await).unwrap()
    }
}

fn question(name: &str, record: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.metadata.op_code = OpCode::Query;
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), record));
    message.set_edns(Edns::new());
    message.to_vec().unwrap()
}

/// The text of the extended error (RFC 8914) of an answer, after its code.
pub fn explanation(answer: &Message) -> Option<(u16, String)> {
    let edns = answer.edns.as_ref()?;
    let EdnsOption::Unknown(_, option) = edns.option(EdnsCode::from(15))? else { return None };
    let code = u16::from_be_bytes([*option.first()?, *option.get(1)?]);
    Some((code, String::from_utf8_lossy(option.get(2..)?).into_owned()))
}
