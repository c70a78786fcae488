//! Files of a run that other users read: its gateway's, its sandbox's.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

/// Writes a file that everybody can read who can enter the folder around it; that
/// one is closed.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(above) = path.parent() {
        make_readable(above)?;
    }
    fs::write(path, bytes)?;
    fs::set_permissions(path, Permissions::from_mode(0o644))
}

/// Makes a folder and those above it, whatever our umask says.
fn make_readable(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_readable(above)?;
    }
    DirBuilder::new().mode(0o755).create(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o755))
}
