//! Where a Linux distribution keeps the public roots.
//!
//! The places are a fixed list and the environment is not asked. `SSL_CERT_FILE`
//! is set by us inside sandboxes, and a gateway that was started from such a
//! shell would find its own authority there and trust it upstream. An operator
//! with other roots names their files in the configuration.

use std::path::{Path, PathBuf};

/// The distribution's bundle: the first of the usual files that is there.
pub(crate) fn find() -> Option<PathBuf> {
    first_of(BUNDLES)
}

fn first_of(paths: &[&str]) -> Option<PathBuf> {
    paths.iter().map(Path::new).find(|path| path.is_file()).map(Path::to_owned)
}

const BUNDLES: &[&str] = &[
    // Debian, Ubuntu, Arch, Gentoo.
    "/etc/ssl/certs/ca-certificates.crt",
    // Fedora and RHEL.
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    // openSUSE.
    "/etc/ssl/ca-bundle.pem",
    "/var/lib/ca-certificates/ca-bundle.pem",
    // Alpine, and LibreSSL's place.
    "/etc/ssl/cert.pem",
    // NixOS.
    "/etc/ssl/certs/ca-bundle.crt",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_that_is_there_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("there.pem");
        std::fs::write(&there, "x").unwrap();
        let there = there.to_str().unwrap();
        let folder = dir.path().to_str().unwrap();
        assert_eq!(first_of(&["/absent", folder, there]), Some(PathBuf::from(there)));
        assert_eq!(first_of(&["/absent", folder]), None);
    }
}
