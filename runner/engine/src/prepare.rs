//! What a run needs on the host's disk before its sandbox is made.
//!
//! All of it is in one folder that only the caller can enter, and that goes with
//! the run. The project itself is prepared by [`crate::workspace`].

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Component, Path, PathBuf};

use files::mounts;
use files::tree::Directory;
use policies::Workspace;
use rustix::fs::FileType;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::task::spawn_blocking;

use crate::backend::{Backend, GatewayFiles, Masked, Network, SandboxFiles, WorkspaceMount};
use crate::disk::{Watch, Watched};
use crate::environment::Environment;
use crate::evidence::{FolderError, RunFolder};
use crate::plan::{MountPlan, Plan, UserIds};
use crate::run_lock::{self, Held};
use crate::settings;
use crate::spec::ResolvedRun;
use crate::start_turn::{StartTurn, turn};
use crate::workspace::{self, Project, RemappedMount, TreePath};

/// What was made ready.
#[derive(Debug)]
pub struct Prepared {
    pub folder: PathBuf,
    pub inside: SandboxFiles,
    pub gateway: Option<GatewayFiles>,
    /// For reading what changed, when the run has ended.
    pub workspace: Option<workspace::Prepared>,
    pub evidence: RunFolder,
    /// Says to others that somebody carries this run out.
    _held: Held,
}

