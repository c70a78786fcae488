use policies::HostName;
use proptest::prelude::*;

use super::*;
use crate::http1_codec::fields::Fields as Block;

fn to(host: &str, port: u16) -> Destination {
    Destination { host: HostName::parse(host).unwrap().into(), port }
}

/// Reads a request as HTTP/1.1 on a TLS connection to `allowed.test:443`.
fn read(method: &str, target: &str, headers: &str) -> Result<String, String> {
    read_on(method, target, None, headers, &to("allowed.test", 443), "allowed.test")
}

fn read_on(
    method: &str,
    target: &str,
    authority: Option<&str>,
    headers: &str,
    to: &Destination,
    spelt: &str,
) -> Result<String, String> {
    let mut block = Block::default();
    block.read(headers.as_bytes(), 16).unwrap();
    let asked = RawRequest {
        method: method.as_bytes(),
        target: target.as_bytes(),
        authority: authority.map(str::as_bytes),
        headers: &block,
        version: if authority.is_some() { HttpVersion::Http2 } else { HttpVersion::Http11 },
        websocket: false,
    };
    let request = ParsedRequest::read(&asked, Scheme::Https, to, spelt)
        .map_err(|refusal| format!("{} {}", refusal.status(), refusal.code()))?;
    let query = request.query.map(|query| format!("?{query}")).unwrap_or_default();
    let meant = request.override_method.map(|method| format!(" as {method}")).unwrap_or_default();
    let mut read = format!("{}{meant} {}{query}", request.method, request.path);
    for AlternatePath { path, query } in &request.alternate_paths {
        let query = query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        read.push_str(&format!(" or {path}{query}"));
    }
    Ok(read)
}

macro_rules! reads {
    ($claim:ident, $method:expr, $target:expr, $headers:expr, $expected:expr) => {
        #[test]
        fn $claim() {
            let expected: Result<&str, &str> = $expected;
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(read($method, $target, $headers), expected);
        }
    };
}

const HOST: &str = "Host: allowed.test\r\n";

reads!(a_plain_request, "GET", "/a/b?c=d", HOST, Ok("GET /a/b?c=d"));
reads!(an_empty_query_is_kept, "GET", "/a?", HOST, Ok("GET /a?"));
reads!(a_path_in_its_one_spelling, "GET", "/%7ea%2fb", HOST, Ok("GET /~a%2Fb"));
reads!(a_host_in_other_letters, "GET", "/", "host: ALLOWED.test.\r\n", Ok("GET /"));
reads!(a_host_with_its_port, "GET", "/", "Host: allowed.test:443\r\n", Ok("GET /"));
reads!(a_whole_url, "GET", "https://allowed.test/a", HOST, Ok("GET /a"));
reads!(a_url_of_another_scheme, "GET", "http://allowed.test/a", HOST, Err("421 name_mismatch"));
reads!(a_url_of_no_scheme, "GET", "allowed.test/a", HOST, Err("400 malformed"));
reads!(a_star, "OPTIONS", "*", HOST, Err("400 malformed"));
reads!(no_target, "GET", "", HOST, Err("400 malformed"));
reads!(a_host_that_is_no_name, "GET", "/", "Host: a b\r\n", Err("400 bad_authority"));
reads!(a_host_with_a_path, "GET", "/", "Host: allowed.test/x\r\n", Err("400 bad_authority"));
reads!(
    the_same_host_twice,
    "GET",
    "/",
    "Host: allowed.test\r\nHost: allowed.test\r\n",
    Err("400 ambiguous")
);
reads!(
    a_method_and_what_it_is_meant_as,
    "POST",
    "/",
    "Host: allowed.test\r\nX-HTTP-Method-Override:  delete \r\n",
    Ok("POST as DELETE /")
);
reads!(
    a_disguised_tunnel,
    "POST",
    "/",
    "Host: allowed.test\r\nX-Method-Override: CONNECT\r\n",
    Err("403 denied")
);
reads!(
    one_disguise_twice,
    "POST",
    "/",
    "Host: allowed.test\r\nX-HTTP-Method: PUT\r\nX-HTTP-Method-Override: PUT\r\n",
    Ok("POST as PUT /")
);

reads!(
    a_path_and_what_it_is_meant_as,
    "GET",
    "/a?b",
    "Host: allowed.test\r\nX-Original-URL: /c\r\n",
    Ok("GET /a?b or /c?b")
);
reads!(
    another_host_in_a_header,
    "GET",
    "/",
    "Host: allowed.test\r\nX-Forwarded-Host: evil.test\r\n",
    Err("421 name_mismatch")
);
reads!(
    another_scheme_in_a_header,
    "GET",
    "/",
    "Host: allowed.test\r\nForwarded: proto=http\r\n",
    Err("421 name_mismatch")
);
reads!(
    a_host_in_a_header_that_is_none,
    "GET",
    "/",
    "Host: allowed.test\r\nX-Host: a b\r\n",
    Err("400 bad_authority")
);
reads!(
    a_prefix_in_a_header,
    "GET",
    "/",
    "Host: allowed.test\r\nX-Script-Name: /a\r\n",
    Err("400 ambiguous")
);
reads!(
    a_path_in_a_header_that_is_none,
    "GET",
    "/",
    "Host: allowed.test\r\nX-Rewrite-URL: /a/../b\r\n",
    Err("400 ambiguous")
);
reads!(
    a_method_in_a_header_that_is_none,
    "GET",
    "/",
    "Host: allowed.test\r\nX-HTTP-Method: yeet\r\n",
    Err("403 denied")
);
reads!(an_echo_in_a_parameter, "POST", "/?_method=TRACE", HOST, Err("403 denied"));
reads!(
    two_spellings,
    "GET",
    "/",
    "Host: allowed.test\r\nx-a: 1\r\nx_a: 2\r\n",
    Err("400 ambiguous")
);

