//! From the flags of a run to everything that is meant by them: the configuration,
//! the policy and the project are read, and what they do not permit is refused.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use engine::environment::Environment;
use engine::phases::Phases;
use engine::plan::{StartedBy, name_of};
use engine::settings::Upstream;
use engine::spec::{
    Approval, Request, ResolvedRun, SecretPlan, TrustedRoot, UpstreamPin, directory_of,
};
use engine::state_folder;
use engine::workspace::owners::{Owners, owners};
use policies::{Policy, ProcLimits, RunOverrides, Workspace};

use super::RunFlags;
use super::policy::{UnderPolicy, from_file, from_flags};
use super::variables::{environment, hashes, text};
use super::{ours, pins, secrets};
use crate::config::{self, UserConfig};
use crate::console::Console;
use crate::credentials;
use crate::exit::Failure;
use crate::policy::obey::{Chosen, ChosenBy};
use crate::policy::project::ProjectTree;
use crate::policy::read::FilesRead;

impl RunFlags {
    /// What is meant, with the configuration and the policy read. Where nobody has
    /// approved the policy yet, a person at the terminal is asked.
    pub(crate) fn resolve(
        &self,
        variables: &Environment,
        console: &mut Console,
    ) -> Result<ResolvedRun, Failure> {
        let config = &config::load(variables)?;
        let phases = Phases::default();
        let command = self.command()?;
        let mut steps = Steps::new(self, config, variables)?;
        let UnderPolicy { policy, approval, files, for_gateway, managers } =
            steps.read_policy(console)?;
        steps.note_approval(approval);
        steps.notes.extend(managers.notes);
        let mode = steps.check_mode(&policy)?;
        let secrets = steps.settle_secrets(&policy, &files)?;
        let in_force = mode.unwrap_or(policy.fs.workspace);
        steps.protect_our_files(in_force, &policy, &files)?;
        let owners = steps.find_owners(in_force);
        let environment = environment(&self.env, variables)?;
        steps.notes.extend(credentials::warnings(&environment, &command));
        let value_hashes = steps.hash_values(environment.iter().chain(&managers.environment));
        let roots = [self.trust.clone(), managers.authorities].concat();
        let (pins, trusted) = steps.check_pins(&roots, &policy)?;

        let Steps { state, workspace, wanted, notes, .. } = steps;
        let request = Request {
            caller: StartedBy::this(variables),
            value_hashes,
            show: [&policy.fs.show[..], &self.show].concat(),
            pins,
            trusted,
            command,
            tty: io::stdin().is_terminal() && io::stdout().is_terminal(),
            fail_on_denied: self.fail_on_denied,
            probe: self.probe,
            no_sandbox: wanted.no_sandbox,
            terminal: text(variables, "TERM").unwrap_or_else(|| "xterm".to_owned()),
            backend: self.on.kind(config),
            attach: config.attach,
            image: self.on.image(config),
            user: owners.user,
            own_users: owners.own_users,
            owner: owners.disk,
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

    /// The policy's file, and who chose it.
    fn choose_policy<'f>(&'f self, config: &'f UserConfig) -> Option<(&'f Path, ChosenBy)> {
        let named = self.policy.as_deref().map(|file| (file, ChosenBy::Person));
        let configured = config.policy.as_deref().map(|file| (file, ChosenBy::Configuration));
        let here = Path::new(crate::policy::FILE);
        named.or(configured).or_else(|| here.exists().then_some((here, ChosenBy::Found)))
    }

    /// What the run asks for beyond its policy.
    fn overrides(&self, config: &UserConfig) -> RunOverrides {
        RunOverrides {
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
        }
    }
}

/// What every step of [`RunFlags::resolve`] looks at.
struct Steps<'s> {
    flags: &'s RunFlags,
    config: &'s UserConfig,
    variables: &'s Environment,
    /// Our own state directory.
    state: PathBuf,
    /// The project's directory.
    workspace: PathBuf,
    wanted: RunOverrides,
    /// What a person should know before the run.
    notes: Vec<String>,
}

impl<'s> Steps<'s> {
    fn new(
        flags: &'s RunFlags,
        config: &'s UserConfig,
        variables: &'s Environment,
    ) -> Result<Self, Failure> {
        let state = variables.state().ok_or_else(|| {
            Failure::Usage("neither XDG_STATE_HOME nor HOME says where evidence is kept".into())
        })?;
        let workspace = project(&flags.workspace, flags.mode, variables)?;
        let wanted = flags.overrides(config);
        Ok(Self { flags, config, variables, state, workspace, wanted, notes: Vec::new() })
    }

    fn read_policy(&mut self, console: &mut Console) -> Result<UnderPolicy, Failure> {
        let Some((file, by)) = self.flags.choose_policy(self.config) else {
            self.notes.push(without_policy(&self.wanted));
            return from_flags(&self.wanted);
        };
        let tree = ProjectTree::around(&self.workspace, self.variables.absolute("HOME"));
        let (permitted, dry_run) = (&self.config.permitted, self.flags.dry_run);
        let chosen = Chosen { file, by, tree: &tree, permitted, state: &self.state, dry_run };
        from_file(chosen, &self.wanted, console)
    }

