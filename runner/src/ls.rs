//! `sluice ls`: the runs that were, and those that are.

use std::collections::BTreeSet;
use std::fs;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::backend;
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};
use crate::plan::RunId;
use crate::runs::Runs;
use crate::shown::Shown;

/// List runs, the newest first.
#[derive(Debug, Args)]
pub struct Ls {
    #[command(flatten)]
    runs: Runs,
    /// Only those that are running.
    #[arg(long, env = "SLUICE_LS_RUNNING", hide_env_values = true)]
    running: bool,
}

/// One run, as it is listed.
#[derive(Debug, Serialize)]
struct Row {
    run: String,
    /// `running`, how it ended, or `lost` if nobody wrote that down.
    state: String,
    exit_code: Option<u64>,
    command: String,
}

pub fn run(asked: &Ls, console: &mut Console) -> Result<Exit, Failure> {
    let running = running(console);
    let place = asked.runs.place()?;
    let mut rows = Vec::new();
    let entries = match fs::read_dir(&place) {
        Ok(entries) => entries.flatten().collect(),
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(err) => Err(err).with_context(|| format!("cannot read {}", place.display()))?,
    };
    for entry in entries {
        let Some(run) = entry.file_name().to_str().and_then(|name| RunId::parse(name).ok()) else {
            continue;
        };
        let record = fs::read(entry.path().join("run.json")).ok();
        let record: Value =
            record.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        rows.push(row(&run, &record, running.contains(&run)));
    }
    rows.sort_by(|a, b| b.run.cmp(&a.run));
    if asked.running {
        rows.retain(|row| row.state == "running");
    }
    show(&rows, console)?;
    Ok(Exit::Success)
}

fn row(run: &RunId, record: &Value, is_running: bool) -> Row {
    let words = record.pointer("/plan/command").and_then(Value::as_array);
    let command: Vec<&str> = words.into_iter().flatten().filter_map(Value::as_str).collect();
    let session = record.pointer("/plan/session/name").and_then(Value::as_str);
    let command = session.map_or_else(|| command.join(" "), |name| format!("(session {name})"));
    let ended = record.pointer("/outcome/kind").and_then(Value::as_str);
    let state = match (is_running, ended, record.get("error").and_then(Value::as_str)) {
        (true, ..) => "running",
        (false, Some(kind), _) => kind,
        (false, None, Some(_)) => "failed",
        (false, None, None) => "lost",
    };
    Row {
        run: run.to_string(),
        state: state.to_owned(),
        exit_code: record.get("exit_code").and_then(Value::as_u64).filter(|_| !is_running),
        command,
    }
}

/// The runs that the backends here know.
fn running(console: &mut Console) -> BTreeSet<RunId> {
    let Ok(runtime) = Runtime::new() else { return BTreeSet::new() };
    runtime.block_on(async {
        let mut running = BTreeSet::new();
        for backend in backend::all().await {
            match backend.found().await {
                Ok(found) => {
                    running.extend(found.into_iter().filter(|one| one.running).map(|one| one.run))
                }
                Err(err) => console.say(format_args!("what runs now is not known: {err}")),
            }
        }
        running
    })
}

fn show(rows: &[Row], console: &mut Console) -> Result<(), Failure> {
    if console.format != Format::Table {
        return console.json_list(rows);
    }
    if rows.is_empty() {
        console.say("no runs yet; `sluice run -- COMMAND` makes one");
        return Ok(());
    }
    console.line(format_args!("{:<24} {:<10} {:>4}  COMMAND", "RUN", "STATE", "CODE"))?;
    for row in rows {
        let tone = match row.state.as_str() {
            "exited" | "stopped" if row.exit_code == Some(0) => Tone::Good,
            "exited" | "running" => Tone::Faint,
            _ => Tone::Warn,
        };
        let state = console.toned(tone, format_args!("{:<10}", Shown(&row.state).to_string()));
        let code = row.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string());
        let command: String = Shown(&row.command).to_string().chars().take(60).collect();
        console.line(format_args!("{:<24} {state} {code:>4}  {command}", row.run))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_that_nobody_ended_is_lost_not_successful() {
        let run = RunId::now();
        assert_eq!(row(&run, &Value::Null, false).state, "lost");
        assert_eq!(row(&run, &Value::Null, true).state, "running");
        assert_eq!(row(&run, &json!({"error": "x"}), false).state, "failed");
        let ended = json!({"outcome": {"kind": "oom"}, "exit_code": 137});
        assert_eq!(row(&run, &ended, false).state, "oom");
        assert_eq!(row(&run, &ended, false).exit_code, Some(137));
    }
}
