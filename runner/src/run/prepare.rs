//! What a run needs on the host's disk before its sandbox is made.
//!
//! All of it is in one folder that only the caller can enter, and that goes with
//! the run. The project itself is prepared by [`crate::workspace`].

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use policies::Workspace;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::backend::{GatewayFiles, Inside, Masked, Network, WorkspaceMount};
use crate::evidence::{FolderError, RunFolder};
use crate::image::program;
use crate::place;
use crate::plan::Plan;
use crate::request::Understood;
use crate::settings;
use crate::sweep::{self, Held};
use crate::workspace::{self, Project};

/// What was made ready.
#[derive(Debug)]
pub(super) struct Prepared {
    folder: PathBuf,
    pub(super) inside: Inside,
    pub(super) gateway: Option<GatewayFiles>,
    /// For reading what changed, when the run has ended.
    pub(super) workspace: Option<workspace::Prepared>,
    pub(super) evidence: RunFolder,
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
    Kit(#[from] certs::KitError),
    #[error(transparent)]
    Program(anyhow::Error),
    #[error(transparent)]
    Workspace(#[from] workspace::PrepareError),
}

/// The folder of one run that goes with it.
pub(super) fn folder(plan: &Plan) -> PathBuf {
    place::runtime(&place::environment).join(plan.run.as_str())
}

/// Makes everything that can be made before there is a network.
pub(super) fn prepare(plan: &Plan, understood: &Understood) -> Result<Prepared, PrepareError> {
    let folder = folder(plan);
    let held = begin(&folder)?;
    let evidence = RunFolder::create(&understood.request.runs, plan.run.as_str())?;
    let find =
        |name, by| program::find(name, by, &place::environment).map_err(PrepareError::Program);
    let workspace = project(plan, understood, &evidence)?;
    let mut inside = Inside {
        init: find("sluice-init", "SLUICE_INIT_PROGRAM")?,
        socket: folder.join("runner.sock"),
        ..Inside::default()
    };
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
            private(&files.control)?;
            // It writes into these two, and is nobody's user when we are root.
            for path in [&files.control, &files.audit] {
                give(path, files.user.uid, files.user.gid)?;
            }
            Some(files)
        }
    };
    Ok(Prepared { folder, inside, gateway, workspace, evidence, _held: held })
}

/// Makes the run's folder and holds it. It gets its name only once it is held: a
/// sweep that found it before would take it for what a crash left.
fn begin(folder: &Path) -> Result<Held, PrepareError> {
    let new = sweep::beginning_of(folder);
    private(&new)?;
    let held = sweep::hold(&new).map_err(failed("hold", &new))?;
    fs::rename(&new, folder).map_err(failed("name", folder))?;
    Ok(held)
}

/// Writes the settings of a gateway whose address is known now.
pub(super) fn tell_gateway(
    plan: &Plan,
    understood: &Understood,
    prepared: &Prepared,
    network: &Network,
) -> Result<(), PrepareError> {
    let (Some(files), Some(planned)) = (&prepared.gateway, &plan.network) else { return Ok(()) };
    let folder = &files.settings;
    let upstream = &understood.upstream;
    let text = settings::gateway_yaml(&plan.run, planned, network, upstream);
    settings::write(&folder.join("gateway.yaml"), text.as_bytes())
        .and_then(|()| settings::write_policy(folder, &understood.gateway_policy, upstream))
        .map_err(failed("write the gateway's settings in", folder))
}

impl Prepared {
    /// Where the gateway is asked.
    pub(super) fn control(&self) -> PathBuf {
        self.folder.join("control").join("control.sock")
    }

    /// Writes the trust kit for a gateway whose certificate is known now.
    pub(super) fn trust(
        &self,
        certificate: &str,
        understood: &Understood,
    ) -> Result<PathBuf, PrepareError> {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(PrepareError::Certificate)?;
        let roots =
            certs::Roots { files: understood.upstream.roots.clone(), ..certs::Roots::default() };
        let kit = self.folder.join("ca");
        certs::Kit::write(&kit, &certificate, &roots)?;
        Ok(kit)
    }
}

fn project(
    plan: &Plan,
    understood: &Understood,
    evidence: &RunFolder,
) -> Result<Option<workspace::Prepared>, PrepareError> {
    let Some(root) = &plan.workspace.source else { return Ok(None) };
    let fs = &understood.policy.fs;
    let owner = plan.workspace.owner;
    let project = Project {
        root,
        mode: plan.workspace.mode,
        protect: &fs.protect,
        deny: &fs.deny,
        owner: Some((owner.uid, owner.gid)),
    };
    Ok(Some(workspace::prepare(&project, evidence.scratch())?))
}

fn put_inside(inside: &mut Inside, plan: &Plan, workspace: &workspace::Prepared) {
    let target = |place: &workspace::Place| {
        let path = Path::new(plan.workspace.target).join(place.path.to_path());
        path.display().to_string()
    };
    inside.workspace = match (&workspace.overlay, plan.workspace.mode) {
        (Some(overlay), _) => WorkspaceMount::Overlay { options: overlay.options() },
        (None, mode) => WorkspaceMount::Bind {
            source: workspace.root.clone(),
            read_only: mode != Workspace::Direct,
        },
    };
    let protected = workspace.protected.iter();
    inside.protected =
        protected.map(|place| (workspace.root.join(place.path.to_path()), target(place))).collect();
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
}

fn private(path: &Path) -> Result<(), PrepareError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("make", path))?;
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed("close", path))
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
