//! Who signed a leaf: how an interception is told from a tunnel.

use rustls::pki_types::CertificateDer;

/// The names in the issuer of a certificate, such as "pbench proxy CA / pbench".
///
/// A rough reading that serves to tell CAs of ours apart: the strings that stand
/// before the validity period are the issuer's.
pub(crate) fn issuer_names(leaf: Option<&CertificateDer<'_>>) -> String {
    let Some(leaf) = leaf else { return "?".to_owned() };
    let is_time = |pair: &[u8]| pair == UTC_TIME || pair == GENERALIZED_TIME;
    let end = leaf.windows(2).position(is_time).unwrap_or(leaf.len());
    let mut rest = leaf.get(..end).unwrap_or_default();
    let mut names = Vec::new();
    while let [tag, after @ ..] = rest {
        rest = after;
        let [length, text @ ..] = after else { break };
        let is_string = matches!(*tag, UTF8_STRING | PRINTABLE_STRING) && *length > 1;
        if let Some((text, after)) =
            text.split_at_checked(usize::from(*length)).filter(|_| is_string)
        {
            names.push(String::from_utf8_lossy(text));
            rest = after;
        }
    }
    names.join(" / ")
}

const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const UTC_TIME: [u8; 2] = [0x17, 13];
const GENERALIZED_TIME: [u8; 2] = [0x18, 15];

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, Issuer, KeyPair};

    #[test]
    fn the_issuer_is_named_and_not_the_subject() {
        let mut ca = CertificateParams::default();
        ca.distinguished_name.push(DnType::CommonName, "the signer");
        let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut leaf = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        leaf.distinguished_name.push(DnType::CommonName, "the signed");
        let leaf = leaf.signed_by(&key, &Issuer::from_params(&ca, &ca_key)).unwrap();

        let names = issuer_names(Some(leaf.der()));
        assert!(names.contains("the signer"), "{names}");
        assert!(!names.contains("the signed"), "{names}");
        assert_eq!(issuer_names(None), "?");
    }
}
