//! The image that agents run in, made from the packages of this machine's own
//! distribution.
//!
//! The recipe is `compose/images/agent/root-filesystem`, a script that people
//! can read and run themselves; this runs it and hands what it writes to the
//! engine, as it comes. What the image says of itself stands in `config` beside
//! it, so that both ways to build it make the same.

use std::fs;
use std::io::Read as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use audit::Digest;
use bollard::query_parameters::{
    CreateImageOptionsBuilder, RemoveImageOptions, TagImageOptionsBuilder,
};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::task;

use crate::environment::Environment;

const RECIPE: &str = include_str!("../../../../compose/images/agent/root-filesystem");
const CONFIG: &str = include_str!("../../../../compose/images/agent/config");

/// What the image says of itself, a line each.
///
/// The last is what `compose/images/agent/build` knows its own images by: the
/// digest of everything that the recipe is made of.
pub fn config(environment: &Environment) -> anyhow::Result<Vec<String>> {
    let mut recipe = [RECIPE, CONFIG].concat().into_bytes();
    let sources = environment.variable("SLUICE_APT_SOURCES");
    if let Some(sources) = sources.filter(|named| !named.is_empty()) {
        let read = fs::read(&sources);
        recipe.extend(read.with_context(|| {
            format!("SLUICE_APT_SOURCES names {}, which cannot be read", sources.display())
        })?);
    }
    let recipe = Digest::of(&recipe).to_string();
    let said = CONFIG
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@REVISION@", "unknown")
        .replace("@RECIPE@", recipe.get(..12).unwrap_or_default());
    Ok(said.lines().map(str::to_owned).collect())
}

/// Builds the image and gives it `name`, and lets it say `config` of itself.
///
/// An engine takes what has arrived for all there is. So the image has a name of
/// its own until the recipe is known to have ended well, and what `name` led to
/// before stays where it is.
pub async fn build(
    api: &bollard::Docker,
    name: &str,
    config: Vec<String>,
    environment: &Environment,
) -> anyhow::Result<()> {
    let (repository, tag) = name.rsplit_once(':').unwrap_or((name, "latest"));
    // Podman heeds no tag here: what it imports is the latest.
    let unfinished = format!("{repository}-unfinished-{}", std::process::id());
    let imported = import(api, &unfinished, config, environment).await;
    let named = async {
        imported?;
        let options = TagImageOptionsBuilder::new().repo(repository).tag(tag).build();
        api.tag_image(&unfinished, Some(options)).await.context("the engine did not name the image")
    };
    let named = named.await;
    drop(api.remove_image(&unfinished, None::<RemoveImageOptions>, None).await);
    named
}

/// Hands what the recipe writes to the engine.
async fn import(
    api: &bollard::Docker,
    name: &str,
    config: Vec<String>,
    environment: &Environment,
) -> anyhow::Result<()> {
    let (pieces, arriving) = mpsc::channel::<Bytes>(16);
    let environment = environment.clone();
    let recipe = task::spawn_blocking(move || follow(&pieces, &environment));
    let arriving = stream::unfold(arriving, |mut arriving| async move {
        arriving.recv().await.map(|piece| (piece, arriving))
    });
    let options = CreateImageOptionsBuilder::new().from_src("-").repo(name).tag("latest");
    let options = options.changes(config).build();
    let body = bollard::body_stream(arriving);
    let mut steps = api.create_image(Some(options), Some(body), None);
    let mut refused = None;
    while let Some(step) = steps.next().await {
        if let Err(err) = step {
            refused = Some(err);
        }
    }
    // What the recipe says explains more than what the engine made of it.
    recipe.await.context("the recipe was not followed to its end")??;
    match refused {
        Some(err) => Err(err).context("the engine did not take the image"),
        None => Ok(()),
    }
}

/// Runs the recipe and passes on what it writes.
fn follow(pieces: &mpsc::Sender<Bytes>, environment: &Environment) -> anyhow::Result<()> {
    let mut recipe = Command::new("sh")
        .args(["-c", RECIPE])
        .env_clear()
        .envs(environment.variables())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run the recipe")?;
    let mut output = recipe.stdout.take().context("the recipe has no output")?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let length = output.read(&mut buffer).context("cannot read from the recipe")?;
        let Some(piece) = buffer.get(..length).filter(|piece| !piece.is_empty()) else { break };
        if pieces.blocking_send(Bytes::copy_from_slice(piece)).is_err() {
            // The engine has hung up, and says why itself.
            drop(recipe.kill());
            break;
        }
    }
    let ended = recipe.wait().context("cannot wait for the recipe")?;
    if !ended.success() {
        bail!("the recipe failed ({ended}); what it said stands above");
    }
    Ok(())
}
