//! What the demonstration does inside its sandbox, step by step.
//!
//! `init walk ALLOWED REFUSED SECRET`: each step is something that an agent might
//! do, and prints one line of JSON with what came of it. Nothing is judged here:
//! whether it is as it should be, the host says.

use std::fs;
use std::io::Write as _;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::fetch::{Way, fetch};

/// One thing that was done.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Step {
    pub name: Name,
    /// What was done, as a person would write it.
    pub did: String,
    /// What came of it, in one line.
    pub got: String,
    /// The status of an answer, where there was one.
    pub status: Option<u16>,
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

/// `init walk ALLOWED REFUSED SECRET`, after the first two words.
pub fn main(arguments: &[String]) -> ExitCode {
    let [allowed, refused, secret] = arguments else { return ExitCode::from(2) };
    let get = |name, url: &str, way| {
        let how = if way == Way::Direct { "without the proxy" } else { "through the proxy" };
        let did = format!("GET {url} {how}");
        match fetch(url, way) {
            Ok(answer) => Step { name, did, got: brief(&answer.body), status: Some(answer.status) },
            Err(err) => Step { name, did, got: err.to_string(), status: None },
        }
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

fn read(name: Name, path: &str) -> Step {
    let got = match fs::read_to_string(path) {
        Ok(text) => brief(&text),
        Err(err) => err.to_string(),
    };
    Step { name, did: format!("read {path}"), got, status: None }
}

fn write(name: Name, path: &str, text: &str) -> Step {
    let added = fs::OpenOptions::new()
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    let got = match added {
        Ok(()) => "written".to_owned(),
        Err(err) => err.to_string(),
    };
    Step { name, did: format!("add a line to {path}"), got, status: None }
}

fn make(name: Name, path: &str) -> Step {
    let got = match fs::File::create_new(path) {
        Ok(_) => "made".to_owned(),
        Err(err) => err.to_string(),
    };
    Step { name, did: format!("make a file {path}"), got, status: None }
}

fn processes() -> Step {
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let count = entries.filter(|entry| is_number(&entry.file_name().to_string_lossy())).count();
    Step {
        name: Name::HostProcesses,
        did: "count every process in sight".to_owned(),
        got: count.to_string(),
        status: None,
    }
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
