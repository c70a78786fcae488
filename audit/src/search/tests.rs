//! Everything that fits is found, nothing else is, and no file can hurt.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::event::{DnsFacts, EventKind, Operator, RequestFacts, VerdictRecord};
use crate::{
    DecisionRecord, DestinationRecord, EntryOutcome, EventBody, Http, Log, Options, SyncPolicy,
    Time, TrafficRecord,
};

#[test]
fn each_filter_finds_its_own() {
    let dir = private_dir();
    write_run(dir.path(), "run-1");
    let at = |time: &str| Some(time.parse::<Time>().unwrap());
    let some = |text: &str| Some(text.to_owned());
    let all = SearchQuery::default;

    finds(dir.path(), all(), "log_started /a /b /c lookup.test operator log_closed");
    finds(
        dir.path(),
        SearchQuery { run: some("run-1"), kinds: vec![EventKind::Request], ..all() },
        "/a /b /c",
    );
    finds(dir.path(), SearchQuery { run: some("run"), ..all() }, "");
    finds(dir.path(), host("api.github.com"), "/a");
    finds(dir.path(), host("*.github.com"), "/a");
    finds(dir.path(), host("github.com"), "/c");
    finds(dir.path(), host("lookup.test"), "lookup.test");
    finds(dir.path(), SearchQuery { verdict: Some(VerdictRecord::Deny), ..all() }, "/b");
    finds(dir.path(), SearchQuery { rule: some("allow[0]"), ..all() }, "/a /c");
    finds(dir.path(), SearchQuery { reason: some("no_rule"), ..all() }, "/b");
    // A method's name in a path is not a method.
    finds(dir.path(), SearchQuery { method: some("POST"), ..all() }, "/b");
    finds(dir.path(), SearchQuery { status: "403".parse().ok(), ..all() }, "/b");
    finds(dir.path(), SearchQuery { status: "2xx".parse().ok(), ..all() }, "/a /c");
    finds(
        dir.path(),
        SearchQuery { kinds: vec![EventKind::Dns, EventKind::Operator], ..all() },
        "lookup.test operator",
    );
    finds(dir.path(), SearchQuery { text: some("\u{202e}q=\"1\""), ..all() }, "/c");
    finds(dir.path(), SearchQuery { text: some("POST"), ..all() }, "/a /b");
    finds(dir.path(), SearchQuery { until: at("2026-03-01T00:00:00Z"), ..all() }, "");
    finds(
        dir.path(),
        SearchQuery { since: at("2026-03-01T00:00:00Z"), method: some("GET"), ..all() },
        "/a /c",
    );
}

#[test]
fn at_least_so_many_bytes_are_that_many_or_more() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    for (path, sent, received) in [("/a", 9, 20), ("/b", 10, 19), ("/c", 11, 21)] {
        let mut entry = log.begin(RequestFacts::default()).unwrap();
        entry.http.path = Some(path.into());
        entry.traffic = TrafficRecord { sent, received };
        entry.close(EntryOutcome::Relayed);
    }
    log.close_blocking().unwrap();
    finds(dir.path(), SearchQuery { min_sent: Some(10), ..SearchQuery::default() }, "/b /c");
    finds(dir.path(), SearchQuery { min_received: Some(20), ..SearchQuery::default() }, "/a /c");
}

#[test]
fn a_pipe_in_the_place_of_a_log_is_told_and_not_waited_for() {
    let dir = private_dir();
    write_run(dir.path(), "run-1");
    let (log, pipe) = (dir.path().join("audit.jsonl"), dir.path().join("audit.000001.jsonl"));
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let (describe, seen) = std::sync::mpsc::channel();
    let folder = dir.path().to_owned();
    std::thread::spawn(move || {
        let found = search(&folder, &SearchQuery::default()).unwrap();
        let mut follow = Follow::from_start(&folder, &SearchQuery::default());
        describe.send((found.collect::<Vec<_>>(), follow.poll()))
    });
    let seen = seen.recv_timeout(std::time::Duration::from_secs(30));
    let (found, followed) = seen.expect("nobody writes into the pipe");
    for first in [found.first(), followed.as_ref()] {
        let Some(Err(Skipped::Read { file, source })) = first else { panic!("{first:?}") };
        assert_eq!((file, source.to_string()), (&pipe, "it is not a regular file".to_owned()));
    }
    assert!(found.iter().flatten().any(|found| *found.file == *log), "the rest is searched");
}

#[test]
fn the_two_lines_of_an_entry_are_found_by_its_id() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut entry = log.begin(RequestFacts::default()).unwrap();
    let id = Some(entry.id());
    runtime.block_on(entry.opened()).unwrap();
    log.begin(RequestFacts::default()).unwrap().close(EntryOutcome::Relayed);
    entry.close(EntryOutcome::Relayed);
    log.close_blocking().unwrap();
    let found = search(dir.path(), &SearchQuery { id, ..SearchQuery::default() }).unwrap();
    let kinds: Vec<_> = found.map(|found| found.unwrap().event().unwrap().what.kind()).collect();
    assert_eq!(kinds, [EventKind::Opened, EventKind::Request]);
}

