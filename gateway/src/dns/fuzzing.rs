//! Any bytes as a DNS message.

use std::net::Ipv4Addr;

use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::{RData, RecordType};

use super::answer::{DnsReply, Question, QuestionError};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// What is answered is addressed to whom asked, is a well-formed reply, repeats
/// the question, and holds no address but the gateway's.
pub fn dns_question(message: &[u8]) {
    let question = match Question::parse(message) {
        Ok(question) => question,
        Err(QuestionError::Unanswerable) => {
            let is_reply = message.get(2).is_some_and(|flags| flags & 0x80 != 0);
            assert!(message.len() < 12 || is_reply, "a question got no answer");
            return;
        }
        Err(QuestionError::Refused(reply)) => {
            assert!(reply.refused);
            let read = read(&reply, message);
            assert_eq!((read.answers.len(), read.queries.len()), (0, 0));
            return;
        }
    };
    let name = question.name();
    assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name:?} is shown in records");
    assert!(!name.is_empty() && !name.bytes().any(|byte| byte.is_ascii_uppercase()), "{name:?}");
    for blocked in [None, Some("denied")] {
        let reply = question.answer(ADDRESS, 60, blocked);
        let read = read(&reply, message);
        assert_eq!(read.queries.len(), 1);
        let asked = read.queries.first().map(|query| (query.query_type(), query.name().to_ascii()));
        let (record, repeated) = asked.expect("one question");
        assert_eq!(record, question.record());
        assert_eq!(repeated.to_ascii_lowercase().trim_end_matches('.'), name.trim_end_matches('.'));
        for answer in &read.answers {
            assert!(!reply.refused && record == RecordType::A);
            assert!(matches!(answer.data, RData::A(address) if address.0 == ADDRESS));
        }
        assert!(read.answers.len() <= 1);
    }
}

/// Reads a reply to `message` as its client would.
fn read(reply: &DnsReply, message: &[u8]) -> Message {
    let read = Message::from_vec(&reply.bytes).expect("a reply is well-formed");
    assert_eq!(reply.bytes.get(..2), message.get(..2), "it is addressed to whom asked");
    assert_eq!(read.metadata.message_type, MessageType::Response);
    assert_ne!(reply.response, "SERVFAIL", "what was read can be written");
    // It must pass every path as one datagram.
    assert!(reply.bytes.len() <= 1232, "{} bytes", reply.bytes.len());
    read
}
