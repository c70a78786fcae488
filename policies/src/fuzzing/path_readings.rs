//! Any path, against what servers make of it.
//!
//! The models of servers are written here from what the servers do, and share
//! nothing with the code that judges.

use std::sync::LazyLock;

use crate::{NoFiles, Policy, SampleRequest, Source, Verdict, read};

/// A path that an allow lets pass is inside it to every server, and one that
/// passes a deny is outside it to every server.
pub fn path_readings(input: &[u8]) {
    let Ok(path) = std::str::from_utf8(input) else { return };
    if path.contains(['?', '#']) {
        return;
    }
    let Ok(sample) = SampleRequest::new("GET", &format!("https://h.test/{path}")) else { return };
    // Servers get the path as it was judged.
    let sent = sample.target.path.as_str();
    if ALLOWING.decide(&sample.question()).verdict == Verdict::Allow {
        for (server, segments) in served(sent) {
            let inside = matches!(segments.as_slice(), [first, _] if first == "v1");
            assert!(inside, "`{sent}` passes `allow /v1/*`; {server} serves {segments:?}");
        }
    }
    if DENYING.decide(&sample.question()).verdict == Verdict::Allow {
        for (server, segments) in served(sent) {
            let denied = matches!(segments.as_slice(), [first, _, ..] if first == "admin");
            assert!(!denied, "`{sent}` passes `deny /admin/**`; {server} serves {segments:?}");
        }
    }
}

static ALLOWING: LazyLock<Policy> =
    LazyLock::new(|| policy("allow: [{host: h.test, paths: [/v1/*]}]"));
static DENYING: LazyLock<Policy> = LazyLock::new(|| {
    policy("allow: [{host: h.test, paths: [/**]}]\n  deny: [{host: h.test, paths: [/admin/**]}]")
});

fn policy(rules: &str) -> Policy {
    let text = format!("version: 1\nnet:\n  enabled: true\n  {rules}\n");
    read(&Source::new("fuzz.policy.yaml", text), &NoFiles).unwrap_or_else(|why| panic!("{why}"))
}

/// What each kind of server serves for `path`, as segments.
fn served(path: &str) -> Vec<(&'static str, Vec<String>)> {
    let raw = path.trim_start_matches('/');
    let split = |text: &str| text.split('/').map(str::to_owned).collect::<Vec<_>>();
    let decode = |segments: Vec<String>| segments.iter().map(|s| decoded(s)).collect::<Vec<_>>();
    let strip = |segments: Vec<String>| -> Vec<String> {
        segments.iter().map(|s| s.split(';').next().unwrap_or_default().to_owned()).collect()
    };
    let trim = |segments: Vec<String>| -> Vec<String> {
        segments.iter().map(|s| s.trim_matches(' ').to_owned()).collect()
    };
    let whole = split(&decoded(raw));
    let folded = split(&folded(&decoded(raw)));
    vec![
        ("a router on the raw path", walked(split(raw))),
        ("a router that decodes segments", walked(decode(split(raw)))),
        ("nginx, Go, WSGI: decoded, then divided", walked(whole.clone())),
        ("a servlet container: parameters off, then decoded", walked(decode(strip(split(raw))))),
        ("decoded, divided, parameters off", walked(strip(whole.clone()))),
        ("decoded, divided, trimmed", walked(trim(whole.clone()))),
        ("decoded, divided, parameters off, trimmed", walked(trim(strip(whole)))),
        ("decoded, folded (NFKC), divided", walked(folded.clone())),
        ("decoded, folded, divided, parameters off, trimmed", walked(trim(strip(folded)))),
    ]
}

/// Empty segments and `.` lead nowhere, `..` leads back. A trailing slash is
/// kept as an empty last segment.
fn walked(segments: Vec<String>) -> Vec<String> {
    let trailing = segments.last().is_some_and(String::is_empty);
    let mut way: Vec<String> = Vec::new();
    for segment in segments {
        match segment.as_str() {
            "" | "." => {}
            ".." => drop(way.pop()),
            _ => way.push(segment),
        }
    }
    if trailing && !way.is_empty() {
        way.push(String::new());
    }
    way
}

/// Escapes decoded, once.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match byte {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The part of NFKC that yields slashes, dots, semicolons, spaces and letters.
fn folded(text: &str) -> String {
    let mut folded = String::new();
    for character in text.chars() {
        match character {
            '\u{ff01}'..='\u{ff5e}' => {
                let code = u32::from(character) - 0xfee0;
                folded.push(char::from_u32(code).unwrap_or(character));
            }
            '\u{2024}' | '\u{fe52}' => folded.push('.'),
            '\u{2025}' | '\u{fe30}' => folded.push_str(".."),
            '\u{fe54}' => folded.push(';'),
            '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => {
                folded.push(' ')
            }
            '\u{2100}' => folded.push_str("a/c"),
            '\u{2105}' => folded.push_str("c/o"),
            _ => folded.push(character),
        }
    }
    folded
}
