//! How fast this processor is right now.
//!
//! On a shared host the speed of a virtual processor varies by tens of percent
//! within seconds. Dividing CPU figures by what is measured here takes most of
//! that out of them.

use std::hint::black_box;

use anyhow::{Result, anyhow};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};

use crate::clock::thread_cpu_ns;

/// Microseconds of CPU for one P-256 signature and sixteen kibibytes of AES-128-GCM,
/// the median of nine samples: what proxies spend most on.
pub(crate) fn calibration_us() -> Result<f64> {
    let random = SystemRandom::new();
    let unspecified = |_| anyhow!("the crypto library cannot calibrate");
    let signing = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let document = EcdsaKeyPair::generate_pkcs8(signing, &random).map_err(unspecified)?;
    let key = EcdsaKeyPair::from_pkcs8(signing, document.as_ref())
        .map_err(|_| anyhow!("a key that was just made is refused"))?;
    let seal = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[1; 16]).map_err(unspecified)?);
    let mut block = vec![0; BLOCK_BYTES];

    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        let begun = thread_cpu_ns();
        for _ in 0..ROUNDS {
            key.sign(&random, b"calibration").map_err(unspecified)?;
            // One nonce for all of it: nobody reads what is sealed here.
            let nonce = Nonce::assume_unique_for_key([0; 12]);
            let tag = seal.seal_in_place_separate_tag(nonce, Aad::empty(), &mut block);
            let _tag = black_box(tag.map_err(unspecified)?);
        }
        samples.push((thread_cpu_ns() - begun) as f64 / 1000.0 / f64::from(ROUNDS));
    }
    samples.sort_by(f64::total_cmp);
    samples.get(SAMPLES / 2).copied().ok_or_else(|| anyhow!("no samples"))
}

const BLOCK_BYTES: usize = 16 << 10;
const ROUNDS: u32 = 40;
const SAMPLES: usize = 9;
