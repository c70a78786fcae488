//! Content as files on this machine, where what we start can mount it.
//!
//! All of it is in the run's folder, which only its owner can enter.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::{Component, Path, PathBuf};

use certs::TrustKit;

use super::content::{ContentFiles, GatewayContent};
use crate::connector::Connector;
use crate::control;
use crate::link::PendingLink;
use crate::plan::RunId;
use crate::public_file;

/// The folder of one run.
#[derive(Clone, Debug)]
pub(super) struct LocalFiles {
    folder: PathBuf,
}

impl LocalFiles {
    pub(super) fn of(run: &RunId, runtime: &Path) -> Self {
        Self { folder: runtime.join(run.as_str()) }
    }

    /// A file that a backend needs beside the others.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What the gateway reads.
    pub(super) fn settings(&self) -> PathBuf {
        self.folder.join("settings")
    }

    /// Where its control socket is.
    pub(super) fn control_folder(&self) -> PathBuf {
        self.folder.join(control::FOLDER)
    }

    pub(super) fn control(&self) -> Connector {
        control::connector_in(&self.folder)
    }

    /// What the sandbox trusts.
    pub(super) fn trust(&self) -> PathBuf {
        self.folder.join("ca")
    }

    /// The socket that the first process comes to.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("runner.sock")
    }

    /// The socket that it comes to with what is said at its doors, where it relays them.
    pub(super) fn relay_socket(&self) -> PathBuf {
        self.folder.join("relay.sock")
    }

    pub(super) fn listen(&self) -> io::Result<PendingLink> {
        PendingLink::listen_at(&self.socket())
    }

    /// Makes what a gateway has in view, and gives it what it writes into.
    pub(super) fn make_gateway_folders(&self, content: &GatewayContent) -> io::Result<()> {
        make_folder(&self.settings(), 0o755)?;
        make_folder(&self.control_folder(), 0o700)?;
        // It is nobody's user when we are root, and only then can we give.
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = (Some(content.user.uid), Some(content.user.gid));
            chown(self.control_folder(), uid, gid)?;
            chown(&content.audit, uid, gid)?;
        }
        Ok(())
    }

    pub(super) fn write_settings(&self, files: &ContentFiles) -> io::Result<()> {
        let folder = self.settings();
        for (path, bytes) in files.iter() {
            // A path that leads out would be written there.
            if !Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
                return Err(io::Error::other(format!("{path} leads out of its folder")));
            }
            public_file::write(&folder.join(path), bytes)?;
        }
        Ok(())
    }

    /// The trust kit's files, empty: a sandbox can be made while the certificate
    /// that goes into them is not there yet. What is there stays as it is.
    pub(super) fn make_trust_kit(&self) -> io::Result<()> {
        if self.trust().exists() {
            return Ok(());
        }
        make_folder(&self.trust(), 0o755)?;
        [TrustKit::BUNDLE, TrustKit::CA, TrustKit::TRUSTSTORE]
            .iter()
            .try_for_each(|name| public_file::write(&self.trust().join(name), b""))
    }

    /// Into the same files: what a sandbox has mounted is not their name.
    pub(super) fn write_trust_kit(&self, kit: &ContentFiles) -> io::Result<()> {
        self.make_trust_kit()?;
        kit.iter().try_for_each(|(name, bytes)| fs::write(self.trust().join(name), bytes))
    }
}

fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_settings_are_written_outside_their_folder() {
        let home = tempfile::tempdir().unwrap();
        let local = LocalFiles::of(&RunId::now(), home.path());
        for path in ["../out", "/out", "a/../../out"] {
            let mut files = ContentFiles::default();
            files.add(path, "x");
            assert!(local.write_settings(&files).is_err(), "{path}");
        }
        assert!(fs::read_dir(home.path()).unwrap().next().is_none());
    }
}
