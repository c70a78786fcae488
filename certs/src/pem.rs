//! Certificates as PEM text, in the one shape every tool reads.
//!
//! Sixty-four characters a line and a newline at the end: OpenSSL's readers
//! accept more, Java's and GnuTLS's do not promise to.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// One certificate as a PEM block.
pub(crate) fn certificate(der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut text = String::with_capacity(encoded.len() + encoded.len() / LINE + 64);
    text.push_str("-----BEGIN CERTIFICATE-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

const LINE: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;

    proptest! {
        #[test]
        fn what_is_written_reads_back(der in proptest::collection::vec(any::<u8>(), 1..400)) {
            let text = super::certificate(&der);
            prop_assert!(text.lines().all(|line| line.len() <= 64));
            let read = CertificateDer::from_pem_slice(text.as_bytes()).unwrap();
            prop_assert_eq!(read.as_ref(), der.as_slice());
        }
    }
}
