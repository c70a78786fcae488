//! The trust kit: the files a sandbox needs in order to trust its gateway.
//!
//! Three files, because tools come in three kinds. `ca.pem` is our authority
//! alone, for tools that add to what they trust. `bundle.pem` is the public roots
//! and our authority, for tools that replace it: with ours alone, a connection
//! that we pass through unopened would be refused. `truststore.p12` is the same
//! bundle for Java.
//!
//! The files are read back before they are used: in a sandbox whose bundle lacks our
//! authority every request fails, with an error that does not say why.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;

use crate::pkcs12::{self, TrustedCertificate};
use crate::roots::{self, Roots, RootsError};
use crate::{pem, system_bundle};

/// A kit on disk, ready to be mounted read-only.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TrustKit {
    pub ca: PathBuf,
    pub bundle: PathBuf,
    pub truststore: PathBuf,
    /// Where the bundle's public roots came from.
    pub public: PublicRoots,
}

impl TrustKit {
    pub const CA: &str = "ca.pem";
    pub const BUNDLE: &str = "bundle.pem";
    pub const TRUSTSTORE: &str = "truststore.p12";

    /// Writes a kit for `ca` into `directory`.
    ///
    /// The sandbox is to trust what the gateway trusts upstream, and the gateway.
    /// One difference cannot be helped: the roots compiled into the program are
    /// keys and names without certificates, so `bundled` too is answered with the
    /// distribution's bundle. [`TrustKit::public`] says when there was none.
    pub fn write(
        directory: &Path,
        ca: &CertificateDer<'_>,
        roots: &Roots,
    ) -> Result<Self, TrustKitError> {
        Self::write_with(directory, ca, roots, system_bundle::find())
    }

    fn write_with(
        directory: &Path,
        ca: &CertificateDer<'_>,
        roots: &Roots,
        system: Option<PathBuf>,
    ) -> Result<Self, TrustKitError> {
        let contents = TrustKitContents::make_with(ca, roots, system)?;
        enter(directory)?;
        let kit = Self {
            ca: directory.join(Self::CA),
            bundle: directory.join(Self::BUNDLE),
            truststore: directory.join(Self::TRUSTSTORE),
            public: contents.public,
        };
        place(&kit.ca, &contents.ca)?;
        place(&kit.bundle, &contents.bundle)?;
        place(&kit.truststore, &contents.truststore)?;
        kit.holds(ca)?;
        Ok(kit)
    }

    /// Reads the written files back and looks for our authority in each.
    fn holds(&self, ca: &CertificateDer<'_>) -> Result<(), TrustKitError> {
        let written = pem::certificate(ca);
        for path in [&self.ca, &self.bundle] {
            let text = fs::read_to_string(path).map_err(failed("read back", path))?;
            if !text.contains(&written) {
                return Err(TrustKitError::NotInside { path: path.clone() });
            }
        }
        let store = fs::read(&self.truststore).map_err(failed("read back", &self.truststore))?;
        // Certificates stand in it as they are: it is not encrypted.
        if !store.windows(ca.len()).any(|window| window == ca.as_ref()) {
            return Err(TrustKitError::NotInside { path: self.truststore.clone() });
        }
        Ok(())
    }
}

/// The files of a kit, for whoever puts them where they are used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TrustKitContents {
    pub ca: Vec<u8>,
    pub bundle: Vec<u8>,
    pub truststore: Vec<u8>,
    pub public: PublicRoots,
}

impl TrustKitContents {
    /// Makes what [`TrustKit::write`] writes.
    pub fn make(ca: &CertificateDer<'_>, roots: &Roots) -> Result<Self, TrustKitError> {
        Self::make_with(ca, roots, system_bundle::find())
    }

    fn make_with(
        ca: &CertificateDer<'_>,
        roots: &Roots,
        system: Option<PathBuf>,
    ) -> Result<Self, TrustKitError> {
        let ca = ca.clone().into_owned();
        RootCertStore::empty().add(ca.clone()).map_err(TrustKitError::NotAnAuthority)?;
        let (public, mut trusted) = collect(roots, system)?;
        trusted.retain(|root| *root != ca);
        trusted.insert(0, ca.clone());
        let bundle: String = trusted.iter().map(|root| pem::certificate(root)).collect();
        Ok(Self {
            ca: pem::certificate(&ca).into_bytes(),
            bundle: bundle.into_bytes(),
            truststore: trust_store(&trusted)?,
            public,
        })
    }
}

/// Where a kit's public roots came from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PublicRoots {
    /// They were wanted, and this machine has no bundle: what the gateway does
    /// not open cannot be verified in the sandbox.
    Missing,
    /// From the distribution's bundle.
    System { path: PathBuf },
    /// The gateway trusts listed files only, and so does the sandbox.
    Unwanted,
}