#[test]
fn runs_are_searched_in_the_order_of_their_names() {
    let state = private_dir();
    for run in ["run-2", "run-1"] {
        write_run(&state.path().join("runs").join(run), run);
    }
    fs::create_dir(state.path().join("runs/empty")).unwrap();
    for path in [state.path().to_owned(), state.path().join("runs")] {
        let runs: Vec<_> = search(&path, &host("*.github.com"))
            .unwrap()
            .map(|found| found.unwrap().event().unwrap().run.as_str().to_owned())
            .collect();
        assert_eq!(runs, ["run-1", "run-2"]);
    }
    finds(&state.path().join("runs/run-1/audit.jsonl"), host("github.com"), "/c");
    let err = search(&state.path().join("runs/empty"), &SearchQuery::default()).unwrap_err();
    assert!(matches!(err, SearchError::NoLog { .. }), "{err}");
}

#[test]
fn a_hostile_line_is_reported_and_the_search_goes_on() {
    let dir = private_dir();
    write_run(dir.path(), "run-1");
    let file = dir.path().join("audit.jsonl");
    let good = fs::read_to_string(&file).unwrap();
    let (first, rest) = good.split_once('\n').unwrap();
    let bidi = first.replace("run-1", "run-1\u{202e}");
    let long = "x".repeat(line::MAX_LINE_BYTES + 1);
    let version = first.replace("\"v\":1", "\"v\":9");
    let bad = format!("{first}\n[]\n{bidi}\n{long}\n\n{version}\n{rest}{{\"v\":1,");
    fs::write(&file, bad).unwrap();

    let mut found = 0;
    let mut skipped = Vec::new();
    for seen in search(dir.path(), &SearchQuery::default()).unwrap() {
        match seen {
            Ok(_) => found += 1,
            Err(Skipped::Line { place, why, .. }) => skipped.push(format!("{}: {why}", place.line)),
            Err(why) => panic!("{why}"),
        }
    }
    assert_eq!(found, 7);
    expect_test::expect![[r#"
        2: not an audit event: invalid length 0, expected an object at line 1 column 2
        3: not an audit event: not printable ASCII
        4: a line of 262145 bytes; the longest that is ever written has 262144
        5: not an audit event: EOF while parsing a value at line 1 column 0
        6: format version 9; this program reads version 1"#]]
    .assert_eq(&skipped.join("\n"));
}

#[test]
fn a_line_with_a_number_for_a_word_is_told_what_should_be_there() {
    let dir = private_dir();
    write_run(dir.path(), "run-1");
    let file = dir.path().join("audit.jsonl");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, good.replacen("\"run-1\"", "1", 1)).unwrap();
    let skipped: Vec<_> =
        search(dir.path(), &SearchQuery::default()).unwrap().filter_map(Result::err).collect();
    let [Skipped::Line { why, .. }] = &skipped[..] else { panic!("{skipped:?}") };
    let describe = "not an audit event: invalid type: integer `1`, expected a string at ";
    assert!(why.to_string().starts_with(describe), "{why}");
}

#[test]
fn a_file_that_cannot_be_read_is_reported_and_the_others_are_searched() {
    let state = private_dir();
    write_run(&state.path().join("run-1"), "run-1");
    write_run(&state.path().join("run-2"), "run-2");
    let file = state.path().join("run-1/audit.jsonl");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let seen: Vec<_> = search(state.path(), &host("github.com")).unwrap().collect();
    assert!(matches!(&seen[0], Err(Skipped::Read { file: named, .. }) if *named == file));
    assert!(matches!(&seen[1..], [Ok(_)]), "{seen:?}");
}

#[test]
fn following_crosses_segments_and_loses_nothing() {
    let dir = private_dir();
    let mut follow = Follow::from_start(&dir.path().join("log"), &operators());
    assert!(follow.poll().is_none(), "the log does not exist yet");
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let mut no_folder = Follow::from_start(&file, &operators());
    assert!(matches!(no_folder.poll(), Some(Err(_))), "and there it never will");

    let options = Options { sync: SyncPolicy::Never, segment_bytes: 700, ..Options::new("run-1") };
    let (log, _) = Log::open(&dir.path().join("log"), options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut seen = Vec::new();
    for n in 0..40 {
        let action = format!("action-{n}").into();
        let note = Operator { action, ..Operator::default() };
        runtime.block_on(log.record_safely(note)).unwrap();
        // Sometimes often, sometimes after several rotations.
        if n % 7 < 3 {
            seen.extend(
                std::iter::from_fn(|| follow.poll()).map(|found| action_of(&found.unwrap())),
            );
        }
    }
    log.close_blocking().unwrap();
    seen.extend(std::iter::from_fn(|| follow.poll()).map(|found| action_of(&found.unwrap())));
    assert_eq!(seen, (0..40).map(|n| format!("action-{n}")).collect::<Vec<_>>());
    assert!(crate::segment::Segment::list(&dir.path().join("log")).unwrap().len() > 5);
}

/// A segment is renamed when it is full, which may be just when it is looked for.
#[test]
fn what_is_written_meanwhile_is_found_in_order_and_followed() {
    const EVENTS: usize = 400;
    let dir = private_dir();
    let options = Options { sync: SyncPolicy::Never, segment_bytes: 700, ..Options::new("run-1") };
    let (log, _) = Log::open(dir.path(), options).unwrap();
    let writing = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for n in 0..EVENTS {
            let note = Operator { action: format!("action-{n}").into(), ..Operator::default() };
            runtime.block_on(log.record_safely(note)).unwrap();
        }
        log.close_blocking().unwrap();
    });
    let expected: Vec<_> = (0..EVENTS).map(|n| format!("action-{n}")).collect();
    let mut follow = Follow::from_start(dir.path(), &operators());
    let mut followed = Vec::new();
    while followed.len() < EVENTS {
        followed
            .extend(std::iter::from_fn(|| follow.poll()).map(|found| action_of(&found.unwrap())));
        assert!(expected.starts_with(&followed), "{followed:?}");
        let found: Vec<_> = search(dir.path(), &operators())
            .unwrap()
            .map(|found| action_of(&found.unwrap()))
            .collect();
        assert!(expected.starts_with(&found), "{found:?}");
        crate::verify(dir.path(), &[]).unwrap();
    }
    writing.join().unwrap();
}

