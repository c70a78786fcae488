//! The image that agents run in, made from the packages of this machine's own
//! distribution.
//!
//! The recipe is `compose/images/agent/root-filesystem`, a script that people
//! can read and run themselves; this runs it and hands what it writes to the
//! engine, as it comes.

use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use bollard::query_parameters::CreateImageOptionsBuilder;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use std::io::Read as _;
use tokio::sync::mpsc;
use tokio::task;

const RECIPE: &str = include_str!("../../../compose/images/agent/root-filesystem");

/// Builds the image and gives it `name`.
pub async fn build(api: &bollard::Docker, name: &str) -> anyhow::Result<()> {
    let (repository, tag) = name.rsplit_once(':').unwrap_or((name, "latest"));
    let (pieces, arriving) = mpsc::channel::<Bytes>(16);
    let recipe = task::spawn_blocking(move || follow(&pieces));
    let arriving = stream::unfold(arriving, |mut arriving| async move {
        arriving.recv().await.map(|piece| (piece, arriving))
    });
    let options = CreateImageOptionsBuilder::new().from_src("-").repo(repository).tag(tag).build();
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
fn follow(pieces: &mpsc::Sender<Bytes>) -> anyhow::Result<()> {
    let mut recipe = Command::new("sh")
        .args(["-c", RECIPE])
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
