//! Defaults for every run, from a file: `$XDG_CONFIG_HOME/sluice/config.yaml`.
//!
//! A file that is not there means nothing is configured; one that is broken is
//! an error with every problem named, never half a configuration.

mod permitted;
pub mod verb;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context as _;
use engine::environment::Environment;
use engine::spec::BackendKind;
use policies::yaml::{self, Item};
use policies::{Attachment, Cpus, OverridesSection, ProcLimits, SecretName, Size, Source, Span};

use crate::exit::Failure;
use permitted::{MountWritten, SecretWritten, Sections};
pub use permitted::{Permitted, PermittedMount, SecretSource};

/// What is configured; each may be left out.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UserConfig {
    pub backend: Option<BackendKind>,
    /// How sandboxes are attached to their gateways.
    pub attach: Option<Attachment>,
    pub image: Option<String>,
    pub policy: Option<PathBuf>,
    /// Runs have no sandbox, where their policy permits that.
    pub no_sandbox: bool,
    /// Addresses that are not public and that a name may be pinned to.
    pub upstreams: Vec<SocketAddr>,
    /// Where neither the policy nor a flag says anything.
    pub limits: ProcLimits,
    /// What policies of projects may grant.
    pub permitted: Permitted,
}

/// The file as written.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ConfigDocument {
    backend: Option<BackendKind>,
    attach: Option<Attachment>,
    image: Option<String>,
    policy: Option<String>,
    no_sandbox: bool,
    upstreams: Vec<UpstreamAddress>,
    limits: DefaultLimits,
    mounts: Vec<Item<MountWritten>>,
    overrides: OverridesSection,
    secrets: BTreeMap<SecretName, Item<SecretWritten>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DefaultLimits {
    cpus: Option<Cpus>,
    memory: Option<Size>,
    pids: Option<PidsLimit>,
    disk: Option<Size>,
    timeout: Option<Span>,
    output: Option<Size>,
}

/// Reads the configuration of whoever has these variables.
pub fn load(environment: &Environment) -> Result<UserConfig, Failure> {
    let mut config = match path(environment) {
        None => UserConfig::default(),
        Some(path) => match fs::read_to_string(&path) {
            Ok(text) => {
                let base = path.parent().unwrap_or(Path::new("/"));
                let home = environment.absolute("HOME");
                read(&Source::new(path.display().to_string(), text), base, home.as_deref())?
            }
            Err(err) if err.kind() == io::ErrorKind::NotFound => UserConfig::default(),
            Err(err) => Err(err).with_context(|| format!("cannot read {}", path.display()))?,
        },
    };
    if let Some(named) = environment.variable("SLUICE_ATTACH").filter(|named| !named.is_empty()) {
        let named = named.to_string_lossy();
        let attach = Attachment::named(&named).ok_or_else(|| {
            let known = Attachment::ALL.map(Attachment::name).join(", ");
            Failure::Usage(format!("SLUICE_ATTACH is `{named}`, and not one of {known}"))
        })?;
        config.attach = Some(attach);
    }
    if let Some(more) =
        environment.variable("SLUICE_UPSTREAMS").and_then(|more| more.into_string().ok())
    {
        for written in more.split(',').filter(|written| !written.is_empty()) {
            let upstream = UpstreamAddress::try_from(written.to_owned());
            let UpstreamAddress(address) =
                upstream.map_err(|why| Failure::Usage(format!("SLUICE_UPSTREAMS: {why}")))?;
            config.upstreams.push(address);
        }
    }
    Ok(config)
}

/// `$SLUICE_CONFIG`, else the file in the configuration directory.
pub(crate) fn path(environment: &Environment) -> Option<PathBuf> {
    if let Some(path) = environment.variable("SLUICE_CONFIG").filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let base = environment
        .absolute("XDG_CONFIG_HOME")
        .or_else(|| environment.absolute("HOME").map(|home| home.join(".config")))?;
    Some(base.join("sluice/config.yaml"))
}

