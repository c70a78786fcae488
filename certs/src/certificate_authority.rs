//! The gateway's certificate authority.
//!
//! One per sandbox. Its key signs leaves and nothing else: `pathlen:0` forbids
//! it an authority below itself, the key usage forbids it to be a server, and it
//! lives no longer than its sandbox might. By default the key is made in memory
//! and dies with the process; [`CertificateAuthority::in_directory`] keeps it for operators
//! who want sandboxes to trust the same certificate tomorrow.

use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::directory::{self, DirectoryError};
use crate::pem;

/// A key that signs leaves, and its certificate.
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    not_after: OffsetDateTime,
}

impl CertificateAuthority {
    /// Makes an authority that exists in this process only.
    ///
    /// `run` ends up in the certificate's name, so that a person who finds it in
    /// a trust store knows where it came from.
    pub fn in_memory(run: &str, lifetime: Lifetime) -> Result<Self, CertificateAuthorityError> {
        let (key, certificate) = generate(run, lifetime, OffsetDateTime::now_utc())?;
        Self::issue_from(key, certificate)
    }

    /// Opens the authority kept in `directory`, and makes one on first use.
    ///
    /// The directory holds `ca.pem` and `ca.key`. Anything about them that would
    /// weaken the promise (loose permissions, a certificate that is not a CA, a
    /// key of another certificate) is refused, never repaired. `run` and
    /// `lifetime` matter on first use alone.
    pub fn in_directory(
        directory: &Path,
        run: &str,
        lifetime: Lifetime,
    ) -> Result<Self, CertificateAuthorityError> {
        let now = OffsetDateTime::now_utc();
        let kept = directory::open(directory, now, || generate(run, lifetime, now))?;
        Self::issue_from(kept.key, kept.certificate)
    }

    /// The certificate that sandboxes are to trust.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The same, as PEM text.
    pub fn pem(&self) -> String {
        pem::certificate(&self.certificate)
    }

    /// When the authority ends, and every leaf with it.
    pub fn not_after(&self) -> SystemTime {
        self.not_after.into()
    }

    pub(crate) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    pub(crate) fn ends(&self) -> OffsetDateTime {
        self.not_after
    }

    fn issue_from(
        key: KeyPair,
        certificate: CertificateDer<'static>,
    ) -> Result<Self, CertificateAuthorityError> {
        let not_after = {
            let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)?;
            parsed.validity().not_after.to_datetime()
        };
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        Ok(Self { issuer, certificate, not_after })
    }
}

impl fmt::Debug for CertificateAuthority {
    /// Says which authority, never with which key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

/// How long an authority is good for: an hour at least, a year at most.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lifetime(Duration);

impl Lifetime {
    /// ```
    /// use std::time::Duration;
    /// use certs::Lifetime;
    ///
    /// assert!(Lifetime::new(Duration::from_secs(86_400)).is_ok());
    ///
    /// let err = Lifetime::new(Duration::from_secs(60)).unwrap_err();
    /// assert_eq!(
    ///     err.to_string(),
    ///     "an authority cannot live for 60s: write a time between one hour and 365 days",
    /// );
    /// ```
    pub fn new(written: Duration) -> Result<Self, LifetimeError> {
        // With less, leaves would expire during a long download. With more, a
        // forgotten key could be misused for years.
        if (HOUR..=YEAR).contains(&written) {
            Ok(Self(written))
        } else {
            Err(LifetimeError { written })
        }
    }
}

impl Default for Lifetime {
    /// A week: longer than a sandbox usually lives.
    fn default() -> Self {
        Self(7 * 24 * HOUR)
    }
}

/// A lifetime outside the bounds.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("an authority cannot live for {written:?}: write a time between one hour and 365 days")]
pub struct LifetimeError {
    written: Duration,
}

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum CertificateAuthorityError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("cannot make the authority's key or certificate")]
    Generate(#[from] rcgen::Error),
    #[error("cannot read back the authority's certificate")]
    ReadBack(#[from] x509_parser::nom::Err<x509_parser::error::X509Error>),
    #[error("the system gave no random bytes for a serial number")]
    Random(#[source] aws_lc_rs::error::Unspecified),
    #[error(
        "run `{written}` cannot stand in a certificate: write 1 to {MAX_RUN_CHARS} of A-Z a-z 0-9 . _ -"
    )]
    Run { written: String },
}

