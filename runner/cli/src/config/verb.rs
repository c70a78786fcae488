//! `sluice config`: what is configured, and where that comes from.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use engine::spec::BackendKind;
use files::printable::Printable;
use policies::SecretName;
use serde::Serialize;

use super::{Permitted, PermittedMount, SecretSource, UserConfig};
use crate::console::{Console, Format, Tone};
use crate::environment;
use crate::exit::{Exit, Failure};

/// Write or show your configuration.
#[derive(Debug, Args)]
pub struct ConfigVerb {
    #[command(subcommand)]
    verb: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    Init(InitConfig),
    Show(ShowConfig),
}

/// Write a configuration file with every setting explained and none set.
#[derive(Debug, Args)]
struct InitConfig {
    /// Replace an existing configuration.
    #[arg(long, env = "SLUICE_CONFIG_FORCE")]
    force: bool,
    /// Print it instead of writing it.
    #[arg(long, conflicts_with = "force", env = "SLUICE_CONFIG_STDOUT")]
    stdout: bool,
}

/// Show every setting and where it comes from: the file, a variable or the default.
#[derive(Debug, Args)]
#[command(after_help = "The file is $SLUICE_CONFIG, else $XDG_CONFIG_HOME/sluice/config.yaml.
Exit codes: 0 shown, 2 something in the file is wrong.")]
struct ShowConfig {}

/// One setting.
#[derive(Debug, Eq, PartialEq, Serialize)]
struct ShownSetting {
    name: String,
    /// Nothing if nobody sets it.
    value: Option<String>,
    /// The file, a variable, or `default`.
    from: String,
}

pub fn run(asked: &ConfigVerb, console: &mut Console) -> Result<Exit, Failure> {
    match &asked.verb {
        ConfigCommand::Init(asked) => init(asked, console),
        ConfigCommand::Show(ShowConfig {}) => show(console),
    }
}

fn init(asked: &InitConfig, console: &mut Console) -> Result<Exit, Failure> {
    if asked.stdout {
        console.raw(EXAMPLE.as_bytes())?;
        return Ok(Exit::Success);
    }
    let path = path()?;
    let cannot = || format!("cannot write {}", path.display());
    if let Some(above) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(above).with_context(cannot)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    if asked.force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let mut file = match options.open(&path) {
        Ok(file) => file,
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Failure::Usage(format!(
                "{} already exists; `sluice config show` shows its settings, --force replaces it",
                path.display()
            )));
        }
        Err(err) => Err(err).with_context(cannot)?,
    };
    file.write_all(EXAMPLE.as_bytes()).with_context(cannot)?;
    match console.format {
        Format::Table => console.line(format_args!("wrote {}", path.display()))?,
        Format::Json | Format::Jsonl => {
            console.json(&serde_json::json!({"file": path.display().to_string()}))?;
        }
    }
    Ok(Exit::Success)
}

fn path() -> Result<PathBuf, Failure> {
    super::path(environment::of_this_process()).ok_or_else(|| {
        Failure::Usage(
            "neither XDG_CONFIG_HOME nor HOME is an absolute path; say where the configuration is \
             with SLUICE_CONFIG"
                .to_owned(),
        )
    })
}

fn show(console: &mut Console) -> Result<Exit, Failure> {
    let path = path()?;
    // Without what variables add, which is shown as theirs.
    let environment = environment::of_this_process();
    let from_file = environment.without("SLUICE_UPSTREAMS").without("SLUICE_ATTACH");
    let config = super::load(&from_file)?;
    let settings =
        settings(&config, &path.display().to_string(), &|name| environment.variable(name));
    if console.format != Format::Table {
        console.json_list(&settings)?;
        return Ok(Exit::Success);
    }
    if fs::symlink_metadata(&path).is_err() {
        let none = format!("there is no {}; `sluice config init` writes one", path.display());
        console.say(Printable(&none));
    }
    let width = settings.iter().map(|it| it.name.len()).max().unwrap_or_default();
    let values = settings.iter().map(|it| it.value.as_deref().unwrap_or("-").chars().count());
    let values = values.max().unwrap_or_default().clamp(5, 40);
    console.line(
        console.toned(Tone::Faint, format_args!("{:width$}  {:values$}  FROM", "SETTING", "VALUE")),
    )?;
    for ShownSetting { name, value, from } in &settings {
        let value = Printable(value.as_deref().unwrap_or("-")).to_string();
        console.line(format_args!("{name:width$}  {value:values$}  {}", Printable(from)))?;
    }
    Ok(Exit::Success)
}

