//! `sluice ls`: the runs that were, and those that are.

use std::collections::BTreeSet;
use std::fs;

use anyhow::Context as _;
use clap::Args;
use engine::backend;
use engine::plan::RunId;
use files::printable::Printable;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::amounts::{short_size, took};
use crate::console::{Console, Format, Tone};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::runs::{self, Origins, Runs};

/// List runs, newest first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sluice ls --project .
  sluice ls --user ann --on docker -o json

SENT and RECEIVED are what passed the run's gateway. A run without a network has `-` there.")]
pub struct LsVerb {
    #[command(flatten)]
    runs: Runs,
    #[command(flatten)]
    origins: Origins,
    /// Only runs that have not ended.
    #[arg(long, env = "SLUICE_LS_RUNNING")]
    running: bool,
}

/// One run, as it is listed.
#[derive(Debug, Serialize)]
struct RunRow {
    run: String,
    /// `running`, how it ended, or `lost` if nobody wrote that down.
    state: String,
    exit_code: Option<u64>,
    command: String,
    begun: Option<String>,
    /// How long it took, until now if it is running.
    seconds: Option<f64>,
    /// Requests that were refused; nothing without a network, or while it runs.
    refused: Option<u64>,
    sent: Option<u64>,
    received: Option<u64>,
    user: Option<String>,
    host: Option<String>,
    project: Option<String>,
    backend: Option<String>,
    version: Option<String>,
}

pub fn run(asked: &LsVerb, console: &mut Console) -> Result<Exit, Failure> {
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
        let record = runs::record(&entry.path());
        let is_running = running.contains(&run);
        if asked.origins.fit(&record) && (is_running || !asked.running) {
            rows.push(row(&run, &record, is_running));
        }
    }
    rows.sort_by(|a, b| b.run.cmp(&a.run));
    if rows.is_empty() && console.format == Format::Table {
        let is_any = asked.origins.is_any() && !asked.running;
        console.say(if is_any { NO_RUNS } else { "no run matches" });
        return Ok(Exit::Success);
    }
    show(&rows, console)?;
    Ok(Exit::Success)
}

fn row(run: &RunId, record: &Value, is_running: bool) -> RunRow {
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
    let text = |name| record.get(name).and_then(Value::as_str).map(str::to_owned);
    let network = record.pointer("/usage/network");
    let count = |name| network.and_then(|network| network.get(name)).and_then(Value::as_u64);
    let time = |name| text(name).and_then(|time| time.parse::<Timestamp>().ok());
    let end = time("ended").or_else(|| is_running.then(Timestamp::now));
    let took = time("begun").zip(end).map(|(begun, end)| end.duration_since(begun));
    RunRow {
        run: run.to_string(),
        state: state.to_owned(),
        exit_code: record.get("exit_code").and_then(Value::as_u64).filter(|_| !is_running),
        command,
        begun: text("begun"),
        seconds: took.map(|took| (took.as_secs_f64() * 10.0).round() / 10.0),
        refused: count("refused"),
        sent: count("sent"),
        received: count("received"),
        user: text("user"),
        host: text("host"),
        project: text("project"),
        backend: text("backend"),
        version: text("version"),
    }
}

/// The runs that the backends here know.
fn running(console: &mut Console) -> BTreeSet<RunId> {
    let Ok(runtime) = Runtime::new() else { return BTreeSet::new() };
    runtime.block_on(async {
        let mut running = BTreeSet::new();
        for backend in backend::all(environment::of_this_process()).await {
            match backend.labelled().await {
                Ok(found) => {
                    running.extend(found.into_iter().filter(|one| one.running).map(|one| one.run))
                }
                Err(err) => console.say(format_args!("cannot tell which runs are running: {err}")),
            }
        }
        running
    })
}

