use proptest::prelude::*;

use super::*;
use crate::sample_request::SampleRequest;

/// What a request with these headers is taken for.
fn read(method: &str, url: &str, headers: &[(&str, &str)]) -> Result<String, String> {
    struct SampleHeaders<'h>(&'h [(&'h str, &'h str)]);
    impl Headers for SampleHeaders<'_> {
        fn each<'h>(&'h self, each: &mut dyn FnMut(&'h [u8], &'h [u8])) {
            for (name, value) in self.0 {
                each(name.as_bytes(), value.as_bytes());
            }
        }
    }
    let target = Target::parse_url(url).unwrap();
    let found = RequestOverrides::read(&SentRequest {
        scheme: target.scheme,
        to: &target.destination,
        method: Method::parse(method).unwrap(),
        query: target.query.as_ref(),
        headers: &SampleHeaders(headers),
    })
    .map_err(|err| err.to_string())?;
    let mut said = found.method.map(|method| method.to_string()).unwrap_or_default();
    for AlternatePath { path, query } in &found.paths {
        let query = query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        said.push_str(&format!(" {path}{query}"));
    }
    Ok(said.trim().to_owned())
}

fn with(name: &str, value: &str) -> Result<String, String> {
    read("GET", "https://allowed.test/a?b=c", &[(name, value)])
}

#[test]
fn the_lists_are_in_order_and_hold_each_name_once() {
    assert!(BY_HEADER.is_sorted_by_key(|(name, _)| *name));
    assert!(BY_PARAMETER.is_sorted_by_key(|(name, _)| *name));
    for (name, replaced) in BY_HEADER {
        for spelling in [name.to_owned(), name.to_uppercase(), name.replace('-', "_")] {
            assert_eq!(replaced_by_header(spelling.as_bytes()), Some(replaced), "{spelling}");
        }
    }
    for name in ["accept", "x-forwarded-for", "x-request-id", "host", "content-type", "x-api-key"] {
        assert_eq!(replaced_by_header(name.as_bytes()), None, "{name}");
    }
}

#[test]
fn a_path_is_judged_with_the_query_it_names_and_with_the_one_that_was_sent() {
    assert_eq!(with("X-Original-URL", "/x"), Ok("/x?b=c".to_owned()));
    assert_eq!(with("X-Original-URL", "/x?y"), Ok("/x?y /x?b=c".to_owned()));
    assert_eq!(with("X-Rewrite-URL", "https://allowed.test/x"), Ok("/x?b=c".to_owned()));
    let both = [("X-Original-URL", "/x"), ("X-Rewrite-URL", "/y")];
    assert_eq!(read("GET", "https://allowed.test/", &both), Ok("/x /y".to_owned()));
}

#[test]
fn only_a_move_has_a_destination() {
    let headers = [("Destination", "/x")];
    assert_eq!(read("MOVE", "https://allowed.test/", &headers), Ok("/x".to_owned()));
    assert_eq!(read("POST", "https://allowed.test/", &headers), Ok(String::new()));
}

#[test]
fn a_parameter_is_an_override_in_every_reading() {
    for query in ["_method=put", "a&%5fmethod=PUT", ".method=put", "_method[]=put", "a;_method=put"]
    {
        let read = read("POST", &format!("https://allowed.test/?{query}"), &[]);
        assert_eq!(read, Ok("PUT".to_owned()), "{query}");
    }
    assert_eq!(read("GET", "https://allowed.test/?method=photos.get", &[]), Ok(String::new()));
    assert_eq!(read("GET", "https://allowed.test/?method=search", &[]), Ok(String::new()));
    assert_eq!(read("GET", "https://allowed.test/?method=delete", &[]), Ok("DELETE".to_owned()));
    assert_eq!(
        read("GET", "https://allowed.test/?rest_route=/x", &[]),
        Ok("/x?rest_route=/x /wp-json/x?rest_route=/x".to_owned())
    );
    assert!(read("GET", "https://allowed.test/?_method=yeet", &[]).is_err());
    let two = "https://allowed.test/?_method=PUT&_method=DELETE";
    assert_eq!(
        read("POST", two, &[]),
        Err("two method overrides name different methods: PUT and DELETE".to_owned())
    );
}

#[test]
fn another_host_port_or_scheme_is_named_in_the_error() {
    for (name, value, named) in [
        ("X-Forwarded-Host", "evil.test", "evil.test:443"),
        ("X-Forwarded-Host", "allowed.test, evil.test", "evil.test:443"),
        ("X-Forwarded-Host", "allowed.test:80", "allowed.test:80"),
        ("X-Forwarded-Port", "80", "port 80"),
        ("X-Forwarded-Proto", "http", "http://"),
        ("CF-Visitor", "{\"scheme\":\"http\"}", "http://"),
        ("Forwarded", "for=a, for=b;HOST=\"evil.test\"", "evil.test:443"),
        ("Forwarded", "proto=http", "http://"),
        ("X-Original-URL", "https://evil.test/a", "https://evil.test:443"),
        ("X-Original-URL", "http://allowed.test/a", "http://allowed.test:80"),
    ] {
        let said = format!("`{named}` was asked for by a header");
        assert_eq!(with(name, value), Err(said), "{name}: {value}");
    }
}

