use expect_test::expect;
use proptest::prelude::*;

use super::*;
use crate::testing::Dice;

fn request(written: &[u8]) -> Result<RequestHead, HeadFault> {
    let end = end(written, 0)?.expect("a whole head");
    let mut head = RequestHead::default();
    head.read(&written[..end], 64)?;
    Ok(head)
}

fn response(written: &[u8]) -> Result<ResponseHead, HeadFault> {
    let end = end(written, 0)?.expect("a whole head");
    let mut head = ResponseHead::default();
    head.read(&written[..end], 64)?;
    Ok(head)
}

macro_rules! refused {
    ($claim:ident, $read:ident, $written:expr, $fault:expr) => {
        #[test]
        fn $claim() {
            assert_eq!($read($written).err(), Some($fault));
        }
    };
}

refused!(
    a_bare_line_feed_after_the_first_line,
    request,
    b"GET / HTTP/1.1\nA: b\r\n\r\n",
    HeadFault::LineEnd
);
refused!(
    a_bare_line_feed_after_a_header,
    request,
    b"GET / HTTP/1.1\r\nA: b\n\r\n",
    HeadFault::LineEnd
);
refused!(line_feeds_alone, request, b"GET / HTTP/1.1\nHost: a\n\n", HeadFault::LineEnd);
refused!(an_empty_first_line, request, b"\r\nGET / HTTP/1.1\r\n\r\n", HeadFault::FirstLine);
refused!(two_spaces, request, b"GET  / HTTP/1.1\r\n\r\n", HeadFault::Target);
refused!(a_tab_for_a_space, request, b"GET\t/ HTTP/1.1\r\n\r\n", HeadFault::FirstLine);
refused!(a_space_in_the_target, request, b"GET /a b HTTP/1.1\r\n\r\n", HeadFault::Version);
refused!(a_nul_in_the_target, request, b"GET /\0 HTTP/1.1\r\n\r\n", HeadFault::Target);
refused!(a_return_in_the_target, request, b"GET /\r HTTP/1.1\r\n\r\n", HeadFault::Target);
refused!(a_byte_outside_ascii, request, b"GET /\xff HTTP/1.1\r\n\r\n", HeadFault::Target);
refused!(no_version, request, b"GET /\r\n\r\n", HeadFault::FirstLine);
refused!(an_old_version, request, b"GET / HTTP/0.9\r\n\r\n", HeadFault::Version);
refused!(a_version_in_lower_case, request, b"GET / http/1.1\r\n\r\n", HeadFault::Version);
refused!(a_space_after_the_version, request, b"GET / HTTP/1.1 \r\n\r\n", HeadFault::Version);
refused!(
    the_preface_of_http2,
    request,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    HeadFault::Http2Preface
);
refused!(a_status_of_two_digits, response, b"HTTP/1.1 20 OK\r\n\r\n", HeadFault::Status);
refused!(a_status_of_four_digits, response, b"HTTP/1.1 2000 OK\r\n\r\n", HeadFault::Status);
refused!(a_status_of_letters, response, b"HTTP/1.1 2xx OK\r\n\r\n", HeadFault::Status);
refused!(a_reason_with_a_control, response, b"HTTP/1.1 200 O\x01K\r\n\r\n", HeadFault::FirstLine);
refused!(not_http, response, b"SSH-2.0-x\r\n\r\n", HeadFault::Version);

#[test]
fn a_request_is_taken_apart() {
    let head = request(b"POST /a?b=c HTTP/1.1\r\nHost: x.test\r\nX: y\r\n\r\nbody").unwrap();
    assert_eq!((head.method(), head.target()), (&b"POST"[..], &b"/a?b=c"[..]));
    assert_eq!(head.version, HttpVersion::Http11);
    assert_eq!(head.fields.iter().count(), 2);
}

#[test]
fn a_response_may_leave_out_its_reason() {
    for written in [&b"HTTP/1.1 204\r\n\r\n"[..], b"HTTP/1.1 204 \r\n\r\n"] {
        let head = response(written).unwrap();
        assert_eq!((head.status, head.reason()), (204, &b""[..]));
    }
}

