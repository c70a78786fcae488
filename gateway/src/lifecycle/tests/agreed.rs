//! What `explain` says, what `lint` says and what the gateway does are the same.

use std::collections::BTreeSet;

use policies::{HeaderName, NoFiles, NotDoneYet, Policy, SampleRequest, Source, Verdict};

use super::world::{World, read_answer, send};

const POLICIES: [&str; 5] = [
    "allow: [{host: plain.test, protocol: http, methods: [GET, HEAD, PUT], paths: [/a/**, /b, /c/**]}]",
    "allow: [{host: plain.test, protocol: http, methods: [GET, POST, PUT]}]
  deny: [{host: plain.test, protocol: http, paths: [/a/**, '/*/b']}, {host: plain.test, protocol: http, query: {x: '1'}}]",
    "allow: [{host: plain.test, protocol: http, methods: [GET], headers: {x-mode: fast}}, {host: plain.test, protocol: http, methods: [DELETE], paths: [/b/*]}]
  ask: [{host: plain.test, protocol: http, methods: [POST], paths: [/a/**]}]",
    "allow: [{host: plain.test, protocol: http, methods: [GET], paths: [/a, /a/*], query: {x: '*'}}, {host: plain.test, protocol: http, websocket: true, paths: [/b]}]
  deny: [{host: plain.test, protocol: http, methods: [GET], paths: [/a/b]}]",
    "allow: [{host: plain.test, protocol: http, methods: [GET], paths: [/a/**]}, {host: plain.test, protocol: http, methods: [GET], paths: [/a/b]}]
  deny: [{host: plain.test, protocol: http, paths: [/a/**]}]",
];
const METHODS: [&str; 5] = ["GET", "HEAD", "POST", "PUT", "DELETE"];
const PATHS: [&str; 16] = [
    "/", "/a", "/a/", "/a/b", "/a%2Fb", "/a/b/c", "/b", "/b/", "/b/x", "/B", "/c/b", "/;x/a/b",
    "/a;x/b", "/%61/b", "/a/%20b", "/c",
];
const QUERIES: [&str; 5] = ["", "?x=1", "?x=2", "?X=1", "?x[]=1"];
const HEADERS: [(&str, &str); 7] = [
    ("accept", "a"),
    ("x-mode", "fast"),
    ("accept", "b"),
    ("x_mode", "fast"),
    ("x-mode", "slow"),
    ("accept", "c"),
    ("x-http-method-override", "DELETE"),
];

fn read(net: &str) -> (String, Policy) {
    let text = format!("version: 1\nname: test\nnet:\n  enabled: true\n  {net}\n");
    let policy = policies::read(&Source::new("test.policy.yaml", text.as_str()), &NoFiles);
    (text, policy.unwrap_or_else(|problems| panic!("{problems}")))
}

/// Many questions, in an order of their own: each is asked once.
fn questions() -> impl Iterator<Item = (&'static str, String, (&'static str, &'static str))> {
    METHODS.into_iter().flat_map(|method| {
        PATHS.into_iter().flat_map(move |path| {
            QUERIES.into_iter().enumerate().map(move |(number, query)| {
                let header = HEADERS[(number + path.len()) % HEADERS.len()];
                (method, format!("{path}{query}"), header)
            })
        })
    })
}

#[tokio::test]
async fn explain_lint_and_gateway_agree_on_two_thousand_questions() {
    let (mut asked, mut allowed) = (0, 0);
    for net in POLICIES {
        let (text, policy) = read(net);
        let lint = policy.lint();
        let never: BTreeSet<&str> = lint
            .iter()
            .filter(|finding| finding.code == "unreachable")
            .filter_map(|finding| finding.rule.as_deref())
            .collect();
        let world = World::under(&text, |_| super::world::OK).await;
        for (method, target, (name, value)) in questions() {
            let url = format!("http://plain.test{target}");
            let question = SampleRequest::new(method, &url).and_then(|question| {
                question.with_headers([(HeaderName::parse(name).unwrap(), value.to_owned())])
            });
            let said = question.map(|question| {
                let explained = policy.explain(&question).decision;
                let rule = explained.rule_id().unwrap_or_default().to_owned();
                assert!(!never.contains(rule.as_str()), "{rule} decides {method} {target}: {net}");
                let code = explained.not_done_yet().map_or(explained.code(), NotDoneYet::code);
                let passes =
                    explained.verdict == Verdict::Allow && explained.not_done_yet().is_none();
                (passes, code)
            });
            let mut stream = world.tunnel("plain.test:80").await;
            let length =
                if method == "POST" || method == "PUT" { "Content-Length: 0\r\n" } else { "" };
            let head = format!(
                "{method} {target} HTTP/1.1\r\nHost: plain.test\r\n{name}: {value}\r\n{length}\
                 Connection: close\r\n\r\n"
            );
            send(&mut stream, &head).await;
            let answer = read_answer_to(method, &mut stream).await;
            let done = (answer.status() == 200, answer.header("x-sluice-code").unwrap_or_default());
            match said {
                Ok((true, _)) => assert!(done.0, "{head}\n{net}\n{done:?}"),
                Ok((false, code)) => assert_eq!(done, (false, code), "{head}\n{net}"),
                // What has no reading has no explanation, and never passes.
                Err(why) => assert!(!done.0, "{head}\n{net}\n{why}"),
            }
            asked += 1;
            allowed += usize::from(done.0);
        }
    }
    assert_eq!(asked, 2_000);
    assert!((100..1_900).contains(&allowed), "{allowed} passed: these questions prove little");
}

/// An answer to HEAD has a length and no body.
async fn read_answer_to(method: &str, stream: &mut tokio::net::TcpStream) -> super::world::Answer {
    if method == "HEAD" {
        let head = super::world::read_head(stream).await;
        return super::world::Answer { head, body: String::new() };
    }
    read_answer(stream).await
}
