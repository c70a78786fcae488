//! Answers, as a client reads them.

use hickory_proto::op::MessageType;
use hickory_proto::rr::rdata::opt::EdnsCode;
use proptest::prelude::*;

use super::*;

const US: Ipv4Addr = Ipv4Addr::new(10, 89, 0, 2);

fn asked(name: &str, record: RecordType) -> Message {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).expect("it is a name"), record));
    message
}

fn with_edns(mut message: Message) -> Message {
    message.set_edns(plain_edns());
    message
}

fn answered(message: &Message, blocked: Option<&str>) -> (Message, DnsReply) {
    let bytes = message.to_vec().expect("it can be written");
    let reply = match Question::parse(&bytes) {
        Ok(question) => question.answer(US, 5, blocked),
        Err(QuestionError::Refused(reply)) => reply,
        Err(QuestionError::Unanswerable) => panic!("it can be answered"),
    };
    let read = Message::from_vec(&reply.bytes).expect("the answer can be read");
    assert_eq!(read.metadata.message_type, MessageType::Response);
    assert_eq!(read.metadata.id, 4711);
    (read, reply)
}

/// The extended error: its number and its words.
fn explanation(message: &Message) -> Option<(u16, String)> {
    let options = message.edns.as_ref()?.options();
    match options.get(EdnsCode::from(EXTENDED_ERROR))? {
        EdnsOption::Unknown(_, bytes) => {
            let (code, text) = bytes.split_at_checked(2)?;
            let code = u16::from_be_bytes(code.try_into().ok()?);
            Some((code, String::from_utf8_lossy(text).into_owned()))
        }
        _ => None,
    }
}

#[test]
fn every_name_has_our_address_for_a_moment() {
    for name in ["allowed.test.", "c2VjcmV0.evil.test.", "a.", "localhost.", "."] {
        let (answer, reply) = answered(&asked(name, RecordType::A), None);
        assert_eq!((reply.response, reply.refused), ("NOERROR", false));
        let [record] = answer.answers.as_slice() else { panic!("one record answers {name}") };
        assert_eq!(record.data, RData::A(A(US)));
        assert_eq!(record.ttl, 5);
        assert!(answer.metadata.recursion_available && answer.metadata.recursion_desired);
        assert!(answer.edns.is_none(), "an extension that was not offered is not used");
    }
}

#[test]
fn other_types_have_no_data_and_say_for_how_long() {
    for record in [RecordType::AAAA, RecordType::HTTPS, RecordType::TXT, RecordType::Unknown(999)] {
        let (answer, reply) = answered(&with_edns(asked("allowed.test.", record)), None);
        assert_eq!((reply.response, reply.refused), ("NOERROR", false));
        assert!(answer.answers.is_empty());
        let [soa] = answer.authorities.as_slice() else { panic!("one record bounds {record}") };
        assert_eq!((soa.record_type(), soa.ttl, soa.name.is_root()), (RecordType::SOA, 5, true));
        let words = "the gateway answers A questions alone".to_owned();
        assert_eq!(explanation(&answer), Some((21, words)));
    }
}

#[test]
fn a_name_that_policy_would_refuse_is_answered_and_says_so() {
    let (answer, reply) = answered(&with_edns(asked("evil.test.", RecordType::A)), Some("no_rule"));
    assert_eq!(reply.response, "NOERROR");
    assert_eq!(answer.answers.len(), 1);
    let words = "policy would refuse this name: no_rule".to_owned();
    assert_eq!(explanation(&answer), Some((15, words)));
    let (answer, _) = answered(&with_edns(asked("allowed.test.", RecordType::A)), None);
    assert_eq!(explanation(&answer), Some((4, "every name leads to the gateway".to_owned())));
}

#[test]
fn zones_everything_and_other_classes_are_refused() {
    let mut chaos = asked("version.bind.", RecordType::TXT);
    for query in &mut chaos.queries {
        query.set_query_class(DNSClass::CH);
    }
    for message in [
        asked("evil.test.", RecordType::ANY),
        asked("evil.test.", RecordType::AXFR),
        asked("evil.test.", RecordType::IXFR),
        asked("evil.test.", RecordType::OPT),
        chaos,
    ] {
        let (answer, reply) = answered(&message, None);
        assert_eq!((reply.response, reply.refused), ("REFUSED", true));
        assert!(answer.answers.is_empty() && answer.authorities.is_empty());
    }
}

#[test]
fn other_operations_are_not_implemented() {
    for op_code in [OpCode::Notify, OpCode::Status, OpCode::Update] {
        let mut message = asked("evil.test.", RecordType::A);
        message.metadata.op_code = op_code;
        assert_eq!(answered(&message, None).1.response, "NOTIMP");
    }
}

