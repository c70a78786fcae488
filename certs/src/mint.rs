//! Making a leaf: a certificate for one host, signed by our authority.
//!
//! All leaves of an authority share one key, so a leaf costs one signature and
//! no key generation. What tells them apart is the host in the SAN, and a serial
//! that is random because the key cannot provide it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::crypto::aws_lc_rs::sign;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;

use crate::certificate_authority::{self, CLOCK_SKEW, CertificateAuthority};
use crate::subject::Subject;

/// Mints leaves for one authority, all under one key.
#[derive(Debug)]
pub struct Mint {
    authority: Arc<CertificateAuthority>,
    key: LeafKey,
}

impl Mint {
    /// Makes the leaf key. One per authority is enough.
    pub fn new(authority: Arc<CertificateAuthority>) -> Result<Self, MintError> {
        Ok(Self { authority, key: LeafKey::generate()? })
    }

    pub fn authority(&self) -> &Arc<CertificateAuthority> {
        &self.authority
    }

    /// Mints a leaf for `subject`, good from an hour before `now` for a day.
    ///
    /// Never beyond the authority's own end: a chain is as good as its shortest
    /// link, and some clients refuse a leaf that claims to outlive its issuer.
    pub fn mint(&self, subject: &Subject, now: SystemTime) -> Result<Leaf, MintError> {
        let now = OffsetDateTime::from(now);
        let authority_ends = self.authority.ends();
        if authority_ends <= now {
            return Err(MintError::AuthorityExpired { not_after: authority_ends });
        }
        let not_after = authority_ends.min(now + LEAF_LIFETIME);
        // A leaf that ends with the authority cannot be renewed for longer.
        let renew = if not_after == authority_ends { not_after } else { not_after - RENEW_MARGIN };

        let params = params(subject, now - CLOCK_SKEW, not_after)?;
        let certificate = params.signed_by(&self.key.pair, self.authority.issuer())?;
        // The chain is the leaf alone: whoever trusts us has the other half.
        let chain = vec![certificate.der().clone()];
        let certified = Arc::new(CertifiedKey::new(chain, Arc::clone(&self.key.signer)));
        Ok(Leaf { certified, renew })
    }
}

/// A leaf and its key, ready for a handshake.
#[derive(Clone, Debug)]
pub struct Leaf {
    certified: Arc<CertifiedKey>,
    renew: OffsetDateTime,
}

impl Leaf {
    pub fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }

    /// Whether a connection that starts `now` should get a newer leaf.
    pub(crate) fn is_stale(&self, now: SystemTime) -> bool {
        self.renew <= OffsetDateTime::from(now)
    }
}

/// Why a leaf was not minted.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    #[error("the sandbox's authority expired ({not_after}); start the gateway again")]
    AuthorityExpired { not_after: OffsetDateTime },
    #[error("cannot sign a certificate")]
    Generate(#[from] rcgen::Error),
    #[error("cannot use the leaf key")]
    Key(#[source] rustls::Error),
    #[error("the system gave no random bytes for a serial number")]
    Random(#[source] aws_lc_rs::error::Unspecified),
    #[error("cannot set up session tickets")]
    Tickets(#[source] rustls::Error),
    #[error("the crypto library refuses our TLS versions")]
    Unbuildable(#[source] rustls::Error),
}

/// The key of all leaves, in the two forms its two users want.
struct LeafKey {
    pair: KeyPair,
    signer: Arc<dyn SigningKey>,
}

impl LeafKey {
    fn generate() -> Result<Self, MintError> {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pair.serialized_der()));
        let signer = sign::any_ecdsa_type(&der).map_err(MintError::Key)?;
        Ok(Self { pair, signer })
    }
}

impl std::fmt::Debug for LeafKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LeafKey")
    }
}

fn params(
    subject: &Subject,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
) -> Result<CertificateParams, MintError> {
    // The host is in the SAN and nowhere else: hosts may be longer than a common
    // name. The name is not left empty, because then the SAN has to be critical
    // and some clients do not know what that means. No host has a space in it.
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, "Sluice leaf");

    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    params.subject_alt_names = vec![match subject {
        Subject::Address(address) => SanType::IpAddress(*address),
        Subject::Name(host) => SanType::DnsName(host.as_ref().try_into()?),
    }];
    // Writing "not a CA" is also what makes the generator add the subject key
    // identifier; together with the authority's, strict clients ask for both.
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.serial_number = Some(certificate_authority::serial().map_err(MintError::Random)?);
    params.not_before = not_before;
    params.not_after = not_after;
    Ok(params)
}

const LEAF_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// A connection may last; a client may verify late.
const RENEW_MARGIN: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests;
