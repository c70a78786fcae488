//! `sluice audit verify`: is it as it was written?

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use audit::{Break, KeyError, LinePosition, PublicKey, SigningKey, Verified, VerifyError};
use clap::Args;
use engine::state_folder;
use files::printable::Printable;
use serde::Serialize;
use serde_json::Value;

use super::logs::Logs;
use crate::console::{Console, Format, Tone};
use crate::environment;
use crate::exit::{Exit, Failure};

/// Verify that evidence is unchanged, and name the first change.
#[derive(Debug, Args)]
#[command(
    long_about = "Verify that evidence is unchanged, and name the first change.

The chain of every line is checked, then the seal and who signed it, then every file
that was sealed. Without a seal the chain alone cannot show that its end is missing or
that its last line was changed; the answer says so.

Evidence can be as it was written and still not tell the whole run: the gateway died, or
nobody saw the run's end. Then it is not complete, and the answer says why.",
    after_help = "Exit codes: 0 whole and complete, 1 broken, unreadable or not complete (or not \
sealed, with --sealed)."
)]
pub(super) struct Verify {
    /// An evidence folder or log file [default: every run].
    #[arg(conflicts_with = "run")]
    path: Option<PathBuf>,
    #[command(flatten)]
    logs: Logs,
    /// PEM file of a public key to trust [default: this installation's key].
    #[arg(long, value_name = "FILE", env = "SLUICE_AUDIT_KEY")]
    key: Vec<PathBuf>,
    /// Fail if it is not sealed.
    #[arg(long, env = "SLUICE_AUDIT_SEALED")]
    sealed: bool,
}

pub(super) fn run(asked: &Verify, console: &mut Console) -> Result<Exit, Failure> {
    let trusted = trusted(&asked.key)?;
    let paths = match &asked.path {
        Some(path) => vec![path.clone()],
        None => asked.logs.folders()?,
    };
    all(&paths, &trusted, asked.sealed, console)
}

/// Says of each folder whether it is as it was written; the worst counts.
pub(super) fn all(
    paths: &[PathBuf],
    trusted: &[PublicKey],
    must_be_sealed: bool,
    console: &mut Console,
) -> Result<Exit, Failure> {
    if paths.is_empty() {
        return Err(anyhow!("there are no runs to verify").into());
    }
    let mut reports = Vec::new();
    let mut exit = Exit::Success;
    for path in paths {
        let mut report = VerifyReport::of(path, audit::verify(path, trusted), must_be_sealed);
        if report.ok {
            report.incomplete = incomplete(path, &report);
            report.ok = report.incomplete.is_none();
        }
        if !report.ok {
            exit = Exit::Failed;
        }
        if console.format == Format::Table {
            show(&report, console)?;
        }
        reports.push(report);
    }
    if console.format != Format::Table {
        console.json_list(&reports)?;
    }
    Ok(exit)
}

