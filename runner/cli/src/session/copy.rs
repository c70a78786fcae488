//! `sluice session cp`: files in and out of a session.
//!
//! The sandbox's own half is our program, so an image needs no tar. What comes
//! out is an archive from a sandbox: it is unpacked by the rules of
//! [`files::archive`], bounded, and refused whole if one entry leads elsewhere.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use engine::first_process;
use engine::outcome::{Outcome, Usage};
use engine::session::commands::{CommandEntry, Writing};
use engine::session::state::State;
use files::archive::{self, ArchiveLimits, Moved};
use files::printable::Printable;
use policies::Size;
use protocol::init::{CommandEnd, CommandSpec, InitMessage, Streams};
use serde::Serialize;

use super::find;
use crate::console::{Console, Format};
use crate::exit::{Exit, Failure};

/// Copy a file or directory into a session, or out of one.
#[derive(Clone, Debug, Args)]
#[command(after_help = "  sluice session cp build.sh work:/workspace/
  sluice session cp work:/workspace/dist ./dist

If DST is a directory that exists, the copy goes into it under its own name. Links that
point outside, devices and pipes are refused.")]
pub(crate) struct Cp {
    /// What to copy: a path on this machine, or NAME:PATH in a session.
    #[arg(value_name = "SRC")]
    from: String,
    /// Where to copy it: a path on this machine, or NAME:PATH in a session.
    #[arg(value_name = "DST")]
    to: String,
    /// Limit on the bytes copied [default: the session's disk limit].
    #[arg(long, value_parser = Size::parse, env = "SLUICE_CP_LIMIT")]
    limit: Option<Size>,
}

/// One side of a copy.
#[derive(Debug, Eq, PartialEq)]
enum CopyEndpoint {
    Here(PathBuf),
    InSession { session: String, path: String },
}

impl CopyEndpoint {
    /// A colon before any slash separates a session from a path inside it.
    fn parse(written: &str) -> Self {
        match written.split_once(':') {
            Some((session, path)) if !session.is_empty() && !session.contains('/') => {
                Self::InSession { session: session.to_owned(), path: path.to_owned() }
            }
            Some(_) | None => Self::Here(written.into()),
        }
    }
}

#[derive(Debug, Serialize)]
struct Copied {
    entries: u64,
    bytes: u64,
}

pub(crate) fn run(asked: &Cp, console: &mut Console) -> Result<Exit, Failure> {
    let (session, direction) =
        match (CopyEndpoint::parse(&asked.from), CopyEndpoint::parse(&asked.to)) {
            (CopyEndpoint::Here(from), CopyEndpoint::InSession { session, path }) => {
                (session, CopyDirection::In { from, path })
            }
            (CopyEndpoint::InSession { session, path }, CopyEndpoint::Here(to)) => {
                (session, CopyDirection::Out { path, to })
            }
            (CopyEndpoint::Here(_), CopyEndpoint::Here(_)) => {
                return Err(Failure::Usage(
                    "SRC or DST must be in a session; write it as NAME:/path".to_owned(),
                ));
            }
            (CopyEndpoint::InSession { .. }, CopyEndpoint::InSession { .. }) => {
                return Err(Failure::Usage(
                    "SRC and DST are both in a session; copy to this machine first".to_owned(),
                ));
            }
        };
    let state = find(&session)?;
    let bytes = asked.limit.map_or(state.plan().limits.disk, Size::bytes);
    let limits = ArchiveLimits { bytes, ..ArchiveLimits::default() };
    let Moved { entries, bytes } = copy(&state, &direction, &limits)?;
    if console.format == Format::Table {
        console.say(format_args!("copied {entries} files and directories, {bytes} bytes"));
    } else {
        console.json(&Copied { entries, bytes })?;
    }
    Ok(Exit::Success)
}

enum CopyDirection {
    In { from: PathBuf, path: String },
    Out { path: String, to: PathBuf },
}

impl CopyDirection {
    fn verb(&self) -> (&'static str, &str) {
        match self {
            Self::In { path, .. } => ("receive", path),
            Self::Out { path, .. } => ("send", path),
        }
    }
}

