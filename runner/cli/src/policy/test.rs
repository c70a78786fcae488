//! `sluice policy test`: a policy keeps the promises it carries.

use clap::Args;
use files::printable::Printable;
use serde::Serialize;

use super::{Which, review};
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};

/// Run the tests that policies carry under `tests:`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all passed, 1 one failed or a file cannot be read, 2 not valid."
)]
pub(super) struct Test {
    #[command(flatten)]
    which: Which,
}

/// One object of the machine-readable report.
#[derive(Debug, Serialize)]
struct TestReport {
    file: String,
    line: usize,
    request: String,
    passed: bool,
    verdict: &'static str,
    rule: Option<String>,
    expected: String,
    expected_rule: Option<String>,
    #[serde(skip)]
    sentence: String,
}

pub(super) fn run(asked: &Test, console: &mut Console) -> Result<Exit, Failure> {
    let mut all = Vec::new();
    for path in &asked.which.files {
        let reviewed = review::read(path)?;
        reviewed.say_notes(console);
        let policy = reviewed.policy;
        let file = policy.sources.first().map(|name| name.to_string()).unwrap_or_default();
        for result in policy.run_tests() {
            all.push(TestReport {
                file: file.clone(),
                line: result.test.line,
                request: result.test.request.to_string(),
                passed: result.passed,
                verdict: result.decision.verdict.as_str(),
                rule: result.decision.rule_id().map(str::to_owned),
                expected: result.test.expect.to_string(),
                expected_rule: result.test.rule.as_deref().map(str::to_owned),
                sentence: sentence(&result),
            });
        }
    }
    let passed = all.iter().filter(|ran| ran.passed).count();
    let failed = all.len() - passed;
    if console.format == Format::Table {
        all.iter().try_for_each(|ran| show(ran, console))?;
        console.line(format_args!("{passed} passed, {failed} failed"))?;
    } else {
        console.json_list(&all)?;
        console.say(format_args!("{passed} passed, {failed} failed"));
    }
    Ok(if failed == 0 { Exit::Success } else { Exit::Failed })
}

fn show(ran: &TestReport, console: &mut Console) -> Result<(), Failure> {
    let word = match ran.passed {
        true => console.toned(Tone::Good, "ok"),
        false => console.toned(Tone::Bad, "FAILED"),
    };
    console.line(format_args!("{word} {}:{}: {}", ran.file, ran.line, Printable(&ran.sentence)))
}

fn sentence(result: &policies::TestResult<'_>) -> String {
    let policies::TestResult { test, decision, passed } = result;
    let mut sentence = format!("{}: {decision}", test.request);
    if !passed {
        sentence.push_str(&format!("; expected {}", test.expect));
        if let Some(rule) = &test.rule {
            sentence.push_str(&format!(": {rule}"));
        }
    }
    sentence
}
