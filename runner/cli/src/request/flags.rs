//! `sluice run`'s flags.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use engine::plan::name_of;
use policies::{Cpus, FileGlob, HostName, HostPattern, Size, Span, Workspace};

use super::BackendArgs;
use super::secrets::SecretGrant;
use crate::exit::Failure;

/// Run a command in a sandbox. Its exit code is the command's.
#[derive(Clone, Debug, Args)]
pub struct RunFlags {
    /// The policy file [default: the configuration's, else ./sandbox.policy.yaml once
    /// approved with `sluice policy trust`, else no network].
    #[arg(long, value_name = "FILE", env = "SLUICE_POLICY")]
    pub(super) policy: Option<PathBuf>,

    /// Also allow reading from this host, if the policy permits adding it.
    #[arg(
        long = "allow",
        value_name = "HOST",
        value_parser = HostPattern::parse,
        env = "SLUICE_ALLOW",
        value_delimiter = ','
    )]
    pub(super) allow: Vec<HostPattern>,

    #[command(flatten)]
    pub(super) on: BackendArgs,

    /// The project directory, mounted at /workspace.
    #[arg(short = 'w', long, value_name = "DIR", default_value = ".", env = "SLUICE_WORKSPACE")]
    pub(super) workspace: PathBuf,

    /// How the project is mounted; never wider than the policy permits.
    #[arg(long, value_name = "MODE", value_parser = mode(), env = "SLUICE_WORKSPACE_MODE")]
    pub(super) mode: Option<Workspace>,

    /// Show this file, although files of its kind hold credentials and are hidden.
    #[arg(
        long = "show",
        value_name = "PATH",
        value_parser = FileGlob::parse,
        env = "SLUICE_SHOW",
        value_delimiter = ','
    )]
    pub(super) show: Vec<FileGlob>,

    /// Time limit (wall clock), such as 30m.
    #[arg(long, value_parser = Span::parse, env = "SLUICE_TIMEOUT")]
    pub(super) timeout: Option<Span>,

    /// Memory limit, such as 2GiB.
    #[arg(long, value_parser = Size::parse, env = "SLUICE_MEMORY")]
    pub(super) memory: Option<Size>,

    /// CPU limit, such as 2 or 0.5.
    #[arg(long, value_parser = Cpus::parse, env = "SLUICE_CPUS")]
    pub(super) cpus: Option<Cpus>,

    /// Limit on processes and threads.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), env = "SLUICE_PIDS")]
    pub(super) pids: Option<u32>,

    /// Disk limit per writable directory, such as 4GiB.
    #[arg(long, value_parser = Size::parse, env = "SLUICE_DISK")]
    pub(super) disk: Option<Size>,

    /// Limit on what the command prints, such as 64MiB.
    #[arg(long, value_name = "SIZE", value_parser = Size::parse, env = "SLUICE_OUTPUT_LIMIT")]
    pub(super) output_limit: Option<Size>,

    /// Set a variable for the command: NAME=VALUE, or NAME to pass on your own value.
    /// SLUICE_ENV holds one per line.
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]", env = "SLUICE_ENV")]
    pub(super) env: Vec<String>,

    /// Let a host have a secret of the policy in this run. The value comes from where
    /// your configuration, your policy or a preset says, else from your variable of that
    /// name.
    #[arg(
        long = "secret",
        value_name = "NAME@HOST",
        value_parser = SecretGrant::parse,
        env = "SLUICE_SECRET",
        value_delimiter = ','
    )]
    pub(super) secrets: Vec<SecretGrant>,

    /// Allow and record what no rule matches, if the policy permits it.
    #[arg(long, env = "SLUICE_OBSERVE")]
    pub(super) observe: bool,

    /// Exit with code 3 if the command succeeds but a request was refused.
    #[arg(long, env = "SLUICE_FAIL_ON_DENIED")]
    pub(super) fail_on_denied: bool,

    /// Use this address for a name, for pilots and tests: NAME=ADDRESS[:PORT].
    #[arg(
        long = "pin",
        value_name = "NAME=ADDRESS",
        value_parser = pin,
        env = "SLUICE_PIN",
        value_delimiter = ','
    )]
    pub(super) pins: Vec<(String, String)>,

    /// PEM file of CA certificates that the gateway also trusts upstream.
    #[arg(long = "trust", value_name = "FILE", env = "SLUICE_TRUST")]
    pub(super) trust: Vec<PathBuf>,

    /// Run without a sandbox, as your own user, if the policy permits it.
    #[arg(long, env = "SLUICE_NO_SANDBOX")]
    pub(super) no_sandbox: bool,

    /// Print no summary at the end unless something went wrong.
    #[arg(short, long, env = "SLUICE_QUIET")]
    pub quiet: bool,

    /// Print the plan, and run nothing.
    #[arg(long, env = "SLUICE_DRY_RUN")]
    pub dry_run: bool,

    /// Run this shell line instead of a command: -c 'make && make test'.
    #[arg(
        short = 'c',
        long,
        value_name = "LINE",
        conflicts_with = "command",
        env = "SLUICE_SHELL_LINE"
    )]
    shell: Option<String>,

    /// Put the attack program `sluice-probe` into the sandbox.
    #[arg(long, hide = true, env = "SLUICE_PROBE")]
    pub(super) probe: bool,

    /// What stands before `--` and is no flag: a mistake that is explained.
    #[arg(hide = true, value_name = "STRAY")]
    stray: Vec<String>,

    /// The command and its arguments, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

impl RunFlags {
    /// Whether there is something to run, also if it is written wrongly.
    pub(crate) fn names_a_command(&self) -> bool {
        !(self.command.is_empty() && self.stray.is_empty()) || self.shell.is_some()
    }

    /// The command and its arguments; empty if none was named.
    pub(super) fn command(&self) -> Result<Vec<String>, Failure> {
        if let Some(first) = self.stray.first() {
            let words = self.stray.iter().chain(&self.command);
            let words: Vec<&str> = words.map(String::as_str).collect();
            let is_line = first.contains(|c: char| c.is_whitespace() || ";&|<>$`".contains(c));
            let meant = match is_line {
                true => format!("-c {}", quoted(first)),
                false => format!(
                    "-- {}",
                    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
                ),
            };
            return Err(Failure::Usage(format!(
                "`{first}` is not a flag, and the command comes after `--`; write: sluice run {meant}"
            )));
        }
        Ok(match &self.shell {
            Some(line) => ["sh", "-c", line].map(str::to_owned).to_vec(),
            None => self.command.clone(),
        })
    }
}

/// As a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Both sides are written into a file, so neither may be more than it seems.
fn pin(written: &str) -> Result<(String, String), String> {
    let wrong =
        || format!("`{written}` is not NAME=ADDRESS, such as `api.example.test=192.0.2.7:8443`");
    let (name, address) = written.split_once('=').ok_or_else(wrong)?;
    let name = HostName::parse(name).map_err(|err| err.to_string())?;
    let is_address = address.parse::<IpAddr>().is_ok() || address.parse::<SocketAddr>().is_ok();
    if is_address { Ok((name.as_str().to_owned(), address.to_owned())) } else { Err(wrong()) }
}

/// Reads how the project appears.
fn mode() -> impl TypedValueParser<Value = Workspace> {
    let modes = [Workspace::Overlay, Workspace::Direct, Workspace::Readonly, Workspace::None];
    PossibleValuesParser::new(modes.map(name_of)).map(move |name| {
        let named = modes.into_iter().find(|mode| name_of(*mode) == name);
        named.expect("only names that are listed pass")
    })
}
