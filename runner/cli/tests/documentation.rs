//! `docs/cli.md` is made from the command line itself, so it cannot be out of date.
//!
//! `UPDATE_EXPECT=1 cargo test -p sluice-cli --test documentation` writes it anew.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what does not hold in a test ends it"
)]

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};
use cli::cli::Cli;
use engine::outcome::Outcome;
use expect_test::expect_file;

#[test]
fn the_page_is_what_the_command_line_is() {
    let mut sluice = Cli::command();
    sluice.build();
    let mut page = PREFACE.to_owned();
    verbs(&sluice, &mut page);
    page.push_str("\n## Every command\n\n");
    let common: Vec<&Arg> = shown(&sluice).collect();
    table(&common, &mut page);
    page.push_str("\n## How it ends\n\n");
    exit_codes(&sluice, &mut page);
    outcomes(&mut page);
    for command in sluice.get_subcommands().filter(|command| command.get_name() != "help") {
        section(command, &mut page);
    }
    expect_file!["../../../docs/cli.md"].assert_eq(&page);
}

const PREFACE: &str = "\
# The command line

Made from the program itself; do not edit. `UPDATE_EXPECT=1 cargo test -p sluice-cli --test documentation` writes it anew, and a
test fails when it is out of date.

Results go to standard output, everything else to standard error. A flag wins over its variable, and a variable over the
configuration file. A flag that takes a list takes its variable with commas between.

";

/// One line a verb, as `--help` has it.
fn verbs(sluice: &Command, page: &mut String) {
    page.push_str("| command | |\n|---|---|\n");
    let mut left: Vec<&Command> = vec![sluice];
    while let Some(command) = left.pop() {
        let inner: Vec<&Command> = verbs_of(command).collect();
        if inner.is_empty() {
            let name = full_name(command);
            let link = name.replace(' ', "-");
            writeln!(page, "| [`{name}`](#{link}) | {} |", cell(&about(command))).unwrap();
        }
        left.extend(inner.into_iter().rev());
    }
}

