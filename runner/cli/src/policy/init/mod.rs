//! `sluice policy init`: a first policy that suits the directory.
//!
//! The directory is looked at and never run: `.git/config`, `pyproject.toml`,
//! `package.json` and the like are read as text, and of what they say only
//! names that the policy language itself accepts get into the policy. Whoever
//! wrote those files chooses among presets and package names, nothing more.

mod draft;
mod node;
mod project_scan;
mod python;
mod remote;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use files::printable::Printable;
use serde::Serialize;

use super::{FILE, trust};
use crate::console::{Console, Format};
use crate::exit::{Exit, Failure};

/// Write a commented policy that suits a directory.
#[derive(Debug, Args)]
#[command(long_about = "Write a commented policy that suits a directory.

Looks for a git remote, Python, Node and Rust, and writes sandbox.policy.yaml with
the presets and rules they call for. Nothing in the directory is run.")]
pub(super) struct InitPolicy {
    /// The project's directory.
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Replace an existing policy.
    #[arg(long, env = "SLUICE_INIT_FORCE")]
    force: bool,
    /// Print the policy instead of writing it.
    #[arg(long, conflicts_with = "force", env = "SLUICE_INIT_STDOUT")]
    stdout: bool,
}

/// The machine-readable report.
#[derive(Debug, Serialize)]
struct Written {
    file: String,
    because: Vec<String>,
}

pub(super) fn run(asked: &InitPolicy, console: &mut Console) -> Result<Exit, Failure> {
    let dir = &asked.dir;
    if !dir.is_dir() {
        return Err(Failure::Usage(format!("{} is not a directory", dir.display())));
    }
    let sight = project_scan::look(dir);
    let text = draft::write(&sight);
    if asked.stdout {
        console.raw(text.as_bytes())?;
        return Ok(Exit::Success);
    }
    let path = if dir == Path::new(".") { FILE.into() } else { dir.join(FILE) };
    put(&path, &text, asked.force)?;
    // Whoever asked for it means it, as far as it is still what was written.
    let approved = trust::approve_written(&path, &text);

    let file = Printable(&path.to_string_lossy()).to_string();
    let because = sight.in_words();
    if console.format == Format::Table {
        console.line(format_args!("wrote {file}"))?;
        for words in because {
            console.say(format_args!("  {words}"));
        }
        if approved {
            console.say(
                "  runs obey it as it is; after a change, `sluice policy trust` approves it anew",
            );
        }
        console.say("next: read it, then `sluice policy check` and `sluice policy test`");
    } else {
        console.json(&Written { file, because })?;
    }
    Ok(Exit::Success)
}

/// Appears whole or not at all, and never through a link that somebody else
/// has put in its place.
fn put(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let written = if force { replace(path, text) } else { create(path, text) };
    match written {
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Err(anyhow::anyhow!(
            "{} already exists; --force replaces it, --stdout prints a new one",
            path.display()
        )
        .into()),
        other => Ok(other.with_context(|| format!("cannot write {}", path.display()))?),
    }
}

fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes()).inspect_err(|_| drop(fs::remove_file(path)))
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    audit::put_whole_file(path, 0o666, |file| file.write_all(text.as_bytes())).map(drop)
}
