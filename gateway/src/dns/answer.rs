//! From the bytes of a question to the bytes of its answer.
//!
//! Pure: no socket, no clock. What is not a question gets the shortest reply
//! that says so, and what claims to be an answer gets none, lest two servers
//! answer each other for ever.

use std::net::Ipv4Addr;

use hickory_proto::op::{Edns, Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::rdata::{A, SOA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

/// One question that can be answered.
#[derive(Debug)]
pub(super) struct Question {
    id: u16,
    recursion_desired: bool,
    query: Query,
    edns: bool,
}

/// A message that is not one.
#[derive(Debug)]
pub(super) enum QuestionError {
    Refused(DnsReply),
    /// Too short for a reply to be addressed to, or itself a reply.
    Unanswerable,
}

/// A reply and what the record says of it.
#[derive(Debug)]
pub(super) struct DnsReply {
    pub(super) bytes: Vec<u8>,
    pub(super) response: &'static str,
    /// We said no, rather than something or nothing.
    pub(super) refused: bool,
}

impl Question {
    pub(super) fn parse(message: &[u8]) -> Result<Self, QuestionError> {
        let Some(&[id_high, id_low, flags, _, ..]) = message.get(..HEADER_BYTES) else {
            return Err(QuestionError::Unanswerable);
        };
        let id = u16::from_be_bytes([id_high, id_low]);
        if flags & IS_REPLY != 0 {
            return Err(QuestionError::Unanswerable);
        }
        let op_code = OpCode::from_u8((flags >> 3) & 0x0f);
        let refused = |code| QuestionError::Refused(DnsReply::refusal(id, op_code, code));
        // Before the rest is looked at: what other operations carry has another
        // shape, and would be called malformed.
        if op_code != OpCode::Query {
            return Err(refused(ResponseCode::NotImp));
        }
        // The cause is of no use to anyone: the client knows what it sent.
        let Ok(message) = Message::from_vec(message) else {
            return Err(refused(ResponseCode::FormErr));
        };
        if message.edns.as_ref().is_some_and(|edns| edns.version() != 0) {
            return Err(refused(ResponseCode::BADVERS));
        }
        let [query] = message.queries.as_slice() else {
            return Err(refused(ResponseCode::FormErr));
        };
        Ok(Self {
            id,
            recursion_desired: message.metadata.recursion_desired,
            query: query.clone(),
            edns: message.edns.is_some(),
        })
    }

    /// The name as a record shows it: lower-case ASCII, odd bytes escaped, no dot at
    /// the end. The case a client chose means nothing, and searches go by lower case.
    pub(super) fn name(&self) -> String {
        let mut name = self.query.name().to_ascii().to_ascii_lowercase();
        if name.len() > 1 && name.ends_with('.') {
            name.pop();
        }
        name
    }

    pub(super) fn record(&self) -> RecordType {
        self.query.query_type()
    }

    /// The record type among those that are counted apart.
    pub(super) fn label(&self) -> &'static str {
        LABELS.iter().find(|(record, _)| *record == self.record()).map_or("other", |(_, name)| name)
    }

    /// Answers with `address`. `blocked` is why policy would refuse the name.
    pub(super) fn answer(&self, address: Ipv4Addr, ttl: u32, blocked: Option<&str>) -> DnsReply {
        let mut reply = Message::response(self.id, OpCode::Query);
        reply.metadata.recursion_desired = self.recursion_desired;
        reply.metadata.recursion_available = true;
        reply.add_query(self.query.clone());

        let (code, refused, explanation) = if self.is_refused() {
            (ResponseCode::Refused, true, ExtendedError::NotSupported)
        } else if self.record() == RecordType::A {
            let answer = RData::A(A(address));
            reply.add_answer(Record::from_rdata(self.query.name().clone(), ttl, answer));
            (
                ResponseCode::NoError,
                false,
                blocked.map_or(ExtendedError::Forged, ExtendedError::Blocked),
            )
        } else {
            reply.add_authority(authority(ttl));
            let blocked = blocked.map_or(ExtendedError::NotSupported, ExtendedError::Blocked);
            (ResponseCode::NoError, false, blocked)
        };
        reply.metadata.response_code = code;
        if self.edns {
            reply.set_edns(explanation.edns());
        }
        DnsReply::new(reply, code, refused)
    }

    /// Questions about everything, about whole zones, and outside the internet.
    fn is_refused(&self) -> bool {
        // 128 to 255 are no types of data but kinds of question (RFC 6895).
        let meta = (128..=255).contains(&u16::from(self.record()));
        meta || self.record() == RecordType::OPT || self.query.query_class() != DNSClass::IN
    }
}

impl DnsReply {
    /// A header and nothing else.
    fn refusal(id: u16, op_code: OpCode, code: ResponseCode) -> Self {
        let mut reply = Message::error_msg(id, op_code, code);
        if code == ResponseCode::BADVERS {
            reply.set_edns(plain_edns());
        }
        Self::new(reply, code, true)
    }

    fn new(reply: Message, code: ResponseCode, refused: bool) -> Self {
        // What was read can be written again; should that ever fail, a header
        // with SERVFAIL is written by hand.
        let bytes = reply.to_vec().unwrap_or_else(|_| {
            let [high, low] = reply.metadata.id.to_be_bytes();
            vec![high, low, IS_REPLY, 2, 0, 0, 0, 0, 0, 0, 0, 0]
        });
        Self { bytes, response: response_name(code), refused }
    }
}

/// Why an answer is not what the internet would say (RFC 8914).
#[derive(Clone, Copy, Debug)]
enum ExtendedError<'a> {
    Blocked(&'a str),
    Forged,
    NotSupported,
}

impl ExtendedError<'_> {
    fn edns(self) -> Edns {
        let (code, text): (u16, String) = match self {
            Self::Forged => (4, "every name leads to the gateway".to_owned()),
            Self::Blocked(reason) => (15, format!("policy would refuse this name: {reason}")),
            Self::NotSupported => (21, "the gateway answers A questions alone".to_owned()),
        };
        let option = [&code.to_be_bytes(), text.as_bytes()].concat();
        let mut edns = plain_edns();
        edns.options_mut().insert(EdnsOption::Unknown(EXTENDED_ERROR, option));
        edns
    }
}

