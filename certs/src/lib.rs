//! Certificates: the gateway's own authority, the leaves it mints, the roots it
//! trusts upstream, and what a sandbox needs in order to trust the gateway.
//!
//! Towards a sandbox, read in this order: a [`CertificateAuthority`] signs; [`Serving`]
//! presents, for a host that policy has admitted, a leaf minted for that host
//! and nothing else. Towards the internet, [`Roots`] becomes an [`UpstreamTls`].
//! Into a sandbox goes a [`TrustKit`]: files that hold the authority's certificate,
//! and the [`variables`] that point tools at them.
//!
//! **Invariant:** the authority's key is in memory, or in a directory that only
//! its owner can enter. No function returns it and no `Debug` prints it.
//! **Invariant:** no trust comes from the environment. `SSL_CERT_FILE` and its
//! kin are written by this crate and never read by it.
//! **Invariant:** every configuration names its crypto provider. Nothing here
//! asks for the process default, so nothing here can panic for want of one.

mod certificate_authority;
mod der;
mod directory;
mod explaining_verifier;
mod leaf_cache;
mod mint;
mod pem;
mod pkcs12;
mod roots;
mod server_tls;
mod subject;
mod system_bundle;
mod tickets;
mod trust_kit;
pub mod variables;

use std::sync::Arc;

use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, aws_lc_rs};

pub use certificate_authority::{
    CertificateAuthority, CertificateAuthorityError, Lifetime, LifetimeError,
};
pub use directory::{DirectoryError, Unsuitable};
pub use explaining_verifier::WeakKey;
pub use leaf_cache::LeafCache;
pub use mint::{Leaf, Mint, MintError};
pub use roots::{Roots, RootsError, UpstreamTls, system_pem};
pub use server_tls::{Alpn, Serving};
pub use subject::{Subject, SubjectError};
pub use trust_kit::{PublicRoots, TrustKit, TrustKitContents, TrustKitError};

/// The one crypto library, named wherever a configuration is built.
///
/// AES with keys of 128 bits comes first, as in browsers: nobody searches through
/// those either, it takes fewer rounds, and its keys are derived with SHA-256, for
/// which processors have instructions. That is a twelfth of a handshake.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    let first = CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|cipher| cipher.suite() != first);
    Arc::new(provider)
}

/// Whether this processor has instructions for AES.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(not(target_arch = "x86_64"))]
    false
}
