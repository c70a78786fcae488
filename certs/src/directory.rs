//! An authority kept on disk: `ca.pem` and `ca.key`.
//!
//! The promise is that nobody but the owner can sign as this authority. So the
//! directory must be closed to others, the key too, and what is read must be an
//! authority that clients will accept. Nothing is repaired: a key that was
//! readable for a while has to be looked at by a person.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rcgen::{
    Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256,
    PublicKeyData as _,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{self as pki_pem, PemObject as _};
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;

use crate::pem;

/// What a directory holds, after every check.
pub(crate) struct StoredAuthority {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: KeyPair,
}

/// Opens the authority in `directory`; `generate` makes one when there is none.
pub(crate) fn open<E: From<DirectoryError>>(
    directory: &Path,
    now: OffsetDateTime,
    generate: impl FnOnce() -> Result<(KeyPair, CertificateDer<'static>), E>,
) -> Result<StoredAuthority, E> {
    // Held until the end of this function: two gateways that start at once on an
    // empty directory must end up with the same authority.
    let _lock = enter(directory)?;
    let at_pem = directory.join("ca.pem");
    let at_key = directory.join("ca.key");
    match (exists(&at_pem)?, exists(&at_key)?) {
        (true, true) => Ok(read(&at_pem, &at_key, now)?),
        (false, false) => {
            let (key, certificate) = generate()?;
            // The key first: a crash between the two leaves a state we refuse,
            // not a certificate that sandboxes trust and nobody can sign for.
            create(&at_key, 0o600, &key.serialize_pem())?;
            create(&at_pem, 0o644, &pem::certificate(&certificate))?;
            Ok(StoredAuthority { certificate, key })
        }
        (true, false) => Err(DirectoryError::Half { present: at_pem, missing: at_key }.into()),
        (false, true) => Err(DirectoryError::Half { present: at_key, missing: at_pem }.into()),
    }
}

/// Why a directory's authority is not used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("{} has expired ({not_after}); remove it and ca.key to have a new authority made, which sandboxes must then be given", path.display())]
    Expired { path: PathBuf, not_after: OffsetDateTime },
    #[error("{} is there and {} is not; restore the missing file, or remove both to have a new authority made", present.display(), missing.display())]
    Half { present: PathBuf, missing: PathBuf },
    #[error("cannot {doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is not the key of {}", key.display(), certificate.display())]
    KeyMismatch { certificate: PathBuf, key: PathBuf },
    #[error("{} is open to others (mode {mode:03o}); run: chmod {wanted:03o} {}", path.display(), path.display())]
    Loose { path: PathBuf, mode: u32, wanted: u32 },
    #[error("{} is not valid before {not_before}; is this machine's clock right?", path.display())]
    NotYet { path: PathBuf, not_before: OffsetDateTime },
    #[error("{} holds no private key we can use; it must be one unencrypted P-256, P-384 or RSA key in PEM", path.display())]
    UnusableKey { path: PathBuf, source: rcgen::Error },
    #[error("{} holds no certificate in PEM", path.display())]
    Unreadable { path: PathBuf, source: pki_pem::Error },
    #[error("{} cannot be our authority: {why}", path.display())]
    Unsuitable { path: PathBuf, why: Unsuitable },
}

/// What a certificate lacks to be our authority.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unsuitable {
    #[error("it has no critical basicConstraints with CA:TRUE")]
    BasicConstraints,
    // Sandboxes are given this certificate alone, and OpenSSL does not accept an
    // intermediate as an anchor.
    #[error("it was issued by another authority; give the self-signed one")]
    Intermediate,
    #[error("its keyUsage does not have keyCertSign")]
    KeyUsage,
    #[error("it is not an X.509 certificate")]
    Malformed,
    #[error(
        "its subject is written in a form we cannot repeat in a leaf; use each kind of attribute once"
    )]
    Subject,
    #[error("it has no subjectKeyIdentifier, which strict clients ask for")]
    SubjectKeyIdentifier,
}

/// Makes sure the directory exists, is closed to others, and is ours for now.
fn enter(directory: &Path) -> Result<File, DirectoryError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed("create", directory))?;
    let handle = File::open(directory).map_err(failed("open", directory))?;
    closed_to_others(&handle, directory, 0o077, 0o700)?;
    handle.lock().map_err(failed("lock", directory))?;
    Ok(handle)
}

