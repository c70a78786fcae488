//! Defaults for every run, from a file: `$XDG_CONFIG_HOME/sluice/config.yaml`.
//!
//! A file that is not there means nothing is configured; one that is broken is
//! an error with every problem named, never half a configuration.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context as _;
use policies::{Cpus, ProcLimits, Size, Source, Span, yaml};

use crate::exit::Failure;
use crate::place::{self, Variable};
use crate::request::BackendKind;

/// What is configured; each may be left out.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Config {
    pub backend: Option<BackendKind>,
    pub image: Option<String>,
    pub policy: Option<PathBuf>,
    /// Runs have no sandbox, where their policy permits that.
    pub no_sandbox: bool,
    /// Where neither the policy nor a flag says anything.
    pub limits: ProcLimits,
}

/// The file as written.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    backend: Option<BackendKind>,
    image: Option<String>,
    policy: Option<String>,
    no_sandbox: bool,
    limits: LimitsSection,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsSection {
    cpus: Option<Cpus>,
    memory: Option<Size>,
    pids: Option<AtLeastOne>,
    disk: Option<Size>,
    timeout: Option<Span>,
    output: Option<Size>,
}

/// Reads the configuration of whoever has these variables.
pub fn load(variable: Variable<'_>) -> Result<Config, Failure> {
    let Some(path) = path(variable) else { return Ok(Config::default()) };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Config::default()),
        Err(err) => Err(err).with_context(|| format!("cannot read {}", path.display()))?,
    };
    let base = path.parent().unwrap_or(Path::new("/"));
    read(&Source::new(path.display().to_string(), text), base)
}

/// `$SLUICE_CONFIG`, else the file in the configuration directory.
fn path(variable: Variable<'_>) -> Option<PathBuf> {
    if let Some(path) = variable("SLUICE_CONFIG").filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let base = place::absolute(variable, "XDG_CONFIG_HOME")
        .or_else(|| place::absolute(variable, "HOME").map(|home| home.join(".config")))?;
    Some(base.join("sluice/config.yaml"))
}

/// Reads a configuration whose relative paths start at `base`.
fn read(source: &Source, base: &Path) -> Result<Config, Failure> {
    let Document { backend, image, policy, no_sandbox, limits } = yaml::read(source)?;
    Ok(Config {
        backend,
        image,
        policy: policy.map(|policy| base.join(policy)),
        no_sandbox,
        limits: ProcLimits {
            cpus: limits.cpus,
            memory: limits.memory,
            pids: limits.pids.map(|pids| pids.0),
            disk: limits.disk,
            timeout: limits.timeout,
            output: limits.output,
        },
    })
}

/// Zero would mean "nothing" to one reader and "no limit" to the next.
#[derive(Debug, serde::Deserialize)]
#[serde(try_from = "u32")]
struct AtLeastOne(u32);

impl TryFrom<u32> for AtLeastOne {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        if number == 0 { Err("it must be at least 1") } else { Ok(Self(number)) }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn read_text(text: &str) -> Result<Config, Failure> {
        read(&Source::new("config.yaml", text), Path::new("/etc/sluice"))
    }

    #[test]
    fn a_configuration_means_what_it_says() {
        let config = read_text("image: acme/agent\npolicy: p.yaml\nlimits: {pids: 9}\n").unwrap();
        assert_eq!(config.image.as_deref(), Some("acme/agent"));
        assert_eq!(config.policy.as_deref(), Some(Path::new("/etc/sluice/p.yaml")));
        assert_eq!(config.limits.pids, Some(9));
    }

    #[test]
    fn every_problem_is_reported_and_none_becomes_a_default() {
        let err = read_text("imgae: x\nlimits: {pids: 0, memory: 64M}\nbackend: dokcer\n");
        expect![[r#"
            config.yaml:1:1: imgae: there is no field `imgae`; did you mean `image`?
              1 | imgae: x
                | ^^^^^
            config.yaml:2:16: limits.pids: it must be at least 1
              2 | limits: {pids: 0, memory: 64M}
                |                ^
            config.yaml:2:27: limits.memory: `64M` is not a size: write `64MiB`
              2 | limits: {pids: 0, memory: 64M}
                |                           ^^^
            config.yaml:3:10: backend: `dokcer` is not one of `auto`, `docker`, `namespaces`, `podman`; did you mean `docker`?
              3 | backend: dokcer
                |          ^^^^^^
        "#]]
        .assert_eq(&format!("{}\n", err.unwrap_err()));
    }

    #[test]
    fn no_file_is_no_configuration() {
        let nowhere = |name: &str| (name == "HOME").then(|| "/nonexistent".into());
        assert_eq!(load(&nowhere).unwrap(), Config::default());
    }
}