fn copy(state: &State, direction: &CopyDirection, limits: &ArchiveLimits) -> anyhow::Result<Moved> {
    let (verb, path) = direction.verb();
    let words = ["/run/sluice/init", "files", verb, &limits.bytes.to_string(), path];
    let words = words.map(str::to_owned).to_vec();
    let command = CommandSpec {
        words: words.clone(),
        directory: None,
        environment: Vec::new(),
        streams: Streams::Direct,
        deadline: Some(state.plan().limits.timeout),
        ends_sandbox: false,
        outlives_client: false,
    };
    let evidence = state.evidence()?;
    let writing =
        Writing::among_others(state.folder(), &evidence).context("the session has ended")?;
    let user = state.plan().host_user;
    let (their_input, input) = first_process::pipe_for(user)?;
    let (output, their_output) = io::pipe()?;
    let (errors, their_errors) = io::pipe()?;
    let given = [their_input.as_fd(), their_output.as_fd(), their_errors.as_fd()];
    for pipe in given {
        first_process::give(pipe, user)?;
    }
    let link = first_process::run(&state.socket(), command, &given)?;
    drop((their_input, their_output, their_errors));
    let (output, errors) = (OwnedFd::from(output), OwnedFd::from(errors));
    let entry =
        CommandEntry::begin(&writing, words, None, false).context("cannot record the copy")?;
    let complaint = thread::spawn(move || said(File::from(errors)));
    let moved = match direction {
        CopyDirection::In { from, .. } => {
            let sent = archive::send(from, limits, io::BufWriter::new(File::from(input)));
            let answer = said(File::from(output));
            sent.map_err(anyhow::Error::from).and_then(|_| counted(&answer))
        }
        CopyDirection::Out { to, .. } => {
            drop(input);
            let received = archive::receive(File::from(output), to, limits);
            received.map_err(anyhow::Error::from)
        }
    };
    // It has no reason to take long any more.
    let code = match first_process::facts(&link, END_TIMEOUT) {
        Ok((_, InitMessage::Ended(CommandEnd::Exited(code)))) => code,
        Ok((_, InitMessage::Ended(CommandEnd::Signaled(number)))) => 128_u8.saturating_add(number),
        Ok((_, InitMessage::Ended(CommandEnd::Deadline))) => 124,
        Ok(_) | Err(_) => 125,
    };
    let copied = moved.as_ref().map(|moved| moved.bytes).unwrap_or_default();
    let usage = Usage { output: copied, ..Usage::default() };
    entry.end(Outcome::Exited { code }, usage).context("cannot record the copy")?;
    let complaint = complaint.join().unwrap_or_default();
    match (moved, code) {
        (Ok(moved), 0) => Ok(moved),
        // What failed inside explains what failed here, not the other way round.
        (_, 1..) if !complaint.trim().is_empty() => {
            Err(anyhow!("in the session: {}", Printable(complaint.trim())))
        }
        (Err(err), _) => Err(err),
        (Ok(_), code) => Err(anyhow!("the copy ended with code {code} in the session")),
    }
}

/// A short text from inside.
fn said(from: File) -> String {
    let mut bytes = Vec::new();
    drop(from.take(MAX_COMPLAINT_BYTES).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn counted(answer: &str) -> anyhow::Result<Moved> {
    let numbers = answer.trim().split_once(' ');
    let moved = numbers.and_then(|(entries, bytes)| {
        Some(Moved { entries: entries.parse().ok()?, bytes: bytes.parse().ok()? })
    });
    moved.ok_or_else(|| anyhow!("the session did not report what it received"))
}

const END_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_COMPLAINT_BYTES: u64 = 16 * 1024;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_colon_before_any_slash_names_a_session() {
        let here = |path: &str| CopyEndpoint::Here(Path::new(path).to_owned());
        let inside = |session: &str, path: &str| CopyEndpoint::InSession {
            session: session.to_owned(),
            path: path.to_owned(),
        };
        for (written, meant) in [
            ("work:/workspace/a", inside("work", "/workspace/a")),
            ("work:a:b", inside("work", "a:b")),
            ("work:", inside("work", "")),
            ("a", here("a")),
            ("./a:b", here("./a:b")),
            ("/tmp/a:b", here("/tmp/a:b")),
            (":a", here(":a")),
        ] {
            assert_eq!(CopyEndpoint::parse(written), meant, "{written}");
        }
    }
}