fn show(rows: &[RunRow], console: &mut Console) -> Result<(), Failure> {
    if console.format != Format::Table {
        return console.json_list(rows);
    }
    // A narrow terminal shows less of each run, not half of each line.
    let columns = console.columns().unwrap_or(WIDE);
    let heading = cells(Cells {
        run: "RUN",
        state: format!("{:<9}", "STATE"),
        code: "CODE",
        took: "TOOK",
        refused: "REFUSED",
        traffic: "SENT/RECEIVED",
        user: "USER",
        backend: "BACKEND",
        project: "PROJECT",
        command: "COMMAND",
        columns,
    });
    console.line(console.toned(Tone::Faint, heading))?;
    for row in rows {
        let tone = match row.state.as_str() {
            "exited" | "stopped" if row.exit_code == Some(0) => Tone::Good,
            "exited" | "running" => Tone::Faint,
            _ => Tone::Warn,
        };
        let state = console.toned(tone, format_args!("{:<9}", Printable(&row.state).to_string()));
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let number = |number: Option<u64>| number.map_or("-".to_owned(), |it| it.to_string());
        let traffic = match (row.sent, row.received) {
            (Some(sent), Some(received)) => {
                format!("{}/{}", short_size(sent), short_size(received))
            }
            _ => "-".to_owned(),
        };
        let line = cells(Cells {
            run: &row.run,
            state,
            code: &number(row.exit_code),
            took: &row.seconds.map_or("-".to_owned(), took),
            refused: &number(row.refused),
            traffic: &traffic,
            user: &or_none(&row.user),
            backend: &or_none(&row.backend),
            project: &or_none(&row.project),
            command: &row.command,
            columns,
        });
        console.line(line)?;
    }
    Ok(())
}

/// One line of the table.
struct Cells<'c> {
    run: &'c str,
    /// As wide as its column already; colours have no width.
    state: String,
    code: &'c str,
    took: &'c str,
    refused: &'c str,
    traffic: &'c str,
    user: &'c str,
    backend: &'c str,
    project: &'c str,
    command: &'c str,
    columns: usize,
}

fn cells(it: Cells<'_>) -> String {
    let Cells { run, state, code, took, refused, traffic, .. } = &it;
    let mut line = format!("{run:<22}  {state}  {code:>4}  {took:>6}  {refused:>7}");
    let mut width = 22 + 2 + 9 + 2 + 4 + 2 + 6 + 2 + 7;
    let optional =
        [(100, traffic, 17), (130, &it.user, 10), (130, &it.backend, 10), (160, &it.project, 32)];
    for (least, text, columns) in optional {
        if it.columns >= least {
            let text: String = Printable(text).to_string().chars().take(columns).collect();
            line.push_str(&format!("  {text:<columns$}"));
            width += columns + 2;
        }
    }
    let room = it.columns.saturating_sub(width + 2).max(MIN_COMMAND_COLUMNS);
    let command: String = Printable(it.command).to_string().chars().take(room).collect();
    line.push_str(&format!("  {command}"));
    line.trim_end().to_owned()
}

const NO_RUNS: &str = "no runs yet; `sluice run -- COMMAND` makes one";
/// Where nobody looks, everything is shown.
const WIDE: usize = 200;
const MIN_COMMAND_COLUMNS: usize = 12;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_says_who_where_how_long_and_how_much() {
        let record = json!({
            "user": "ann", "host": "desk", "project": "/work/a", "backend": "docker",
            "begun": "2026-11-16T03:10:45Z", "ended": "2026-11-16T03:14:05.24Z", "exit_code": 0,
            "outcome": {"kind": "exited"}, "plan": {"command": ["make", "test"]},
            "usage": {"network": {"requests": 9, "refused": 2, "sent": 2048, "received": 5000000}},
        });
        let row = row(&RunId::parse("20261116-031045-7f3a2b").unwrap(), &record, false);
        assert_eq!((row.seconds, row.refused), (Some(200.2), Some(2)));
        let shown = |columns| {
            cells(Cells {
                run: &row.run,
                state: format!("{:<9}", row.state),
                code: "0",
                took: &took(row.seconds.unwrap()),
                refused: "2",
                traffic: "2.0KiB/4.7MiB",
                user: "ann",
                backend: "docker",
                project: "/work/a",
                command: &row.command,
                columns,
            })
        };
        expect_test::expect![[r#"
            20261116-031045-7f3a2b  exited        0   3m20s        2  make test
            20261116-031045-7f3a2b  exited        0   3m20s        2  2.0KiB/4.7MiB      ann         docker      /work/a                           make test
        "#]]
        .assert_eq(&format!("{}\n{}\n", shown(80), shown(200)));
    }

    #[test]
    fn a_time_is_told_as_people_say_it() {
        let told: Vec<String> = [0.04, 9.94, 10.0, 75.0, 7260.0].map(took).into();
        assert_eq!(told, ["0.0s", "9.9s", "10s", "1m15s", "2h01m"]);
    }

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