#[test]
fn what_has_no_question_or_two_is_malformed() {
    let mut none = asked("a.test.", RecordType::A);
    none.queries.clear();
    assert_eq!(answered(&none, None).1.response, "FORMERR");
    let mut two = asked("a.test.", RecordType::A);
    two.add_query(Query::query(Name::root(), RecordType::A));
    assert_eq!(answered(&two, None).1.response, "FORMERR");
    let mut later = with_edns(asked("a.test.", RecordType::A));
    later.edns.iter_mut().for_each(|edns| {
        edns.set_version(1);
    });
    assert_eq!(answered(&later, None).1.response, "BADVERS");
}

#[test]
fn an_answer_is_never_answered() {
    let reply = Message::response(1, OpCode::Query).to_vec().expect("it can be written");
    assert!(matches!(Question::parse(&reply), Err(QuestionError::Unanswerable)));
    assert!(matches!(Question::parse(b"short"), Err(QuestionError::Unanswerable)));
}

#[test]
fn a_name_keeps_its_spelling_towards_the_client() {
    let (answer, _) = answered(&asked("AlLoWeD.TeSt.", RecordType::A), None);
    let names: Vec<String> = answer.queries.iter().map(|query| query.name().to_ascii()).collect();
    assert_eq!(names, ["AlLoWeD.TeSt."]);
}

/// A header that asks one question, followed by anything.
fn almost_a_question() -> impl Strategy<Value = Vec<u8>> {
    let header = vec![0x12, 0x34, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 1];
    prop::collection::vec(any::<u8>(), 0..300).prop_map(move |rest| [header.clone(), rest].concat())
}

proptest! {
    /// Whatever arrives: no panic, and a reply that is a reply, is addressed to
    /// whoever asked, and fits into the smallest packet.
    #[test]
    fn any_bytes_get_a_small_reply_or_none(
        bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..600), almost_a_question()],
    ) {
        let reply = match Question::parse(&bytes) {
            Ok(question) => {
                prop_assert!(!question.name().is_empty());
                question.answer(US, 5, Some("no_rule"))
            }
            Err(QuestionError::Refused(reply)) => reply,
            Err(QuestionError::Unanswerable) => return Ok(()),
        };
        prop_assert!(reply.bytes.len() <= 512, "{}", reply.bytes.len());
        prop_assert_eq!(reply.bytes.get(..2), bytes.get(..2));
        prop_assert!(Message::from_vec(&reply.bytes).is_ok());
    }

    /// A question in bytes with a few of them changed.
    #[test]
    fn mutations_of_a_question_do_no_harm(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let message = with_edns(asked("a-rather-long-name.with.labels.allowed.test.", RecordType::A));
        let mut bytes = message.to_vec().expect("it can be written");
        for (index, value) in changes {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        if let Ok(question) = Question::parse(&bytes) {
            prop_assert!(question.answer(US, 5, None).bytes.len() <= 512);
        }
    }
}

#[test]
fn types_that_are_counted_apart_have_their_names() {
    for (record, label) in LABELS {
        let bytes = asked("allowed.test.", record).to_vec().expect("it can be written");
        let Ok(question) = Question::parse(&bytes) else { panic!("{label} is a question") };
        assert_eq!(question.label(), label);
        assert_eq!(question.label(), record.to_string());
    }
    let bytes = asked("allowed.test.", RecordType::Unknown(999)).to_vec().unwrap();
    let Ok(question) = Question::parse(&bytes) else { panic!("it is a question") };
    assert_eq!(question.label(), "other");
}

#[test]
fn an_extension_is_answered_in_the_version_and_size_that_are_spoken_here() {
    let (answer, _) = answered(&with_edns(asked("allowed.test.", RecordType::A)), None);
    let edns = answer.edns.expect("it was offered");
    assert_eq!((edns.max_payload(), edns.version()), (MAX_UDP_PAYLOAD_BYTES, 0));

    // A later version is refused, and told which one is spoken. Nothing else has extensions.
    let mut later = asked("allowed.test.", RecordType::A);
    let mut edns = plain_edns();
    edns.set_version(1);
    later.set_edns(edns);
    let (answer, reply) = answered(&later, None);
    assert_eq!((reply.response, reply.refused), ("BADVERS", true));
    let edns = answer.edns.expect("it says which version");
    assert_eq!((edns.max_payload(), edns.version()), (MAX_UDP_PAYLOAD_BYTES, 0));
    let mut two = asked("allowed.test.", RecordType::A);
    two.add_query(two.queries[0].clone());
    let (answer, reply) = answered(&two, None);
    assert_eq!((reply.response, answer.edns.is_some()), ("FORMERR", false));
}
