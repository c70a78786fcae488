//! The roots that upstream certificates are verified with.
//!
//! Three sources, each asked for by name: the roots compiled into the program,
//! the distribution's bundle, and files an operator lists. A source that was
//! asked for and cannot be had is an error. Trusting fewer roots than was meant
//! would break sites one by one, and nobody would know why.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{self as pki_pem, PemObject as _};

use crate::explaining_verifier::ExplainingVerifier;
use crate::server_tls::Alpn;
use crate::{provider, system_bundle};

/// Which roots an operator asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Roots {
    /// The public roots compiled into the program.
    pub bundled: bool,
    /// The public roots of this machine's distribution, from its usual files.
    /// `SSL_CERT_FILE` and `SSL_CERT_DIR` are deliberately not read.
    pub system: bool,
    /// PEM files, for authorities nobody else knows.
    pub files: Vec<PathBuf>,
}

impl Default for Roots {
    /// The compiled-in roots: the same on every machine.
    fn default() -> Self {
        Self { bundled: true, system: false, files: Vec::new() }
    }
}

/// Verified TLS towards the internet: one configuration per ALPN set.
#[derive(Clone)]
pub struct UpstreamTls {
    h2_or_http1: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
    none: Arc<ClientConfig>,
    anchors: usize,
}

impl UpstreamTls {
    /// Reads the roots and builds the configurations; blocks on files.
    pub fn load(roots: &Roots) -> Result<Self, RootsError> {
        let store = store(roots)?;
        let anchors = store.len();
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider())
            .build()
            .map_err(|_| RootsError::Empty)?;
        let mut base = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(RootsError::Unbuildable)?
            // It is webpki that verifies; ours only explains its errors.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ExplainingVerifier(verifier)))
            .with_no_client_auth();
        // Clones share it. Sessions are remembered under the verified name, and
        // all three verify alike.
        base.resumption = Resumption::in_memory_sessions(MAX_REMEMBERED_SESSIONS);
        let with = |alpn: Alpn| {
            let mut config = base.clone();
            config.alpn_protocols = alpn.protocols();
            Arc::new(config)
        };
        Ok(Self {
            h2_or_http1: with(Alpn::H2OrHttp1),
            http1: with(Alpn::Http1),
            none: with(Alpn::None),
            anchors,
        })
    }

    pub fn config(&self, alpn: Alpn) -> &Arc<ClientConfig> {
        match alpn {
            Alpn::H2OrHttp1 => &self.h2_or_http1,
            Alpn::Http1 => &self.http1,
            Alpn::None => &self.none,
        }
    }

    /// How many roots are trusted; for the status page.
    pub fn anchors(&self) -> usize {
        self.anchors
    }
}

impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("anchors", &self.anchors).finish_non_exhaustive()
    }
}

/// Why the roots cannot be used as asked.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    #[error("no upstream would be trusted: ask for `bundled` or `system` roots, or list files")]
    Empty,
    #[error("{} holds no certificate in PEM", path.display())]
    NoCertificate { path: PathBuf },
    #[error(
        "`system` roots were asked for, and this machine has no bundle in any of the usual places; install ca-certificates, or ask for `bundled` roots"
    )]
    NoSystemBundle,
    #[error("certificate {number} of {} cannot be a root", path.display())]
    NotARoot { path: PathBuf, number: usize, source: rustls::Error },
    #[error("the crypto library refuses our TLS versions")]
    Unbuildable(#[source] rustls::Error),
    #[error("cannot read roots from {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is not PEM throughout", path.display())]
    Unparsable { path: PathBuf, source: pki_pem::Error },
}

fn store(roots: &Roots) -> Result<RootCertStore, RootsError> {
    let mut store = RootCertStore::empty();
    if roots.bundled {
        store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    if roots.system {
        let path = system_bundle::find().ok_or(RootsError::NoSystemBundle)?;
        // Distributions ship the odd certificate that no strict parser takes;
        // that is not for our operator to repair. None at all is.
        let (added, _) = store.add_parsable_certificates(read(&path)?);
        if added == 0 {
            return Err(RootsError::NoCertificate { path });
        }
    }
    for path in &roots.files {
        for (at, certificate) in read(path)?.into_iter().enumerate() {
            store.add(certificate).map_err(|source| RootsError::NotARoot {
                path: path.clone(),
                number: at + 1,
                source,
            })?;
        }
    }
    if store.is_empty() { Err(RootsError::Empty) } else { Ok(store) }
}

/// The roots of this machine's distribution that are not compiled in, as PEM,
/// for a gateway that stands where there are none; nothing if there are no
/// others. The odd certificate that no strict parser takes is left out, as with
/// `system`.
pub fn system_pem() -> Option<String> {
    let known: HashSet<(&[u8], &[u8])> = webpki_roots::TLS_SERVER_ROOTS
        .iter()
        .map(|root| (root.subject.as_ref(), root.subject_public_key_info.as_ref()))
        .collect();
    let is_new = |certificate: &CertificateDer<'_>| {
        let mut store = RootCertStore::empty();
        store.add(certificate.clone().into_owned()).is_ok()
            && store.roots.iter().all(|root| {
                let (subject, key) = (root.subject.as_ref(), root.subject_public_key_info.as_ref());
                !known.contains(&(subject, key))
            })
    };
    let roots = read(&system_bundle::find()?).ok()?;
    let text: String = roots
        .iter()
        .filter(|root| is_new(root))
        .map(|root| crate::pem::certificate(root))
        .collect();
    Some(text).filter(|text| !text.is_empty())
}

/// Every certificate in a PEM file; at least one.
pub(crate) fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, RootsError> {
    let bytes = std::fs::read(path)
        .map_err(|source| RootsError::Unreadable { path: path.to_owned(), source })?;
    let certificates = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| RootsError::Unparsable { path: path.to_owned(), source })?;
    if certificates.is_empty() {
        return Err(RootsError::NoCertificate { path: path.to_owned() });
    }
    Ok(certificates)
}

/// Hosts whose sessions are remembered.
const MAX_REMEMBERED_SESSIONS: usize = 1024;

#[cfg(test)]
mod tests;
