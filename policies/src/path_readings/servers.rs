//! Whatever a server makes of a path, its readings have it.
//!
//! The servers here are modelled on what they do to bytes, not with the steps
//! that are put to the test.

use icu_normalizer::ComposingNormalizerBorrowed;
use proptest::prelude::*;

use super::{REWRITES, closure, may_have_others};
use crate::{NoFiles, Policy, RequestPath, SampleRequest, Source, Verdict, read};

type Server = fn(&[u8]) -> Vec<u8>;

/// Each takes a path as it came and gives the one it serves.
const SERVERS: [(&str, Server); 11] = [
    ("Express, which compares what was sent", |sent| sent.to_vec()),
    ("WSGI, nginx and PHP, which decode", decoded),
    ("Go, which decodes and cleans", |sent| cleaned(&decoded(sent))),
    ("ASP.NET Core, which leaves slashes escaped", |sent| {
        let kept = String::from_utf8(sent.to_vec()).unwrap().replace("%2F", "%252F");
        decoded(kept.as_bytes())
    }),
    ("Tomcat, which drops parameters and decodes", |sent| decoded(&without_parameters(sent))),
    ("a filter that decodes and drops parameters", |sent| without_parameters(&decoded(sent))),
    ("old Jetty, which ends at a parameter", |sent| decoded(until(sent, b";"))),
    ("a proxy that hands over what it decoded", |sent| {
        let line = decoded(sent);
        until(&line, b"?#").trim_ascii_end().to_vec()
    }),
    ("a form decoder that trims", |sent| {
        let spaced: Vec<u8> = sent.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
        by_segment(&decoded(&spaced), |segment| segment.trim_ascii())
    }),
    ("Windows, which ignores ends of names", |sent| {
        by_segment(&decoded(sent), |segment| {
            let streams = segment.windows(2).any(|pair| pair == b":$");
            let name = if streams { until(segment, b":") } else { segment };
            let end = name.iter().rposition(|b| !b". ".contains(b)).map_or(0, |last| last + 1);
            &name[..end]
        })
    }),
    ("a framework that normalises text", |sent| {
        let text = String::from_utf8(decoded(sent)).unwrap();
        ComposingNormalizerBorrowed::new_nfkc().normalize(&text).into_owned().into_bytes()
    }),
];

fn decoded(sent: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = sent;
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *byte == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(value) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            bytes.push(value);
            rest = &after[2..];
        } else {
            bytes.push(*byte);
            rest = after;
        }
    }
    bytes
}

fn by_segment(path: &[u8], change: fn(&[u8]) -> &[u8]) -> Vec<u8> {
    path.split(|b| *b == b'/').map(change).collect::<Vec<_>>().join(&b'/')
}

fn without_parameters(path: &[u8]) -> Vec<u8> {
    by_segment(path, |segment| until(segment, b";"))
}

fn until<'b>(bytes: &'b [u8], ends: &[u8]) -> &'b [u8] {
    bytes.split(|b| ends.contains(b)).next().unwrap()
}

fn cleaned(path: &[u8]) -> Vec<u8> {
    let mut clean: Vec<&[u8]> = Vec::new();
    for segment in path.split(|b| *b == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => drop(clean.pop()),
            segment => clean.push(segment),
        }
    }
    let slash: &[u8] = if path.ends_with(b"/") && !clean.is_empty() { b"/" } else { b"" };
    [b"/", clean.join(&b'/').as_slice(), slash].concat()
}