#[test]
fn a_log_that_is_with_its_gateway_is_found_and_followed_home() {
    let state = private_dir();
    let run = state.path().join("run-1");
    let with_gateway = run.join(crate::segment::GATEWAY_FOLDER);
    fs::create_dir_all(&with_gateway).unwrap();
    fs::set_permissions(&with_gateway, fs::Permissions::from_mode(0o700)).unwrap();
    write_run(&with_gateway, "run-1");
    finds(state.path(), host("github.com"), "/c");

    let mut follow = Follow::from_start(&run, &operators());
    assert_eq!(std::iter::from_fn(|| follow.poll()).count(), 1);
    // The run ends and its log comes home; nothing is seen twice.
    fs::rename(with_gateway.join("audit.jsonl"), run.join("audit.jsonl")).unwrap();
    fs::remove_dir(&with_gateway).unwrap();
    assert!(follow.poll().is_none());
    finds(state.path(), host("github.com"), "/c");
}

#[test]
fn following_from_the_end_waits_for_the_rest_of_a_line() {
    let dir = private_dir();
    write_run(dir.path(), "run-1");
    let line = fs::read_to_string(dir.path().join("audit.jsonl")).unwrap();
    let (half, rest) = line.lines().find(|line| line.contains("operator")).unwrap().split_at(50);
    let follow = Follow::from_end(dir.path(), &operators()).unwrap();
    let mut writer = OpenOptions::new().append(true).open(dir.path().join("audit.jsonl")).unwrap();

    let mut steps = [half.to_owned(), rest.to_owned(), "\n".to_owned()].into_iter();
    let mut waits = 0;
    let found: Vec<_> = follow
        .waiting(|| {
            waits += 1;
            match steps.next() {
                Some(step) => {
                    writer.write_all(step.as_bytes()).unwrap();
                    std::ops::ControlFlow::Continue(())
                }
                None => std::ops::ControlFlow::Break(()),
            }
        })
        .collect();
    assert_eq!((found.len(), waits), (1, 4));
    assert_eq!(action_of(found[0].as_ref().unwrap()), "reload");
}

