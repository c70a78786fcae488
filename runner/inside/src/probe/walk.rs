//! What the demonstration does inside its sandbox, step by step.
//!
//! `sluice-probe walk ALLOWED REFUSED SECRET`: each step is something that an agent might
//! do, and prints one line of JSON with what came of it. Nothing is judged here:
//! whether it is as it should be, the host says.

use std::fs;
use std::io::{self, Write as _};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::fetch::{Way, fetch};

/// One thing that was done.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct WalkStep {
    pub name: Name,
    /// What was done, as a person would write it.
    pub did: String,
    /// What came of it, in one line.
    pub got: String,
    /// The status of an answer, where there was one.
    pub status: Option<u16>,
    /// The gateway's code for a refusal, where it was one.
    pub code: Option<String>,
    pub result: StepResult,
}

/// How it went, for programs.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResult {
    Done,
    Failed,
    /// There is no such file.
    Missing,
    /// It is there, and not for us.
    PermissionDenied,
}

impl StepResult {
    fn of(err: &io::Error) -> Self {
        match err.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::PermissionDenied => Self::PermissionDenied,
            _ => Self::Failed,
        }
    }
}

impl WalkStep {
    fn new(name: Name, did: String, ended: io::Result<String>) -> Self {
        let (got, result) = match ended {
            Ok(got) => (got, StepResult::Done),
            Err(err) => (err.to_string(), StepResult::of(&err)),
        };
        Self { name, did, got, status: None, code: None, result }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Name {
    Allowed,
    Refused,
    PastTheProxy,
    RawAddress,
    HostFile,
    HostProcesses,
    SystemFile,
    Change,
}

/// `sluice-probe walk ALLOWED REFUSED SECRET`, after the first two words.
pub fn main(arguments: &[String]) -> ExitCode {
    let [allowed, refused, secret] = arguments else { return ExitCode::from(2) };
    let get = |name, url: &str, way| {
        let how = if way == Way::Direct { "without the proxy" } else { "through the proxy" };
        let did = format!("GET {url} {how}");
        let answer = fetch(url, way);
        let (status, code) = match &answer {
            Ok(answer) => (Some(answer.status), answer.code()),
            Err(_) => (None, None),
        };
        let ended = answer.map(|answer| brief(&answer.body));
        WalkStep { status, code, ..WalkStep::new(name, did, ended) }
    };
    let steps = [
        get(Name::Allowed, allowed, Way::Proxy),
        get(Name::Refused, refused, Way::Proxy),
        get(Name::PastTheProxy, refused, Way::Direct),
        get(Name::RawAddress, "http://203.0.113.7:8080/", Way::Direct),
        read(Name::HostFile, secret),
        processes(),
        make(Name::SystemFile, "/agent-was-here"),
        write(Name::Change, "/workspace/notes.txt", "The agent was here.\n"),
    ];
    for step in &steps {
        if let Ok(mut line) = serde_json::to_string(step) {
            line.push('\n');
            drop(std::io::stdout().write_all(line.as_bytes()));
        }
    }
    ExitCode::SUCCESS
}

fn read(name: Name, path: &str) -> WalkStep {
    let read = fs::read_to_string(path).map(|text| brief(&text));
    WalkStep::new(name, format!("read {path}"), read)
}

fn write(name: Name, path: &str, text: &str) -> WalkStep {
    let added = fs::OpenOptions::new()
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    let written = added.map(|()| "written".to_owned());
    WalkStep::new(name, format!("add a line to {path}"), written)
}

fn make(name: Name, path: &str) -> WalkStep {
    let made = fs::File::create_new(path).map(|_| "made".to_owned());
    WalkStep::new(name, format!("make a file {path}"), made)
}

fn processes() -> WalkStep {
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let count = entries.filter(|entry| is_number(&entry.file_name().to_string_lossy())).count();
    let did = "count every process in sight".to_owned();
    WalkStep::new(Name::HostProcesses, did, Ok(count.to_string()))
}

/// A refusal says what it is in one field; everything else in its first line.
fn brief(body: &str) -> String {
    let problem: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let field = |name: &str| {
        problem.as_ref().and_then(|problem| problem.get(name)?.as_str().map(str::to_owned))
    };
    match (field("code"), field("detail")) {
        (Some(code), Some(detail)) => format!("{code}: {detail}"),
        (Some(code), None) => code,
        (None, _) => {
            body.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(160).collect()
        }
    }
}
