//! The command line: what can be asked, and how the answer ends the process.
//!
//! Every flag has an environment variable of the same meaning, so that a CI job
//! or a wrapper can set it once. The variable's name says which verb it is for.

use clap::{Args, Parser, Subcommand};

use crate::completions::{self, Completions};
use crate::console::{Color, Console, Format, Tone};
use crate::exit::{Exit, Failure};
use crate::{audit, policy};

/// Run what you do not trust.
///
/// A policy says what a sandbox may do. The gateway holds it to that and writes
/// down what happened.
#[derive(Debug, Parser)]
#[command(
    name = "sluice",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Exit codes:
  0  done
  1  it failed, or what was checked did not hold
  2  wrong usage, or a policy that is not valid
  3  denied, where you asked to fail on that

Start with `sluice policy init`."
)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// What every verb understands.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
struct Common {
    /// The form of the result.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORM",
        env = "SLUICE_OUTPUT",
        hide_env_values = true
    )]
    output: Format,

    /// When to use colour; NO_COLOR is honoured.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        env = "SLUICE_COLOR",
        hide_env_values = true
    )]
    color: Color,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read what happened: follow, search, show, verify, export.
    Audit(audit::Audit),
    /// Print a completion script for a shell.
    Completions(Completions),
    /// Write, check and question policies.
    Policy(policy::Policy),
}

/// Carries out one command line.
pub fn run(cli: Cli) -> Exit {
    let Common { output, color } = cli.common;
    let mut console = Console::standard(output, color);
    let ended = match &cli.command {
        Command::Audit(asked) => audit::run(asked, &mut console),
        Command::Completions(asked) => completions::run(asked, &mut console),
        Command::Policy(asked) => policy::run(asked, &mut console),
    };
    // What is still buffered is part of the result: failing to write it counts.
    let flushed = console.flush();
    match ended.and_then(|exit| flushed.map(|()| exit)) {
        Ok(exit) => exit,
        Err(failure) => {
            tell(&failure, &mut console);
            failure.exit()
        }
    }
}

fn tell(failure: &Failure, console: &mut Console) {
    let error = console.toned_aside(Tone::Bad, "error:");
    match failure {
        Failure::Failed(_) | Failure::Usage(_) => {
            console.say(format_args!("{error} {}", failure.in_one_line()));
        }
        Failure::OutputClosed => {}
        // Many lines, and harmless already.
        Failure::Policy(problems) => console.say(problems),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_an_environment_twin() {
        let mut left = vec![Cli::command()];
        while let Some(command) = left.pop() {
            for flag in command.get_arguments().filter(|arg| !arg.is_positional()) {
                let twin = flag.get_env().and_then(|name| name.to_str()).unwrap_or_default();
                let at = format!("{} --{}", command.get_name(), flag.get_id());
                assert!(twin.starts_with("SLUICE_"), "{at}: {twin:?}");
                assert!(flag.is_hide_env_values_set(), "{at} shows its variable's value in --help");
            }
            left.extend(command.get_subcommands().cloned());
        }
    }
}
