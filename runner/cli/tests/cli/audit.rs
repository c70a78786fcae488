//! `sluice audit tail`, `search`, `review`, `seal`, `show` and `export`.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use audit::event::{DecisionRecord, DestinationRecord, Http};
use audit::{
    EntryOutcome, Log, Options, RequestFacts, SigningKey, Time, TrafficRecord, VerdictRecord,
};
use expect_test::expect;

use crate::world::{Ran, World};

/// One request, as briefly as a test can say it.
pub(crate) struct Asked<'a>(
    pub(crate) VerdictRecord,
    pub(crate) &'a str,
    pub(crate) &'a str,
    pub(crate) &'a str,
    pub(crate) u16,
);

impl World {
    pub(crate) fn run_folder(&self, run: &str) -> PathBuf {
        self.state().join("runs").join(run)
    }

    /// A run that made these requests, closed in order.
    pub(crate) fn record(&self, run: &str, requests: &[Asked<'_>]) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let log = self.open_log(run);
            for asked in requests {
                log.begin(asked.request()).unwrap().close(asked.outcome());
            }
            log.close().await.unwrap();
        });
    }

    pub(crate) fn open_log(&self, run: &str) -> Log {
        let options = Options { clock, ..Options::new(run) };
        Log::open(&self.run_folder(run), options).unwrap().0
    }

    /// Seals a run with this installation's key.
    pub(crate) fn seal(&self, run: &str) {
        let key = SigningKey::load_or_create(&self.state().join("keys/seal.pem")).unwrap();
        audit::seal(&self.run_folder(run), &key).unwrap();
    }
}

impl Asked<'_> {
    pub(crate) fn request(&self) -> RequestFacts {
        let Self(verdict, method, host, path, status) = *self;
        let allowed = verdict == VerdictRecord::Allow;
        RequestFacts {
            destination: DestinationRecord::new(host, 443),
            http: Http {
                method: Some(method.into()),
                path: Some(path.into()),
                status: Some(status),
                ..Http::default()
            },
            decision: DecisionRecord {
                verdict: Some(verdict),
                rule: allowed.then(|| "github-api".into()),
                reason: Some(if allowed { "allowed" } else { "no_rule" }.into()),
                ..DecisionRecord::default()
            },
            traffic: TrafficRecord { sent: 12, received: 345 },
            ..RequestFacts::default()
        }
    }

    fn outcome(&self) -> EntryOutcome {
        if self.0 == VerdictRecord::Allow { EntryOutcome::Relayed } else { EntryOutcome::Refused }
    }
}

fn clock() -> Time {
    "2026-11-16T10:00:00Z".parse().unwrap()
}

fn two_runs() -> World {
    let world = World::new();
    world.record(
        "run-1",
        &[
            Asked(VerdictRecord::Allow, "GET", "api.github.com", "/repos/acme/widgets", 200),
            Asked(VerdictRecord::Deny, "POST", "pastebin.com", "/api?x=1", 403),
        ],
    );
    world.record(
        "run-2",
        &[Asked(VerdictRecord::Allow, "POST", "uploads.github.com", "/a\u{1b}[2K\nb\u{202e}", 201)],
    );
    world
}

/// Ids are made anew each time; their shape is not what a snapshot is for.
fn without_ids(text: &str) -> String {
    let line = |line: &str| match line.rsplit_once("  ") {
        Some((before, id)) if id.len() == 36 => format!("{before}  (id)"),
        _ => line.to_owned(),
    };
    text.lines().map(|it| line(it) + "\n").collect()
}

