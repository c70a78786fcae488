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
/// A policy says what a sandbox may do. The gateway enforces it and records
/// what happened.
#[derive(Debug, Parser)]
#[command(
    name = "sluice",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Exit codes:
  0  done
  1  failed, or a check did not pass
  2  wrong usage, or an invalid policy
  3  denied by policy, with --fail-on-denied or --exit-code
`run` exits with the command's own code, or with
  124  the command timed out
  125  the command was not run: the sandbox could not be set up
  126  the command cannot be started
  127  the command was not found
  128+n  the command was killed by signal n

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
    /// Output format.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORM",
        env = "SLUICE_OUTPUT"
    )]
    output: Form,

    /// When to use colour; NO_COLOR is honoured.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        env = "SLUICE_COLOR"
    )]
    color: Color,
}

/// The forms that can be asked for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
enum Form {
    /// One JSON document.
    Json,
    /// One JSON object per line.
    Jsonl,
    /// JUnit XML for CI; only for `selftest`.
    Junit,
    /// Text for people.
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
    Apply(apply::Apply),
    Artifacts(artifacts::ArtifactsVerb),
    Audit(Box<audit::Audit>),
    Completions(completions::Completions),
    Config(config::verb::ConfigVerb),
    Demo(demo::Demo),
    Diff(diff::Diff),
    Doctor(doctor::Doctor),
    Image(image::Image),
    Logs(logs::LogsVerb),
    Ls(ls::LsVerb),
    Policy(policy::PolicyVerb),
    Rm(rm::Rm),
    Run(Box<RunFlags>),
    Selftest(selftest::Selftest),
    Session(session::Session),
    Stats(stats::StatsVerb),
    Sweep(sweep::Sweep),
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

/// Every verb and flag. The variable of a switch says yes in the usual words: `1`,
/// `true`, `yes`, `on`. No help shows what a variable holds, which may be a secret.
pub fn command() -> clap::Command {
    with_variables(Cli::command())
}

fn with_variables(command: clap::Command) -> clap::Command {
    let verbs: Vec<String> =
        command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let command = command.mut_args(|arg| match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(BoolishValueParser::new()).hide_env_values(true),
        _ => arg.hide_env_values(true),
    });
    verbs.into_iter().fold(command, |command, verb| command.mut_subcommand(verb, with_variables))
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
        Command::Completions(asked) => completions::run(asked, command(), &mut console),
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

    /// Every argument, and the verb it is of.
    fn arguments() -> Vec<(String, clap::Arg)> {
        let mut found = Vec::new();
        let mut left = vec![command()];
        while let Some(command) = left.pop() {
            let name = command.get_name().to_owned();
            found.extend(command.get_arguments().map(|arg| (name.clone(), arg.clone())));
            left.extend(command.get_subcommands().cloned());
        }
        assert!(found.len() > 50, "{}", found.len());
        found
    }

    #[test]
    fn every_flag_has_an_environment_twin() {
        for (verb, flag) in arguments().into_iter().filter(|(_, arg)| !arg.is_positional()) {
            let twin = flag.get_env().and_then(|name| name.to_str()).unwrap_or_default();
            let at = format!("{verb} --{}", flag.get_id());
            assert!(twin.starts_with("SLUICE_"), "{at}: {twin:?}");
            assert!(flag.is_hide_env_values_set(), "{at} shows its variable's value in --help");
        }
    }

    #[test]
    fn every_verb_and_argument_has_help() {
        let mut left = vec![command()];
        while let Some(verb) = left.pop() {
            assert!(verb.get_about().is_some(), "{} has no help", verb.get_name());
            left.extend(verb.get_subcommands().cloned());
        }
        for (verb, arg) in arguments() {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.is_empty(), "{verb} {} has no help", arg.get_id());
        }
    }
}
