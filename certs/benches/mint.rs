//! What a new host costs, and what the next connection to it costs.
//!
//! Minting should be one signature: if it grows beyond that, a browser-like
//! client that opens thirty hosts at once will notice.

use std::sync::Arc;
use std::time::SystemTime;

use certs::{Alpn, CertificateAuthority, Lifetime, Mint, Serving, Subject};

fn main() {
    divan::main();
}

#[divan::bench]
fn authority(bencher: divan::Bencher<'_, '_>) {
    bencher.bench(|| CertificateAuthority::in_memory("bench", Lifetime::default()).expect("made"));
}

#[divan::bench]
fn new_host(bencher: divan::Bencher<'_, '_>) {
    let mint = Mint::new(made()).expect("made");
    let subject = Subject::parse("api.github.com").expect("a host");
    let now = SystemTime::now();
    bencher.bench(|| mint.mint(&subject, now).expect("minted"));
}

#[divan::bench]
fn known_host(bencher: divan::Bencher<'_, '_>) {
    let serving = Serving::new(made()).expect("made");
    let subject = Subject::parse("api.github.com").expect("a host");
    bencher.bench(|| serving.config(&subject, Alpn::H2OrHttp1).expect("configured"));
}

fn made() -> Arc<CertificateAuthority> {
    Arc::new(CertificateAuthority::in_memory("bench", Lifetime::default()).expect("made"))
}
