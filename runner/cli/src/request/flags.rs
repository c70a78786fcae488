//! `sluice run`'s flags, and what they mean together with the configuration.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Args;
use engine::environment::Environment;
use engine::evidence::ValueKey;
use engine::phases::Phases;
use engine::plan::{Caller, name_of};
use engine::settings::Upstream;
use engine::spec::Approval;
use engine::state_folder;
use engine::workspace::owners::{Owners, owners};
use policies::{
    Cpus, FileGlob, HostName, HostPattern, ProcLimits, RunOverrides, Size, Span, Workspace,
};

use super::policy::{UnderPolicy, from_file, from_flags};
use super::secrets::SecretGrant;
use super::{BackendKind, Request, ResolvedRun, backend_kind, directory_of};
use super::{ours, pins, secrets};
use crate::config::{self, Config};
use crate::console::Console;
use crate::credentials;
use crate::exit::Failure;
use crate::policy::obey::{Chosen, ChosenBy};
use crate::policy::project::ProjectTree;

/// Run a command in a sandbox. Its exit code is the command's.
#[derive(Clone, Debug, Args)]
pub struct RunFlags {
    /// The policy [default: the configuration's, else sandbox.policy.yaml here once
    /// `sluice policy trust` approved it, else no network].
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
    #[arg(long, value_parser = backend_kind(), value_name = "NAME", env = "SLUICE_BACKEND", hide_env_values = true)]
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

    /// A file that is shown although such files hold credentials and are hidden.
    #[arg(
        long = "show",
        value_name = "PATH",
        value_parser = FileGlob::parse,
        env = "SLUICE_SHOW",
        value_delimiter = ',',
        hide_env_values = true
    )]
    show: Vec<FileGlob>,

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
    /// SLUICE_ENV has one a line.
    #[arg(
        short = 'e',
        long = "env",
        value_name = "NAME[=VALUE]",
        env = "SLUICE_ENV",
        hide_env_values = true
    )]
    env: Vec<String>,

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
    secrets: Vec<SecretGrant>,

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
    probe: bool,

    /// What stands before `--` and is no flag: a mistake that is explained.
    #[arg(hide = true, value_name = "STRAY")]
    stray: Vec<String>,

    /// The command and its arguments, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl RunFlags {
    /// What is meant, with the configuration and the policy read. Where nobody has
    /// approved the policy yet, a person at the terminal is asked.
    pub fn understand(
        &self,
        config: &Config,
        variables: &Environment,
        console: &mut Console,
    ) -> Result<ResolvedRun, Failure> {
        let phases = Phases::default();
        let command = self.command()?;
        let state = variables.state().ok_or_else(|| {
            Failure::Usage("neither XDG_STATE_HOME nor HOME says where evidence is kept".into())
        })?;
        let workspace = project(&self.workspace, self.mode.as_deref(), variables)?;
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
        let tree = ProjectTree::around(&workspace, variables.absolute("HOME"));
        let UnderPolicy { policy, approval, files, for_gateway, managers } = match self
            .choose(config)
        {
            Some((file, by)) => {
                let (permitted, dry_run) = (&config.permitted, self.dry_run);
                let chosen = Chosen { file, by, tree: &tree, permitted, state: &state, dry_run };
                from_file(chosen, &wanted, console)?
            }
            None => {
                notes.push(without_policy(&wanted));
                from_flags(&wanted)?
            }
        };
        if approval == Approval::None {
            notes.push(
                "the policy is not approved: a run would refuse it until `sluice policy trust`"
                    .to_owned(),
            );
        }
        notes.extend(managers.notes);
        let mode = self.mode.as_deref().and_then(mode);
        if let Some(asked) = mode.filter(|asked| *asked > policy.fs.workspace) {
            let permitted = name_of(policy.fs.workspace);
            let asked = name_of(asked);
            return Err(Failure::Usage(format!(
                "`--mode {asked}` is more than the policy permits, which is `{permitted}`; it \
                 would need `fs: {{workspace: {asked}}}`"
            )));
        }
        let sources = secrets::SecretSources {
            files: &files,
            configured: &config.permitted.secrets,
            granted: &self.secrets,
        };
        let (secrets, about) = secrets::settle(&policy, &sources)?;
        notes.extend(about);
        let in_force = mode.unwrap_or(policy.fs.workspace);
        let beside = |name: &str| directory_of(&files, name).unwrap_or_else(|| workspace.clone());
        let configuration = config::path(variables);
        let ours: Vec<&Path> = configuration.as_deref().into_iter().chain([&*state]).collect();
        ours::cannot_be_written(&ours, &workspace, in_force, &policy, beside)?;
        let is_shown = in_force != Workspace::None;
        let Owners { user, disk: owner, own_users, strangers } =
            owners(&workspace, is_shown, variables);
        if let Some(why) = strangers {
            notes.push(format!(
                "the project belongs to root, and nothing in a sandbox is root: user {} can \
                 change what everybody can, and make new files; it cannot appear as the owner \
                 here: {why}",
                user.uid
            ));
        }
        let environment = environment(&self.env, variables)?;
        notes.extend(credentials::warnings(&environment, &command));
        let given = environment.iter().chain(&managers.environment);
        let value_hashes = hashes(&state, given).unwrap_or_else(|err| {
            let key = state_folder::value_key(&state);
            notes.push(format!("variables are recorded by name alone: {}: {err}", key.display()));
            BTreeMap::new()
        });
        let mut roots = self.trust.clone();
        roots.extend(managers.authorities);
        let pins = pins::check(&self.pins, &config.upstreams, &policy)?;
        let trusted = pins::trusted(&roots)?;
        notes.extend(pins::notes(&pins, &trusted));
        let mut show = policy.fs.show.clone();
        show.extend(self.show.iter().cloned());
        let request = Request {
            caller: Caller::this(variables),
            value_hashes,
            show,
            pins,
            trusted,
            command,
            tty: std::io::stdin().is_terminal() && std::io::stdout().is_terminal(),
            fail_on_denied: self.fail_on_denied,
            probe: self.probe,
            no_sandbox: wanted.no_sandbox,
            terminal: text(variables, "TERM").unwrap_or_else(|| "xterm".to_owned()),
            backend: self.backend.or(config.backend).unwrap_or_default(),
            image: self.image.clone().or_else(|| config.image.clone()),
            user,
            own_users,
            owner,
            policies_here: ours::policies_in(&workspace),
            workspace,
            mode,
            approval,
            secrets,
            defaults: config.limits.clone(),
            environment,
            tools: managers.environment,
            runs: state_folder::runs(&state),
            files,
            notes,
        };
        let upstream = Upstream { pins: self.pins.clone(), roots, registries: managers.registries };
        let environment = variables.clone();
        Ok(ResolvedRun { request, policy, for_gateway, upstream, phases, state, environment })
    }
}

