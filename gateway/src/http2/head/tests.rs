use policies::HostName;

use super::*;

fn head(uri: &str, fields: &[(&str, &str)]) -> StreamHead {
    let mut request = HttpRequest::get(uri);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    StreamHead::received(request.body(()).unwrap().into_parts().0)
}

fn all(headers: &dyn Headers) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut all = Vec::new();
    headers.each(&mut |name, value| all.push((text(name), text(value))));
    all
}

#[test]
fn a_head_is_as_large_as_what_its_sender_spent_on_it() {
    // GET, the target, the authority, and each name and value.
    let head = head("https://allowed.test/a?b=c", &[("x-a", "12345"), ("te", "trailers")]);
    assert_eq!(head.size(), 3 + 6 + 12 + (3 + 5) + (2 + 8));
    assert_eq!(fields_size(&head.0.headers), 18);
    assert_eq!(super::fields_size(&HeaderMap::new()), 0);
}

#[test]
fn a_head_may_have_so_many_fields_and_bytes_and_no_more() {
    let head = head("https://allowed.test/", &[("x-a", "1"), ("x-b", "2")]);
    let size = head.size();
    assert!(head.check(2, size).is_ok());
    assert!(matches!(head.check(1, size), Err(Refusal::HeadTooLarge { .. })));
    assert!(matches!(head.check(2, size - 1), Err(Refusal::HeadTooLarge { .. })));
    assert!(matches!(head.check(0, 0), Err(Refusal::HeadTooLarge { limit: 0 })));
}

#[test]
fn a_head_that_is_not_for_https_has_no_reading() {
    let refusal = head("http://allowed.test/", &[]).check(9, 999).unwrap_err();
    assert!(matches!(refusal, Refusal::Ambiguous(_)), "{refusal}");
}

#[test]
fn every_field_that_will_be_sent_is_shown_to_policy() {
    let fields = [("x-a", "1"), ("x-b", "2"), ("x-a", "3")];
    let head = head("https://allowed.test/", &[&fields[..], &[("x-sluice-code", "x")]].concat());
    let mut shown = all(&head);
    shown.sort();
    assert_eq!(
        shown,
        [("x-a", "1"), ("x-a", "3"), ("x-b", "2")].map(|(n, v)| (n.into(), v.into()))
    );
    let mut values = Vec::new();
    head.values("x-a", &mut |value| values.push(value.to_vec()));
    assert_eq!(values, [b"1", b"3"]);
    assert_eq!(all(&ResponseHeaders(&head.0.headers)).len(), 3);
}

#[test]
fn the_path_and_the_query_that_were_judged_go_out() {
    let to = Destination { host: HostName::parse("allowed.test").unwrap().into(), port: 443 };
    for (sent, judged, goes_out) in [
        ("/a?x=1", "/a?x=1", "/a?x=1"),
        ("/%61?x=1", "/%61?x=1", "/a?x=1"),
        ("/a?x=1", "/a?x=2", "/a?x=2"),
        ("/a?x=1", "/b?x=1", "/b?x=1"),
        ("/a?x=1", "/a", "/a"),
        ("/a", "/a?", "/a?"),
    ] {
        let url = |path: &str| head(&format!("https://allowed.test{path}"), &[]);
        let (sent, judged) = (url(sent), url(judged));
        let read = ParsedRequest::read(&judged.raw(), policies::Scheme::Https, &to, "allowed.test");
        let told = path_and_query(&sent.0, &read.unwrap());
        assert_eq!(told.as_str(), goes_out);
    }
}

#[test]
fn an_announced_length_is_a_number() {
    let announced = |value| head("https://allowed.test/", &[("content-length", value)]).announced();
    assert_eq!((announced("12"), announced("x")), (Some(12), None));
    assert_eq!(head("https://allowed.test/", &[]).announced(), None);
}