/// Reads a configuration whose relative paths start at `base`.
fn read(source: &Source, base: &Path, home: Option<&Path>) -> Result<UserConfig, Failure> {
    // A file of comments says nothing, as one that is not there.
    let is_comment = |line: &str| line.is_empty() || line.starts_with('#');
    if source.text.lines().map(str::trim).all(is_comment) {
        return Ok(UserConfig::default());
    }
    let document = yaml::read(source)?;
    let ConfigDocument { backend, attach, image, policy, .. } = document;
    let ConfigDocument { no_sandbox, upstreams, limits, .. } = document;
    let ConfigDocument { mounts, overrides, secrets, .. } = document;
    Ok(UserConfig {
        permitted: Sections { mounts, overrides, secrets }.understand(source, home)?,
        backend,
        attach,
        image,
        policy: policy.map(|policy| base.join(policy)),
        no_sandbox,
        upstreams: upstreams.into_iter().map(|UpstreamAddress(address)| address).collect(),
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

/// An address with its port: a whole machine is more than anybody means.
#[derive(Debug, serde::Deserialize)]
#[serde(try_from = "String")]
struct UpstreamAddress(SocketAddr);

impl TryFrom<String> for UpstreamAddress {
    type Error = String;

    fn try_from(written: String) -> Result<Self, Self::Error> {
        let address = written.parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
        let address = address.ok_or_else(|| {
            format!("`{written}` is not an address with its port, such as `127.0.0.1:8443`")
        })?;
        Ok(Self(SocketAddr::new(address.ip().to_canonical(), address.port())))
    }
}

/// Zero would mean "nothing" to one reader and "no limit" to the next.
#[derive(Debug, serde::Deserialize)]
#[serde(try_from = "u32")]
struct PidsLimit(u32);

impl TryFrom<u32> for PidsLimit {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        if number == 0 { Err("it must be at least 1") } else { Ok(Self(number)) }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn read_text(text: &str) -> Result<UserConfig, Failure> {
        let home = Some(Path::new("/home/me"));
        read(&Source::new("config.yaml", text), Path::new("/etc/sluice"), home)
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
    fn what_projects_may_have_is_written_in_full() {
        let config = read_text(
            "mounts: [~/data, {source: /srv/out, mode: rw}]\n\
             overrides: {allow: [\"*.example.org\"], max: {memory: 4GiB}}\n\
             secrets: {KEY: {from: {env: MY_KEY}, hosts: [api.example]}}\n",
        );
        let Permitted { mounts, overrides, secrets } = config.unwrap().permitted;
        let mounts: Vec<_> = mounts.iter().map(|it| (it.source.to_str(), it.writable)).collect();
        assert_eq!(mounts, [(Some("/home/me/data"), false), (Some("/srv/out"), true)]);
        assert_eq!(overrides.allow.len(), 1);
        assert!(!overrides.no_sandbox && !overrides.observe);
        assert_eq!(secrets.values().next().unwrap().hosts[0].to_string(), "api.example");

        let err = read_text(
            "mounts: [data, {source: /a/../b}]\nsecrets: {KEY: {from: {env: K}, hosts: []}, LOST: {hosts: [a.example]}}\n",
        );
        expect![[r#"
            config.yaml:1:10: mounts[0]: `data` is not a whole path; write `/data` or `~/data`, without `..`
              1 | mounts: [data, {source: /a/../b}]
                |          ^^^^
            config.yaml:1:16: mounts[1]: `/a/../b` is not a whole path; write `/data` or `~/data`, without `..`
              1 | mounts: [data, {source: /a/../b}]
                |                ^
            config.yaml:2:16: secrets.KEY: `hosts` is empty, so the secret could go nowhere; name its hosts
              2 | secrets: {KEY: {from: {env: K}, hosts: []}, LOST: {hosts: [a.example]}}
                |                ^
            config.yaml:2:51: secrets.LOST: say where the value is: `from: {env: NAME}` or `from: {file: PATH}`
              2 | secrets: {KEY: {from: {env: K}, hosts: []}, LOST: {hosts: [a.example]}}
                |                                                   ^
        "#]]
        .assert_eq(&format!("{}\n", err.unwrap_err()));
    }

    #[test]
    fn no_file_is_no_configuration() {
        let nowhere = Environment::new([("HOME", "/nonexistent")]);
        assert_eq!(load(&nowhere).unwrap(), UserConfig::default());
    }
}
