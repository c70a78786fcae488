//! The command line: what can be asked, and how the answer ends the process.
//!
//! Every flag has an environment variable of the same meaning, so that a CI job
//! or a wrapper can set it once. The variable's name says which verb it is for.

use clap::builder::BoolishValueParser;
use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::console::{Color, Console, Format};
use crate::exit::{Exit, Failure};
use crate::request::RunFlags;
use crate::verbs::{
    apply, artifacts, completions, demo, diff, doctor, image, logs, ls, rm, run, selftest, stats,
    sweep, transcript,
};
use crate::{audit, config, policy, session};

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
`run` ends with the command's own code, or with
  124  it took too long
  125  it was not run: the sandbox could not be made as planned
  126  it cannot be started
  127  it was not found
  128+n  signal n

Start with `sluice run -- COMMAND`; `sluice policy init` writes a policy."
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
    output: Form,

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

/// The forms that can be asked for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
enum Form {
    /// One JSON document.
    Json,
    /// One JSON object a line.
    Jsonl,
    /// A report for CI; of `selftest` alone.
    Junit,
    /// For people.
    #[default]
    Table,
}

impl Form {
    /// The form of all that is not a report for CI.
    fn usual(self) -> Format {
        match self {
            Self::Json => Format::Json,
            Self::Jsonl => Format::Jsonl,
            Self::Junit | Self::Table => Format::Table,
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring a run's changes into the project.
    Apply(apply::Apply),
    /// List what a run made, or copy it out.
    Artifacts(artifacts::ArtifactsVerb),
    /// Read what happened: follow, search, show, verify, export.
    Audit(Box<audit::Audit>),
    /// Print a completion script for a shell.
    Completions(completions::Completions),
    /// Write or show your configuration.
    Config(config::verb::ConfigVerb),
    Demo(demo::Demo),
    /// Show what a run changed in its workspace.
    Diff(diff::Diff),
    Doctor(doctor::Doctor),
    Image(image::Image),
    Logs(logs::Logs),
    Ls(ls::Ls),
    /// Write, check and question policies.
    Policy(policy::Policy),
    Rm(rm::Rm),
    Run(Box<RunFlags>),
    Selftest(selftest::Selftest),
    Session(session::Session),
    Stats(stats::StatsVerb),
    Sweep(sweep::Sweep),
    /// Show what the terminal of a run showed.
    Transcript(transcript::TranscriptVerb),
}

/// The command line of this process; a wrong one ends it.
pub fn parse() -> Cli {
    let command = command();
    let known = verbs(&command);
    let matches = command.try_get_matches().unwrap_or_else(|err| suggest(err, &known).exit());
    Cli::from_arg_matches(&matches).unwrap_or_else(|err| err.exit())
}

/// Every verb, those of others with their own name before it: `session cp`.
fn verbs(command: &clap::Command) -> Vec<String> {
    let verbs = command.get_subcommands().flat_map(|verb| {
        let name = verb.get_name().to_owned();
        let below = verb.get_subcommands().map(|below| format!("{name} {}", below.get_name()));
        below.chain([name.clone()]).collect::<Vec<_>>()
    });
    verbs.collect()
}

/// Names the verb that was probably meant.
fn suggest(mut err: clap::Error, known: &[String]) -> clap::Error {
    let Some(ContextValue::String(written)) = err.get(ContextKind::InvalidSubcommand) else {
        return err;
    };
    let below = format!(" {written}");
    let meant = known.iter().find(|verb| verb.ends_with(&below)).cloned().or_else(|| {
        let known = known.iter().map(String::as_str).filter(|verb| !verb.contains(' '));
        policies::did_you_mean(written, known).map(str::to_owned)
    });
    if let Some(meant) = meant {
        err.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant]));
    }
    err
}

/// Every verb and flag. A flag's variable says yes in the usual words: `1`, `true`,
/// `yes`, `on`.
pub fn command() -> clap::Command {
    with_usual_words(Cli::command())
}

fn with_usual_words(command: clap::Command) -> clap::Command {
    let switch = |arg: clap::Arg| match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(BoolishValueParser::new()),
        _ => arg,
    };
    let verbs: Vec<String> =
        command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let command = command.mut_args(switch);
    verbs.into_iter().fold(command, |command, verb| command.mut_subcommand(verb, with_usual_words))
}

/// Carries out one command line.
pub fn run(cli: Cli) -> Exit {
    let Common { output, color } = cli.common;
    let mut console = Console::standard(output.usual(), color);
    let ended = match &cli.command {
        Command::Selftest(asked) => selftest::run(asked, output == Form::Junit, &mut console),
        _ if output == Form::Junit => {
            Err(Failure::Usage("`-o junit` is for `sluice selftest` alone".to_owned()))
        }
        Command::Apply(asked) => apply::run(asked, &mut console),
        Command::Artifacts(asked) => artifacts::run(asked, &mut console),
        Command::Audit(asked) => audit::run(asked, &mut console),
        Command::Completions(asked) => completions::run(asked, Cli::command(), &mut console),
        Command::Config(asked) => config::verb::run(asked, &mut console),
        Command::Demo(asked) => demo::run(asked, &mut console),
        Command::Diff(asked) => diff::run(asked, &mut console),
        Command::Doctor(asked) => doctor::run(asked, &mut console),
        Command::Image(asked) => image::run(asked, &mut console),
        Command::Logs(asked) => logs::run(asked, &mut console),
        Command::Ls(asked) => ls::run(asked, &mut console),
        Command::Policy(asked) => policy::run(asked, &mut console),
        Command::Rm(asked) => rm::run(asked, &mut console),
        Command::Run(asked) => run::verb(asked, &mut console).map_err(Failure::before_the_command),
        Command::Session(asked) => session::run(asked, &mut console),
        Command::Stats(asked) => stats::run(asked, &mut console),
        Command::Sweep(asked) => sweep::run(asked, &mut console),
        Command::Transcript(asked) => transcript::run(asked, &mut console),
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
    match failure {
        Failure::Failed(_) | Failure::NotStarted(_) | Failure::Usage(_) => {
            console.error(failure.in_one_line());
        }
        Failure::OutputClosed => {}
        // Many lines, and harmless already.
        Failure::Policy(problems) => console.say(problems),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
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