/// What is asked for whoever asks plainly for what is served.
fn plainly(served: &[u8]) -> String {
    let spell = |byte: &u8| match byte {
        byte if byte.is_ascii_graphic() && !b"?#".contains(byte) => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    served.iter().map(spell).collect()
}

fn policy(rules: &[(usize, usize)]) -> Policy {
    const PATTERNS: [&str; 9] =
        ["/**", "/v1/*", "/v1/**", "/admin/**", "/admin", "/*/admin", "/v1/*/b", "/a*", "/b"];
    let list = |verdict: usize| -> String {
        let of = rules.iter().filter(|rule| rule.0 % 4 == verdict);
        let written =
            of.map(|rule| format!("{{host: h.example, paths: ['{}']}}", PATTERNS[rule.1]));
        written.collect::<Vec<_>>().join(", ")
    };
    // Half of them allow, or little would be shown.
    let allow = [list(0), list(3)].concat().replace("}{", "}, {");
    let text = format!(
        "version: 1\nnet: {{enabled: true, allow: [{allow}], ask: [{}], deny: [{}]}}\n",
        list(1),
        list(2)
    );
    read(&Source::new("p", text), &NoFiles).unwrap()
}

fn verdict(policy: &Policy, path: &str) -> Verdict {
    let asked = SampleRequest::new("GET", &format!("https://h.example{path}"));
    asked.map_or(Verdict::Deny, |asked| policy.decide(&asked.question()).verdict)
}

fn spelling() -> impl Strategy<Value = String> {
    let slash = prop::sample::select(vec!["/", "/", "/", "%2F", "%EF%BC%8F"]);
    let before = prop::sample::select(vec!["", "", "", "", "%20", "+"]);
    let name = prop::sample::select(vec!["v1", "admin", "ADMIN", "a", "b", "%EF%BD%81dmin", "x.y"]);
    let after = prop::sample::select(vec![
        "",
        "",
        "",
        "",
        "",
        ";x",
        ";",
        "%3Bx",
        "%20",
        "+",
        "%2B",
        ".",
        "%3Fx",
        "%23x",
        "::$DATA",
        "%CD%BE",
        "%C2%A0",
        "%EF%BC%9F",
    ]);
    let first = prop::sample::select(vec!["/v1", "/admin", "/a", "/b", ""]);
    let segment = (slash, before, name, after).prop_map(|(s, b, n, a)| format!("{s}{b}{n}{a}"));
    let segments = proptest::collection::vec(segment, 1..4);
    (first, segments).prop_map(|(first, segments)| format!("{first}{}", segments.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(700))]

    /// Two servers in a row, each with a reading of its own.
    #[test]
    fn what_is_allowed_is_allowed_as_whatever_is_served(
        rules in proptest::collection::vec((0..4usize, 0..9usize), 1..5),
        spelling in spelling(),
    ) {
        let policy = policy(&rules);
        let Ok(path) = RequestPath::parse(&spelling) else { return Ok(()) };
        if verdict(&policy, path.as_str()) != Verdict::Allow {
            return Ok(());
        }
        for (front, server) in SERVERS {
            let served = plainly(&server(path.as_str().as_bytes()));
            prop_assert_eq!(verdict(&policy, &served), Verdict::Allow, "{} by {}: {}", path, front, served);
            for (back, server) in SERVERS {
                let served = plainly(&server(served.as_bytes()));
                prop_assert_eq!(
                    verdict(&policy, &served), Verdict::Allow, "{} by {}, {}: {}", path, front, back, served
                );
            }
        }
    }

    #[test]
    fn the_quick_look_misses_no_reading(pieces in proptest::collection::vec(
        prop_oneof![Just("/"), Just("."), Just("%20"), Just("%2F"), Just("+"), Just(";"), Just(":$"), Just(":"), Just("a"),
            Just("%2B"), Just("%3F"), Just("%23"), Just("%25"), Just("%C3%A9"), Just("%EF%BD%81")], 1..7))
    {
        let path = format!("/{}", pieces.concat());
        if let Ok(path) = RequestPath::parse(&path) {
            let all = closure(path.as_str(), &REWRITES).unwrap();
            prop_assert!(all.is_empty() || may_have_others(path.as_str()), "{}", path);
            prop_assert_eq!(all.len() + 1, path.readings().count());
        }
    }

    /// Reading a reading again leads to nothing new.
    #[test]
    fn readings_of_readings_are_readings(spelling in spelling()) {
        if let Ok(path) = RequestPath::parse(&spelling) {
            for reading in path.readings() {
                let again = RequestPath::parse(reading).unwrap();
                prop_assert_eq!(again.as_str(), reading);
                prop_assert!(again.readings().all(|one| path.readings().any(|known| known == one)));
            }
        }
    }
}
