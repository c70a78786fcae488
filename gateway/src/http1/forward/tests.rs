use expect_test::expect;

use super::*;
use crate::http1_codec::head;

fn response_head(written: &str) -> ResponseHead {
    let mut head = ResponseHead::default();
    assert_eq!(head::end(written.as_bytes(), 0), Ok(Some(written.len())));
    head.read(written.as_bytes(), 32).unwrap();
    head
}

fn forwarded(written: &str, chunked: bool, afterwards: ConnectionOption) -> String {
    let mut out = Vec::new();
    response(&response_head(written), chunked, afterwards, &mut out);
    String::from_utf8(out).unwrap().replace("\r\n", "\n")
}

#[test]
fn what_concerns_one_connection_stays_there_and_the_rest_keeps_its_order() {
    let written = "HTTP/1.1 200 Fine\r\nServer: x\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n\
                   Keep-Alive: 5\r\nTransfer-Encoding: chunked\r\nSet-Cookie: a\r\nset-cookie: b\r\n\
                   Alt-Svc: h3\r\nUpgrade: h2c\r\nProxy-Authenticate: Basic\r\n\r\n";
    expect![[r#"
        HTTP/1.1 200 Fine
        Server: x
        Set-Cookie: a
        set-cookie: b
        Transfer-Encoding: chunked

    "#]]
    .assert_eq(&forwarded(written, true, ConnectionOption::KeepAlive(HttpVersion::Http11)));
}

#[test]
fn an_answer_does_not_speak_for_us_nor_in_misspelt_control_fields() {
    let written = "HTTP/1.1 403 Refused by policy (no_rule)\r\nx-sluice-code: no_rule\r\n\
                   X_Sluice_Rule: x\r\nTransfer_Encoding: chunked\r\ncontent.length: 5\r\n\
                   x_kept: 1\r\nContent-Length: 0\r\n\r\n";
    expect![[r#"
        HTTP/1.1 403 Refused by policy (no_rule)
        x_kept: 1
        Content-Length: 0

    "#]]
    .assert_eq(&forwarded(written, false, ConnectionOption::KeepAlive(HttpVersion::Http11)));
}

#[test]
fn what_becomes_of_the_connection_is_said_where_it_is_not_understood() {
    let written = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
    expect![[r#"
        HTTP/1.1 200 OK
        Content-Length: 1
        Connection: keep-alive

    "#]]
    .assert_eq(&forwarded(written, false, ConnectionOption::KeepAlive(HttpVersion::Http10)));
    expect![[r#"
        HTTP/1.1 200 OK
        Content-Length: 1
        Connection: close

    "#]]
    .assert_eq(&forwarded(written, false, ConnectionOption::Close));
}

#[test]
fn an_answer_that_can_have_no_body_has_no_length() {
    let written = "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n";
    let keep = ConnectionOption::KeepAlive(HttpVersion::Http11);
    assert_eq!(forwarded(written, false, keep), "HTTP/1.1 204 No Content\n\n");
}

#[test]
fn a_length_survives_even_if_it_is_called_a_matter_of_the_connection() {
    let written = "HTTP/1.1 200 OK\r\nConnection: content-length\r\nContent-Length: 5\r\n\r\n";
    let keep = ConnectionOption::KeepAlive(HttpVersion::Http11);
    assert!(forwarded(written, false, keep).contains("Content-Length: 5\n"));
}

#[test]
fn who_stays_is_read_by_version() {
    for (written, stays) in [
        ("HTTP/1.1 200 OK\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\nConnection: Close\r\n\r\n", false),
        ("HTTP/1.0 200 OK\r\n\r\n", false),
        ("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n", true),
    ] {
        assert_eq!(upstream_stays(&response_head(written)), stays, "{written}");
    }
}

#[test]
fn a_client_stays_unless_it_says_otherwise() {
    let stays = |version: &str, connection: &str| {
        let text = format!("GET / {version}\r\nHost: a\r\nConnection: {connection}\r\n\r\n");
        let mut head = RequestHead::default();
        head.read(text.as_bytes(), 16).unwrap();
        client_stays(&head)
    };
    assert!(stays("HTTP/1.1", "x") && !stays("HTTP/1.1", "close"));
    assert!(stays("HTTP/1.0", "keep-alive") && !stays("HTTP/1.0", "x"));
}

#[test]
fn trailers_are_wanted_by_whoever_says_so() {
    for (value, wants) in
        [("trailers", true), ("gzip, Trailers", true), ("gzip", false), ("", false)]
    {
        assert_eq!(wants_trailers(value.as_bytes()), wants, "{value}");
    }
}

#[test]
fn what_a_request_says_of_its_body_and_of_trailers_is_ours_to_say() {
    let sent = |framing: Framing, websocket: bool, fields: &str| {
        let text = format!("GET /a HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        let mut head = RequestHead::default();
        head.read(text.as_bytes(), 16).unwrap();
        let asked = crate::request::RawRequest {
            method: b"GET",
            target: b"/a",
            authority: None,
            headers: &head.fields,
            version: HttpVersion::Http11,
            websocket,
        };
        let to = policies::Destination::parse("x:443").unwrap();
        let read = ParsedRequest::read(&asked, policies::Scheme::Https, &to, "x").unwrap();
        let mut out = Vec::new();
        request(&read, &head, "x", framing, &mut out);
        String::from_utf8(out).unwrap().replace("\r\n", "|")
    };
    let (empty, chunked) = (Framing::Empty, Framing::Chunked);
    let coding = "Transfer-Encoding: Chunked\r\n";
    assert!(sent(chunked, false, coding).contains("|Transfer-Encoding: chunked|"));
    assert!(!sent(empty, false, coding).contains("Transfer-Encoding"));
    assert!(sent(empty, false, "TE: gzip, trailers\r\n").contains("|Connection: te|TE: trailers|"));
    assert!(!sent(empty, false, "TE: gzip\r\n").contains("TE:"));
    assert!(!sent(empty, true, "TE: trailers\r\n").contains("TE:"));
}