#[test]
fn faults_say_what_is_wrong() {
    let told = |written| request(written).err().map(|fault| fault.to_string()).unwrap_or_default();
    expect!["HTTP/2 is not spoken in clear text; use HTTP/1.1, or TLS"]
        .assert_eq(&told(b"PRI * HTTP/2.0\r\n\r\n"));
    expect!["a header line begins with white space"]
        .assert_eq(&told(b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n"));
}

/// A head as an honest client might write it.
fn honest() -> impl Strategy<Value = (String, String, Vec<(String, String)>)> {
    let field = ("[A-Za-z][A-Za-z0-9-]{0,12}", "[!-~]([ -~]{0,20}[!-~])?");
    ("[A-Z]{1,8}", "/[!-~]{0,30}", prop::collection::vec(field, 0..8))
}

proptest! {
    /// However it is cut, a head has one end and one reading.
    #[test]
    fn an_honest_head_has_exactly_one_reading((method, target, fields) in honest(), cut in 0usize..200) {
        let mut written = format!("{method} {target} HTTP/1.1\r\n");
        for (name, value) in &fields {
            written.push_str(&format!("{name}: {value}\r\n"));
        }
        written.push_str("\r\n");
        let whole = written.len();
        written.push_str("GET /next HTTP/1.1\r\n\r\n");

        let first = cut.min(whole);
        let early = end(&written.as_bytes()[..first], 0).unwrap();
        prop_assert_eq!(early, (first == whole).then_some(whole));
        prop_assert_eq!(end(written.as_bytes(), first.min(whole - 1)).unwrap(), Some(whole));

        let head = request(written.as_bytes()).unwrap();
        prop_assert_eq!(head.method(), method.as_bytes());
        prop_assert_eq!(head.target(), target.as_bytes());
        let read: Vec<_> = head.fields.iter().map(|(_, n, v)| (n.to_vec(), v.to_vec())).collect();
        let sent: Vec<_> = fields.into_iter().map(|(n, v)| (n.into_bytes(), v.into_bytes())).collect();
        prop_assert_eq!(read, sent);
    }

    /// What we accept, another strict parser reads the same way.
    #[test]
    fn another_parser_agrees(written in mutated()) {
        let Ok(Some(end)) = end(&written, 0) else { return Ok(()) };
        let mut head = RequestHead::default();
        if head.read(&written[..end], 64).is_err() {
            return Ok(());
        }
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut other = httparse::Request::new(&mut fields);
        prop_assert_eq!(other.parse(&written[..end]), Ok(httparse::Status::Complete(end)));
        prop_assert_eq!(other.method.unwrap().as_bytes(), head.method());
        prop_assert_eq!(other.path.unwrap().as_bytes(), head.target());
        let theirs: Vec<_> = other.headers.iter().map(|h| (h.name.as_bytes(), h.value)).collect();
        let ours: Vec<_> = head.fields.iter().map(|(_, name, value)| (name, value)).collect();
        prop_assert_eq!(theirs, ours);
    }

    #[test]
    fn heads_never_panic(written in mutated()) {
        if let Ok(Some(end)) = end(&written, 0) {
            RequestHead::default().read(&written[..end], 16).ok();
            ResponseHead::default().read(&written[..end], 16).ok();
        }
    }
}

/// An honest head with some bytes replaced, dropped or doubled.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let change = (
        any::<prop::sample::Index>(),
        prop::sample::select(&b"\r\n\t \0:;,/aZ\x7f\xff"[..]),
        0u8..3,
    );
    (honest(), prop::collection::vec(change, 0..6)).prop_map(
        |((method, target, fields), changes)| {
            let mut written = format!("{method} {target} HTTP/1.1\r\n").into_bytes();
            for (name, value) in fields {
                written.extend(format!("{name}: {value}\r\n").into_bytes());
            }
            written.extend(b"\r\n");
            for (at, byte, kind) in changes {
                let at = at.index(written.len());
                match kind {
                    0 => written[at] = byte,
                    1 => written.insert(at, byte),
                    _ => drop(written.remove(at)),
                }
                if written.is_empty() {
                    break;
                }
            }
            written
        },
    )
}

#[test]
fn of_a_million_spoilt_heads_each_is_read_or_refused() {
    let honest: [&[u8]; 4] = [
        b"GET /a/b?c=d HTTP/1.1\r\nHost: allowed.test\r\nAccept: */*\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"PUT /x HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 12\r\nExpect: 100-continue\r\n\r\n",
        b"GET /ws HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ];
    let mut dice = Dice::new(1);
    let (mut read, mut head) = (0, RequestHead::default());
    for round in 0..1_000_000 {
        let bytes = dice.spoil(honest[round % honest.len()]);
        let Ok(Some(end)) = end(&bytes, 0) else { continue };
        if head.read(&bytes[..end], 64).is_ok() {
            read += 1;
            let raw = head.fields.iter().flat_map(|(_, name, value)| [name, value]);
            let clean = |piece: &[u8]| !piece.iter().any(|b| matches!(b, b'\r' | b'\n' | 0));
            assert!(raw.into_iter().all(clean), "{:?}", String::from_utf8_lossy(&bytes));
        }
    }
    assert!((1_000..999_000).contains(&read), "{read} were read: the dice are loaded");
}

#[test]
fn an_empty_line_is_no_head() {
    assert_eq!(end(b"\r\n", 0), Err(HeadFault::FirstLine));
    assert_eq!(end(b"\r\nGET / HTTP/1.1\r\n\r\n", 0), Err(HeadFault::FirstLine));
    assert_eq!(end(b"GET / HTTP/1.1\r\n", 0), Ok(None));
}

#[test]
fn what_delimits_and_what_names_the_host_is_not_between_two_hops() {
    let read = |more: &str| {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{more}\r\n\r\n");
        RequestHead::default().read(text.as_bytes(), 16)
    };
    for option in ["content-length", "host", "close, Host", "Content-Length, x"] {
        assert_eq!(read(&format!("Connection: {option}")), Err(HeadFault::Nominated), "{option}");
    }
    assert_eq!(read("Connection: close, x-a"), Ok(()));
}

#[test]
fn a_request_has_a_method_and_a_target() {
    let read = |line: &str| {
        RequestHead::default().read(format!("{line}\r\nHost: a\r\n\r\n").as_bytes(), 16)
    };
    assert_eq!(read(" / HTTP/1.1"), Err(HeadFault::Method));
    assert_eq!(read("G@T / HTTP/1.1"), Err(HeadFault::Method));
    assert_eq!(read("GET  HTTP/1.1"), Err(HeadFault::Target));
    assert_eq!(read("GET /\t HTTP/1.1"), Err(HeadFault::Target));
    assert_eq!(read("GET / HTTP/1.1"), Ok(()));
}
