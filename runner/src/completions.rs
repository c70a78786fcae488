//! `sluice completions`: what a shell needs to complete our commands.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Prints a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sluice completions bash > ~/.local/share/bash-completion/completions/sluice
  sluice completions zsh > \"${fpath[1]}/_sluice\"
  sluice completions fish > ~/.config/fish/completions/sluice.fish")]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(asked: &Completions, console: &mut Console) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(asked.shell, &mut Cli::command(), "sluice", &mut script);
    console.raw(&script)?;
    Ok(Exit::Success)
}
