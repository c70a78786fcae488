use super::*;

/// Headers as `Name: value` lines.
struct Lines(&'static str);

impl Headers for Lines {
    fn each<'h>(&'h self, each: &mut dyn FnMut(&'h [u8], &'h [u8])) {
        for line in self.0.lines() {
            let (name, value) = line.split_once(": ").unwrap();
            each(name.as_bytes(), value.as_bytes());
        }
    }
}

const ASKING: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Version: 13\n\
                      Sec-WebSocket-Protocol: chat, superchat\n\
                      Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits, x-y";

fn answer(headers: &'static str) -> Result<AgreedExtensions, HandshakeFault> {
    WebSocketOffer::read(&Lines(ASKING), HttpVersion::Http11).unwrap().check(&Lines(headers))
}

#[test]
fn the_example_of_the_rfc_is_a_handshake() {
    let agreed = answer(
        "Upgrade: websocket\nConnection: Upgrade\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\nSec-WebSocket-Protocol: chat",
    );
    assert_eq!(agreed, Ok(AgreedExtensions { deflate: false }));
}

#[test]
fn compression_is_agreed_on_in_the_answer() {
    let agreed = answer(
        "Upgrade: websocket\nConnection: Upgrade\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\n\
         Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=\"10\"",
    );
    assert_eq!(agreed, Ok(AgreedExtensions { deflate: true }));
}

#[test]
fn a_fault_says_what_was_written_and_what_to_write() {
    let read = |headers| {
        WebSocketOffer::read(&Lines(headers), HttpVersion::Http11).unwrap_err().to_string()
    };
    assert_eq!(
        read("Sec-WebSocket-Key: c2hvcnQ=\nSec-WebSocket-Version: 13"),
        "`Sec-WebSocket-Key` is `c2hvcnQ=`; write it once, 16 random bytes in base64"
    );
    assert_eq!(
        read("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
        "`Sec-WebSocket-Version` is missing; write 13, once"
    );
    let proof = answer("Upgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Accept: x");
    assert_eq!(proof, Err(HandshakeFault::Accept("`x`".to_owned())));
}

#[test]
fn http2_has_neither_key_nor_accept() {
    let offer =
        WebSocketOffer::read(&Lines("sec-websocket-version: 13"), HttpVersion::Http2).unwrap();
    assert_eq!(offer.check(&Lines("")), Ok(AgreedExtensions { deflate: false }));
    let stray = HandshakeFault::Stray("sec-websocket-accept");
    assert_eq!(offer.check(&Lines("sec-websocket-accept: x")), Err(stray));
    let read = WebSocketOffer::read(&Lines(ASKING), HttpVersion::Http2);
    assert_eq!(read.unwrap_err(), HandshakeFault::Stray("sec-websocket-key"));
}

#[test]
fn only_extensions_that_we_know_are_agreed_on() {
    let agreed = |written: &'static str| {
        let offer = offered_by("permessage-deflate, x-y");
        extensions::agreed(&[written.as_bytes().to_vec()], offer)
    };
    assert_eq!(agreed(""), Ok(false));
    assert_eq!(agreed("permessage-deflate; server_max_window_bits=15"), Ok(true));
    assert_eq!(agreed("x-y"), Err(ExtensionFault::Unknown("x-y".to_owned())));
    assert_eq!(agreed("permessage-deflate,permessage-deflate"), Err(ExtensionFault::Twice));
    for parameter in ["client_max_window_bits=10", "server_max_window_bits=16", "other"] {
        let lines = [format!("permessage-deflate; {parameter}").into_bytes()];
        let agreed = extensions::agreed(&lines, offered_by("permessage-deflate"));
        assert!(matches!(agreed, Err(ExtensionFault::Parameter(_))), "{parameter}: {agreed:?}");
    }
    let unasked = extensions::agreed(&[b"permessage-deflate".to_vec()], offered_by("x-y"));
    assert_eq!(unasked, Err(ExtensionFault::NotOffered));
}

fn offered_by(written: &str) -> Option<DeflateOffer> {
    extensions::offered(&[written.as_bytes().to_vec()]).unwrap()
}

const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Version: 13\n";
const PROOF: &str = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\n";

fn read(more: &str) -> Result<(), HandshakeFault> {
    let headers = Lines(format!("{KEY}{more}").leak());
    WebSocketOffer::read(&headers, HttpVersion::Http11).map(drop)
}

fn answered(more: &str) -> Result<AgreedExtensions, HandshakeFault> {
    answer(format!("{PROOF}{more}").leak())
}

#[test]
fn what_connection_lists_would_not_arrive_and_is_refused_in_both_halves() {
    let fault = HandshakeFault::Nominated("Sec-WebSocket-Key".to_owned());
    assert_eq!(read("Connection: upgrade, Sec-WebSocket-Key"), Err(fault.clone()));
    let upgrade = "Upgrade: websocket\nConnection: upgrade\n";
    assert_eq!(answered(&format!("{upgrade}Connection: Sec-WebSocket-Key")), Err(fault));
    assert_eq!(read("Connection: upgrade, keep-alive"), Ok(()));
}

#[test]
fn an_answer_that_does_not_upgrade_is_none() {
    let missing = HandshakeFault::Upgrade("missing".to_owned());
    assert_eq!(answered("Connection: upgrade"), Err(missing));
    let other = HandshakeFault::Upgrade("`h2c`".to_owned());
    assert_eq!(answered("Upgrade: h2c\nConnection: upgrade"), Err(other));
    assert_eq!(answered("Upgrade: websocket\nConnection: close"), Err(HandshakeFault::Connection));
    assert_eq!(answered("Upgrade: websocket"), Err(HandshakeFault::Connection));
    let twice = "Upgrade: websocket\nUpgrade: websocket\nConnection: upgrade";
    assert!(matches!(answered(twice), Err(HandshakeFault::Upgrade(_))));
    assert!(answered("Upgrade: WebSocket\nConnection: keep-alive, Upgrade").is_ok());
}

#[test]
fn only_a_protocol_that_was_offered_is_chosen() {
    let with = |line: &str| answered(&format!("Upgrade: websocket\nConnection: upgrade\n{line}"));
    assert!(with("Sec-WebSocket-Protocol: superchat").is_ok());
    let other = HandshakeFault::Protocol("`evil`".to_owned());
    assert_eq!(with("Sec-WebSocket-Protocol: evil"), Err(other));
    let two = with("Sec-WebSocket-Protocol: chat\nSec-WebSocket-Protocol: superchat");
    assert!(matches!(two, Err(HandshakeFault::Protocol(_))));
}

#[test]
fn protocols_are_names_and_there_is_at_least_one() {
    assert_eq!(read("Sec-WebSocket-Protocol: chat"), Ok(()));
    for line in ["a b", "chat, b@c", ",", ""] {
        let fault = HandshakeFault::Protocols(format!("`{line}`"));
        assert_eq!(read(&format!("Sec-WebSocket-Protocol: {line}")), Err(fault), "{line:?}");
    }
}

#[test]
fn a_body_has_no_place_in_an_answer() {
    for line in ["Content-Length: 0", "Transfer-Encoding: chunked"] {
        let told = answered(&format!("Upgrade: websocket\nConnection: upgrade\n{line}"));
        assert!(matches!(told, Err(HandshakeFault::Body(_))), "{line}");
    }
    let offer = WebSocketOffer::read(
        &Lines("sec-websocket-version: 13\ncontent-length: 0"),
        HttpVersion::Http2,
    );
    assert_eq!(offer.unwrap_err(), HandshakeFault::Body("content-length"));
}
