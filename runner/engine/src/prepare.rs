//! What a run needs on the host's disk before its sandbox is made.
//!
//! All of it is in one folder that only the caller can enter, and that goes with
//! the run. The project itself is prepared by [`crate::workspace`].

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use certs::{TrustKit, TrustKitContents};
use files::mounts;
use files::tree::Directory;
use policies::Workspace;
use rustix::fs::FileType;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::task::spawn_blocking;

use crate::backend::{
    Backend, ContentFiles, GatewayContent, Masked, SandboxContent, WorkspaceMount,
};
use crate::disk::{Watch, Watched};
use crate::environment::Environment;
use crate::evidence::{FolderError, RunFolder};
use crate::own_user;
use crate::plan::{MountPlan, Plan, UserIds};
use crate::run_lock::{self, RunLock};
use crate::settings;
use crate::spec::ResolvedRun;
use crate::start_turn::{StartTurn, turn};
use crate::workspace::{self, Project, RemappedMount, TreePath};

/// What was made ready.
#[derive(Debug)]
pub struct Prepared {
    pub folder: PathBuf,
    pub sandbox: SandboxContent,
    pub gateway: Option<GatewayContent>,
    /// For reading what changed, when the run has ended.
    pub workspace: Option<workspace::PreparedWorkspace>,
    pub evidence: RunFolder,
    /// Says to others that somebody carries this run out.
    _held: RunLock,
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
    #[error("cannot read the roots that upstreams are verified with")]
    UpstreamRoots(#[source] io::Error),
    #[error(transparent)]
    Workspace(#[from] workspace::WorkspaceError),
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
    let mut inside = SandboxContent {
        init: find("sluice-init", "SLUICE_INIT_PROGRAM")?,
        ..SandboxContent::default()
    };
    if resolved.request.probe {
        inside.probe = Some(find("sluice-probe", "SLUICE_PROBE_PROGRAM")?);
    }
    if let Some(workspace) = &workspace {
        put_inside(&mut inside, plan, workspace);
    }
    let gateway = match &plan.network {
        None => None,
        Some(_) => Some(GatewayContent {
            program: find("sluice-gateway", "SLUICE_GATEWAY_PROGRAM")?,
            audit: evidence.gateway_log()?,
            user: own_user::gateway_user(),
        }),
    };
    Ok(Prepared { folder, sandbox: inside, gateway, workspace, evidence, _held: held })
}

/// Makes the run's folder and holds it. It gets its name only once it is held: a
/// sweep that found it before would take it for what a crash left.
fn begin(folder: &Path, backend: &str) -> Result<RunLock, PrepareError> {
    let new = run_lock::beginning_of(folder);
    let runtime = folder.parent().unwrap_or(folder);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(runtime)
        .map_err(failed("make", runtime))?;
    check_private_dir(runtime)?;
    private(&new)?;
    let held = run_lock::lock(&new).map_err(failed("lock", &new))?;
    run_lock::name_backend(&new, backend).map_err(failed("write to", &new))?;
    fs::rename(&new, folder).map_err(failed("rename the new folder to", folder))?;
    Ok(held)
}

/// The CA certificates by which a gateway verifies upstreams.
pub async fn upstream_roots(resolved: &ResolvedRun) -> Result<ContentFiles, PrepareError> {
    let upstream = resolved.upstream.clone();
    // Reading a machine's roots takes a while, and others can go on meanwhile.
    let reading = spawn_blocking(move || settings::upstream_roots(&upstream));
    let read = reading.await.unwrap_or_else(|err| Err(io::Error::other(err)));
    read.map_err(PrepareError::UpstreamRoots)
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

    /// The trust kit for a gateway whose certificate is known now.
    pub fn trust_kit(
        &self,
        certificate: &str,
        resolved: &ResolvedRun,
    ) -> Result<ContentFiles, PrepareError> {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(PrepareError::Certificate)?;
        let roots =
            certs::Roots { files: resolved.upstream.roots.clone(), ..certs::Roots::default() };
        let made = TrustKitContents::make(&certificate, &roots)?;
        let mut kit = ContentFiles::default();
        kit.add(TrustKit::BUNDLE, made.bundle);
        kit.add(TrustKit::CA, made.ca);
        kit.add(TrustKit::TRUSTSTORE, made.truststore);
        Ok(kit)
    }
}

fn project(
    plan: &Plan,
    resolved: &ResolvedRun,
    folder: &Path,
    evidence: &RunFolder,
) -> Result<Option<workspace::PreparedWorkspace>, PrepareError> {
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

fn put_inside(inside: &mut SandboxContent, plan: &Plan, workspace: &workspace::PreparedWorkspace) {
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
fn mask_mount(
    inside: &mut SandboxContent,
    mount: &MountPlan,
    workspace: &workspace::PreparedWorkspace,
) {
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

fn private(path: &Path) -> Result<(), PrepareError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("make", path))?;
    fs::set_permissions(path, Permissions::from_mode(0o700))
        .map_err(failed("restrict access to", path))
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

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PrepareError {
    move |source| PrepareError::Disk { doing, path: path.to_owned(), source }
}