    fn note_approval(&mut self, approval: Approval) {
        if approval == Approval::None {
            let note =
                "the policy is not approved: a run would refuse it until `sluice policy trust`";
            self.notes.push(note.to_owned());
        }
    }

    /// How the project is to appear, if a flag says it and the policy permits that.
    fn check_mode(&self, policy: &Policy) -> Result<Option<Workspace>, Failure> {
        let permitted = policy.fs.workspace;
        match self.flags.mode {
            Some(asked) if asked > permitted => {
                let (asked, permitted) = (name_of(asked), name_of(permitted));
                Err(Failure::Usage(format!(
                    "`--mode {asked}` is more than the policy permits, which is `{permitted}`; it \
                     would need `fs: {{workspace: {asked}}}`"
                )))
            }
            mode => Ok(mode),
        }
    }

    fn settle_secrets(
        &mut self,
        policy: &Policy,
        files: &FilesRead,
    ) -> Result<Vec<SecretPlan>, Failure> {
        let configured = &self.config.permitted.secrets;
        let granted = &self.flags.secrets;
        let sources = secrets::SecretSources { files, configured, granted };
        let (secrets, notes) = secrets::settle(policy, &sources)?;
        self.notes.extend(notes);
        Ok(secrets)
    }

    /// Refuses a run that could write our configuration or our state.
    fn protect_our_files(
        &self,
        mode: Workspace,
        policy: &Policy,
        files: &FilesRead,
    ) -> Result<(), Failure> {
        let beside =
            |name: &str| directory_of(files, name).unwrap_or_else(|| self.workspace.clone());
        let configuration = config::path(self.variables);
        let ours: Vec<&Path> = configuration.as_deref().into_iter().chain([&*self.state]).collect();
        ours::cannot_be_written(&ours, &self.workspace, mode, policy, beside)
    }

    /// Whom the sandbox's user and the project's files belong to.
    fn find_owners(&mut self, mode: Workspace) -> Owners {
        let owners = owners(&self.workspace, mode != Workspace::None, self.variables);
        if let Some(why) = &owners.strangers {
            self.notes.push(format!(
                "the project belongs to root, and nothing in a sandbox is root: user {} can \
                 change what everybody can, and make new files; it cannot appear as the owner \
                 here: {why}",
                owners.user.uid
            ));
        }
        owners
    }

    /// What is recorded of values that a person gave.
    fn hash_values<'v>(
        &mut self,
        given: impl Iterator<Item = &'v (String, String)>,
    ) -> BTreeMap<String, String> {
        hashes(&self.state, given).unwrap_or_else(|err| {
            let key = state_folder::value_key(&self.state);
            let key = key.display();
            self.notes.push(format!("variables are recorded by name alone: {key}: {err}"));
            BTreeMap::new()
        })
    }

    fn check_pins(
        &mut self,
        roots: &[PathBuf],
        policy: &Policy,
    ) -> Result<(Vec<UpstreamPin>, Vec<TrustedRoot>), Failure> {
        let pins = pins::check(&self.flags.pins, &self.config.upstreams, policy)?;
        let trusted = pins::trusted(roots)?;
        self.notes.extend(pins::notes(&pins, &trusted));
        Ok((pins, trusted))
    }
}

/// The directory that appears in the sandbox. Everything in it can be read there,
/// so it is not a whole machine and not a person's whole home.
fn project(
    written: &Path,
    mode: Option<Workspace>,
    variables: &Environment,
) -> Result<PathBuf, Failure> {
    let shown = written.display();
    let path = written.canonicalize().map_err(|err| {
        Failure::Usage(format!("cannot use {shown} as the project directory: {err}"))
    })?;
    if !path.is_dir() {
        return Err(Failure::Usage(format!(
            "{shown} is not a directory; -w takes the project directory"
        )));
    }
    let home = text(variables, "HOME").and_then(|home| Path::new(&home).canonicalize().ok());
    let what = match &home {
        _ if mode == Some(Workspace::None) => return Ok(path),
        _ if path.parent().is_none() => "the whole file system",
        Some(home) if path == *home => "your whole home directory, keys and all",
        Some(home) if home.starts_with(&path) => "every home directory on this machine",
        Some(_) | None => return Ok(path),
    };
    Err(Failure::Usage(format!(
        "{} cannot be the project: it is {what}; change to a project directory, name one with \
         `-w DIR`, or run without one with `--mode none`",
        path.display()
    )))
}

fn without_policy(wanted: &RunOverrides) -> String {
    let permitted = match (wanted.observe, wanted.allow.is_empty()) {
        (true, _) => "so everything passes and is recorded",
        (false, true) => "so there is no network; --allow HOST opens it to one host",
        (false, false) => "so the hosts after --allow can be read from, and no others",
    };
    format!("no policy was found, {permitted}; `sluice policy init` writes one")
}