fn section(command: &Command, page: &mut String) {
    let inner: Vec<&Command> = verbs_of(command).collect();
    if !inner.is_empty() {
        for command in inner {
            section(command, page);
        }
        return;
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim();
    let long = command.get_long_about().or(command.get_about());
    let long = long.map(ToString::to_string).unwrap_or_default();
    writeln!(page, "\n## `{}`\n\n{long}\n\n```\n{usage}\n```", full_name(command)).unwrap();
    let flags: Vec<&Arg> = shown(command).filter(|arg| !arg.is_global_set()).collect();
    if !flags.is_empty() {
        page.push('\n');
        table(&flags, page);
    }
    if let Some(after) = command.get_after_help() {
        writeln!(page, "\n```\n{}\n```", after.to_string().trim()).unwrap();
    }
}

fn table(flags: &[&Arg], page: &mut String) {
    page.push_str("| | variable | default | |\n|---|---|---|---|\n");
    for flag in flags {
        let variable = flag.get_env().and_then(|name| name.to_str());
        let variable = variable.map(|name| format!("`{name}`")).unwrap_or_default();
        let takes_value = flag.get_action().takes_values();
        let default = flag.get_default_values().iter().filter_map(|value| value.to_str());
        let default: Vec<String> =
            default.filter(|_| takes_value).map(|value| format!("`{value}`")).collect();
        let help = flag.get_long_help().or(flag.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        writeln!(
            page,
            "| `{}` | {variable} | {} | {}{} |",
            cell(&spelling(flag)),
            default.join(", "),
            cell(&help),
            cell(&possible(flag)),
        )
        .unwrap();
    }
}

/// `-w, --workspace <DIR>`, or the name of what stands by itself.
fn spelling(flag: &Arg) -> String {
    if flag.is_positional() {
        return flag.to_string();
    }
    let short = flag.get_short().map(|short| format!("-{short}"));
    let long = flag.get_long().map(|long| format!("--{long}"));
    let mut spelt = [short, long].into_iter().flatten().collect::<Vec<_>>().join(", ");
    if flag.get_action().takes_values() {
        let names = flag.get_value_names().unwrap_or_default();
        for name in names {
            write!(spelt, " <{name}>").unwrap();
        }
    }
    spelt
}

fn possible(flag: &Arg) -> String {
    let values: Vec<String> = flag
        .get_possible_values()
        .iter()
        .filter(|value| flag.get_action().takes_values() && !value.is_hide_set())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({})", value.get_name(), help),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if values.is_empty() { String::new() } else { format!(": {}", values.join(", ")) }
}

fn exit_codes(sluice: &Command, page: &mut String) {
    let after = sluice.get_after_help().map(ToString::to_string).unwrap_or_default();
    let after = after.strip_prefix("Exit codes:\n").expect("the exit codes stand first");
    page.push_str("| exit code | |\n|---|---|\n");
    let mut rest = after.lines().take_while(|line| !line.is_empty());
    for line in rest.by_ref() {
        match line.strip_prefix("  ").and_then(|row| row.split_once("  ")) {
            Some((code, meaning)) => writeln!(page, "| {code} | {meaning} |").unwrap(),
            None => writeln!(page, "| | *{line}* |").unwrap(),
        }
    }
}

/// `outcome.kind` of `run.json`, with the code each one gives.
fn outcomes(page: &mut String) {
    page.push_str(
        "\nAn exit code alone does not say why. `run.json` does, in `outcome.kind`:\n\n\
         | kind | exit code | said as |\n|---|---|---|\n",
    );
    let mut last = None;
    while let Some(outcome) = after(last.as_ref()) {
        let kind = serde_json::to_value(&outcome).unwrap();
        let code = match &outcome {
            Outcome::Exited { .. } | Outcome::Pids { .. } => "the command's".to_owned(),
            Outcome::Disk { .. } => "the command's, or 137 if it was ended for it".to_owned(),
            Outcome::Cancelled { .. } => "128 and the signal's number".to_owned(),
            other => other.code().to_string(),
        };
        writeln!(page, "| `{}` | {code} | {outcome} |", kind["kind"].as_str().unwrap()).unwrap();
        last = Some(outcome);
    }
}

/// One of each, in order. A new one does not compile before it has its place here.
fn after(outcome: Option<&Outcome>) -> Option<Outcome> {
    Some(match outcome {
        None => Outcome::Exited { code: 7 },
        Some(Outcome::Exited { .. }) => Outcome::Timeout,
        Some(Outcome::Timeout) => Outcome::Oom,
        Some(Outcome::Oom) => Outcome::Pids { refused: 3, code: 1 },
        Some(Outcome::Pids { .. }) => Outcome::Disk { full: "/tmp".to_owned(), code: 1 },
        Some(Outcome::Disk { .. }) => Outcome::Output { limit: 67_108_864 },
        Some(Outcome::Output { .. }) => Outcome::Cancelled { signal: 2 },
        Some(Outcome::Cancelled { .. }) => Outcome::Denied { requests: 2 },
        Some(Outcome::Denied { .. }) => {
            Outcome::Failed { why: "its gateway died before it ended".to_owned() }
        }
        Some(Outcome::Failed { .. }) => {
            Outcome::Lost { why: "the sandbox is gone, and so is what it knew".to_owned() }
        }
        Some(Outcome::Lost { .. }) => Outcome::Stopped,
        Some(Outcome::Stopped) => Outcome::Expired,
        Some(Outcome::Expired) => return None,
    })
}

fn verbs_of(command: &Command) -> impl Iterator<Item = &Command> {
    let hidden = |inner: &&Command| inner.get_name() != "help" && !inner.is_hide_set();
    command.get_subcommands().filter(hidden)
}

/// Its arguments, without what clap adds to every command.
fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    let ours = |arg: &&Arg| !matches!(arg.get_id().as_str(), "help" | "version");
    command.get_arguments().filter(ours).filter(|arg| !arg.is_hide_set())
}

fn full_name(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).to_owned()
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// Text that stays in its cell.
fn cell(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ").replace('|', "\\|")
}
