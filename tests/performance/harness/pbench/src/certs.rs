//! `pbench gencerts`: the certificates of a measurement.
//!
//! Two CAs that know nothing of each other, so that a client can tell a connection
//! that was opened on its way (signed by the proxy's) from a tunnel (by the origin's).

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use time::{Duration, OffsetDateTime};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the files go
    #[arg(long)]
    dir: PathBuf,
    /// The origin's leaf covers ZONE and *.ZONE
    #[arg(long, default_value = "bench.test")]
    zone: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    fs::create_dir_all(&args.dir)?;
    let write = |name: &str, text: &str| {
        let path = args.dir.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };

    let origin_ca = ca_params("pbench origin CA");
    let origin_ca_key = new_key()?;
    write("origin-ca.pem", &origin_ca.self_signed(&origin_ca_key)?.pem())?;
    let leaf_key = new_key()?;
    let issuer = Issuer::from_params(&origin_ca, &origin_ca_key);
    write("origin.pem", &leaf_params(&args.zone)?.signed_by(&leaf_key, &issuer)?.pem())?;
    write("origin.key", &leaf_key.serialize_pem())?;

    let proxy_key = new_key()?;
    let proxy_ca = ca_params("pbench proxy CA").self_signed(&proxy_key)?;
    write("proxy-ca.pem", &proxy_ca.pem())?;
    write("proxy-ca.key", &proxy_key.serialize_pem())?;
    write("proxy-ca-bundle.pem", &format!("{}{}", proxy_key.serialize_pem(), proxy_ca.pem()))
}

fn new_key() -> Result<KeyPair> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, "pbench");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    valid_now(params)
}

fn leaf_params(zone: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(vec![zone.to_owned(), format!("*.{zone}")])?;
    params.distinguished_name.push(DnType::CommonName, zone);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    Ok(valid_now(params))
}

/// From a week ago and for 300 days: some clients refuse what is valid longer than
/// public certificates are.
fn valid_now(mut params: CertificateParams) -> CertificateParams {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::days(7);
    params.not_after = now + Duration::days(300);
    params
}
