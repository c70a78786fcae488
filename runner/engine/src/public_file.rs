//! Files of a run that other users read: its gateway's, its sandbox's.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

/// Writes a file that everybody can read who can enter the folder around it; that
/// one is closed.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(above) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(above)?;
    }
    fs::write(path, bytes)?;
    fs::set_permissions(path, Permissions::from_mode(0o644))
}