/// The keys whose seals count.
pub(super) fn trusted(files: &[PathBuf]) -> Result<Vec<PublicKey>, Failure> {
    if files.is_empty() {
        let Some(state) = environment::of_this_process().state() else { return Ok(Vec::new()) };
        return match SigningKey::load(&state_folder::key(&state)) {
            Ok(key) => Ok(vec![key.public()]),
            // Nothing was ever sealed here; any seal is then somebody else's.
            Err(KeyError::Disk { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(Vec::new())
            }
            Err(err) => Err(anyhow::Error::from(err).into()),
        };
    }
    let read = |file: &PathBuf| -> anyhow::Result<PublicKey> {
        let pem = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        PublicKey::from_pem(&pem).with_context(|| format!("cannot use {}", file.display()))
    };
    Ok(files.iter().map(read).collect::<anyhow::Result<_>>()?)
}

/// What was found out about one place.
#[derive(Debug, Serialize)]
struct VerifyReport {
    path: String,
    ok: bool,
    lines: Option<u64>,
    segments: Option<u64>,
    /// The log ended in order.
    closed: Option<bool>,
    recovered: Option<u64>,
    unclosed: Option<u64>,
    seal: Option<SealReport>,
    broken: Option<BreakReport>,
    /// Why it does not tell the whole run, although nothing was changed.
    incomplete: Option<String>,
}

/// Why evidence that is as it was written does not tell the whole run. A log that
/// is not sealed may still be written.
fn incomplete(path: &Path, report: &VerifyReport) -> Option<String> {
    let record = std::fs::read(path.join("run.json")).ok();
    let record: Option<Value> = record.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let outcome = record.as_ref().and_then(|record| record.get("outcome"));
    let word = |name| outcome.and_then(|outcome| outcome.get(name)).and_then(Value::as_str);
    if let (Some(kind @ ("lost" | "failed")), why) = (word("kind"), word("why")) {
        return Some(format!("the run is `{kind}`: {}", why.unwrap_or("nobody knows why")));
    }
    let broke_off = report.seal.is_some() && report.closed == Some(false);
    broke_off.then(|| "its log was never closed: whoever wrote it died".to_owned())
}

#[derive(Debug, Serialize)]
struct SealReport {
    key: String,
    time: String,
    files: u64,
}

/// The first place that is not as it was.
#[derive(Debug, Serialize)]
struct BreakReport {
    file: Option<String>,
    line: Option<u64>,
    offset: Option<u64>,
    what: String,
}

impl VerifyReport {
    fn of(path: &Path, verified: Result<Verified, VerifyError>, must_be_sealed: bool) -> Self {
        let path = Printable(&path.to_string_lossy()).to_string();
        let broken = match verified {
            Ok(Verified { log, seal }) if seal.is_some() || !must_be_sealed => {
                let log = log.as_ref();
                return Self {
                    path,
                    ok: true,
                    lines: log.map(|log| log.head.seq),
                    segments: log.map(|log| log.segments),
                    closed: log.map(|log| log.closed),
                    recovered: log.map(|log| log.recovered),
                    unclosed: log.map(|log| log.unclosed),
                    seal: seal.map(|seal| SealReport {
                        key: seal.key.id(),
                        time: seal.time.to_string(),
                        files: seal.files,
                    }),
                    broken: None,
                    incomplete: None,
                };
            }
            Ok(_) => BreakReport::whole("it is not sealed".to_owned()),
            Err(VerifyError::Broken(Break { file, place, fault })) => BreakReport {
                file: Some(file.display().to_string()),
                line: place.map(|LinePosition { line, .. }| line),
                offset: place.map(|LinePosition { offset, .. }| offset),
                what: fault.to_string(),
            },
            Err(VerifyError::Read { path, source }) => BreakReport {
                file: Some(path.display().to_string()),
                ..BreakReport::whole(format!("cannot be read: {source}"))
            },
            Err(err @ VerifyError::NoLog { .. }) => BreakReport::whole(err.to_string()),
        };
        Self {
            path,
            ok: false,
            lines: None,
            segments: None,
            closed: None,
            recovered: None,
            unclosed: None,
            seal: None,
            broken: Some(broken),
            incomplete: None,
        }
    }
}

impl BreakReport {
    fn whole(what: String) -> Self {
        Self { file: None, line: None, offset: None, what }
    }
}

fn show(report: &VerifyReport, console: &mut Console) -> Result<(), Failure> {
    let path = &report.path;
    if let Some(BreakReport { file, line, offset, what }) = &report.broken {
        let bad = console.toned(Tone::Bad, "NOT VERIFIED");
        let mut at = String::new();
        if let Some(file) = file {
            at.push_str(&format!("{}", Printable(file)));
        }
        if let (Some(line), Some(offset)) = (line, offset) {
            at.push_str(&format!(", line {line} (byte {offset})"));
        }
        let colon = if at.is_empty() { "" } else { ": " };
        return console.line(format_args!("{path}: {bad}: {at}{colon}{}", Printable(what)));
    }
    let good = match &report.incomplete {
        None => console.toned(Tone::Good, "whole"),
        Some(_) => console.toned(Tone::Bad, "NOT COMPLETE"),
    };
    let mut words: Vec<String> =
        report.incomplete.iter().map(|why| Printable(why).to_string()).collect();
    match (report.lines, report.segments) {
        (Some(lines), Some(segments)) => {
            let plural = if segments == 1 { "" } else { "s" };
            words.push(format!("{lines} lines in {segments} file{plural}"));
        }
        _ => words.push("no log".to_owned()),
    }
    if report.closed == Some(false) {
        words.push("not closed".to_owned());
    }
    if let Some(count) = report.recovered.filter(|count| *count > 0) {
        words.push(format!("recovered {count} times after a crash"));
    }
    if let Some(count) = report.unclosed.filter(|count| *count > 0) {
        words.push(format!("{count} entries never closed"));
    }
    match &report.seal {
        Some(SealReport { key, time, files }) => {
            words.push(format!("sealed {time} by {key}, {files} files"));
        }
        None => words.push("not sealed: a changed or missing end would not show".to_owned()),
    }
    console.line(format_args!("{path}: {good}: {}", words.join(", ")))
}