#[test]
fn a_search_is_a_table_for_people_and_harmless() {
    let world = two_runs();
    let ran = world.sluice(&["audit", "search", "--kind", "request"]);
    ran.assert_harmless();
    expect![[r#"
        exit 0
        --- stdout
        TIME                      RUN                     VERDICT  METHOD           TARGET                                        STATUS    RULE                REASON        SENT/RECEIVED  ID
        2026-11-16T10:00:00.000Z  run-1                   allow    GET              api.github.com/repos/acme/widgets             200       github-api          allowed       12/345         (id)
        2026-11-16T10:00:00.000Z  run-1                   deny     POST             pastebin.com/api?x=1                          403       -                   no_rule       12/345         (id)
        2026-11-16T10:00:00.000Z  run-2                   allow    POST             uploads.github.com/a\u{1b}[2K\nb\u{202e}      201       github-api          allowed       12/345         (id)
        --- stderr
    "#]].assert_eq(&without_ids(&ran.whole()));
}

#[test]
fn filters_choose() {
    let world = two_runs();
    let count = |filters: &[&str]| {
        let mut all = vec!["audit", "search", "-o", "jsonl"];
        all.extend(filters);
        let ran = world.sluice(&all);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{filters:?}");
        ran.stdout.lines().count()
    };
    assert_eq!(count(&[]), 7);
    assert_eq!(count(&["--kind", "request"]), 3);
    assert_eq!(count(&["--kind", "request", "--kind", "log_closed"]), 5);
    assert_eq!(count(&["--run", "run-1", "--kind", "request"]), 2);
    assert_eq!(count(&["--host", "*.github.com"]), 2);
    assert_eq!(count(&["--verdict", "deny"]), 1);
    assert_eq!(count(&["--rule", "github-api", "--status", "2xx"]), 2);
    assert_eq!(count(&["--reason", "no_rule", "--method", "POST"]), 1);
    assert_eq!(count(&["--method", "PUT"]), 0);
    assert_eq!(count(&["--since", "2026-11-16T10:00:00Z"]), 7);
    assert_eq!(count(&["--until", "2026-11-16T10:00:00Z"]), 0);
    assert_eq!(count(&["acme/widgets"]), 1);
    assert_eq!(count(&["--limit", "2"]), 2);
    assert_eq!(count(&["--min-sent", "12B"]), 3);
    assert_eq!(count(&["--min-sent", "13B"]), 0);
    assert_eq!(count(&["--min-received", "345B"]), 3);
    assert_eq!(count(&["--min-received", "1KiB"]), 0);
}

#[test]
fn json_is_the_lines_as_they_are() {
    let world = two_runs();
    let lines = world.sluice(&["audit", "search", "--run", "run-1", "-o", "jsonl"]).stdout;
    let log = fs::read_to_string(world.run_folder("run-1").join("audit.jsonl")).unwrap();
    assert_eq!(lines, log);
    let array = world.sluice(&["audit", "search", "--verdict", "deny", "-o", "json"]).json();
    assert_eq!(array[0]["server.address"], "pastebin.com");
    let none = world.sluice(&["audit", "search", "--method", "PUT", "-o", "json"]);
    assert_eq!(none.stdout, "[]\n");
}

#[test]
fn what_cannot_be_filtered_by_is_wrong_usage() {
    let world = two_runs();
    for wrong in [
        ["--since", "yesterday"],
        ["--host", "a.*.b"],
        ["--status", "2x"],
        ["--kind", "requests"],
        ["--verdict", "maybe"],
        ["--min-sent", "much"],
    ] {
        let ran = world.sluice(&["audit", "search", wrong[0], wrong[1]]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{wrong:?}");
        ran.assert_harmless();
    }
}

#[test]
fn a_run_that_is_not_there_is_told_the_same_way_by_every_verb() {
    let world = two_runs();
    for verb in [
        &["audit", "search", "--run"][..],
        &["audit", "show"],
        &["audit", "summary", "--run"],
        &["audit", "verify", "--run"],
        &["logs"],
        &["diff"],
        &["apply"],
        &["transcript"],
        &["artifacts"],
        &["rm"],
    ] {
        for name in ["nosuch", "../run-1", "2026"] {
            let ran = world.sluice(&[verb, &[name]].concat());
            assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{verb:?} {name}");
            let told = format!("error: there is no run `{name}`; `sluice ls` lists them\n");
            assert_eq!(ran.stderr, told, "{verb:?} {name}");
        }
    }
}

#[test]
fn a_run_may_be_named_by_last_or_by_its_beginning() {
    let world = two_runs();
    for (name, host) in
        [("last", "uploads.github.com"), ("run-1", "pastebin.com"), ("2", "uploads")]
    {
        let ran = world.sluice(&["audit", "search", "--run", name]);
        assert!(ran.code == 0 && ran.stdout.contains(host), "{name}: {ran:?}");
    }
    let ran = world.sluice(&["audit", "search", "--run", "run"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, "error: `run` matches 2 runs: run-2, run-1\n"));
}

#[test]
fn a_table_has_one_row_for_each_request_and_fits_the_terminal() {
    let mut world = two_runs();
    let rows = |world: &World, more: &[&str]| {
        let ran = world.sluice(&[&["audit", "search"], more].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.stdout.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(rows(&world, &[]).len(), 3);
    assert_eq!(rows(&world, &["--all"]).len(), 7);
    world.set("COLUMNS", "90");
    let narrow = rows(&world, &[]);
    assert!(narrow.iter().all(|row| row.chars().count() <= 90), "{narrow:?}");
    // The end of an id is enough to ask for the rest.
    let id = narrow[1].rsplit(' ').next().unwrap();
    assert_eq!(id.len(), 8);
    let shown = world.sluice(&["audit", "show", id]);
    assert!(shown.code == 0 && shown.stdout.contains("pastebin.com"), "{shown:?}");
    world.set("COLUMNS", "100");
    let one_run = rows(&world, &["--run", "run-1"]);
    assert!(one_run.iter().all(|row| !row.contains("run-1") && row.chars().count() <= 100));
}

#[test]
fn totals_are_counted_for_each_host() {
    let world = two_runs();
    let ran = world.sluice(&["audit", "summary"]);
    ran.assert_harmless();
    expect![[r#"
        exit 0
        --- stdout
        HOST                ALLOWED  REFUSED  FAILED       SENT   RECEIVED  REFUSED FOR
        pastebin.com              0        1       0        12B       345B  no_rule
        api.github.com            1        0       0        12B       345B  -
        uploads.github.com        1        0       0        12B       345B  -
        --- stderr
    "#]]
    .assert_eq(&ran.whole());
    let totals = world.sluice(&["audit", "summary", "--run", "last", "-o", "json"]).json();
    assert_eq!(totals.as_array().unwrap().len(), 1);
    assert_eq!(totals[0]["host"], "uploads.github.com");
    assert_eq!(totals[0]["sent"], 12);
}

#[test]
fn a_line_that_is_no_event_is_skipped_aloud() {
    let world = two_runs();
    let path = world.run_folder("run-1").join("audit.jsonl");
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(b"{\"\x1b[2J\n").unwrap();
    let ran = world.sluice(&["audit", "search"]);
    ran.assert_harmless();
    assert_eq!((ran.code, ran.stdout.lines().count()), (1, 4));
    assert!(ran.stderr.starts_with("skipped: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("audit.jsonl, line 5: "), "{}", ran.stderr);
}

#[test]
fn nothing_recorded_is_said() {
    let world = World::new();
    for verb in ["search", "tail", "export", "verify"] {
        let ran = world.sluice(&["audit", verb]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{verb}");
        assert!(ran.stderr.contains("nothing is recorded there: "), "{}", ran.stderr);
        assert!(ran.stderr.contains(".local/state/sluice/runs does not exist"), "{}", ran.stderr);
    }
}

#[test]
fn an_unreadable_log_is_a_failure() {
    let world = two_runs();
    let path = world.run_folder("run-1").join("audit.jsonl");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let ran = world.sluice(&["audit", "search"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("skipped: cannot read"), "{}", ran.stderr);
    assert!(ran.stdout.contains("uploads.github.com"), "{}", ran.stdout);
    assert_eq!(world.sluice(&["audit", "verify", "--run", "run-1"]).code, 1);
}

#[test]
fn the_state_directory_follows_xdg() {
    let mut world = two_runs();
    let moved = world.home().join("elsewhere");
    fs::create_dir(&moved).unwrap();
    fs::rename(world.state(), moved.join("sluice")).unwrap();
    world.set("XDG_STATE_HOME", "relative/is/ignored");
    assert_eq!(world.sluice(&["audit", "search"]).code, 1);
    world.set("XDG_STATE_HOME", moved.to_str().unwrap());
    assert_eq!(world.sluice(&["audit", "search"]).code, 0);
    let runs = moved.join("sluice/runs");
    world.set("XDG_STATE_HOME", "");
    world.set("SLUICE_RUNS", runs.to_str().unwrap());
    assert_eq!(world.sluice(&["audit", "search"]).code, 0);
}

#[test]
fn one_entry_is_shown_whole() {
    let world = two_runs();
    let found = world.sluice(&["audit", "search", "--verdict", "deny", "-o", "json"]).json();
    let id = found[0]["id"].as_str().unwrap();
    let ran = world.sluice(&["audit", "show", id]);
    ran.assert_harmless();
    assert_eq!(ran.code, 0);
    assert!(ran.stdout.contains("runs/run-1/audit.jsonl, line 3\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("sluice.reason              no_rule\n"), "{}", ran.stdout);
    assert_eq!(world.sluice(&["audit", "show", id, "-o", "json"]).json(), found);

    let ran = world.sluice(&["audit", "show", "01950000-0000-7000-8000-000000000042"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.starts_with("error: nothing is recorded under 01950000-"), "{}", ran.stderr);
}

#[test]
fn every_form_of_export_is_written() {
    let world = two_runs();
    let export = |form: &str| {
        let ran = world.sluice(&["audit", "export", "--format", form]);
        assert_eq!(ran.code, 0, "{ran:?}");
        // CSV ends its lines as RFC 4180 says.
        let ran = Ran { stdout: ran.stdout.replace("\r\n", "\n"), ..ran };
        ran.assert_harmless();
        (ran.stdout, ran.stderr)
    };
    let (jsonl, said) = export("jsonl");
    assert_eq!(
        (jsonl.lines().count(), said.as_str()),
        (7, "7 written, 0 left out, 0 unreadable\n")
    );
    let (csv, _) = export("csv");
    assert_eq!(csv.lines().count(), 8, "{csv}");
    let (ocsf, said) = export("ocsf");
    assert!(ocsf.lines().all(|line| line.starts_with('{')), "{ocsf}");
    assert_eq!(said, "3 written, 4 left out, 0 unreadable\n");
    let (har, _) = export("har");
    let har: serde_json::Value = serde_json::from_str(&har).unwrap();
    assert_eq!(har["log"]["entries"].as_array().unwrap().len(), 3);
    let ran = world.sluice(&["audit", "export", "--format", "xml"]);
    assert_eq!(ran.code, 2);
}

#[test]
fn tail_shows_the_last_and_no_more() {
    let world = two_runs();
    let ran = world.sluice(&["audit", "tail", "-n", "1", "--run", "run-1", "-o", "json"]);
    let last = ran.json();
    assert_eq!(last.as_array().unwrap().len(), 1);
    assert_eq!(last[0]["kind"], "log_closed");
    assert_eq!(world.sluice(&["audit", "tail", "-o", "jsonl"]).stdout.lines().count(), 7);
    assert_eq!(world.sluice(&["audit", "tail", "-f", "-o", "json"]).code, 2);
}

#[test]
fn a_thousand_runs_are_not_held_open_at_once() {
    let world = two_runs();
    let log = fs::read(world.run_folder("run-1").join("audit.jsonl")).unwrap();
    for number in 0..100 {
        let folder = world.run_folder(&format!("old-{number}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("audit.jsonl"), &log).unwrap();
    }
    let mut command = Command::new("/bin/sh");
    let script = format!("ulimit -n 40; exec {} audit tail -o jsonl", env!("CARGO_BIN_EXE_sluice"));
    command.args(["-c", &script]).env_clear().env("HOME", world.home());
    let ran = Ran::of(command);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert_eq!(ran.stdout.lines().count(), 20);
}

#[test]
fn following_shows_what_is_written_later_also_by_runs_that_begin_later() {
    let world = two_runs();
    world.seal("run-1");
    let mut command =
        world.command(&["audit", "tail", "-f", "-n", "1", "--kind", "request", "-o", "jsonl"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut host = || {
        let line: serde_json::Value =
            serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        line["server.address"].as_str().unwrap().to_owned()
    };
    assert_eq!(host(), "uploads.github.com");
    world.record("run-3", &[Asked(VerdictRecord::Allow, "GET", "later.example.com", "/", 200)]);
    assert_eq!(host(), "later.example.com");
    world.record("run-2", &[Asked(VerdictRecord::Allow, "GET", "again.example.com", "/", 200)]);
    assert_eq!(host(), "again.example.com");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn one_broken_run_does_not_hide_the_others() {
    let world = two_runs();
    world.seal("run-1");
    fs::write(world.run_folder("run-1").join("changes.json"), "{}").unwrap();
    let ran = world.sluice(&["audit", "verify"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("run-1: NOT VERIFIED: changes.json: not in the seal\n"), "{ran:?}");
    assert!(ran.stdout.contains("run-2: whole: 3 lines in 1 file, not sealed"), "{ran:?}");
}

#[test]
fn a_review_says_whether_it_is_whole_and_lists_a_broken_log_too() {
    let world = two_runs();
    let log = world.run_folder("run-1");
    let runs = log.to_str().unwrap();
    let ran = world.sluice(&["audit", "review", "--runs", runs, "--verdict", "deny"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let (checked, listed) = ran.stdout.split_once("\n\n").unwrap();
    assert!(checked.contains("run-1: whole: 4 lines in 1 file, not sealed"), "{ran:?}");
    assert!(listed.contains("pastebin.com") && !listed.contains("api.github.com"), "{ran:?}");

    let segment = log.join("audit.jsonl");
    let text = fs::read_to_string(&segment).unwrap();
    fs::write(&segment, text.replacen("pastebin.com", "harmless.com", 1)).unwrap();
    let ran = world.sluice(&["audit", "review", "--runs", runs]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stdout.contains("NOT VERIFIED") && ran.stdout.contains("api.github.com"),
        "{ran:?}"
    );
    assert_eq!(world.sluice(&["audit", "review", "-o", "json"]).code, 2);
}

#[test]
fn a_log_that_no_run_closed_can_be_sealed_once_and_only_if_it_is_whole() {
    let world = two_runs();
    let log = world.run_folder("run-1");
    let folder = log.to_str().unwrap();
    let sealed = world.sluice(&["audit", "seal", folder]);
    assert!(sealed.code == 0 && sealed.stdout.contains(": sealed 20"), "{sealed:?}");
    let verified = world.sluice(&["audit", "verify", "--sealed", folder]);
    assert!(verified.code == 0 && verified.stdout.contains("whole"), "{verified:?}");
    let again = world.sluice(&["audit", "seal", folder]);
    assert!(again.code == 1 && again.stderr.contains("is sealed already"), "{again:?}");

    let log = world.run_folder("run-2");
    let segment = log.join("audit.jsonl");
    let text = fs::read_to_string(&segment).unwrap();
    fs::write(&segment, text.replacen("github.com", "harmless.x", 1)).unwrap();
    let broken = world.sluice(&["audit", "seal", log.to_str().unwrap()]);
    assert!(broken.code == 1 && broken.stderr.contains("not fit to be sealed"), "{broken:?}");
    assert!(!log.join("seal.json").exists());
    let empty = world.state().join("runs");
    let nothing = world.sluice(&["audit", "seal", empty.to_str().unwrap()]);
    assert!(nothing.code == 1 && nothing.stderr.contains("there is no log in"), "{nothing:?}");
}
