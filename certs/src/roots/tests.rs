//! What was asked for is what is trusted; what cannot be had is an error.

use std::fs;

use rustls::{ClientConnection, ServerConnection};
use rustls_pki_types::ServerName;
use tempfile::TempDir;

use super::*;
use crate::certificate_authority::{CertificateAuthority, Lifetime};
use crate::pem;
use crate::server_tls::Serving;
use crate::subject::Subject;

#[test]
fn nothing_asked_for_is_an_error_not_a_default() {
    let err = UpstreamTls::load(&only(&[])).unwrap_err();
    assert_eq!(
        err.to_string(),
        "no upstream would be trusted: ask for `bundled` or `system` roots, or list files"
    );
}

#[test]
fn the_bundled_roots_are_many_and_files_add_to_them() {
    let home = TempDir::new().unwrap();
    let bundled = UpstreamTls::load(&Roots::default()).unwrap();
    assert!(bundled.anchors() > 100, "{}", bundled.anchors());

    let files = vec![file(&home, "ca.pem", &authority().pem())];
    let both = UpstreamTls::load(&Roots { files, ..Roots::default() }).unwrap();
    assert_eq!(both.anchors(), bundled.anchors() + 1);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let err = UpstreamTls::load(&only(&["/absent/ca.pem".into()])).unwrap_err();
    assert_eq!(err.to_string(), "cannot read roots from /absent/ca.pem");
    assert!(
        matches!(err, RootsError::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound)
    );
}

#[test]
fn a_file_without_certificates_is_an_error() {
    let home = TempDir::new().unwrap();
    let empty = file(&home, "empty.pem", "# nothing yet\n");
    let err = UpstreamTls::load(&only(&[empty])).unwrap_err();
    assert!(err.to_string().ends_with("empty.pem holds no certificate in PEM"), "{err}");
}

#[test]
fn a_file_with_a_broken_certificate_is_an_error_and_says_which() {
    let home = TempDir::new().unwrap();
    let text = [authority().pem(), pem::certificate(b"broken")].concat();
    let err = UpstreamTls::load(&only(&[file(&home, "two.pem", &text)])).unwrap_err();
    assert!(err.to_string().starts_with("certificate 2 of "), "{err}");

    let cut = authority().pem().replace("-----END", "----END");
    let err = UpstreamTls::load(&only(&[file(&home, "cut.pem", &cut)])).unwrap_err();
    assert!(err.to_string().ends_with("cut.pem is not PEM throughout"), "{err}");
}

/// The trap: our own variables, inherited by a gateway, would make it trust the
/// authority of a sandbox. A process is the only thing that has an environment
/// of its own, so this test runs itself once more with one.
#[test]
fn system_roots_are_not_taken_from_the_environment() {
    const NAME: &str = "roots::tests::system_roots_are_not_taken_from_the_environment";
    if std::env::var("SSL_CERT_FILE").is_ok_and(|path| path.ends_with("sandbox-ca.pem")) {
        let system = Roots { bundled: false, system: true, files: vec![] };
        match UpstreamTls::load(&system) {
            Ok(upstream) => assert!(upstream.anchors() > 1, "it trusts the sandbox's authority"),
            Err(err) => assert!(matches!(err, RootsError::NoSystemBundle), "{err}"),
        }
        return;
    }
    let home = TempDir::new().unwrap();
    let planted = file(&home, "sandbox-ca.pem", &authority().pem());
    let again = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env("SSL_CERT_FILE", planted)
        .env("SSL_CERT_DIR", home.path())
        .output()
        .unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
    assert!(String::from_utf8_lossy(&again.stdout).contains("1 passed"));
}

#[test]
fn an_upstream_is_verified_against_exactly_these_roots() {
    let home = TempDir::new().unwrap();
    let (ours, theirs) = (Arc::new(authority()), Arc::new(authority()));
    let upstream = UpstreamTls::load(&only(&[file(&home, "ca.pem", &ours.pem())])).unwrap();

    assert_eq!(connect(&upstream, &ours, "a.test", "a.test"), Ok(()));

    let untrusted = connect(&upstream, &theirs, "a.test", "a.test").unwrap_err();
    assert_eq!(untrusted, "invalid peer certificate: BadSignature");

    let wrong_name = connect(&upstream, &ours, "b.test", "a.test").unwrap_err();
    assert!(wrong_name.contains("not valid for name \"a.test\""), "{wrong_name}");
}

#[test]
fn each_alpn_set_offers_what_it_names() {
    let upstream = UpstreamTls::load(&Roots::default()).unwrap();
    for alpn in [Alpn::H2OrHttp1, Alpn::Http1, Alpn::None] {
        assert_eq!(upstream.config(alpn).alpn_protocols, alpn.protocols());
    }
}

/// A server that shows a leaf for `shown`, and our client that wants `wanted`.
fn connect(
    upstream: &UpstreamTls,
    authority: &Arc<CertificateAuthority>,
    shown: &str,
    wanted: &str,
) -> Result<(), String> {
    let serving = Serving::new(Arc::clone(authority)).unwrap();
    let server = serving.config(&Subject::parse(shown).unwrap(), Alpn::H2OrHttp1).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    let name = ServerName::try_from(wanted.to_owned()).unwrap();
    let mut client =
        ClientConnection::new(Arc::clone(upstream.config(Alpn::H2OrHttp1)), name).unwrap();

    while client.is_handshaking() {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets().map_err(|err| err.to_string())?;
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut wire = wire.as_slice();
        while !wire.is_empty() {
            client.read_tls(&mut wire).unwrap();
            client.process_new_packets().map_err(|err| err.to_string())?;
        }
    }
    Ok(())
}

fn authority() -> CertificateAuthority {
    CertificateAuthority::in_memory("test", Lifetime::default()).unwrap()
}

fn only(files: &[PathBuf]) -> Roots {
    Roots { bundled: false, system: false, files: files.to_vec() }
}

fn file(home: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = home.path().join(name);
    fs::write(&path, text).unwrap();
    path
}