#[test]
fn a_record_says_which_version_was_spoken() {
    let said =
        [HttpVersion::Http10, HttpVersion::Http11, HttpVersion::Http2].map(HttpVersion::as_str);
    assert_eq!(said, ["1.0", "1.1", "2"]);
}

#[test]
fn what_may_change_something_is_told_from_what_may_not() {
    let mutates = |method: &str, websocket, headers: &str| {
        let mut block = Block::default();
        block.read(format!("{HOST}{headers}").as_bytes(), 16).unwrap();
        let asked = RawRequest {
            method: method.as_bytes(),
            target: b"/",
            authority: None,
            headers: &block,
            version: HttpVersion::Http11,
            websocket,
        };
        let to = to("allowed.test", 443);
        ParsedRequest::read(&asked, Scheme::Https, &to, "allowed.test").unwrap().mutates()
    };
    assert!(!mutates("GET", false, ""));
    assert!(!mutates("GET", false, "X-HTTP-Method: HEAD\r\n"));
    assert!(mutates("POST", false, ""));
    assert!(mutates("GET", false, "X-HTTP-Method: DELETE\r\n"));
    assert!(mutates("GET", true, ""));
}

#[test]
fn http2_names_its_host_in_its_own_way() {
    let read = |authority, headers| {
        read_on("GET", "/", Some(authority), headers, &to("allowed.test", 443), "allowed.test")
    };
    assert_eq!(read("allowed.test", ""), Ok("GET /".to_owned()));
    assert_eq!(read("Allowed.Test:443", ""), Ok("GET /".to_owned()));
    assert_eq!(read("evil.test", ""), Err("421 name_mismatch".to_owned()));
    assert_eq!(read("allowed.test", HOST), Ok("GET /".to_owned()));
    assert_eq!(read("allowed.test", "Host: evil.test\r\n"), Err("400 ambiguous".to_owned()));
}

#[test]
fn a_host_without_a_port_means_the_connections() {
    let to = to("allowed.test", 8443);
    let read = |headers| read_on("GET", "/", None, headers, &to, "allowed.test:8443");
    assert_eq!(read("Host: allowed.test\r\n"), Ok("GET /".to_owned()));
    assert_eq!(read("Host: allowed.test:8443\r\n"), Ok("GET /".to_owned()));
    assert_eq!(read("Host: allowed.test:443\r\n"), Err("421 name_mismatch".to_owned()));
}

#[test]
fn grpc_is_told_by_its_content_type() {
    for (kind, grpc) in [
        ("application/grpc", true),
        ("Application/GRPC+proto", true),
        ("application/grpc; x=y", true),
        ("application/grpc-web", false),
        ("application/json", false),
    ] {
        let mut block = Block::default();
        block.read(format!("Content-Type: {kind}\r\n").as_bytes(), 16).unwrap();
        assert_eq!(is_grpc(&block), grpc, "{kind}");
    }
}

proptest! {
    /// Whatever stands in a request, it is read as for the connection's host or
    /// not at all, and what was read reads the same again.
    #[test]
    fn a_reading_is_final(
        target in "(https?://)?[a-z.@:/%?#2eEfF\\\\;~ -]{0,30}",
        host in "[A-Za-z.:@0-9\\[\\] -]{0,20}",
    ) {
        let Ok(first) = read("GET", &target, &format!("Host: {host}\r\n")) else { return Ok(()) };
        let again = first.strip_prefix("GET ").expect("it was a GET");
        prop_assert_eq!(read("GET", again, HOST), Ok(first.clone()));
        let named = Authority::parse(host.trim()).unwrap().destination(443);
        prop_assert_eq!(named, to("allowed.test", 443));
    }

    /// The shortcut for hosts that are spelt as we spell them changes no answer.
    #[test]
    fn the_short_way_and_the_long_way_agree(
        hosts in prop::collection::vec("(allowed|evil|ALLOWED)\\.test\\.?(:443|:80)?", 0..3),
        authority in prop::option::of("(allowed|evil)\\.test(:443)?"),
    ) {
        let headers: String = hosts.iter().map(|host| format!("Host: {host}\r\n")).collect();
        let to = to("allowed.test", 443);
        let read = |spelt| read_on("GET", "/", authority.as_deref(), &headers, &to, spelt);
        prop_assert_eq!(read("allowed.test"), read(""));
    }
}

#[test]
fn a_second_host_is_refused_however_often_it_says_the_same() {
    let to = to("allowed.test", 443);
    let read =
        |authority, headers: &str| read_on("GET", "/", authority, headers, &to, "allowed.test");
    let two = format!("{HOST}{HOST}");
    assert_eq!(read(Some("allowed.test"), &two), Err("400 ambiguous".to_owned()));
    assert_eq!(read(None, &two), Err("400 ambiguous".to_owned()));
    assert!(read(Some("allowed.test"), HOST).is_ok());
    assert!(read(Some("allowed.test"), "").is_ok());
    assert!(read(None, HOST).is_ok());
}
