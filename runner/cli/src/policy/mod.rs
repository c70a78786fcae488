//! `sluice policy`: write, check and question policies.
//!
//! One file per verb. [`read`] is the way from a file name to a policy, and
//! [`files`] and [`registries`] are what it may look at on this machine. [`obey`]
//! is the only way to one that a sandbox is put under: [`project`] says whose word
//! a file is, and [`approvals`] what a person has approved.

mod approvals;
mod check;
mod explain;
pub(crate) mod files;
mod grants;
mod init;
mod lint;
pub(crate) mod obey;
mod presets;
pub(crate) mod project;
pub(crate) mod read;
pub(crate) mod registries;
mod review;
mod schema;
mod test;
mod trust;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::console::Console;
use crate::exit::{Exit, Failure};

/// The file that every verb looks for.
pub const FILE: &str = "sandbox.policy.yaml";

/// Create, check and explain policies.
#[derive(Debug, Args)]
pub struct PolicyVerb {
    #[command(subcommand)]
    verb: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    Check(check::CheckVerb),
    Explain(explain::Explain),
    Init(init::InitPolicy),
    Lint(lint::Lint),
    Presets(presets::Presets),
    Schema(schema::Schema),
    Test(test::Test),
    Trust(trust::Trust),
    Untrust(trust::Untrust),
}

/// Carries out one verb.
pub fn run(asked: &PolicyVerb, console: &mut Console) -> Result<Exit, Failure> {
    match &asked.verb {
        PolicyCommand::Check(asked) => check::run(asked, console),
        PolicyCommand::Explain(asked) => explain::run(asked, console),
        PolicyCommand::Init(asked) => init::run(asked, console),
        PolicyCommand::Lint(asked) => lint::run(asked, console),
        PolicyCommand::Presets(asked) => presets::run(asked, console),
        PolicyCommand::Schema(asked) => schema::run(asked, console),
        PolicyCommand::Test(asked) => test::run(asked, console),
        PolicyCommand::Trust(asked) => trust::run(asked, console),
        PolicyCommand::Untrust(asked) => trust::forget(asked, console),
    }
}

/// The policies a verb is about.
#[derive(Debug, Args)]
struct Which {
    /// Policy files.
    #[arg(value_name = "FILE", default_value = FILE)]
    files: Vec<PathBuf>,
}
