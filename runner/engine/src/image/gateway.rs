//! The gateway's image: one static program, nothing else.
//!
//! Tagged by what is in it, so it is built once for each build of the program
//! and never mistaken for another.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use aws_lc_rs::digest::{Context, SHA256};
use bollard::query_parameters::{
    BuildImageOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptions,
};
use bytes::Bytes;
use futures_util::StreamExt as _;
use jiff::Timestamp;

use crate::environment::Environment;
use crate::static_program;

/// Makes sure that there is an image of `program`, and returns its name, which
/// begins with `registry`. Older ones that nobody uses go.
pub async fn ensure(
    api: &bollard::Docker,
    program: &Path,
    registry: &str,
) -> anyhow::Result<String> {
    let bytes = read(program)?;
    let name = format!("{registry}{}", name_of(&bytes));
    if api.inspect_image(&name).await.is_ok() {
        return Ok(name);
    }
    build(api, &name, &bytes).await?;
    prune(api, &name).await;
    Ok(name)
}

/// What the image of `program` is called, whether it is there or not.
///
/// The program is read once: as long as the file is the same, so is its name.
pub fn name(program: &Path, environment: &Environment) -> anyhow::Result<String> {
    let kept = environment.cache().map(|cache| cache.join("gateway-image"));
    let file = Fingerprint::of(program);
    let known = kept.as_ref().and_then(|kept| fs::read_to_string(kept).ok());
    if let (Some(file), Some(known)) = (&file, &known)
        && let Some(name) = known.strip_prefix(file.0.as_str())
        && is_a_name(name)
    {
        return Ok(name.to_owned());
    }
    let name = name_of(&read(program)?);
    if let (Some(file), Some(kept)) = (file, kept) {
        if let Some(above) = kept.parent() {
            drop(fs::create_dir_all(above));
        }
        // What cannot be kept is read again.
        drop(fs::write(kept, format!("{}{name}", file.0)));
    }
    Ok(name)
}

/// Which file it is, and which state of it: nobody changes a file without
/// moving one of these.
struct Fingerprint(String);

impl Fingerprint {
    fn of(program: &Path) -> Option<Self> {
        let found = program.metadata().ok()?;
        Some(Self(format!(
            "{} {} {} {} {}.{} ",
            program.display(),
            found.dev(),
            found.ino(),
            found.size(),
            found.ctime(),
            found.ctime_nsec()
        )))
    }
}

fn is_a_name(name: &str) -> bool {
    name.strip_prefix(REPOSITORY)
        .and_then(|rest| rest.strip_prefix(':'))
        .is_some_and(|tag| tag.len() == 16 && tag.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn read(program: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    static_program::check(program, &bytes)?;
    Ok(bytes)
}

fn name_of(program: &[u8]) -> String {
    let mut digest = Context::new(&SHA256);
    digest.update(program);
    digest.update(DOCKERFILE.as_bytes());
    let digest = digest.finish();
    let digest: String = digest.as_ref().iter().take(8).map(|b| format!("{b:02x}")).collect();
    format!("{REPOSITORY}:{digest}")
}

/// Removes images of older programs. The engine keeps those that a container
/// uses; those that are young may be wanted by somebody's other build.
async fn prune(api: &bollard::Docker, current: &str) {
    let ours = HashMap::from([("reference", vec![REPOSITORY.to_owned()])]);
    let options = ListImagesOptionsBuilder::new().filters(&ours).build();
    let young = Timestamp::now().as_second() - YOUNG.as_secs().cast_signed();
    for image in api.list_images(Some(options)).await.unwrap_or_default() {
        for tag in image.repo_tags.iter().filter(|tag| *tag != current && image.created < young) {
            // It is in use, or somebody else was faster.
            drop(api.remove_image(tag, None::<RemoveImageOptions>, None).await);
        }
    }
}

const REPOSITORY: &str = "sluice/gateway";
const YOUNG: Duration = Duration::from_secs(60 * 60);

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

/// How the C library is to copy memory. The one instruction it likes for large
/// copies is twenty times slower on some processors when both ends lie alike in
/// their pages, as bodies behind TLS headers do.
pub(crate) const PLAIN_COPIES: (&str, &str) =
    ("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=1000000000");

const DOCKERFILE: &str = "FROM scratch
ENV GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1000000000
COPY sluice-gateway /sluice-gateway
ENTRYPOINT [\"/sluice-gateway\"]
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_start_it_copy_memory_alike() {
        let (name, value) = PLAIN_COPIES;
        assert!(DOCKERFILE.contains(&format!("ENV {name}={value}\n")));
    }

    #[test]
    fn only_a_name_of_ours_is_believed() {
        assert!(is_a_name(&name_of(b"program")));
        for wrong in ["", "sluice/gateway:latest", "evil/gateway:0123456789abcdef"] {
            assert!(!is_a_name(wrong), "{wrong}");
        }
    }

    #[test]
    fn another_program_is_another_image() {
        assert_ne!(name_of(b"one"), name_of(b"other"));
    }
}