/// Why there is no kit.
#[derive(Debug, thiserror::Error)]
pub enum TrustKitError {
    #[error("cannot {doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("the certificate for the trust kit cannot be an authority")]
    NotAnAuthority(#[source] rustls::Error),
    #[error("{} was written and does not hold our authority; is another program writing there?", path.display())]
    NotInside { path: PathBuf },
    #[error("the system gave no random bytes for the trust store")]
    Random(#[source] aws_lc_rs::error::Unspecified),
    #[error(transparent)]
    Roots(#[from] RootsError),
}

/// The roots a sandbox is to trust besides us, each once.
fn collect(
    roots: &Roots,
    system: Option<PathBuf>,
) -> Result<(PublicRoots, Vec<CertificateDer<'static>>), RootsError> {
    let mut found = Vec::new();
    let public = match system {
        _ if !roots.bundled && !roots.system => PublicRoots::Unwanted,
        Some(path) => {
            found.extend(roots::read(&path)?);
            PublicRoots::System { path }
        }
        None => PublicRoots::Missing,
    };
    for path in &roots.files {
        found.extend(roots::read(path)?);
    }
    let mut seen = HashSet::new();
    found.retain(|root| seen.insert(root.clone()));
    Ok((public, found))
}

/// The first certificate is ours; the others have no names worth keeping.
fn trust_store(trusted: &[CertificateDer<'_>]) -> Result<Vec<u8>, TrustKitError> {
    let entries: Vec<_> = trusted
        .iter()
        .enumerate()
        .map(|(at, root)| TrustedCertificate {
            alias: if at == 0 { "sluice".to_owned() } else { format!("root-{at}") },
            der: root,
        })
        .collect();
    pkcs12::trust_store(&entries).map_err(TrustKitError::Random)
}

/// Makes the directory, open for reading: the sandbox is another user.
fn enter(directory: &Path) -> Result<(), TrustKitError> {
    if directory.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(directory).map_err(failed("create", directory))?;
    fs::set_permissions(directory, Permissions::from_mode(0o755))
        .map_err(failed("open for reading", directory))
}

/// Puts a whole file in place at once: a sandbox that is starting never sees
/// half a bundle.
fn place(path: &Path, content: &[u8]) -> Result<(), TrustKitError> {
    let beside = path.with_extension("new");
    fs::write(&beside, content).map_err(failed("write", &beside))?;
    // Whatever our umask says.
    fs::set_permissions(&beside, Permissions::from_mode(0o644))
        .map_err(failed("open for reading", &beside))?;
    fs::rename(&beside, path).map_err(failed("put in place", path))
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TrustKitError {
    move |source| TrustKitError::Io { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::certificate_authority::{CertificateAuthority, Lifetime};

    #[test]
    fn a_kit_holds_the_public_roots_and_our_authority() {
        let home = TempDir::new().unwrap();
        let (ours, root) = (authority(), authority());
        let system = home.path().join("system.pem");
        // Twice, as distributions do when they link a root under two names.
        fs::write(&system, [root.pem(), root.pem()].concat()).unwrap();

        let kit = TrustKit::write_with(
            &home.path().join("ca"),
            ours.certificate(),
            &Roots::default(),
            Some(system.clone()),
        )
        .unwrap();

        assert_eq!(kit.public, PublicRoots::System { path: system });
        assert_eq!(fs::read_to_string(&kit.ca).unwrap(), ours.pem());
        assert_eq!(fs::read_to_string(&kit.bundle).unwrap(), [ours.pem(), root.pem()].concat());
        for path in [&kit.ca, &kit.bundle, &kit.truststore] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o644);
        }
        assert_eq!(fs::read_dir(home.path().join("ca")).unwrap().count(), 3);
    }

    #[test]
    fn without_a_system_bundle_the_kit_is_ours_alone_and_says_so() {
        let home = TempDir::new().unwrap();
        let ours = authority();
        let kit =
            TrustKit::write_with(home.path(), ours.certificate(), &Roots::default(), None).unwrap();
        assert_eq!(kit.public, PublicRoots::Missing);
        assert_eq!(fs::read_to_string(&kit.bundle).unwrap(), ours.pem());
    }

    #[test]
    fn a_sandbox_trusts_listed_files_when_the_gateway_does() {
        let home = TempDir::new().unwrap();
        let (ours, corporate) = (authority(), authority());
        let file = home.path().join("corporate.pem");
        fs::write(&file, corporate.pem()).unwrap();
        let roots = Roots { bundled: false, system: false, files: vec![file] };
        let kit =
            TrustKit::write_with(home.path(), ours.certificate(), &roots, Some("/absent".into()))
                .unwrap();
        assert_eq!(kit.public, PublicRoots::Unwanted);
        let bundle = fs::read_to_string(&kit.bundle).unwrap();
        assert_eq!(bundle, [ours.pem(), corporate.pem()].concat());
    }

    #[test]
    fn a_kit_is_written_over_an_older_one() {
        let home = TempDir::new().unwrap();
        for _ in 0..2 {
            let ours = authority();
            let kit =
                TrustKit::write_with(home.path(), ours.certificate(), &Roots::default(), None)
                    .unwrap();
            assert_eq!(fs::read_to_string(&kit.ca).unwrap(), ours.pem());
        }
    }

    #[test]
    fn what_is_no_certificate_is_refused_before_anything_is_written() {
        let home = TempDir::new().unwrap();
        let directory = home.path().join("ca");
        let broken = CertificateDer::from(b"broken".to_vec());
        let err = TrustKit::write(&directory, &broken, &Roots::default()).unwrap_err();
        assert!(matches!(err, TrustKitError::NotAnAuthority(_)), "{err}");
        assert!(!directory.exists());
    }

    #[test]
    fn a_bundle_that_lacks_us_is_noticed() {
        let home = TempDir::new().unwrap();
        let (ours, other) = (authority(), authority());
        let kit =
            TrustKit::write_with(home.path(), ours.certificate(), &Roots::default(), None).unwrap();
        for path in [&kit.bundle, &kit.truststore] {
            let good = fs::read(path).unwrap();
            fs::write(path, other.pem()).unwrap();
            let err = kit.holds(ours.certificate()).unwrap_err();
            assert!(matches!(&err, TrustKitError::NotInside { path: at } if at == path), "{err}");
            fs::write(path, good).unwrap();
        }
        kit.holds(ours.certificate()).unwrap();
    }

    fn authority() -> CertificateAuthority {
        CertificateAuthority::in_memory("test", Lifetime::default()).unwrap()
    }
}
