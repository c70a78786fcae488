//! `sluice session ls`.

use std::thread;
use std::time::Duration;

use clap::Args;
use engine::first_process::Answer;
use engine::run_lock::is_locked;
use engine::session::state::{self, State};
use files::printable::Printable;
use jiff::Timestamp;
use serde::Serialize;

use crate::console::{Console, Format, Tone};
use crate::environment;
use crate::exit::{Exit, Failure};

/// List sessions and their state.
#[derive(Debug, Args)]
pub(crate) struct Ls {}

/// One session, as it is listed.
#[derive(Debug, Serialize)]
struct SessionRow {
    name: String,
    run: String,
    backend: String,
    image: String,
    begun: Timestamp,
    until: Timestamp,
    state: SessionState,
    /// Commands that run at this moment.
    commands: Option<u64>,
}

/// How a session is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum SessionState {
    Alive,
    /// Something is being done to it at this moment.
    Changing,
    Dead,
    Expired,
    Silent,
}

impl SessionState {
    fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Changing => "changing",
            Self::Dead => "dead",
            Self::Expired => "expired",
            Self::Silent => "silent",
        }
    }
}

pub(crate) fn run(_: &Ls, console: &mut Console) -> Result<Exit, Failure> {
    let states = state::all(&environment::of_this_process().runtime());
    // Each is asked, all at once: one that is silent takes seconds.
    let rows: Vec<SessionRow> = thread::scope(|scope| {
        let asking: Vec<_> =
            states.iter().map(|state| scope.spawn(move || row(state, state.answer()))).collect();
        asking.into_iter().filter_map(|row| row.join().ok()).collect()
    });
    if console.format != Format::Table {
        console.json_list(&rows)?;
        return Ok(Exit::Success);
    }
    if rows.is_empty() {
        console.say("no sessions; `sluice session start` makes one");
        return Ok(Exit::Success);
    }
    let now = Timestamp::now();
    let wide = |of: fn(&SessionRow) -> &str, least: usize| {
        rows.iter().map(|row| Printable(of(row)).to_string().len()).max().unwrap_or(0).max(least)
    };
    let (name, backend, image) =
        (wide(|row| &row.name, 4), wide(|row| &row.backend, 7), wide(|row| &row.image, 5));
    console.line(format_args!(
        "{:<name$}  {:<22}  {:<backend$}  {:<image$}  {:>7}  {:>7}  STATE",
        "NAME", "RUN", "BACKEND", "IMAGE", "AGE", "EXPIRES"
    ))?;
    for row in &rows {
        let tone = if row.state == SessionState::Alive { Tone::Good } else { Tone::Warn };
        let state = match row.commands {
            Some(commands @ 1..) => format!("{}, {commands} running", row.state.name()),
            Some(0) | None => row.state.name().to_owned(),
        };
        let expires = match span(now, row.until) {
            Some(left) => short(left),
            None => "over".to_owned(),
        };
        console.line(format_args!(
            "{:<name$}  {:<22}  {:<backend$}  {:<image$}  {:>7}  {expires:>7}  {}",
            Printable(&row.name).to_string(),
            row.run,
            Printable(&row.backend).to_string(),
            Printable(&row.image).to_string(),
            short(span(row.begun, now).unwrap_or_default()),
            console.toned(tone, state),
        ))?;
    }
    Ok(Exit::Success)
}

fn row(state: &State, answer: Answer) -> SessionRow {
    let (session_state, commands) = match answer {
        Answer::Alive { commands } => (SessionState::Alive, Some(commands)),
        Answer::Silent => (SessionState::Silent, None),
        Answer::Gone if is_locked(state.folder()) => (SessionState::Changing, None),
        Answer::Gone if state.is_over(Timestamp::now()) => (SessionState::Expired, None),
        Answer::Gone => (SessionState::Dead, None),
    };
    SessionRow {
        name: state.name.clone(),
        run: state.run().to_string(),
        backend: state.plan().backend.to_string(),
        image: state.plan().image.clone(),
        begun: state.unsealed.begun,
        until: state.until(),
        state: session_state,
        commands,
    }
}

/// How long it is from one to the other, if the other is later.
fn span(from: Timestamp, to: Timestamp) -> Option<Duration> {
    Duration::try_from(to.duration_since(from)).ok().filter(|span| !span.is_zero())
}

/// Two digits or so, for people.
pub(super) fn short(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        for (seconds, shown) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7199, "119m"),
            (7260, "2h01m"),
            (172_800, "2d"),
        ] {
            assert_eq!(short(Duration::from_secs(seconds)), shown);
        }
    }
}
