//! An authority on disk is used as it is or refused with the reason.

use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyUsagePurpose, PKCS_ED25519};
use tempfile::TempDir;
use time::Duration;

use super::*;
use crate::certificate_authority::{CertificateAuthority, CertificateAuthorityError, Lifetime};
use crate::mint::Mint;
use crate::subject::Subject;

#[test]
fn the_first_use_makes_it_and_the_next_finds_it() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("state/ca");
    let first =
        CertificateAuthority::in_directory(&directory, "run-1", Lifetime::default()).unwrap();
    let second =
        CertificateAuthority::in_directory(&directory, "run-2", Lifetime::default()).unwrap();

    assert_eq!(first.certificate(), second.certificate());
    assert_eq!(fs::read_to_string(directory.join("ca.pem")).unwrap(), first.pem());
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("ca.key")), 0o600);
}

#[test]
fn gateways_that_start_together_share_one_authority() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("ca");
    let made: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..8)
            .map(|n| {
                let directory = &directory;
                scope.spawn(move || {
                    CertificateAuthority::in_directory(
                        directory,
                        &format!("run-{n}"),
                        Lifetime::default(),
                    )
                    .unwrap()
                    .pem()
                })
            })
            .collect();
        started.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(made.iter().all(|pem| *pem == made[0]));
}

#[test]
fn what_others_can_read_is_refused_and_the_message_says_the_chmod() {
    for (file, loose, tight) in [
        ("", 0o750, "700"),
        ("ca.key", 0o640, "600"),
        ("ca.key", 0o604, "600"),
        ("ca.pem", 0o664, "644"),
    ] {
        let home = kept();
        let path = if file.is_empty() { home.path().to_owned() } else { home.path().join(file) };
        fs::set_permissions(&path, fs::Permissions::from_mode(loose)).unwrap();
        assert_eq!(
            refusal(&home),
            format!("$DIR is open to others (mode {loose:03o}); run: chmod {tight} $DIR")
                .replace("$DIR", path.to_str().unwrap()),
        );
    }
}

#[test]
fn half_an_authority_is_refused_not_completed() {
    for (missing, present) in [("ca.key", "ca.pem"), ("ca.pem", "ca.key")] {
        let home = kept();
        fs::remove_file(home.path().join(missing)).unwrap();
        let message = refusal(&home);
        assert!(message.starts_with(home.path().join(present).to_str().unwrap()), "{message}");
        assert!(
            message
                .ends_with("restore the missing file, or remove both to have a new authority made")
        );
        assert!(!home.path().join(missing).exists());
    }
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let home = kept();
    write(&home, "ca.key", &KeyPair::generate().unwrap().serialize_pem());
    let message = refusal(&home);
    assert!(message.contains("ca.key is not the key of "), "{message}");
}

#[test]
fn a_key_clients_would_not_accept_is_refused() {
    let home = kept();
    write(&home, "ca.key", &KeyPair::generate_for(&PKCS_ED25519).unwrap().serialize_pem());
    assert!(refusal(&home).contains("one unencrypted P-256, P-384 or RSA key"));
    write(&home, "ca.key", "not a key");
    assert!(refusal(&home).contains("one unencrypted P-256, P-384 or RSA key"));
}

#[test]
fn a_file_without_a_certificate_is_refused() {
    let home = kept();
    write(&home, "ca.pem", "nothing here\n");
    assert!(refusal(&home).ends_with("ca.pem holds no certificate in PEM"));
    write(&home, "ca.pem", &pem::certificate(b"not a certificate"));
    assert!(refusal(&home).ends_with("it is not an X.509 certificate"));
}

#[test]
fn a_certificate_that_cannot_sign_leaves_is_refused_with_the_reason() {
    type Spoil = fn(&mut CertificateParams);
    let cases: [(&str, Spoil); 4] = [
        ("it has no critical basicConstraints with CA:TRUE", |p| p.is_ca = IsCa::ExplicitNoCa),
        ("it has no critical basicConstraints with CA:TRUE", |p| p.is_ca = IsCa::NoCa),
        ("its keyUsage does not have keyCertSign", |p| p.key_usages = vec![]),
        ("its keyUsage does not have keyCertSign", |p| {
            p.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        }),
    ];
    for (why, spoil) in cases {
        let message = refusal(&brought(spoil));
        assert!(message.ends_with(&format!("ca.pem cannot be our authority: {why}")), "{message}");
    }
}