fn read(
    at_pem: &Path,
    at_key: &Path,
    now: OffsetDateTime,
) -> Result<StoredAuthority, DirectoryError> {
    // Public, but whoever can write it decides what sandboxes trust.
    let text = read_closed(at_pem, 0o022, 0o644)?;
    let certificate = CertificateDer::from_pem_slice(text.as_bytes())
        .map_err(|source| DirectoryError::Unreadable { path: at_pem.to_owned(), source })?;
    let key = KeyPair::from_pem(&read_closed(at_key, 0o077, 0o600)?)
        .map_err(|source| DirectoryError::UnusableKey { path: at_key.to_owned(), source })?;
    if ![&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_RSA_SHA256]
        .contains(&key.algorithm())
    {
        let source = rcgen::Error::UnsupportedSignatureAlgorithm;
        return Err(DirectoryError::UnusableKey { path: at_key.to_owned(), source });
    }

    let unsuitable = |why| DirectoryError::Unsuitable { path: at_pem.to_owned(), why };
    // The parser's own error does not help the operator, so it is left out.
    let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
        .ok()
        .ok_or_else(|| unsuitable(Unsuitable::Malformed))?;
    if let Some(why) = fault_in(&parsed) {
        return Err(unsuitable(why));
    }
    let validity = parsed.validity();
    if validity.not_after.to_datetime() <= now {
        let not_after = validity.not_after.to_datetime();
        return Err(DirectoryError::Expired { path: at_pem.to_owned(), not_after });
    }
    if validity.not_before.to_datetime() > now {
        let not_before = validity.not_before.to_datetime();
        return Err(DirectoryError::NotYet { path: at_pem.to_owned(), not_before });
    }
    if parsed.public_key().raw != key.subject_public_key_info() {
        return Err(DirectoryError::KeyMismatch {
            certificate: at_pem.to_owned(),
            key: at_key.to_owned(),
        });
    }
    if !subject_survives(&parsed, &certificate, &key) {
        return Err(unsuitable(Unsuitable::Subject));
    }
    Ok(StoredAuthority { certificate, key })
}

fn fault_in(parsed: &X509Certificate<'_>) -> Option<Unsuitable> {
    let constraints = parsed.basic_constraints().ok().flatten();
    if !constraints.is_some_and(|found| found.critical && found.value.ca) {
        return Some(Unsuitable::BasicConstraints);
    }
    let usage = parsed.key_usage().ok().flatten();
    if !usage.is_some_and(|found| found.value.key_cert_sign()) {
        return Some(Unsuitable::KeyUsage);
    }
    let identifier = x509_parser::oid_registry::OID_X509_EXT_SUBJECT_KEY_IDENTIFIER;
    if !parsed.iter_extensions().any(|found| found.oid == identifier) {
        return Some(Unsuitable::SubjectKeyIdentifier);
    }
    if parsed.subject().as_raw() != parsed.issuer().as_raw() {
        return Some(Unsuitable::Intermediate);
    }
    None
}

/// Whether a leaf would carry this authority's name byte for byte.
///
/// The generator reads the name into its own form and writes it out again. A
/// name with two attributes of one kind comes out shorter, and then no client
/// finds the issuer of any leaf: better to learn that here.
fn subject_survives(
    parsed: &X509Certificate<'_>,
    certificate: &CertificateDer<'_>,
    key: &KeyPair,
) -> bool {
    let written = Issuer::from_ca_cert_der(certificate, key)
        .and_then(|issuer| rcgen::CertificateParams::default().signed_by(key, &issuer));
    let Ok(written) = written else { return false };
    x509_parser::parse_x509_certificate(written.der())
        .is_ok_and(|(_, leaf)| leaf.issuer().as_raw() == parsed.subject().as_raw())
}

/// Reads a file whose mode has none of the `forbidden` bits.
fn read_closed(path: &Path, forbidden: u32, wanted: u32) -> Result<String, DirectoryError> {
    let mut file = File::open(path).map_err(failed("open", path))?;
    // The open handle is asked, not the path: nobody can swap files in between.
    closed_to_others(&file, path, forbidden, wanted)?;
    let mut text = String::new();
    (&mut file).take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(failed("read", path))?;
    Ok(text)
}

fn closed_to_others(
    file: &File,
    path: &Path,
    forbidden: u32,
    wanted: u32,
) -> Result<(), DirectoryError> {
    let mode = file.metadata().map_err(failed("examine", path))?.permissions().mode() & 0o777;
    if mode & forbidden == 0 {
        Ok(())
    } else {
        Err(DirectoryError::Loose { path: path.to_owned(), mode, wanted })
    }
}

fn create(path: &Path, mode: u32, text: &str) -> Result<(), DirectoryError> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(failed("create", path))?;
    file.write_all(text.as_bytes()).map_err(failed("write", path))?;
    file.sync_all().map_err(failed("write", path))
}

fn exists(path: &Path) -> Result<bool, DirectoryError> {
    fs::exists(path).map_err(failed("examine", path))
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    move |source| DirectoryError::Io { doing, path: path.to_owned(), source }
}

/// More than any key or certificate takes.
const MAX_FILE_BYTES: u64 = 256 * 1024;

#[cfg(test)]
mod tests;
