//! The gateway's image: one static program, nothing else.
//!
//! Tagged by what is in it, so it is built once for each build of the program
//! and never mistaken for another.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use aws_lc_rs::digest::{Context, SHA256};
use bollard::query_parameters::BuildImageOptionsBuilder;
use bytes::Bytes;
use futures_util::StreamExt as _;

use super::program::must_be_static;

/// Makes sure that there is an image of `program`, and returns its name, which
/// begins with `registry`.
pub async fn ensure(
    api: &bollard::Docker,
    program: &Path,
    registry: &str,
) -> anyhow::Result<String> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    must_be_static(program, &bytes)?;
    let mut digest = Context::new(&SHA256);
    digest.update(&bytes);
    digest.update(DOCKERFILE.as_bytes());
    let digest = digest.finish();
    let digest: String = digest.as_ref().iter().take(8).map(|b| format!("{b:02x}")).collect();
    let name = format!("{registry}sluice/gateway:{digest}");
    if api.inspect_image(&name).await.is_ok() {
        return Ok(name);
    }
    build(api, &name, &bytes).await?;
    Ok(name)
}

async fn build(api: &bollard::Docker, name: &str, program: &[u8]) -> anyhow::Result<()> {
    let mut context = tar::Builder::new(Vec::new());
    add(&mut context, "Dockerfile", 0o644, DOCKERFILE.as_bytes())?;
    add(&mut context, "sluice-gateway", 0o755, program)?;
    let context = Bytes::from(context.into_inner()?);
    let options = BuildImageOptionsBuilder::new().t(name).rm(true).forcerm(true).build();
    let mut steps = api.build_image(options, None, Some(bollard::body_full(context)));
    while let Some(step) = steps.next().await {
        if let Some(err) = step?.error_detail {
            bail!(err.message.unwrap_or_default());
        }
    }
    Ok(())
}

fn add(
    tar: &mut tar::Builder<Vec<u8>>,
    name: &str,
    mode: u32,
    bytes: &[u8],
) -> std::io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(mode);
    header.set_cksum();
    tar.append_data(&mut header, name, bytes)
}

const DOCKERFILE: &str = "FROM scratch
COPY sluice-gateway /sluice-gateway
ENTRYPOINT [\"/sluice-gateway\"]
";
