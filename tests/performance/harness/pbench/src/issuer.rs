//! Who signed a leaf: how an interception is told from a tunnel.

use rustls::pki_types::CertificateDer;
use x509_parser::parse_x509_certificate;

/// The names in the issuer of a certificate, such as "pbench proxy CA / pbench"; a
/// question mark if there is none that can be read.
pub(crate) fn issuer_names(leaf: Option<&CertificateDer<'_>>) -> String {
    let parsed = leaf.and_then(|leaf| parse_x509_certificate(leaf).ok());
    let Some((_, certificate)) = parsed else { return "?".to_owned() };
    let attributes = certificate.issuer().iter_attributes();
    let names: Vec<&str> = attributes.flat_map(|attribute| attribute.as_str()).collect();
    names.join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyPair};

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, "org");
        params
    }

    #[test]
    fn the_issuer_is_named_and_not_the_subject() {
        let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let ca = params("the signer");
        let leaf = params("the signed").signed_by(&key, &Issuer::from_params(&ca, &ca_key));
        assert_eq!(issuer_names(Some(leaf.unwrap().der())), "the signer / org");
    }

    #[test]
    fn without_a_certificate_nobody_is_named() {
        assert_eq!(issuer_names(None), "?");
        assert_eq!(issuer_names(Some(&vec![0x30, 0x03].into())), "?");
    }
}
