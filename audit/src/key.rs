//! The installation's key: what a seal is signed with.
//!
//! Ed25519, PKCS#8 in PEM, mode 0600 in a directory of mode 0700, made on first
//! use. Whoever could read it could seal forged evidence, so a key that others
//! can read is refused and not repaired. The file is what `openssl pkey` reads.

use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::digest::Digest;
use crate::whole_file::{loose_mode, write_new_file};

/// A PEM file larger than this holds no Ed25519 key.
const MAX_KEY_FILE_BYTES: u64 = 4096;

/// The fixed beginning of an Ed25519 public key in DER (RFC 8410); the 32 bytes
/// of the key follow.
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Signs seals.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

/// Why there is no key to sign with.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot {step} {}", path.display())]
    Disk { step: &'static str, path: PathBuf, source: io::Error },
    #[error("others can read {} (mode {mode:o}), so it proves nothing: remove it to get a new key, or run `chmod {wanted:o} {0}` if nobody has", path.display())]
    Loose { path: PathBuf, mode: u32, wanted: u32 },
    #[error("the system gives no randomness to make a key from")]
    Make,
    #[error("{} holds no Ed25519 key in PKCS#8 PEM", path.display())]
    NotAKey { path: PathBuf },
}

impl SigningKey {
    /// The key at `path`, which is made if there is none.
    ///
    /// Of two processes that make it at once, one wins and both use its key: a
    /// key appears under its name whole or not at all, and is never replaced.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        match Self::load(path) {
            Err(KeyError::Disk { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                create(path)?;
                Self::load(path)
            }
            loaded => loaded,
        }
    }

    /// The key at `path`.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let dir = parent(path);
        let metadata = dir.metadata().map_err(disk("open", dir))?;
        refuse_loose(dir, &metadata, 0o700)?;
        let file = File::open(path).map_err(disk("open", path))?;
        let metadata = file.metadata().map_err(disk("open", path))?;
        refuse_loose(path, &metadata, 0o600)?;

        let mut pem = String::new();
        file.take(MAX_KEY_FILE_BYTES).read_to_string(&mut pem).map_err(disk("read", path))?;
        let not_a_key = || KeyError::NotAKey { path: path.to_owned() };
        let der = from_pem(&pem, "PRIVATE KEY").ok_or_else(not_a_key)?;
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der)
            .ok()
            .and_then(Self::of_pair)
            .ok_or_else(not_a_key)
    }

    fn of_pair(pair: Ed25519KeyPair) -> Option<Self> {
        let public = PublicKey(pair.public_key().as_ref().try_into().ok()?);
        Some(Self { pair, public })
    }

    /// What others check its seals with.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public.id())
    }
}

/// Checks seals.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PublicKey([u8; 32]);

/// The text is no public key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not an Ed25519 public key in PEM: it begins with `-----BEGIN PUBLIC KEY-----`")]
pub struct NotAPublicKey;

impl PublicKey {
    /// Reads the PEM that `openssl pkey -pubout` writes.
    pub fn from_pem(pem: &str) -> Result<Self, NotAPublicKey> {
        let der = from_pem(pem, "PUBLIC KEY").ok_or(NotAPublicKey)?;
        let key = der.strip_prefix(&SPKI).ok_or(NotAPublicKey)?;
        key.try_into().map(Self).map_err(|_wrong_length| NotAPublicKey)
    }

    pub fn to_pem(self) -> String {
        to_pem(&self.der(), "PUBLIC KEY")
    }

    /// A short name: the first 16 bytes of the SHA-256 of its DER, in hex. For
    /// people; two keys are compared whole.
    pub fn id(self) -> String {
        let mut id = Digest::of(&self.der()).to_string();
        id.truncate(32);
        id
    }

    pub(crate) fn verifies(self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(message, signature).is_ok()
    }

    fn der(self) -> Vec<u8> {
        [&SPKI[..], &self.0].concat()
    }
}

/// Writes a new key beside `path` and links it there; a link never replaces.
fn create(path: &Path) -> Result<(), KeyError> {
    let dir = parent(path);
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(disk("create", dir))?;
    let pair = Ed25519KeyPair::generate().map_err(|_unspecified| KeyError::Make)?;
    let pkcs8 = pair.to_pkcs8v1().map_err(|_unspecified| KeyError::Make)?;

    let draft = dir.join(format!(".key.{}", uuid::Uuid::now_v7()));
    let pem = to_pem(pkcs8.as_ref(), "PRIVATE KEY");
    let written = write_new_file(&draft, pem.as_bytes());
    let linked = written.and_then(|()| fs::hard_link(&draft, path));
    let removed = fs::remove_file(&draft);
    match linked {
        Ok(()) => {}
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(disk("create", path)(source)),
    }
    removed.map_err(disk("remove", &draft))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(disk("sync", dir))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if dir != Path::new("") => dir,
        Some(_) | None => Path::new("."),
    }
}

