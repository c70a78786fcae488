//! `sluice image`.

use std::time::Instant;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use tokio::runtime::Runtime;

use super::agent;
use crate::backend::docker::Docker;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::request::AGENT_IMAGE;

/// Make the image that sandboxes are made of.
#[derive(Debug, Args)]
pub struct Image {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Build(Build),
}

/// Build the image from this machine's own packages; nothing is pulled.
#[derive(Debug, Args)]
struct Build {
    /// What to call it.
    #[arg(
        long,
        value_name = "IMAGE",
        default_value = AGENT_IMAGE,
        env = "SLUICE_IMAGE_NAME",
        hide_env_values = true
    )]
    name: String,
}

pub fn run(asked: &Image, console: &mut Console) -> Result<Exit, Failure> {
    let Verb::Build(Build { name }) = &asked.verb;
    console.say(format_args!("building {name} from this machine's packages; about a minute"));
    let begun = Instant::now();
    let runtime = Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let docker = Docker::connect().await?;
        agent::build(docker.api(), name).await
    })?;
    console.say(format_args!("built {name} in {} s", begun.elapsed().as_secs()));
    Ok(Exit::Success)
}