impl RunFlags {
    /// Whether there is something to run, also if it is written wrongly.
    pub(crate) fn names_a_command(&self) -> bool {
        !(self.command.is_empty() && self.stray.is_empty()) || self.shell.is_some()
    }

    /// The command and its arguments; empty if none was named.
    fn command(&self) -> Result<Vec<String>, Failure> {
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

    /// The policy's file, and who chose it.
    fn choose<'f>(&'f self, config: &'f Config) -> Option<(&'f Path, ChosenBy)> {
        let named = self.policy.as_deref().map(|file| (file, ChosenBy::Person));
        let configured = config.policy.as_deref().map(|file| (file, ChosenBy::Configuration));
        let here = Path::new(crate::policy::FILE);
        named.or(configured).or_else(|| here.exists().then_some((here, ChosenBy::Found)))
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

/// The directory that appears in the sandbox. Everything in it can be read there,
/// so it is not a whole machine and not a person's whole home.
fn project(
    written: &Path,
    mode: Option<&str>,
    variables: &Environment,
) -> Result<PathBuf, Failure> {
    let shown = written.display();
    let path = written.canonicalize().map_err(|err| {
        Failure::Usage(format!("there is no directory {shown} to work in: {err}"))
    })?;
    if !path.is_dir() {
        return Err(Failure::Usage(format!("{shown} is not a directory; -w takes the project's")));
    }
    let home = text(variables, "HOME").and_then(|home| Path::new(&home).canonicalize().ok());
    let what = match &home {
        _ if mode == Some("none") => return Ok(path),
        _ if path.parent().is_none() => "the whole file system",
        Some(home) if path == *home => "your whole home directory, keys and all",
        Some(home) if home.starts_with(&path) => "every home directory on this machine",
        Some(_) | None => return Ok(path),
    };
    Err(Failure::Usage(format!(
        "{} would be the project, which is {what}; go to a project's directory, name one with \
         `-w DIR`, or run without one with `--mode none`",
        path.display()
    )))
}

/// What is recorded of values that a person gave. The key is made for the first.
fn hashes<'v>(
    state: &Path,
    given: impl Iterator<Item = &'v (String, String)>,
) -> io::Result<BTreeMap<String, String>> {
    let mut given = given.peekable();
    if given.peek().is_none() {
        return Ok(BTreeMap::new());
    }
    let key = ValueKey::load_or_create(&state_folder::value_key(state))?;
    Ok(given.map(|(name, value)| (name.clone(), key.hash(name, value))).collect())
}

fn without_policy(wanted: &RunOverrides) -> String {
    let permitted = match (wanted.observe, wanted.allow.is_empty()) {
        (true, _) => "so everything passes and is recorded",
        (false, true) => "so there is no network; --allow HOST opens it to one host",
        (false, false) => "so the hosts after --allow can be read from, and no others",
    };
    format!("no policy was found, {permitted}; `sluice policy init` writes one")
}

fn mode(written: &str) -> Option<Workspace> {
    MODES.into_iter().find(|mode| name_of(*mode) == written)
}

const MODES: [Workspace; 4] =
    [Workspace::Direct, Workspace::None, Workspace::Overlay, Workspace::Readonly];

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
    variables: &Environment,
) -> Result<Vec<(String, String)>, Failure> {
    let mut set: Vec<(String, String)> = Vec::new();
    // The variable that stands for the flag has one a line; a flag's value may have lines.
    let twin = text(variables, "SLUICE_ENV").filter(|twin| written == [twin.as_str()]);
    let lines: Vec<String> = match &twin {
        Some(twin) => twin.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect(),
        None => written.to_vec(),
    };
    for entry in &lines {
        let (name, value) = match entry.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let ours = text(variables, entry).ok_or_else(|| {
                    Failure::Usage(format!("`{entry}` is not set here; write {entry}=VALUE"))
                })?;
                (entry.as_str(), ours)
            }
        };
        if !is_variable_name(name) || value.contains('\0') {
            let why = "a name has letters, digits, `_`, `.` and `-`, and begins with none of the last three but `_`";
            return Err(Failure::Usage(format!("`{entry}` is not NAME=VALUE: {why}")));
        }
        set.retain(|(known, _)| known != name);
        set.push((name.to_owned(), value));
    }
    Ok(set)
}

fn is_variable_name(name: &str) -> bool {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

fn text(variables: &Environment, name: &str) -> Option<String> {
    variables.variable(name)?.into_string().ok()
}