fn refuse_loose(path: &Path, metadata: &fs::Metadata, wanted: u32) -> Result<(), KeyError> {
    match loose_mode(metadata) {
        None => Ok(()),
        Some(mode) => Err(KeyError::Loose { path: path.to_owned(), mode, wanted }),
    }
}

fn disk(step: &'static str, path: &Path) -> impl Fn(io::Error) -> KeyError {
    move |source| KeyError::Disk { step, path: path.to_owned(), source }
}

fn to_pem(der: &[u8], label: &str) -> String {
    // 48 bytes are the 64 characters a line of PEM has.
    let mut pem = format!("-----BEGIN {label}-----\n");
    for chunk in der.chunks(48) {
        pem.push_str(&BASE64.encode(chunk));
        pem.push('\n');
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}

fn from_pem(pem: &str, label: &str) -> Option<Vec<u8>> {
    let body = pem.trim().strip_prefix(&format!("-----BEGIN {label}-----"))?;
    let body = body.strip_suffix(&format!("-----END {label}-----"))?;
    let body: String = body.split_ascii_whitespace().collect();
    BASE64.decode(body).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::sync::Barrier;
    use std::thread;

    use expect_test::expect;

    use super::*;

    #[test]
    fn the_first_use_makes_the_key_and_the_next_finds_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("keys/seal.pem");
        let made = SigningKey::load_or_create(&path).unwrap();
        let found = SigningKey::load_or_create(&path).unwrap();

        assert_eq!(made.public(), found.public());
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(parent(&path).metadata().unwrap().mode() & 0o777, 0o700);
        let signature = made.sign(b"words");
        assert!(found.public().verifies(b"words", &signature));
        assert!(!found.public().verifies(b"other words", &signature));
    }

    #[test]
    fn making_a_key_where_one_is_leaves_it_and_what_cannot_be_linked_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pem");
        create(&path).unwrap();
        let first = fs::read(&path).unwrap();
        create(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), first);

        let unnameable = dir.path().join("k".repeat(300));
        let err = create(&unnameable).unwrap_err();
        assert!(matches!(err, KeyError::Disk { step: "create", .. }), "{err}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn many_at_once_end_up_with_one_key_and_no_litter() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("keys/seal.pem");
        let start = Barrier::new(8);
        let keys: Vec<PublicKey> = thread::scope(|scope| {
            let makers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        SigningKey::load_or_create(&path).unwrap().public()
                    })
                })
                .collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        assert_eq!(fs::read_dir(parent(&path)).unwrap().count(), 1);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("keys/seal.pem");
        SigningKey::load_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let err = SigningKey::load_or_create(&path).unwrap_err();
        expect!["others can read HOME/keys/seal.pem (mode 644), so it proves nothing: remove it to get a new key, or run `chmod 600 HOME/keys/seal.pem` if nobody has"]
            .assert_eq(&err.to_string().replace(home.path().to_str().unwrap(), "HOME"));

        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(parent(&path), fs::Permissions::from_mode(0o750)).unwrap();
        assert!(matches!(
            SigningKey::load_or_create(&path),
            Err(KeyError::Loose { wanted: 0o700, .. })
        ));
    }

    #[test]
    fn what_is_no_key_is_never_overwritten() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("keys/seal.pem");
        SigningKey::load_or_create(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(SigningKey::load_or_create(&path), Err(KeyError::NotAKey { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_key_is_made_only_where_there_is_none() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        write_new_file(&file, b"precious").unwrap();
        let err = SigningKey::load_or_create(&file.join("seal.pem")).unwrap_err();
        assert!(matches!(err, KeyError::Disk { step: "open", .. }), "{err}");
        assert_eq!(fs::read(&file).unwrap(), b"precious");
    }

    #[test]
    fn a_bare_name_is_in_the_present_folder() {
        assert_eq!(parent(Path::new("seal.pem")), Path::new("."));
        assert_eq!(parent(Path::new("keys/seal.pem")), Path::new("keys"));
    }

    #[test]
    fn a_key_is_shown_by_its_name_and_not_by_its_secret() {
        let home = tempfile::tempdir().unwrap();
        let key = SigningKey::load_or_create(&home.path().join("keys/seal.pem")).unwrap();
        assert_eq!(format!("{key:?}"), format!("SigningKey({})", key.public().id()));
    }

    #[test]
    fn a_public_key_reads_back_from_its_pem() {
        let home = tempfile::tempdir().unwrap();
        let key = SigningKey::load_or_create(&home.path().join("keys/seal.pem")).unwrap().public();
        assert_eq!(PublicKey::from_pem(&key.to_pem()), Ok(key));
        assert_eq!(PublicKey::from_pem("ssh-ed25519 AAAA"), Err(NotAPublicKey));
        assert_eq!(key.id().len(), 32);
    }
}
