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
    /// The policy [default: the configuration's, else sandbox.policy.yaml here once
    /// `sluice policy trust` approved it, else no network].
    #[arg(long, value_name = "FILE", env = "SLUICE_POLICY", hide_env_values = true)]
    pub(super) policy: Option<PathBuf>,

    /// A further host that may be read from; the policy must permit adding it.
    #[arg(
        long = "allow",
        value_name = "HOST",
        value_parser = HostPattern::parse,
        env = "SLUICE_ALLOW",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(super) allow: Vec<HostPattern>,

    #[command(flatten)]
    pub(super) on: BackendArgs,

    /// The project, which appears at /workspace.
    #[arg(
        short = 'w',
        long,
        value_name = "DIR",
        default_value = ".",
        env = "SLUICE_WORKSPACE",
        hide_env_values = true
    )]
    pub(super) workspace: PathBuf,

    /// How the project appears; never wider than the policy says.
    #[arg(
        long,
        value_name = "MODE",
        value_parser = mode(),
        env = "SLUICE_WORKSPACE_MODE",
        hide_env_values = true
    )]
    pub(super) mode: Option<Workspace>,

    /// A file that is shown although such files hold credentials and are hidden.
    #[arg(
        long = "show",
        value_name = "PATH",
        value_parser = FileGlob::parse,
        env = "SLUICE_SHOW",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(super) show: Vec<FileGlob>,

    /// Wall clock, such as 30m.
    #[arg(long, value_parser = Span::parse, env = "SLUICE_TIMEOUT", hide_env_values = true)]
    pub(super) timeout: Option<Span>,

    /// Memory, such as 2GiB.
    #[arg(long, value_parser = Size::parse, env = "SLUICE_MEMORY", hide_env_values = true)]
    pub(super) memory: Option<Size>,

    /// Processors, such as 2 or 0.5.
    #[arg(long, value_parser = Cpus::parse, env = "SLUICE_CPUS", hide_env_values = true)]
    pub(super) cpus: Option<Cpus>,

    /// Processes and threads.
    #[arg(
        long,
        value_parser = clap::value_parser!(u32).range(1..),
        env = "SLUICE_PIDS",
        hide_env_values = true
    )]
    pub(super) pids: Option<u32>,

    /// What may be written in one place, such as 4GiB.
    #[arg(long, value_parser = Size::parse, env = "SLUICE_DISK", hide_env_values = true)]
    pub(super) disk: Option<Size>,

    /// What the command may print, such as 64MiB.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = Size::parse,
        env = "SLUICE_OUTPUT_LIMIT",
        hide_env_values = true
    )]
    pub(super) output_limit: Option<Size>,

    /// A variable for the command: NAME=VALUE, or NAME to pass ours on.
    /// SLUICE_ENV has one a line.
    #[arg(
        short = 'e',
        long = "env",
        value_name = "NAME[=VALUE]",
        env = "SLUICE_ENV",
        hide_env_values = true
    )]
    pub(super) env: Vec<String>,

    /// A secret of the policy, and a host that may get it in this run. Its value is
    /// where your configuration, your policy or a preset says, else in your variable
    /// of that name.
    #[arg(
        long = "secret",
        value_name = "NAME@HOST",
        value_parser = SecretGrant::parse,
        env = "SLUICE_SECRET",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(super) secrets: Vec<SecretGrant>,

    /// Let pass what no rule names, and record it; the policy must permit it.
    #[arg(long, env = "SLUICE_OBSERVE", hide_env_values = true)]
    pub(super) observe: bool,

    /// Fail with code 3 if the gateway refused any request.
    #[arg(long, env = "SLUICE_FAIL_ON_DENIED", hide_env_values = true)]
    pub(super) fail_on_denied: bool,

    /// Where a name lives, for pilots and tests: NAME=ADDRESS[:PORT].
    #[arg(
        long = "pin",
        value_name = "NAME=ADDRESS",
        value_parser = pin,
        env = "SLUICE_PIN",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(super) pins: Vec<(String, String)>,

    /// A further authority that the gateway believes upstream, as a PEM file.
    #[arg(long = "trust", value_name = "FILE", env = "SLUICE_TRUST", hide_env_values = true)]
    pub(super) trust: Vec<PathBuf>,

    /// Run without a sandbox, as you; only where the policy permits it.
    #[arg(long, env = "SLUICE_NO_SANDBOX", hide_env_values = true)]
    pub(super) no_sandbox: bool,

    /// Say nothing at the end unless something went wrong.
    #[arg(short, long, env = "SLUICE_QUIET", hide_env_values = true)]
    pub quiet: bool,

    /// Print what would be done, and do nothing.
    #[arg(long, env = "SLUICE_DRY_RUN", hide_env_values = true)]
    pub dry_run: bool,

    /// A line for the shell, instead of a command: -c 'make && make test'.
    #[arg(
        short = 'c',
        long,
        value_name = "LINE",
        conflicts_with = "command",
        env = "SLUICE_SHELL_LINE",
        hide_env_values = true
    )]
    shell: Option<String>,

    /// Put the program `sluice-probe` into the sandbox: for trying it out.
    #[arg(long, hide = true, env = "SLUICE_PROBE", hide_env_values = true)]
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
                "`{first}` is no flag, and a command stands after `--`; write: sluice run {meant}"
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
