//! `sluice policy explain`: why a request gets the answer it gets.

use std::path::PathBuf;

use clap::Args;
use files::printable::Printable;
use policies::{Decision, Explanation, HeaderName, NotDoneYet, Rule, SampleRequest, Verdict};
use serde::Serialize;

use super::review;
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};

/// Explain how a policy answers one request, why, and what would change that.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  sluice policy explain sandbox.policy.yaml GET https://api.github.com/repos/acme/widgets

Exit codes: 0 answered, 1 the file cannot be read, 2 not valid;
with --exit-code also 3 for anything but allow.")]
pub(super) struct Explain {
    /// The policy.
    file: PathBuf,
    /// The method, such as GET.
    method: String,
    /// The URL; ws:// and wss:// ask for a WebSocket.
    url: String,
    /// The request asks to become a WebSocket.
    #[arg(long, env = "SLUICE_EXPLAIN_WEBSOCKET")]
    websocket: bool,
    /// A header of the request; may be given several times.
    #[arg(long, value_name = "NAME:VALUE", value_parser = header, env = "SLUICE_EXPLAIN_HEADER")]
    header: Vec<(HeaderName, String)>,
    /// Exit with code 3 unless the answer is allow.
    #[arg(long, env = "SLUICE_EXPLAIN_EXIT_CODE")]
    exit_code: bool,
}

fn header(written: &str) -> Result<(HeaderName, String), String> {
    let (name, value) =
        written.split_once(':').ok_or("write a name and a value, such as `accept: text/html`")?;
    let name = HeaderName::parse(name.trim()).map_err(|err| err.to_string())?;
    Ok((name, value.trim().to_owned()))
}

pub(super) fn run(asked: &Explain, console: &mut Console) -> Result<Exit, Failure> {
    let reviewed = review::read(&asked.file)?;
    reviewed.say_notes(console);
    let policy = reviewed.policy;
    let mut question = SampleRequest::new(&asked.method, &asked.url)
        .and_then(|question| question.with_headers(asked.header.iter().cloned()))
        .map_err(Failure::Usage)?;
    question.websocket |= asked.websocket;
    let explanation = policy.explain(&question);
    if console.format == Format::Table {
        show(&question, &explanation, console)?;
    } else {
        console.json(&ExplainReport::of(&question, &explanation))?;
    }
    let allowed = verdict_of(&explanation.decision) == Verdict::Allow;
    Ok(if asked.exit_code && !allowed { Exit::Denied } else { Exit::Success })
}

/// The machine-readable answer.
#[derive(Debug, Serialize)]
struct ExplainReport {
    method: &'static str,
    url: String,
    verdict: &'static str,
    code: &'static str,
    rule: Option<RuleRef>,
    because: String,
    /// Each way in which servers read the path, if there are several.
    readings: Vec<ReadingReport>,
    /// Rules that allow it, but lose to the one that decided.
    overruled: Vec<RuleRef>,
    near_misses: Vec<NearMissReport>,
    /// The narrowest entry for `net.allow` that would let it pass.
    would_allow: Option<String>,
    but: Option<String>,
}

#[derive(Debug, Serialize)]
struct ReadingReport {
    path: String,
    verdict: &'static str,
    rule: Option<String>,
}

#[derive(Debug, Serialize)]
struct NearMissReport {
    #[serde(flatten)]
    rule: RuleRef,
    lacks: &'static str,
    /// The reading of the path that the rule does not name, though it names the
    /// path as it is sent.
    reading: Option<String>,
}

#[derive(Debug, Serialize)]
struct RuleRef {
    id: String,
    file: String,
    line: usize,
    summary: String,
}

impl RuleRef {
    fn of(rule: &Rule) -> Self {
        let at = rule.location();
        Self {
            id: rule.id().to_owned(),
            file: at.source.to_string(),
            line: at.line,
            summary: rule.summary().to_owned(),
        }
    }
}

impl ExplainReport {
    fn of(asked: &SampleRequest, explanation: &Explanation<'_>) -> Self {
        let Explanation { decision, because, readings, overruled, near_misses, would_allow, but } =
            explanation;
        let reading = |reading: &policies::JudgedReading<'_>| ReadingReport {
            path: reading.path.clone(),
            verdict: reading.decision.verdict.as_str(),
            rule: reading.decision.rule_id().map(str::to_owned),
        };
        let near = |miss: &policies::NearMiss<'_>| NearMissReport {
            rule: RuleRef::of(miss.rule),
            lacks: miss.lacks.as_str(),
            reading: miss.reading.clone(),
        };
        Self {
            method: asked.method.as_str(),
            url: asked.url(),
            verdict: verdict_of(decision).as_str(),
            code: decision.not_done_yet().map_or_else(|| decision.code(), NotDoneYet::code),
            rule: decision.rule.map(RuleRef::of),
            because: because.clone(),
            readings: readings.iter().map(reading).collect(),
            overruled: overruled.iter().map(|rule| RuleRef::of(rule)).collect(),
            near_misses: near_misses.iter().map(near).collect(),
            would_allow: would_allow.clone(),
            but: but.clone(),
        }
    }
}

/// What a gateway does with it.
fn verdict_of(decision: &Decision<'_>) -> Verdict {
    if decision.not_done_yet().is_some() { Verdict::Deny } else { decision.verdict }
}

fn show(
    asked: &SampleRequest,
    explained: &Explanation<'_>,
    console: &mut Console,
) -> Result<(), Failure> {
    let answer = ExplainReport::of(asked, explained);
    let tone = match verdict_of(&explained.decision) {
        Verdict::Allow => Tone::Good,
        Verdict::Ask => Tone::Warn,
        Verdict::Deny => Tone::Bad,
    };
    let verdict = console.toned(tone, answer.verdict);
    console.line(format_args!("{verdict}  {} {}", answer.method, Printable(&answer.url)))?;
    if let Some(rule) = &answer.rule {
        console.line(format_args!("  rule     {} ({}:{})", rule.id, rule.file, rule.line))?;
    }
    console.line(format_args!("  because  {}", Printable(&answer.because)))?;
    for ReadingReport { path, verdict, rule } in &answer.readings {
        let by = rule.as_deref().unwrap_or("no rule matches");
        console.line(format_args!("  read as  {} {verdict}: {by}", Printable(path)))?;
    }
    let does = match explained.decision.verdict {
        Verdict::Allow => "allows",
        Verdict::Ask => "asks",
        Verdict::Deny => "denies",
    };
    if let Some(decided) = &answer.rule {
        for rule in &answer.overruled {
            console.line(format_args!(
                "  matches  {} ({}:{}), but `{}` {does}: {}",
                rule.id,
                rule.file,
                rule.line,
                decided.id,
                Printable(&rule.summary)
            ))?;
        }
    }
    for NearMissReport { rule, lacks, reading } in &answer.near_misses {
        let reading = reading.as_ref().map(|path| format!(" `{}`", Printable(path)));
        console.line(format_args!(
            "  near     {} ({}:{}) but for the {lacks}{}: {}",
            rule.id,
            rule.file,
            rule.line,
            reading.unwrap_or_default(),
            Printable(&rule.summary)
        ))?;
    }
    if let Some(but) = &answer.but {
        console.line(format_args!("  but      {}", Printable(but)))?;
    }
    if let Some(entry) = &answer.would_allow {
        let among = if answer.but.is_some() { "and then, under" } else { "to allow it, under" };
        console.line(format_args!("  {among} net.allow:"))?;
        console.line(format_args!("    - {}", Printable(entry)))?;
    }
    Ok(())
}
