//! `sluice run`'s flags, and what they mean together with the configuration.

use std::io::IsTerminal as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use policies::{Cpus, HostName, HostPattern, ProcLimits, RunOverrides, Size, Span, Workspace};

use super::policy::{UnderPolicy, from_file, from_flags};
use super::{BackendKind, Request, Understood};
use crate::config::Config;
use crate::exit::Failure;
use crate::place::{self, Variable};
use crate::run::phases::Phases;
use crate::settings::Upstream;
use crate::workspace::owners::{Owners, owners};

/// Run a command in a sandbox. Its exit code is the command's.
#[derive(Clone, Debug, Args)]
pub struct RunFlags {
    /// The policy [default: the configuration's, else sandbox.policy.yaml here,
    /// else no network].
    #[arg(long, value_name = "FILE", env = "SLUICE_POLICY", hide_env_values = true)]
    policy: Option<PathBuf>,

    /// A further host that may be read from; the policy must permit adding it.
    #[arg(
        long = "allow",
        value_name = "HOST",
        value_parser = HostPattern::parse,
        env = "SLUICE_ALLOW",
        value_delimiter = ',',
        hide_env_values = true
    )]
    allow: Vec<HostPattern>,

    /// Where the sandbox lives [default: auto, an engine if one answers, else
    /// namespaces].
    #[arg(long, value_enum, value_name = "NAME", env = "SLUICE_BACKEND", hide_env_values = true)]
    backend: Option<BackendKind>,

    /// The image the sandbox is made of.
    #[arg(long, value_name = "IMAGE", env = "SLUICE_IMAGE", hide_env_values = true)]
    image: Option<String>,

    /// The project, which appears at /workspace.
    #[arg(
        short = 'w',
        long,
        value_name = "DIR",
        default_value = ".",
        env = "SLUICE_WORKSPACE",
        hide_env_values = true
    )]
    workspace: PathBuf,

    /// How the project appears; never wider than the policy says.
    #[arg(
        long,
        value_name = "MODE",
        value_parser = ["overlay", "direct", "readonly", "none"],
        env = "SLUICE_WORKSPACE_MODE",
        hide_env_values = true
    )]
    mode: Option<String>,

    /// Wall clock, such as 30m.
    #[arg(long, value_parser = Span::parse, env = "SLUICE_TIMEOUT", hide_env_values = true)]
    timeout: Option<Span>,

    /// Memory, such as 2GiB.
    #[arg(long, value_parser = Size::parse, env = "SLUICE_MEMORY", hide_env_values = true)]
    memory: Option<Size>,

    /// Processors, such as 2 or 0.5.
    #[arg(long, value_parser = Cpus::parse, env = "SLUICE_CPUS", hide_env_values = true)]
    cpus: Option<Cpus>,

    /// Processes and threads.
    #[arg(
        long,
        value_parser = clap::value_parser!(u32).range(1..),
        env = "SLUICE_PIDS",
        hide_env_values = true
    )]
    pids: Option<u32>,

    /// What may be written in one place, such as 4GiB.
    #[arg(long, value_parser = Size::parse, env = "SLUICE_DISK", hide_env_values = true)]
    disk: Option<Size>,

    /// What the command may print, such as 64MiB.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = Size::parse,
        env = "SLUICE_OUTPUT_LIMIT",
        hide_env_values = true
    )]
    output_limit: Option<Size>,

    /// A variable for the command: NAME=VALUE, or NAME to pass ours on.
    #[arg(
        short = 'e',
        long = "env",
        value_name = "NAME[=VALUE]",
        env = "SLUICE_ENV",
        value_delimiter = ',',
        hide_env_values = true
    )]
    env: Vec<String>,

    /// Let pass what no rule names, and record it; the policy must permit it.
    #[arg(long, env = "SLUICE_OBSERVE", hide_env_values = true)]
    observe: bool,

    /// Fail with code 3 if the gateway refused any request.
    #[arg(long, env = "SLUICE_FAIL_ON_DENIED", hide_env_values = true)]
    fail_on_denied: bool,

    /// Where a name lives, for pilots and tests: NAME=ADDRESS[:PORT].
    #[arg(
        long = "pin",
        value_name = "NAME=ADDRESS",
        value_parser = pin,
        env = "SLUICE_PIN",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pins: Vec<(String, String)>,

    /// A further authority that the gateway believes upstream, as a PEM file.
    #[arg(long = "trust", value_name = "FILE", env = "SLUICE_TRUST", hide_env_values = true)]
    trust: Vec<PathBuf>,

    /// Run without a sandbox, as you; only where the policy permits it.
    #[arg(long, env = "SLUICE_NO_SANDBOX", hide_env_values = true)]
    no_sandbox: bool,

    /// Print what would be done, and do nothing.
    #[arg(long, env = "SLUICE_DRY_RUN", hide_env_values = true)]
    pub dry_run: bool,

    /// The command and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl RunFlags {
    /// What is meant, with the configuration and the policy read.
    pub fn understand(
        &self,
        config: &Config,
        variable: Variable<'_>,
    ) -> Result<Understood, Failure> {
        let phases = Phases::default();
        let state = place::state(variable).ok_or_else(|| {
            Failure::Usage("neither XDG_STATE_HOME nor HOME says where evidence is kept".into())
        })?;
        let workspace = self.workspace.canonicalize().with_context(|| {
            format!("there is no directory {} to work in", self.workspace.display())
        })?;
        let wanted = RunOverrides {
            allow: self.allow.clone(),
            proc: ProcLimits {
                cpus: self.cpus,
                memory: self.memory,
                pids: self.pids,
                disk: self.disk,
                timeout: self.timeout,
                output: self.output_limit,
            },
            observe: self.observe,
            no_sandbox: self.no_sandbox || config.no_sandbox,
        };
        let mut notes = Vec::new();
        let here = Path::new(crate::policy::FILE);
        let file = self.policy.clone().or_else(|| config.policy.clone());
        let file = file.or_else(|| here.exists().then(|| here.to_owned()));
        let UnderPolicy { policy, files, texts, managers } = match &file {
            Some(file) => from_file(file, &wanted)?,
            None => {
                notes.push(without_policy(&wanted));
                from_flags(&wanted)?
            }
        };
        notes.extend(managers.notes);
        let is_shown =
            self.mode.as_deref() != Some("none") && policy.fs.workspace != Workspace::None;
        let Owners { user, disk: owner, strangers } = owners(&workspace, is_shown, variable);
        if let Some(why) = strangers {
            notes.push(format!(
                "the project belongs to root, and nothing in a sandbox is root: user {} can \
                 change what everybody can, and make new files; it cannot appear as the owner \
                 here: {why}",
                user.uid
            ));
        }
        let request = Request {
            command: self.command.clone(),
            tty: std::io::stdin().is_terminal() && std::io::stdout().is_terminal(),
            fail_on_denied: self.fail_on_denied,
            no_sandbox: wanted.no_sandbox,
            keep_stdout: false,
            terminal: text(variable, "TERM").unwrap_or_else(|| "xterm".to_owned()),
            backend: self.backend.or(config.backend).unwrap_or_default(),
            image: self.image.clone().or_else(|| config.image.clone()),
            user,
            owner,
            workspace,
            mode: self.mode.as_deref().and_then(mode),
            defaults: config.limits.clone(),
            environment: environment(&self.env, variable)?,
            tools: managers.environment,
            runs: place::runs(&state),
            files,
            notes,
        };
        let mut roots = self.trust.clone();
        roots.extend(managers.authorities);
        let upstream = Upstream { pins: self.pins.clone(), roots, registries: managers.registries };
        Ok(Understood { request, policy, gateway_policy: texts, upstream, phases, state })
    }
}

