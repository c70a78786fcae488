//! Everything the runbook tells people to type is typed here, in order, on a real
//! backend, with a stand-in for the one host of the internet that it names.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use standin::{Setup, Standin};
use tests::CommandDeadline as _;
use tests::available::is_installed;
use tests::boxes::{Person, docker, wait_for};
use tokio::runtime::Runtime;

use crate::pages::read;

/// The host that the page's policy allows.
const HOST: &str = "docs.python.org";

/// What is typed, and what is said to come of it.
struct Step<'p> {
    line: usize,
    typed: &'p str,
    wanted: Vec<&'p str>,
}

#[test]
fn every_command_of_the_runbook_does_what_it_says() {
    let page = read("docs/runbook.md");
    let steps = steps(&page);
    assert!(steps.len() > 12, "{}", steps.len());
    for person in people() {
        let runtime = Runtime::new().unwrap();
        let standin = runtime.block_on(standin());
        let port = standin.addresses()[0].port();
        let authority = person.project().join("../stand-in.pem");
        fs::write(&authority, standin.certificate()).unwrap();
        let mut command = person.typing(&script(&steps));
        command
            .env("SLUICE_PIN", format!("{HOST}={}:{port}", person.host()))
            .env("SLUICE_UPSTREAMS", format!("{}:{port}", person.host()))
            .env("SLUICE_TRUST", authority);
        let output = command.output_in_time().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        for (number, step) in steps.iter().enumerate() {
            let (begun, ended) = (mark(number), mark(number + 1));
            let after = printed.split_once(&begun).map(|(_, after)| after);
            let said = after.and_then(|after| after.split_once(&ended)).map(|(said, _)| said);
            let Some(said) = said else {
                panic!("line {}: it ended here\n{}\n{printed}", step.line, step.typed);
            };
            compare(step, said);
        }
        // Nobody but the stand-in was asked for anything, and it was.
        assert!(!standin.requests().is_empty());
        for run in person.every_run() {
            wait_for("nothing to be left", || person.left_of(&run).is_empty().then_some(()));
        }
    }
}

/// As the first page says to have it everywhere.
#[test]
fn a_link_to_the_command_is_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("sluice");
    symlink(crate::pages::root().join("sluice"), &link).unwrap();
    let said =
        Command::new(link).arg("--version").current_dir(folder.path()).output_in_time().unwrap();
    let printed = String::from_utf8_lossy(&said.stdout);
    assert!(printed.starts_with("sluice "), "{printed}{}", String::from_utf8_lossy(&said.stderr));
}

/// Somebody with Docker, with the image that is used when none
/// is named, or the means to make it.
fn people() -> Vec<Person> {
    if !["bash", "curl", "jq", "openssl", "python3"].iter().all(|tool| is_installed(tool)) {
        return Vec::new();
    }
    let Some(person) = Person::with_docker(crate::programs()) else { return Vec::new() };
    let has_image = !docker(&["images", "-q", "sluice/agent"]).is_empty();
    if has_image || is_installed("mmdebstrap") { vec![person] } else { Vec::new() }
}

async fn standin() -> Standin {
    Setup::new("0.0.0.0:0".parse().unwrap(), &[HOST]).start().await.unwrap()
}

fn steps(page: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let mut at = 0;
    while let Some(fence) = page[at..].find("```") {
        let start = at + fence + 3;
        let first = page[start..].find('\n').unwrap() + start + 1;
        let end = page[first..].find("```").expect("a block ends") + first;
        let body = &page[first..end];
        match page[start..first].trim() {
            "sh" => {
                let line = page[..first].lines().count();
                steps.push(Step { line, typed: body, wanted: Vec::new() });
            }
            "text" => steps.last_mut().unwrap().wanted.extend(body.lines()),
            other => panic!("a block of {other:?} is neither typed nor compared"),
        }
        at = end + 3;
    }
    steps
}

/// All of it in one shell, so that a variable lasts. What fails and is not
/// expected to ends it, and the mark after it is missing.
fn script(steps: &[Step<'_>]) -> String {
    let mut script = "exec 2>&1\nset -eu\n".to_owned();
    for (number, step) in steps.iter().enumerate() {
        writeln!(script, "echo '{}'\n{}", mark(number), step.typed).unwrap();
    }
    writeln!(script, "echo '{}'", mark(steps.len())).unwrap();
    script
}

fn mark(number: usize) -> String {
    format!("== step {number} of the runbook ==")
}

/// Each wanted line is there, in order; others may stand between.
fn compare(step: &Step<'_>, said: &str) {
    let mut lines = said.lines();
    for wanted in &step.wanted {
        assert!(
            lines.any(|line| fits(line, wanted)),
            "line {}: no {wanted:?} in what came of\n{}\n{said}",
            step.line,
            step.typed
        );
    }
}

/// `...` stands for anything.
pub(crate) fn fits(line: &str, wanted: &str) -> bool {
    let parts: Vec<&str> = wanted.split("...").map(str::trim).collect();
    if parts.len() == 1 {
        return line.trim_end() == wanted;
    }
    let mut rest = line;
    for (number, part) in parts.iter().enumerate() {
        match rest.find(part) {
            Some(at) if number > 0 || at == 0 => rest = &rest[at + part.len()..],
            _ => return false,
        }
    }
    parts.last().is_some_and(|last| last.is_empty()) || rest.trim().is_empty()
}

#[test]
fn lines_are_compared_with_gaps() {
    for (line, wanted, is_so) in [
        ("exit code 3", "exit code 3", true),
        ("exit code 33", "exit code 3", false),
        ("review  20261116  docker  alive", "review ... alive", true),
        ("review  20261116  docker  expired", "review ... alive", false),
        ("my review is alive", "review ... alive", false),
        ("+++ b/dist/report.txt", "...dist/report.txt...", true),
        ("curl: (56) CONNECT tunnel failed, response 403", "curl: (56) ...403...", true),
        ("curl: (56) CONNECT tunnel failed, response 502", "curl: (56) ...403...", false),
    ] {
        assert_eq!(fits(line, wanted), is_so, "{line:?} {wanted:?}");
    }
}