#[test]
fn a_filter_that_makes_no_sense_says_what_would() {
    for written in ["", "*", "*.", "a.*.b", ".example.com", "**.example.com", "*example.com"] {
        let err = written.parse::<HostFilter>().unwrap_err();
        assert!(
            err.to_string().starts_with(&format!("`{written}` names no hosts: write")),
            "{err}"
        );
    }
    for written in ["", "xx", "40", "4x", "0xx", "+404", "1000", "44xx"] {
        let err = written.parse::<StatusFilter>().unwrap_err();
        assert!(err.to_string().starts_with(&format!("`{written}` is no status: write")), "{err}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_make_the_search_panic(bytes: Vec<u8>, word: String) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("audit.jsonl"), &bytes).unwrap();
        let query = SearchQuery { text: Some(word), ..SearchQuery::default() };
        for query in [SearchQuery::default(), query] {
            drop(search(dir.path(), &query).unwrap().collect::<Vec<_>>());
        }
    }

    /// The look at the bytes must never hide what the values would show.
    #[test]
    fn any_word_is_found_in_the_field_it_was_written_to(word in any::<String>()) {
        let dir = private_dir();
        let options = Options { sync: SyncPolicy::Never, ..Options::new(word.as_str()) };
        let (log, _) = Log::open(dir.path(), options).unwrap();
        let mut entry = log.begin(RequestFacts::default()).unwrap();
        entry.http.method = Some(word.as_str().into());
        entry.decision.rule = Some(word.as_str().into());
        let (run, kept) = (log.run().to_string(), entry.http.method.clone().unwrap());
        entry.close(EntryOutcome::Relayed);
        log.close_blocking().unwrap();
        let query = SearchQuery {
            run: Some(run),
            method: Some(kept.to_string()),
            rule: Some(word.clone()),
            text: Some(word),
            ..SearchQuery::default()
        };
        prop_assert_eq!(search(dir.path(), &query).unwrap().filter(Result::is_ok).count(), 1);
    }
}

fn write_run(dir: &Path, run: &str) {
    let (log, _) = Log::open(dir, Options::new(run)).unwrap();
    let close = |host: &str, method: &str, path: &str, query: &str, allowed: bool| {
        let mut entry = log.begin(RequestFacts::default()).unwrap();
        entry.destination = DestinationRecord::new(host, 443);
        entry.http = Http {
            method: Some(method.into()),
            path: Some(path.into()),
            query: Some(query.into()),
            status: Some(if allowed { 200 } else { 403 }),
            ..Http::default()
        };
        entry.decision = DecisionRecord {
            verdict: Some(if allowed { VerdictRecord::Allow } else { VerdictRecord::Deny }),
            rule: allowed.then(|| "allow[0]".into()),
            reason: (!allowed).then(|| "no_rule".into()),
            ..DecisionRecord::default()
        };
        entry.close(if allowed { EntryOutcome::Relayed } else { EntryOutcome::Refused });
    };
    close("api.github.com", "GET", "/a", "as=POST", true);
    close("pastebin.test", "POST", "/b", "", false);
    close("github.com", "GET", "/c", "\u{202e}q=\"1\"", true);
    log.record(DnsFacts { name: Some("lookup.test.".into()), ..DnsFacts::default() }).unwrap();
    log.record(Operator { action: "reload".into(), ..Operator::default() }).unwrap();
    log.close_blocking().unwrap();
}

fn host(written: &str) -> SearchQuery {
    SearchQuery { host: Some(written.parse().unwrap()), ..SearchQuery::default() }
}

fn operators() -> SearchQuery {
    SearchQuery { kinds: vec![EventKind::Operator], ..SearchQuery::default() }
}

fn action_of(found: &FoundEvent) -> String {
    let EventBody::Operator(operator) = found.event().unwrap().what else { panic!("{found:?}") };
    operator.action.to_string()
}

/// The only function here that knows what an answer looks like.
#[track_caller]
fn finds(path: &Path, query: SearchQuery, expected: &str) {
    let found: Vec<_> = search(path, &query)
        .unwrap()
        .map(|found| match found.unwrap().event().unwrap().what {
            EventBody::Request(request) => request.http.path.unwrap().to_string(),
            EventBody::Dns(dns) => dns.name.unwrap().as_str().trim_end_matches('.').to_owned(),
            other => other.kind().to_string(),
        })
        .collect();
    assert_eq!(found.join(" "), expected);
}

fn private_dir() -> TempDir {
    let private = fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(private).tempdir().unwrap()
}

#[test]
fn until_a_moment_is_before_it() {
    let dir = private_dir();
    write_run(dir.path(), "run-1");
    let first = search(dir.path(), &SearchQuery::default()).unwrap().next().unwrap().unwrap();
    let first = first.event().unwrap().time;
    finds(dir.path(), SearchQuery { until: Some(first), ..SearchQuery::default() }, "");
    let later = Some("2999-01-01T00:00:00Z".parse().unwrap());
    let everything = "log_started /a /b /c lookup.test operator log_closed";
    finds(dir.path(), SearchQuery { until: later, ..SearchQuery::default() }, everything);
}

#[test]
fn a_host_is_named_whole_or_by_what_is_above_it() {
    let fits = |filter: &str, host: &str| filter.parse::<HostFilter>().unwrap().fits(host);
    assert!(fits("github.com", "github.com") && !fits("github.com", "api.github.com"));
    assert!(fits("*.github.com", "api.github.com") && fits("*.github.com", "a.b.github.com"));
    assert!(!fits("*.github.com", "github.com") && !fits("*.github.com", "notgithub.com"));
}