/// The image that `sluice image build` makes.
pub const AGENT_IMAGE: &str = "sluice/agent";

fn without_policy(wanted: &RunOverrides) -> String {
    let permitted = match (wanted.observe, wanted.allow.is_empty()) {
        (true, _) => "so everything passes and is recorded",
        (false, true) => "so there is no network; --allow HOST opens it to one host",
        (false, false) => "so the hosts after --allow can be read from, and no others",
    };
    format!("no policy was found, {permitted}; `sluice policy init` writes one")
}

fn mode(written: &str) -> Option<Workspace> {
    Some(match written {
        "direct" => Workspace::Direct,
        "none" => Workspace::None,
        "overlay" => Workspace::Overlay,
        "readonly" => Workspace::Readonly,
        _ => return None,
    })
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

/// `NAME=VALUE`, or `NAME` for what it is here.
pub(crate) fn environment(
    written: &[String],
    variable: Variable<'_>,
) -> Result<Vec<(String, String)>, Failure> {
    let mut set: Vec<(String, String)> = Vec::new();
    for entry in written {
        let (name, value) = match entry.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let ours = text(variable, entry)
                    .ok_or_else(|| anyhow!("`{entry}` is not set here; write {entry}=VALUE"))?;
                (entry.as_str(), ours)
            }
        };
        if name.is_empty() || name.contains(char::is_control) || value.contains('\0') {
            return Err(Failure::Usage(format!("`{entry}` is not NAME=VALUE")));
        }
        set.retain(|(known, _)| known != name);
        set.push((name.to_owned(), value));
    }
    Ok(set)
}

fn text(variable: Variable<'_>, name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}