/// Sixteen random bytes as a positive number.
///
/// Random, because a serial derived from the key repeats for every leaf of that
/// key, and NSS refuses two certificates of one issuer with one serial. The top
/// bits are fixed so that the number is positive and always sixteen bytes long.
pub(crate) fn serial() -> Result<SerialNumber, aws_lc_rs::error::Unspecified> {
    let mut bytes = [0_u8; 16];
    aws_lc_rs::rand::fill(&mut bytes)?;
    let [first, ..] = &mut bytes;
    *first = (*first & 0x7f) | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn generate(
    run: &str,
    lifetime: Lifetime,
    now: OffsetDateTime,
) -> Result<(KeyPair, CertificateDer<'static>), CertificateAuthorityError> {
    let nameable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if run.is_empty() || run.len() > MAX_RUN_CHARS || !run.chars().all(nameable) {
        return Err(CertificateAuthorityError::Run { written: run.to_owned() });
    }

    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, format!("{COMMON_NAME_PREFIX}{run}"));

    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.serial_number = Some(serial().map_err(CertificateAuthorityError::Random)?);
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + lifetime.0;

    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let certificate = params.self_signed(&key)?.der().clone();
    Ok((key, certificate))
}

/// How far a sandbox's clock may be behind ours: certificates begin that much earlier.
pub(crate) const CLOCK_SKEW: Duration = HOUR;
const HOUR: Duration = Duration::from_secs(60 * 60);
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

const COMMON_NAME_PREFIX: &str = "Sluice sandbox CA ";
/// X.520 ends a common name at 64 characters.
const MAX_RUN_CHARS: usize = 64 - COMMON_NAME_PREFIX.len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_authority_may_sign_leaves_and_nothing_more() {
        let authority = CertificateAuthority::in_memory("run-1", Lifetime::default()).unwrap();
        let (_, ca) = x509_parser::parse_x509_certificate(authority.certificate()).unwrap();

        let constraints = ca.basic_constraints().unwrap().unwrap();
        assert!(constraints.critical);
        assert!(constraints.value.ca);
        assert_eq!(constraints.value.path_len_constraint, Some(0));

        let usage = ca.key_usage().unwrap().unwrap();
        assert!(usage.critical);
        assert_eq!(usage.value.to_string(), "Key Cert Sign, CRL Sign");

        assert_eq!(ca.subject().to_string(), "CN=Sluice sandbox CA run-1");
        assert_eq!(ca.raw_serial().len(), 16);
        assert!(
            ca.iter_extensions()
                .any(|e| e.oid == x509_parser::oid_registry::OID_X509_EXT_SUBJECT_KEY_IDENTIFIER)
        );
    }

    #[test]
    fn a_new_authority_lives_from_an_hour_ago_for_its_lifetime() {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let (_, certificate) = generate("r", Lifetime::default(), now).unwrap();
        let (_, ca) = x509_parser::parse_x509_certificate(&certificate).unwrap();
        assert_eq!(ca.validity().not_before.timestamp(), 1_800_000_000 - 3600);
        assert_eq!(ca.validity().not_after.timestamp(), 1_800_000_000 + 7 * 24 * 3600);
    }

    #[test]
    fn a_run_that_does_not_fit_a_certificate_is_refused() {
        for run in ["", "a b", "a\nb", "ä", &"x".repeat(47)] {
            let err = CertificateAuthority::in_memory(run, Lifetime::default()).unwrap_err();
            assert_eq!(
                err.to_string(),
                format!(
                    "run `{run}` cannot stand in a certificate: write 1 to 46 of A-Z a-z 0-9 . _ -"
                )
            );
        }
        CertificateAuthority::in_memory(&"x".repeat(46), Lifetime::default()).unwrap();
    }

    #[test]
    fn debug_shows_no_key() {
        let authority = CertificateAuthority::in_memory("run-1", Lifetime::default()).unwrap();
        let shown = format!("{authority:?}");
        assert!(shown.starts_with("Authority { not_after: "), "{shown}");
        assert!(shown.ends_with(", .. }"), "{shown}");
    }
}