#[test]
fn an_intermediate_is_refused_because_sandboxes_get_it_alone() {
    let home = TempDir::new().unwrap();
    let (root_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut root = good();
    root.distinguished_name.push(DnType::CommonName, "The root");
    let issuer = Issuer::new(root, root_key);
    let certificate = good().signed_by(&key, &issuer).unwrap();
    close(&home);
    write(&home, "ca.pem", &certificate.pem());
    write(&home, "ca.key", &key.serialize_pem());
    assert!(refusal(&home).ends_with("issued by another authority; give the self-signed one"));
}

#[test]
fn an_authority_outside_its_time_is_refused() {
    let expired = refusal(&brought(|p| p.not_after = OffsetDateTime::now_utc() - Duration::MINUTE));
    assert!(expired.contains("ca.pem has expired ("), "{expired}");
    let early = refusal(&brought(|p| p.not_before = OffsetDateTime::now_utc() + Duration::HOUR));
    assert!(early.ends_with("is this machine's clock right?"), "{early}");
}

#[test]
fn an_authority_that_was_brought_is_used() {
    let home = brought(|p| p.distinguished_name.push(DnType::OrganizationName, "Acme"));
    let brought_pem = fs::read(home.path().join("ca.pem")).unwrap();
    let brought = CertificateDer::from_pem_slice(&brought_pem).unwrap();
    let brought_key = KeyPair::from_pem(&fs::read_to_string(home.path().join("ca.key")).unwrap());

    let authority =
        CertificateAuthority::in_directory(home.path(), "run-1", Lifetime::default()).unwrap();
    assert_eq!(*authority.certificate(), brought, "sandboxes are given what was brought");
    assert_eq!(authority.issuer().key().public_key_raw(), brought_key.unwrap().public_key_raw());
    assert_eq!(fs::read(home.path().join("ca.pem")).unwrap(), brought_pem, "nothing is rewritten");

    // A leaf is signed with the key that was brought, in the name that was brought.
    let mint = Mint::new(Arc::new(authority)).unwrap();
    let leaf = mint.mint(&Subject::parse("a.test").unwrap(), SystemTime::now()).unwrap();
    let [leaf] = leaf.certified().cert.as_slice() else { panic!("a leaf alone") };
    let (_, leaf) = x509_parser::parse_x509_certificate(leaf).unwrap();
    let (_, brought) = x509_parser::parse_x509_certificate(&brought).unwrap();
    assert_eq!(leaf.issuer().as_raw(), brought.subject().as_raw());
    let key = UnparsedPublicKey::new(
        &ECDSA_P256_SHA256_ASN1,
        &brought.public_key().subject_public_key.data,
    );
    let signature = &leaf.signature_value.data;
    key.verify(leaf.tbs_certificate.as_ref(), signature).expect("signed with the brought key");
}

#[test]
fn a_subject_that_leaves_could_not_repeat_is_refused() {
    let home = brought(|p| {
        p.distinguished_name.push(DnType::OrganizationName, "Acme");
        p.distinguished_name.push(DnType::OrganizationalUnitName, "Widgets");
    });
    // Rename the second attribute's kind to the first's: two organizations.
    let pem = fs::read(home.path().join("ca.pem")).unwrap();
    let mut der = CertificateDer::from_pem_slice(&pem).unwrap().to_vec();
    let unit = [0x55, 0x04, 0x0b];
    let found: Vec<_> = (0..der.len() - 3).filter(|at| der[*at..].starts_with(&unit)).collect();
    assert_eq!(found.len(), 2, "issuer and subject");
    for at in found {
        der[at + 2] = 0x0a;
    }
    write(&home, "ca.pem", &pem::certificate(&der));
    assert!(refusal(&home).contains("written in a form we cannot repeat in a leaf"));
}

/// A directory with an authority of ours.
fn kept() -> TempDir {
    let home = TempDir::new().unwrap();
    close(&home);
    CertificateAuthority::in_directory(home.path(), "kept", Lifetime::default()).unwrap();
    home
}

/// A directory with an authority made elsewhere, with something wrong about it.
fn brought(spoil: impl FnOnce(&mut CertificateParams)) -> TempDir {
    let home = TempDir::new().unwrap();
    close(&home);
    let key = KeyPair::generate().unwrap();
    let mut params = good();
    spoil(&mut params);
    write(&home, "ca.pem", &params.self_signed(&key).unwrap().pem());
    write(&home, "ca.key", &key.serialize_pem());
    home
}

fn good() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

#[track_caller]
fn refusal(home: &TempDir) -> String {
    match CertificateAuthority::in_directory(home.path(), "run-1", Lifetime::default()) {
        Err(CertificateAuthorityError::Directory(err)) => err.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

fn close(home: &TempDir) {
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

fn write(home: &TempDir, file: &str, text: &str) {
    let path = home.path().join(file);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}