/// Every setting, in the order of the example: its name, the variable that may set
/// it, and what the file says.
fn settings(
    config: &UserConfig,
    file: &str,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Vec<ShownSetting> {
    let UserConfig { backend, attach, image, policy, .. } = config;
    let UserConfig { no_sandbox, upstreams, limits, permitted, .. } = config;
    let Permitted { mounts, overrides, secrets } = permitted;
    let (observe, unprotected) = (overrides.observe, overrides.no_sandbox);
    let max = &overrides.max;
    let policy = policy.as_ref().map(|policy| policy.display());
    let all = [
        ("backend", "SLUICE_BACKEND", told(backend.map(BackendKind::name))),
        ("attach", "SLUICE_ATTACH", told(*attach)),
        ("image", "SLUICE_IMAGE", told(image.as_ref())),
        ("policy", "SLUICE_POLICY", told(policy)),
        ("limits.cpus", "SLUICE_CPUS", told(limits.cpus)),
        ("limits.memory", "SLUICE_MEMORY", told(limits.memory)),
        ("limits.pids", "SLUICE_PIDS", told(limits.pids)),
        ("limits.disk", "SLUICE_DISK", told(limits.disk)),
        ("limits.timeout", "SLUICE_TIMEOUT", told(limits.timeout)),
        ("limits.output", "SLUICE_OUTPUT_LIMIT", told(limits.output)),
        ("mounts", NO_VARIABLE, listed(mounts.iter().map(mount))),
        ("overrides.allow", NO_VARIABLE, listed(overrides.allow.iter().map(ToString::to_string))),
        ("overrides.max.cpus", NO_VARIABLE, told(max.cpus)),
        ("overrides.max.memory", NO_VARIABLE, told(max.memory)),
        ("overrides.max.pids", NO_VARIABLE, told(max.pids)),
        ("overrides.max.disk", NO_VARIABLE, told(max.disk)),
        ("overrides.max.timeout", NO_VARIABLE, told(max.timeout)),
        ("overrides.max.output", NO_VARIABLE, told(max.output)),
        ("overrides.observe", NO_VARIABLE, told(observe.then_some(true))),
        ("overrides.no_sandbox", NO_VARIABLE, told(unprotected.then_some(true))),
        ("secrets", NO_VARIABLE, listed(secrets.iter().map(secret))),
        ("upstreams", "SLUICE_UPSTREAMS", listed(upstreams.iter().map(ToString::to_string))),
        ("no_sandbox", "SLUICE_NO_SANDBOX", told(no_sandbox.then_some(true))),
    ];
    let setting = |(name, from_variable, in_file): (&str, &str, Option<String>)| {
        let given = variable(from_variable).filter(|given| !given.is_empty());
        let given = given.map(|value| value.to_string_lossy().into_owned());
        let (value, from) = match (given, in_file) {
            (Some(value), _) => (Some(value), from_variable),
            (None, Some(value)) => (Some(value), file),
            (None, None) => (None, "default"),
        };
        ShownSetting { name: name.to_owned(), value, from: from.to_owned() }
    };
    all.into_iter().map(setting).collect()
}

fn told(value: Option<impl ToString>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn listed(all: impl Iterator<Item = String>) -> Option<String> {
    let all: Vec<String> = all.collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn mount(PermittedMount { source, writable }: &PermittedMount) -> String {
    format!("{}{}", source.display(), if *writable { " (rw)" } else { "" })
}

/// Its name and its hosts; never its value.
fn secret((name, source): (&SecretName, &SecretSource)) -> String {
    let hosts: Vec<String> = source.hosts.iter().map(ToString::to_string).collect();
    format!("{name} for {}", hosts.join(" "))
}

/// Only the file can say it: no variable has an empty name.
const NO_VARIABLE: &str = "";
/// Every setting, explained.
const EXAMPLE: &str = include_str!("example.yaml");

#[cfg(test)]
mod tests {
    use std::path::Path;

    use policies::Source;

    use super::*;

    /// The example with every comment of a setting taken away.
    fn uncommented() -> String {
        let setting = |line: &str| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with(' ') || rest.starts_with("  ") => rest.to_owned(),
            Some(_) | None => String::new(),
        };
        EXAMPLE.lines().map(|line| setting(line) + "\n").collect()
    }

    fn read(text: &str) -> UserConfig {
        let source = Source::new("config.yaml", text);
        super::super::read(&source, Path::new("/etc/sluice"), Some(Path::new("/home/me"))).unwrap()
    }

    #[test]
    fn the_example_sets_nothing_and_every_line_of_it_can_be_used() {
        assert_eq!(read(EXAMPLE), UserConfig::default());
        let config = read(&uncommented());
        let nobody = |_: &str| None;
        let set = settings(&config, "config.yaml", &nobody);
        let unset: Vec<&str> =
            set.iter().filter(|it| it.value.is_none()).map(|it| it.name.as_str()).collect();
        // What it shows as off, or of several of a kind not all.
        let not_shown = [
            "overrides.max.cpus",
            "overrides.max.pids",
            "overrides.max.disk",
            "overrides.max.output",
            "overrides.no_sandbox",
            "no_sandbox",
        ];
        assert_eq!(unset, not_shown);
        assert!(set.iter().all(|it| it.value.is_none() || it.from == "config.yaml"));
    }

    #[test]
    fn a_variable_counts_before_the_file_and_is_named() {
        let config = read("backend: docker\nimage: acme/agent\n");
        let variable = |name: &str| (name == "SLUICE_BACKEND").then(|| "podman".into());
        let set = settings(&config, "config.yaml", &variable);
        let found = |name: &str| set.iter().find(|it| it.name == name).unwrap();
        assert_eq!(found("backend").value.as_deref(), Some("podman"));
        assert_eq!(found("backend").from, "SLUICE_BACKEND");
        assert_eq!(found("image").from, "config.yaml");
        assert_eq!(
            (found("policy").value.as_deref(), found("policy").from.as_str()),
            (None, "default")
        );
    }

    #[test]
    fn the_variables_that_are_named_are_those_of_a_run() {
        let run = crate::cli::command();
        let run = run.find_subcommand("run").unwrap();
        let known: Vec<_> = run.get_arguments().filter_map(clap::Arg::get_env).collect();
        let everything = |name: &str| (name != NO_VARIABLE).then(|| name.into());
        for ShownSetting { name, from, .. } in settings(&UserConfig::default(), "file", &everything)
        {
            let is_known = known.iter().any(|known| *known == from.as_str());
            assert!(
                is_known
                    || from == "default"
                    || ["SLUICE_UPSTREAMS", "SLUICE_ATTACH"].contains(&from.as_str()),
                "{name}: {from}"
            );
        }
    }
}
