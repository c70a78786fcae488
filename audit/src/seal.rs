//! The seal of an evidence folder: `seal.json`.
//!
//! It lists every file of the folder with its size and SHA-256, names the last
//! line of the log, and is signed with the installation's [`SigningKey`]. It is three
//! lines, and together they are one JSON object:
//!
//! ```text
//! {"signature":"<base64 of the Ed25519 signature>","sealed":
//! {"format":1,...}
//! }
//! ```
//!
//! What is signed is the second line with its newline: exactly what `sed -n 2p`
//! prints. So a seal needs no program of ours to be checked:
//!
//! ```text
//! sed -n 2p seal.json > signed
//! jq -r .signature seal.json | base64 -d > signature
//! openssl pkeyutl -verify -pubin -inkey installation.pub.pem -rawin -in signed -sigfile signature
//! jq -r '.files[] | select(.type == "file") | "\(.sha256)  \(.path)"' signed | sha256sum -c
//! tail -n 1 audit.jsonl | tr -d '\n' | sha256sum      # is .log.hash of `signed`
//! ```
//!
//! Everything but the signature is read from what was signed, never from
//! `seal.json` as a whole: its other lines could hold a second `sealed`.
//! `docs/audit-format.md` has the whole script, and a test runs it.
//!
//! `installation.pub.pem` comes from the installation. The seal repeats it under
//! `.sealed.key.pem`, to say which key it was; a seal that vouches for itself
//! proves nothing.

mod contents;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use crate::chain::ChainHead;
use crate::key::{PublicKey, SigningKey};
use crate::line;
use crate::time::Time;
pub use contents::{FileContent, KnownDigests, PathName, SealedFile};
pub(crate) use contents::{ReadError, by_bytes, content, list, paths};

/// The seal's file name.
pub const SEAL: &str = "seal.json";

/// The version of the seal's format.
const FORMAT: u32 = 1;

/// A seal larger than this is not read: it would list a million files.
const MAX_SEAL_BYTES: u64 = 256 * 1024 * 1024;

const FIRST_LINE_BEGINS: &str = r#"{"signature":""#;
const FIRST_LINE_ENDS: &str = r#"","sealed":"#;

/// What a seal vouches for.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    pub format: u32,
    pub time: Time,
    pub key: Signer,
    /// The log's last line; none when there was no log.
    pub log: Option<ChainHead>,
    /// Every file but the seal itself, sorted by name.
    pub files: Vec<SealedFile>,
}

/// Which key signed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Signer {
    pub id: String,
    pub pem: String,
}

impl Seal {
    /// What `key` says of a folder, now.
    pub(crate) fn new(key: &SigningKey, log: Option<ChainHead>, files: Vec<SealedFile>) -> Self {
        let public = key.public();
        let key = Signer { id: public.id(), pem: public.to_pem() };
        Self { format: FORMAT, time: Time::now(), key, log, files }
    }

    /// The bytes of `seal.json`.
    pub(crate) fn signed(&self, key: &SigningKey) -> Vec<u8> {
        let mut content = Vec::new();
        line::write_json(self, &mut content);
        content.push(b'\n');
        let signature = BASE64.encode(key.sign(&content));
        let first = format!("{FIRST_LINE_BEGINS}{signature}{FIRST_LINE_ENDS}\n");
        [first.as_bytes(), &content, b"}\n"].concat()
    }
}

/// A seal whose signature has been checked: the claims are the signer's. Whether
/// they are true of the folder is the next question.
#[derive(Clone, Debug, PartialEq)]
pub struct Signed {
    pub seal: Seal,
    pub key: PublicKey,
}

/// Why a seal counts for nothing.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SealFault {
    #[error("it is not a seal: {why}")]
    Damaged { why: String },
    #[error("it is signed by {id}, a key this installation does not trust")]
    Foreign { id: String },
    #[error("its signature does not fit what it says")]
    Forged,
}

impl Signed {
    /// Reads the seal in `dir`, if there is one, and checks who signed it.
    pub(crate) fn read(
        dir: &Path,
        trusted: &[PublicKey],
    ) -> io::Result<Option<Result<Self, SealFault>>> {
        let path = dir.join(SEAL);
        let Some(metadata) = unless_absent(path.symlink_metadata())? else { return Ok(None) };
        if !metadata.is_file() {
            // Not opened: a link leads elsewhere, and a pipe would keep us waiting.
            let why = "it is not a regular file".to_owned();
            return Ok(Some(Err(SealFault::Damaged { why })));
        }
        let file = File::open(path)?;
        let mut bytes = Vec::new();
        file.take(MAX_SEAL_BYTES).read_to_end(&mut bytes)?;
        Ok(Some(Self::parse(&bytes, trusted)))
    }

    /// Reads the bytes of a `seal.json`. There is one way to write a seal, and
    /// anything else is damaged: every byte is either signed or fixed.
    pub fn parse(bytes: &[u8], trusted: &[PublicKey]) -> Result<Self, SealFault> {
        let damaged = |why: &str| SealFault::Damaged { why: why.to_owned() };
        let text = std::str::from_utf8(bytes).map_err(|err| damaged(&err.to_string()))?;
        let lines: Vec<&str> = text.split_inclusive('\n').take(4).collect();
        let [first, content, "}\n"] = lines.as_slice() else {
            return Err(damaged("it has not the three lines of a seal"));
        };
        let signature = first
            .strip_prefix(FIRST_LINE_BEGINS)
            .and_then(|rest| rest.strip_suffix('\n')?.strip_suffix(FIRST_LINE_ENDS))
            .and_then(|base64| BASE64.decode(base64).ok())
            .ok_or_else(|| damaged("its first line has no signature"))?;

        // Only the key's name is read from what is not trusted yet.
        let seal: Seal =
            serde_json::from_str(content).map_err(|err| damaged(line::describe(&err).as_str()))?;
        let key = PublicKey::from_pem(&seal.key.pem).map_err(|err| damaged(&err.to_string()))?;
        if !trusted.contains(&key) {
            return Err(SealFault::Foreign { id: key.id() });
        }
        if !key.verifies(content.as_bytes(), &signature) {
            return Err(SealFault::Forged);
        }
        if seal.format != FORMAT {
            return Err(damaged(&format!("format version {}; we read {FORMAT}", seal.format)));
        }
        Ok(Self { seal, key })
    }
}

/// Only a file that is not there is absent. One that cannot be looked at is a failure:
/// evidence must not pass for unsealed because its seal was hidden.
pub(crate) fn unless_absent<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}
