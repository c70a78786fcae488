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
pub struct Policy {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Check(check::Check),
    Explain(explain::Explain),
    Init(init::Init),
    Lint(lint::Lint),
    Presets(presets::Presets),
    Schema(schema::Schema),
    Test(test::Test),
    Trust(trust::Trust),
    Untrust(trust::Untrust),
}

/// Carries out one verb.
pub fn run(asked: &Policy, console: &mut Console) -> Result<Exit, Failure> {
    match &asked.verb {
        Verb::Check(asked) => check::run(asked, console),
        Verb::Explain(asked) => explain::run(asked, console),
        Verb::Init(asked) => init::run(asked, console),
        Verb::Lint(asked) => lint::run(asked, console),
        Verb::Presets(asked) => presets::run(asked, console),
        Verb::Schema(asked) => schema::run(asked, console),
        Verb::Test(asked) => test::run(asked, console),
        Verb::Trust(asked) => trust::run(asked, console),
        Verb::Untrust(asked) => trust::forget(asked, console),
    }
}

/// The policies a verb is about.
#[derive(Debug, Args)]
struct Which {
    /// Policy files.
    #[arg(value_name = "FILE", default_value = FILE)]
    files: Vec<PathBuf>,
}