/// Why a run cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("cannot {doing} {}", path.display())]
    Disk { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("the gateway's certificate cannot be read")]
    Certificate(#[source] rustls_pki_types::pem::Error),
    #[error(transparent)]
    Evidence(#[from] FolderError),
    #[error(transparent)]
    Kit(#[from] certs::TrustKitError),
    #[error(transparent)]
    Program(anyhow::Error),
    #[error(transparent)]
    Workspace(#[from] workspace::PrepareError),
}

/// The folder of one run that goes with it.
pub fn folder(plan: &Plan, environment: &Environment) -> PathBuf {
    environment.runtime().join(plan.run.as_str())
}

/// Makes everything that can be made before there is a network.
pub fn prepare(plan: &Plan, resolved: &ResolvedRun) -> Result<Prepared, PrepareError> {
    let folder = folder(plan, &resolved.environment);
    let held = begin(&folder, &plan.backend)?;
    let evidence = RunFolder::create(&resolved.request.runs, plan.run.as_str())?;
    let environment = &resolved.environment;
    let find = |name, by| environment.program(name, by).map_err(PrepareError::Program);
    mounts_are_plain(plan)?;
    let workspace = project(plan, resolved, &folder, &evidence)?;
    let mut inside = SandboxFiles {
        init: find("sluice-init", "SLUICE_INIT_PROGRAM")?,
        socket: folder.join("runner.sock"),
        ..SandboxFiles::default()
    };
    if resolved.request.probe {
        inside.probe = Some(find("sluice-probe", "SLUICE_PROBE_PROGRAM")?);
    }
    if let Some(workspace) = &workspace {
        put_inside(&mut inside, plan, workspace);
    }
    let gateway = match &plan.network {
        None => None,
        Some(_) => {
            let files = GatewayFiles {
                program: find("sluice-gateway", "SLUICE_GATEWAY_PROGRAM")?,
                settings: folder.join("settings"),
                control: folder.join("control"),
                audit: evidence.gateway_log()?,
                user: settings::gateway_user(),
            };
            inside.trust = Some(create_empty_trust_kit(&folder.join("ca"))?);
            private(&files.control)?;
            // An engine mounts only what is there.
            readable(&files.settings)?;
            // It writes into these two, and is nobody's user when we are root.
            for path in [&files.control, &files.audit] {
                give(path, files.user.uid, files.user.gid)?;
            }
            Some(files)
        }
    };
    Ok(Prepared { folder, inside, gateway, workspace, evidence, _held: held })
}

const KIT: [&str; 3] = [certs::TrustKit::BUNDLE, certs::TrustKit::CA, certs::TrustKit::TRUSTSTORE];

/// The trust kit's files, empty: a sandbox can be made while the certificate
/// that goes into them is not there yet.
fn create_empty_trust_kit(kit: &Path) -> Result<PathBuf, PrepareError> {
    readable(kit)?;
    for name in KIT {
        settings::write(&kit.join(name), b"").map_err(failed("make", kit))?;
    }
    Ok(kit.to_owned())
}

/// Makes the run's folder and holds it. It gets its name only once it is held: a
/// sweep that found it before would take it for what a crash left.
fn begin(folder: &Path, backend: &str) -> Result<Held, PrepareError> {
    let new = run_lock::beginning_of(folder);
    let runtime = folder.parent().unwrap_or(folder);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(runtime)
        .map_err(failed("make", runtime))?;
    check_private_dir(runtime)?;
    private(&new)?;
    let held = run_lock::hold(&new).map_err(failed("hold", &new))?;
    run_lock::name_backend(&new, backend).map_err(failed("write to", &new))?;
    fs::rename(&new, folder).map_err(failed("name", folder))?;
    Ok(held)
}

/// Writes whom a gateway is to believe; what its settings call that.
pub async fn write_upstream_roots(
    resolved: &ResolvedRun,
    prepared: &Prepared,
) -> Result<Vec<String>, PrepareError> {
    let Some(files) = &prepared.gateway else { return Ok(Vec::new()) };
    let (folder, upstream) = (files.settings.clone(), resolved.upstream.clone());
    // Reading a machine's roots takes a while, and others can go on meanwhile.
    let writing = spawn_blocking(move || settings::write_roots(&folder, &upstream));
    let written = writing.await.unwrap_or_else(|err| Err(io::Error::other(err)));
    written.map_err(failed("write whom to believe in", &files.settings))
}

/// Writes the settings of a gateway whose address is known now.
pub fn write_gateway_settings(
    plan: &Plan,
    resolved: &ResolvedRun,
    prepared: &Prepared,
    network: &Network,
    roots: &[String],
) -> Result<(), PrepareError> {
    let (Some(files), Some(planned)) = (&prepared.gateway, &plan.network) else { return Ok(()) };
    let folder = &files.settings;
    let upstream = &resolved.upstream;
    let write = || {
        let policy = &resolved.for_gateway;
        let text = settings::gateway_yaml(plan, planned, policy, network, upstream, roots);
        settings::write(&folder.join("gateway.yaml"), text.as_bytes())?;
        settings::write_policy(folder, policy)
    };
    write().map_err(failed("write the gateway's settings in", folder))
}

impl Prepared {
    /// What was hidden without anybody asking for it, and what was not although
    /// it may hold credentials.
    pub fn secrets_in_words(&self) -> Vec<String> {
        let Some(workspace) = &self.workspace else { return Vec::new() };
        let mut words = Vec::new();
        if let Some(first) = workspace.hidden.first() {
            words.push(format!(
                "hidden from the sandbox, since such files hold credentials: {}; \
                 `--show {first}`, or `fs.show` in the policy, shows one",
                first_few(&workspace.hidden)
            ));
        }
        if !workspace.shown.is_empty() {
            let shown = first_few(&workspace.shown);
            words.push(format!("the sandbox can read files that may hold credentials: {shown}"));
        }
        words
    }

    /// Waits until this run may start.
    pub async fn turn(&self, backend: &dyn Backend) -> StartTurn {
        turn(self.folder.parent().unwrap_or(&self.folder), backend.max_concurrent_starts()).await
    }

    /// Unmounts what had to be there for making the sandbox; from now on it has
    /// its own. What cannot go now goes with the folder.
    pub fn unmount_staging(&self) {
        drop(mounts::unmount_below(&self.folder));
    }

    /// Looks after what the run writes to the project.
    pub fn watch(&self, plan: &Plan) -> Watch {
        let Some(workspace) = &self.workspace else { return Watch::nothing() };
        match (&workspace.overlay, plan.workspace.mode) {
            (Some(overlay), _) => Watch::over(Watched::new(&overlay.upper, &plan.limits, false)),
            (None, Workspace::Direct) => {
                Watch::over(Watched::new(&workspace.root, &plan.limits, true))
            }
            (None, _) => Watch::nothing(),
        }
    }

    /// Where the gateway is asked.
    pub fn control(&self) -> PathBuf {
        self.folder.join("control").join("control.sock")
    }

    /// Writes the trust kit for a gateway whose certificate is known now, into
    /// the files that the sandbox has in view already.
    pub fn trust(&self, certificate: &str, resolved: &ResolvedRun) -> Result<(), PrepareError> {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(PrepareError::Certificate)?;
        let roots =
            certs::Roots { files: resolved.upstream.roots.clone(), ..certs::Roots::default() };
        let (made, seen) = (self.folder.join("ca.made"), self.folder.join("ca"));
        certs::TrustKit::write(&made, &certificate, &roots)?;
        for name in KIT {
            // Into the same file: what a sandbox has mounted is not its name.
            let text = fs::read(made.join(name)).map_err(failed("read", &made))?;
            fs::write(seen.join(name), text).map_err(failed("write", &seen))?;
        }
        Ok(())
    }
}

fn project(
    plan: &Plan,
    resolved: &ResolvedRun,
    folder: &Path,
    evidence: &RunFolder,
) -> Result<Option<workspace::Prepared>, PrepareError> {
    let Some(root) = &plan.workspace.source else { return Ok(None) };
    let UserIds { uid, gid } = plan.host_user;
    let at = folder.join("project");
    let environment = &resolved.environment;
    let shown = plan.workspace.swap(plan.host_user).map(|swap| RemappedMount {
        at: &at,
        swap,
        environment,
    });
    let project = Project {
        root,
        mode: plan.workspace.mode,
        protect: &plan.workspace.protect,
        deny: &resolved.policy.fs.deny,
        show: &resolved.request.show,
        owner: Some((uid, gid)),
        shown,
    };
    Ok(Some(workspace::prepare(&project, evidence.scratch())?))
}

/// Refuses a mount whose way leads through a link in the project. What a run may
/// write could choose there what of the host the next one sees.
fn mounts_are_plain(plan: &Plan) -> Result<(), PrepareError> {
    let Some(root) = &plan.workspace.source else { return Ok(()) };
    for MountPlan { source, .. } in &plan.mounts {
        // `a/../b` is `b` only where `a` is no link.
        let parts = source.components();
        let is_plain = parts.clone().all(|part| part != Component::ParentDir);
        let Ok(inside) = source.strip_prefix(root) else { continue };
        let way = TreePath::parse(inside.as_os_str().as_bytes()).ok().filter(|_| is_plain);
        let found = match way {
            None => Err(io::Error::other("it is written with `..`")),
            Some(way) => Directory::open(root).and_then(|root| root.look_at(&way)),
        };
        match found {
            Ok(Some(seen)) if seen.kind() != FileType::Symlink => {}
            Ok(_) => {
                let why = io::Error::other("it is not there, or a link in the project leads there");
                return Err(failed("mount", source)(why));
            }
            Err(why) => return Err(failed("mount", source)(why)),
        }
    }
    Ok(())
}

fn put_inside(inside: &mut SandboxFiles, plan: &Plan, workspace: &workspace::Prepared) {
    let target = |place: &workspace::Place| {
        let path = Path::new(&*plan.workspace.target).join(place.path.to_path());
        path.display().to_string()
    };
    inside.workspace = match (&workspace.overlay, plan.workspace.mode) {
        (Some(overlay), _) => WorkspaceMount::Overlay { options: overlay.options() },
        (None, mode) => WorkspaceMount::Bind {
            source: workspace.source.clone(),
            read_only: mode != Workspace::Direct,
        },
    };
    let protected = workspace.protected.iter();
    let source = |place: &workspace::Place| workspace.source.join(place.path.to_path());
    inside.protected = protected.map(|place| (source(place), target(place))).collect();
    // An overlay hides them by itself.
    if workspace.overlay.is_none() {
        let masked = workspace.masked.iter().map(|place| Masked {
            path: target(place),
            with: match place.directory {
                true => workspace.empty_directory.clone(),
                false => workspace.empty_file.clone(),
            },
        });
        inside.masked = masked.collect();
    }
    for mount in &plan.mounts {
        mask_mount(inside, mount, workspace);
    }
}

/// What is hidden or read-only in the project stays so under a mount that shows
/// the same files once more.
fn mask_mount(inside: &mut SandboxFiles, mount: &MountPlan, workspace: &workspace::Prepared) {
    let at = |place: &workspace::Place| {
        let whole = workspace.root.join(place.path.to_path());
        let below = whole.strip_prefix(&mount.source).ok().map(Path::to_owned);
        // The mount may be of something in a hidden directory.
        let within = || mount.source.starts_with(&whole).then(PathBuf::new);
        let below = below.or_else(within)?;
        let target = Path::new(&mount.target).join(below);
        Some((target.display().to_string().trim_end_matches('/').to_owned(), whole))
    };
    if !mount.read_only {
        for place in &workspace.protected {
            inside.protected.extend(at(place).map(|(target, source)| (source, target)));
        }
    }
    for place in &workspace.masked {
        let Some((path, whole)) = at(place) else { continue };
        // A mount on a link would land where the link points.
        if whole.is_symlink() {
            continue;
        }
        let is_directory = mount.source.starts_with(&whole) && mount.source.is_dir();
        let with = match place.directory || is_directory {
            true => workspace.empty_directory.clone(),
            false => workspace.empty_file.clone(),
        };
        inside.masked.push(Masked { path, with });
    }
}

fn first_few(paths: &[TreePath]) -> String {
    let named: Vec<String> = paths.iter().take(3).map(ToString::to_string).collect();
    match paths.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Within our own, which nobody else can enter.
fn readable(path: &Path) -> Result<(), PrepareError> {
    DirBuilder::new().mode(0o755).create(path).map_err(failed("make", path))?;
    fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(failed("open", path))
}

fn private(path: &Path) -> Result<(), PrepareError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("make", path))?;
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed("close", path))
}

/// In a directory that everybody writes to, somebody may have been here before us
/// and would choose what our folder is.
fn check_private_dir(runtime: &Path) -> Result<(), PrepareError> {
    let found = fs::symlink_metadata(runtime).map_err(failed("look at", runtime))?;
    let ours = found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && ours && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    let why = io::Error::other("it is not ours alone; remove it, or set XDG_RUNTIME_DIR");
    Err(failed("use", runtime)(why))
}

/// Only root can, and only root needs to.
fn give(path: &Path, uid: u32, gid: u32) -> Result<(), PrepareError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    chown(path, Some(uid), Some(gid)).map_err(failed("give away", path))
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PrepareError {
    move |source| PrepareError::Disk { doing, path: path.to_owned(), source }
}
