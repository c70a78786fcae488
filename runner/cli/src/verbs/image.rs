//! `sluice image`.

use std::time::Instant;

use clap::{Args, Subcommand};
use engine::backend;
use engine::spec::{AGENT_IMAGE, BackendKind};

use crate::caller;
use crate::console::Console;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::request::backend_kind;

/// Build the image that sandboxes are made of.
#[derive(Debug, Args)]
pub struct Image {
    #[command(subcommand)]
    verb: ImageCommand,
}

#[derive(Debug, Subcommand)]
enum ImageCommand {
    Build(Build),
}

/// Build the image from this machine's own packages; nothing is pulled.
#[derive(Debug, Args)]
struct Build {
    /// Name of the image.
    #[arg(long, value_name = "IMAGE", default_value = AGENT_IMAGE, env = "SLUICE_IMAGE_NAME")]
    name: String,
    /// The backend to build it for.
    #[arg(
        long,
        value_parser = backend_kind(),
        value_name = "NAME",
        default_value = "auto",
        env = "SLUICE_BACKEND"
    )]
    backend: BackendKind,
}

pub fn run(asked: &Image, console: &mut Console) -> Result<Exit, Failure> {
    let ImageCommand::Build(Build { name, backend: on }) = &asked.verb;
    console.say(format_args!("building {name} from this machine's packages; about a minute"));
    let begun = Instant::now();
    let runtime = caller::runtime()?;
    let built = runtime.block_on(async {
        let opened = backend::open(*on, environment::of_this_process()).await?;
        opened.backend.build_image(name).await
    });
    built.map_err(anyhow::Error::new)?;
    console.say(format_args!("built {name} in {} s", begun.elapsed().as_secs()));
    Ok(Exit::Success)
}
