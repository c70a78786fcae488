//! `sluice artifacts`: list what a run made, or copy it out.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use engine::evidence::artifacts;
use files::tree::Directory;

use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};
use crate::runs::{RunName, Runs};

/// List or copy a run's artifacts.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 listed or copied, 1 failed.")]
pub struct ArtifactsVerb {
    /// The run: `last`, its id, or the beginning of its id.
    run: RunName,
    #[command(flatten)]
    runs: Runs,
    /// Copy them into this directory, without replacing anything there.
    #[arg(long, value_name = "DIR", env = "SLUICE_ARTIFACTS_TO")]
    to: Option<PathBuf>,
}

pub fn run(asked: &ArtifactsVerb, console: &mut Console) -> Result<Exit, Failure> {
    let folder = asked.runs.open(&asked.run)?;
    let mut found = Vec::new();
    if let Ok(kept) = Directory::open(&folder.artifacts()) {
        found = artifacts::listed(&kept).context("cannot read the artifacts")?;
        if let Some(to) = &asked.to {
            artifacts::copy_out(&kept, &found, to)?;
        }
    }
    if console.format != Format::Table {
        console.json_list(&found)?;
        return Ok(Exit::Success);
    }
    for artifact in &found {
        console.line(format_args!("{:>12}  {}", artifact.size, artifact.path))?;
    }
    if found.is_empty() {
        console.say(console.toned_aside(Tone::Faint, "there are no artifacts"));
    }
    Ok(Exit::Success)
}