#[test]
fn what_is_the_connections_own_is_no_override() {
    for (name, value) in [
        ("X-Forwarded-Host", "Allowed.Test."),
        ("X-Forwarded-Host", "allowed.test:443"),
        ("X-Forwarded-Proto", "https,https"),
        ("Front-End-Https", "On"),
        ("X-Forwarded-Port", "443"),
        ("X-Forwarded-Prefix", "/"),
        (
            "Forwarded",
            "for=\"[2001:db8::1]:80\";by=_x; proto=HTTPS,, for=1.2.3.4;host=allowed.test",
        ),
    ] {
        assert_eq!(with(name, value), Ok(String::new()), "{name}: {value}");
    }
}

#[test]
fn what_servers_would_read_differently_is_refused() {
    for (name, value) in [
        ("X-Original-URL", "/x, /y"),
        ("X-Original-URL", "/x,y"),
        ("X-Original-URL", "x"),
        ("X-Original-URL", ""),
        ("X-Original-URL", "/a/../b"),
        ("X-Forwarded-Prefix", "/x"),
        ("SCRIPT_NAME", "/x"),
        ("X-Forwarded-Proto", "gopher"),
        ("X-Forwarded-Port", "+443"),
        ("X-Forwarded-Host", ""),
        ("X-Forwarded-Host", "a b"),
        ("X-HTTP-Method-Override", "GET, DELETE"),
        ("Forwarded", "host"),
        ("Forwarded", "for=\"a;host=allowed.test\""),
        ("Forwarded", "host=\"allowed\\.test\""),
    ] {
        assert!(with(name, value).is_err(), "{name}: {value}: {:?}", with(name, value));
    }
}

#[test]
fn a_path_can_be_replaced_only_so_often() {
    let names: Vec<String> = (0..9).map(|n| format!("/{n}")).collect();
    let headers: Vec<(&str, &str)> =
        names.iter().map(|path| ("x-original-url", path.as_str())).collect();
    assert!(read("GET", "https://allowed.test/", &headers[..8]).is_ok());
    assert!(read("GET", "https://allowed.test/", &headers).is_err());
}

proptest! {
    /// Whatever a header says, a host that is read is the connection's.
    #[test]
    fn no_other_host_is_read(value in "[a-z.:,;=\" ]{0,24}(evil|allowed)\\.test[,;\" ]{0,2}") {
        if with("x-forwarded-host", &value).is_ok() {
            prop_assert!(!value.contains("evil"), "{}", value);
        }
        if value.contains("host=") && with("forwarded", &value).is_ok() {
            prop_assert!(!value.contains("host=evil"), "{}", value);
        }
    }

    #[test]
    fn nothing_makes_it_panic(name in "x-(original-url|forwarded-host|forwarded-proto|http-method)", value in any::<String>()) {
        drop(with(&name, &value));
    }
}

#[test]
fn a_sample_request_is_read_alike() {
    let asked = SampleRequest::new("POST", "https://allowed.test/?_method=DELETE").unwrap();
    assert_eq!(asked.question().override_method, Some(Method::Delete));
}

#[test]
fn two_overrides_that_agree_are_one() {
    let twice = [("X-HTTP-Method", "PUT"), ("X-HTTP-Method-Override", "PUT")];
    assert_eq!(read("POST", "https://allowed.test/", &twice), Ok("PUT".to_owned()));
    let other = [("X-HTTP-Method", "PUT"), ("X-HTTP-Method-Override", "PATCH")];
    assert!(read("POST", "https://allowed.test/", &other).is_err());
}

#[test]
fn a_scheme_is_read_from_what_a_proxy_writes() {
    assert_eq!(with("CF-Visitor", r#"{"scheme":"https"}"#), Ok(String::new()));
    let err = with("CF-Visitor", r#"{"scheme":"http"}"#).unwrap_err();
    assert!(err.contains("http://"), "{err}");
}

#[test]
fn a_field_that_overrides_is_told_from_one_that_does_not() {
    for name in ["x-original-url", "X_HTTP_Method_Override", "Forwarded", "cf-visitor"] {
        assert!(is_override_field(name.as_bytes()), "{name}");
    }
    for name in ["accept", "x-request-id", ""] {
        assert!(!is_override_field(name.as_bytes()), "{name}");
    }
}

#[test]
fn what_servers_do_not_read_alike_in_forwarded_is_refused() {
    for value in [
        "host=allowed.test=x",
        "host=a\\b",
        "host=\"a\"b\"",
        "ho st=x",
        "h\tost=x",
        "\"host\"=x",
        "host",
    ] {
        let err = with("Forwarded", value).unwrap_err();
        assert!(err.contains("do not read the header `Forwarded` alike"), "{value}: {err}");
    }
    assert!(with("Forwarded", "for=192.0.2.1;host=allowed.test;proto=https, for=x").is_ok());
}
