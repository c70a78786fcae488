//! What evidence says about a value that may be a secret: a hash under a key that
//! is not in it.
//!
//! Whoever has the installation's key can check whether a run was given this
//! value or another; whoever has only the evidence cannot even try likely ones.
//! The key is made on first use, beside the one that seals, and never leaves.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use aws_lc_rs::{hmac, rand};

/// Hashes values for the record.
pub struct ValueKey(hmac::Key);

impl fmt::Debug for ValueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValueKey")
    }
}

impl ValueKey {
    /// The key at `path`, which is made if there is none. Of two processes that
    /// make it at once, one wins and both use its key.
    pub fn load_or_create(path: &Path) -> io::Result<Self> {
        match Self::load(path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                create(path)?;
                Self::load(path)
            }
            loaded => loaded,
        }
    }

    fn load(path: &Path) -> io::Result<Self> {
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(no_follow).open(path)?;
        if file.metadata()?.mode() & 0o077 != 0 {
            return Err(io::Error::other("others can read it, so it hides nothing"));
        }
        let mut key = Vec::new();
        file.take(KEY_BYTES as u64 + 1).read_to_end(&mut key)?;
        if key.len() != KEY_BYTES {
            return Err(io::Error::other("it is no key"));
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &key)))
    }

    /// The hash of a variable's value. The name is part of it, so that two
    /// variables of the same value are not seen to be.
    pub fn hash(&self, name: &str, value: &str) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        for part in [name.as_bytes(), b"\0", value.as_bytes()] {
            context.update(part);
        }
        context.sign().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

const KEY_BYTES: usize = 32;

fn create(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut key = [0; KEY_BYTES];
    rand::fill(&mut key).map_err(|_| io::Error::other("the system gives no randomness"))?;
    let draft = folder.join(format!(".values.{}", uuid::Uuid::now_v7()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let made = file.write_all(&key).and_then(|()| file.sync_all());
    // A link appears whole, and never instead of one that is there.
    let linked = made.and_then(|()| fs::hard_link(&draft, path));
    fs::remove_file(&draft)?;
    match linked {
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_value_has_one_hash_here_and_another_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let key = |name: &str| ValueKey::load_or_create(&dir.path().join(name)).unwrap();
        let hash = key("keys/values").hash("TOKEN", "hunter2");
        assert_eq!(hash.len(), 64);
        assert_eq!(key("keys/values").hash("TOKEN", "hunter2"), hash, "the key is kept");
        assert_ne!(key("keys/values").hash("TOKEN", "hunter3"), hash);
        assert_ne!(key("keys/values").hash("OTHER", "hunter2"), hash);
        assert_ne!(key("other").hash("TOKEN", "hunter2"), hash);
    }

    #[test]
    fn a_key_that_others_can_read_is_not_used() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("values");
        ValueKey::load_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(ValueKey::load_or_create(&path).is_err());
    }
}
