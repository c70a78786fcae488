//! A trust store that Java reads: PKCS#12 with certificates and no key.
//!
//! Java shows a certificate in such a file as trusted only if the bag carries an
//! attribute of Oracle's own. The content is not encrypted, because certificates
//! are public; it is followed by a MAC under the password that every Java
//! installation uses, because readers refuse a file without one. Neither
//! protects anything: what protects the store is that sandboxes get it read-only.

use aws_lc_rs::digest::{self, SHA256, SHA256_OUTPUT_LEN};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac;

use crate::der;

/// The password of every Java trust store that nobody changed.
pub(crate) const PASSWORD: &str = "changeit";

/// One certificate and the name Java lists it under.
#[derive(Debug)]
pub(crate) struct TrustedCertificate<'a> {
    pub(crate) alias: String,
    pub(crate) der: &'a [u8],
}

/// The bytes of a trust store with these certificates.
pub(crate) fn trust_store(entries: &[TrustedCertificate<'_>]) -> Result<Vec<u8>, Unspecified> {
    let mut salt = [0_u8; 20];
    aws_lc_rs::rand::fill(&mut salt)?;

    let bags: Vec<_> = entries.iter().map(bag).collect();
    let bags: Vec<_> = bags.iter().map(Vec::as_slice).collect();
    // What is authenticated: a list of content infos, of which we have one.
    let safe = der::sequence(&[&content_info(&der::sequence(&bags))]);
    let mac = mac(PASSWORD, &salt, &safe);

    Ok(der::sequence(&[
        &der::integer(3),
        &content_info(&safe),
        &der::sequence(&[
            &der::sequence(&[&der::sequence(&[&oid_sha256(), &der::null()]), &der::octets(&mac)]),
            &der::octets(&salt),
            &der::integer(ITERATIONS),
        ]),
    ]))
}

/// A certificate, its name, and Oracle's mark of trust for any purpose.
fn bag(entry: &TrustedCertificate<'_>) -> Vec<u8> {
    let certificate = der::sequence(&[
        &der::oid(1, 2, &[840, 113_549, 1, 9, 22, 1]),
        &der::explicit(0, &der::octets(entry.der)),
    ]);
    let friendly_name = der::sequence(&[
        &der::oid(1, 2, &[840, 113_549, 1, 9, 20]),
        &der::set(vec![der::bmp(&entry.alias)]),
    ]);
    let trusted_key_usage = der::sequence(&[
        &der::oid(2, 16, &[840, 1, 113_894, 746_875, 1, 1]),
        &der::set(vec![der::oid(2, 5, &[29, 37, 0])]),
    ]);
    der::sequence(&[
        &der::oid(1, 2, &[840, 113_549, 1, 12, 10, 1, 3]),
        &der::explicit(0, &certificate),
        &der::set(vec![friendly_name, trusted_key_usage]),
    ])
}

/// `content` as PKCS#7 data.
fn content_info(content: &[u8]) -> Vec<u8> {
    der::sequence(&[
        &der::oid(1, 2, &[840, 113_549, 1, 7, 1]),
        &der::explicit(0, &der::octets(content)),
    ])
}

fn oid_sha256() -> Vec<u8> {
    der::oid(2, 16, &[840, 1, 101, 3, 4, 2, 1])
}

fn mac(password: &str, salt: &[u8], content: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &mac_key(password, salt));
    hmac::sign(&key, content).as_ref().to_vec()
}

/// The key derivation of RFC 7292, appendix B.2, for a MAC under SHA-256.
///
/// The general algorithm goes on to a second block when more bytes are wanted
/// than the digest gives. A MAC key is exactly one digest long, so ours ends
/// after the first.
fn mac_key(password: &str, salt: &[u8]) -> [u8; SHA256_OUTPUT_LEN] {
    // With its terminator: two zero bytes.
    let password: Vec<u8> = password.encode_utf16().chain([0]).flat_map(u16::to_be_bytes).collect();
    let mut first = digest::Context::new(&SHA256);
    first.update(&[FOR_MAC; SHA256_BLOCK]);
    first.update(&filled(salt));
    first.update(&filled(&password));
    let mut key = first.finish();
    for _ in 1..ITERATIONS {
        key = digest::digest(&SHA256, key.as_ref());
    }
    key.as_ref().try_into().expect("a SHA-256 has that length")
}

/// `bytes`, repeated until whole blocks are full.
fn filled(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len().div_ceil(SHA256_BLOCK) * SHA256_BLOCK;
    bytes.iter().copied().cycle().take(length).collect()
}

/// Readers accept any number. The password is public, so more would buy nothing.
const ITERATIONS: u32 = 1000;
const SHA256_BLOCK: usize = 64;
/// What the derived bytes are for, in the RFC's numbering.
const FOR_MAC: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with Python's `hashlib` from the RFC's text, and the same as
    /// OpenSSL's; the tools themselves judge whole files in `tests/real_tools.rs`.
    #[test]
    fn the_mac_key_is_the_one_the_rfc_describes() {
        let key = mac_key("changeit", b"01234567890123456789");
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "78754742ebc407d8c44c071fa93498cbc9e3d98f439aad6f1af26862e66cbff4");
    }

    #[test]
    fn a_store_begins_with_version_three_and_holds_every_certificate() {
        let entries = [
            TrustedCertificate { alias: "one".into(), der: b"first certificate" },
            TrustedCertificate { alias: "two".into(), der: b"second certificate" },
        ];
        let store = trust_store(&entries).unwrap();
        assert_eq!(store[..2], [0x30, 0x82]);
        assert_eq!(store[4..7], [0x02, 0x01, 0x03]);
        for entry in entries {
            assert!(store.windows(entry.der.len()).any(|window| window == entry.der));
        }
    }
}