fn plain_edns() -> Edns {
    let mut edns = Edns::new();
    edns.set_max_payload(MAX_UDP_PAYLOAD_BYTES).set_version(0);
    edns
}

/// Says how long "there is none" holds. It is the root's, which is above every name.
fn authority(ttl: u32) -> Record {
    let server = Name::from_ascii("gateway.sluice.invalid.").unwrap_or_else(|_| Name::root());
    let day = 86_400;
    let authority = SOA::new(server.clone(), server, 1, day, day, day, ttl);
    Record::from_rdata(Name::root(), ttl, RData::SOA(authority))
}

fn response_name(code: ResponseCode) -> &'static str {
    match u16::from(code) {
        0 => "NOERROR",
        1 => "FORMERR",
        4 => "NOTIMP",
        5 => "REFUSED",
        16 => "BADVERS",
        _ => "SERVFAIL",
    }
}

const LABELS: [(RecordType, &str); 10] = [
    (RecordType::A, "A"),
    (RecordType::AAAA, "AAAA"),
    (RecordType::ANY, "ANY"),
    (RecordType::CNAME, "CNAME"),
    (RecordType::HTTPS, "HTTPS"),
    (RecordType::MX, "MX"),
    (RecordType::NS, "NS"),
    (RecordType::PTR, "PTR"),
    (RecordType::SRV, "SRV"),
    (RecordType::TXT, "TXT"),
];

const HEADER_BYTES: usize = 12;
const IS_REPLY: u8 = 0x80;
const EXTENDED_ERROR: u16 = 15;
/// What passes every path without being cut into pieces.
const MAX_UDP_PAYLOAD_BYTES: u16 = 1232;

#[cfg(test)]
mod tests;
