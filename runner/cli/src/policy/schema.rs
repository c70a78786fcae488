//! `sluice policy schema`: the language, for editors.

use clap::Args;

use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Print the JSON Schema of policies, for editors.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  sluice policy schema > sandbox.policy.schema.json

and as the first line of the policy:
  # yaml-language-server: $schema=./sandbox.policy.schema.json")]
pub(super) struct Schema {}

pub(super) fn run(_: &Schema, console: &mut Console) -> Result<Exit, Failure> {
    // The schema is JSON whatever form was asked for.
    console.raw(policies::schema().as_bytes())?;
    Ok(Exit::Success)
}
