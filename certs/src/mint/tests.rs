//! A leaf is good for its host, under its authority, in its time, and for
//! nothing else. The judge is the library that clients like ours use.

use std::collections::HashSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls_pki_types::{ServerName, UnixTime};
use x509_parser::extensions::ParsedExtension;
use x509_parser::oid_registry;

use super::*;
use crate::certificate_authority::Lifetime;
use crate::provider;

#[test]
fn a_leaf_carries_what_strict_clients_ask_for() {
    let mint = mint();
    let leaf = mint.mint(&subject("api.github.com"), SystemTime::now()).unwrap();
    let (_, leaf) = x509_parser::parse_x509_certificate(&leaf.certified.cert[0]).unwrap();
    let (_, ca) = x509_parser::parse_x509_certificate(mint.authority.certificate()).unwrap();

    assert_eq!(leaf.subject().to_string(), "CN=Sluice leaf");
    assert_eq!(leaf.issuer().as_raw(), ca.subject().as_raw());
    assert_eq!(leaf.raw_serial().len(), 16);
    assert_eq!(leaf.key_usage().unwrap().unwrap().value.to_string(), "Digital Signature");

    let purposes = leaf.extended_key_usage().unwrap().unwrap().value;
    assert!(purposes.server_auth);
    assert!(!purposes.client_auth && !purposes.any && purposes.other.is_empty());

    let constraints = leaf.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && !constraints.value.ca);

    let authority = key_identifier(&leaf, &oid_registry::OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER);
    let issuer = key_identifier(&ca, &oid_registry::OID_X509_EXT_SUBJECT_KEY_IDENTIFIER);
    let own = key_identifier(&leaf, &oid_registry::OID_X509_EXT_SUBJECT_KEY_IDENTIFIER);
    assert_eq!(authority, issuer);
    assert_ne!(own, issuer);
}

#[test]
fn a_leaf_lives_a_day_and_never_beyond_its_authority() {
    let mint = mint();
    let now = SystemTime::now();
    let seconds = |time: SystemTime| OffsetDateTime::from(time).unix_timestamp();
    let validity = |at: SystemTime| {
        let leaf = mint.mint(&subject("a.test"), at).unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(&leaf.certified.cert[0]).unwrap();
        (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp())
    };

    assert_eq!(validity(now), (seconds(now) - 3600, seconds(now) + 24 * 3600));

    let end = mint.authority.not_after();
    let last_hour = end - Duration::from_secs(3600);
    assert_eq!(validity(last_hour), (seconds(end) - 7200, seconds(end)));

    let err = mint.mint(&subject("a.test"), end).unwrap_err();
    assert!(err.to_string().starts_with("the sandbox's authority expired ("), "{err}");
}

#[test]
fn serials_never_repeat() {
    let mint = mint();
    let mut seen = HashSet::new();
    for _ in 0..2000 {
        let leaf = mint.mint(&subject("a.test"), SystemTime::now()).unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(&leaf.certified.cert[0]).unwrap();
        // A first byte with its top bit set would be a negative number.
        assert!(parsed.raw_serial()[0] < 0x80);
        assert!(seen.insert(parsed.raw_serial().to_vec()));
    }
}

#[test]
fn a_leaf_of_another_authority_is_refused() {
    let (ours, theirs) = (mint(), mint());
    let leaf = theirs.mint(&subject("a.test"), SystemTime::now()).unwrap();
    assert!(verify(&theirs, &leaf, "a.test").is_ok());
    // Both are called alike, so it is the key that gives it away.
    let err = verify(&ours, &leaf, "a.test").unwrap_err();
    assert_eq!(err.to_string(), "invalid peer certificate: BadSignature");
}

#[test]
fn debug_shows_no_key() {
    assert!(format!("{:?}", mint()).ends_with("key: LeafKey }"));
}

proptest! {
    /// Whatever host a client can ask for gets a leaf that client accepts, and
    /// accepts for no other host.
    #[test]
    fn a_leaf_is_good_for_its_host_and_no_other(host in host(), other in host()) {
        static MINT: LazyLock<Mint> = LazyLock::new(mint);
        let Ok(asked) = ServerName::try_from(host.as_str()) else { return Ok(()) };
        let subject = Subject::parse(&host).unwrap();
        let leaf = MINT.mint(&subject, SystemTime::now()).unwrap();

        let longer = ["x", &host].concat();

        prop_assert!(verify_name(&MINT, &leaf, &asked).is_ok());
        prop_assert!(verify(&MINT, &leaf, &longer).is_err());
        if let Ok(name) = ServerName::try_from(other.as_str())
            && Subject::parse(&other).unwrap() != subject
        {
            prop_assert!(verify_name(&MINT, &leaf, &name).is_err());
        }
    }
}

/// Names of every shape that passes for one, and addresses.
fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Za-z0-9_-]{1,63}(\\.[A-Za-z0-9_-]{1,63}){0,3}\\.?",
        "[a-z]{1,3}(\\.[a-z]{1,2}){0,2}",
        any::<std::net::Ipv4Addr>().prop_map(|address| address.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|address| address.to_string()),
    ]
}

fn mint() -> Mint {
    let authority = CertificateAuthority::in_memory("test", Lifetime::default()).unwrap();
    Mint::new(Arc::new(authority)).unwrap()
}

fn subject(host: &str) -> Subject {
    Subject::parse(host).unwrap()
}

fn verify(trusted: &Mint, leaf: &Leaf, host: &str) -> Result<(), rustls::Error> {
    match ServerName::try_from(host) {
        Ok(name) => verify_name(trusted, leaf, &name),
        Err(err) => Err(rustls::Error::General(err.to_string())),
    }
}

fn verify_name(trusted: &Mint, leaf: &Leaf, name: &ServerName<'_>) -> Result<(), rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.authority.certificate().clone()).unwrap();
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
    let (end_entity, rest) = leaf.certified.cert.split_first().unwrap();
    verifier.verify_server_cert(end_entity, rest, name, &[], UnixTime::now()).map(|_| ())
}

fn key_identifier(
    certificate: &x509_parser::certificate::X509Certificate<'_>,
    oid: &oid_registry::Oid<'_>,
) -> Vec<u8> {
    let found = certificate.get_extension_unique(oid).unwrap().unwrap();
    let parsed = found.parsed_extension();
    if let ParsedExtension::AuthorityKeyIdentifier(identifier) = parsed {
        return identifier.key_identifier.as_ref().unwrap().0.to_vec();
    }
    let ParsedExtension::SubjectKeyIdentifier(identifier) = parsed else {
        panic!("{parsed:?} is no key identifier");
    };
    identifier.0.to_vec()
}
