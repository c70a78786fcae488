//! SHA-256, written as 64 lower-case hex digits.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use aws_lc_rs::digest::{Context, SHA256, digest};
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

/// The SHA-256 of some exact bytes.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Digest([u8; 32]);

impl Digest {
    /// What the first line of a log has in place of a predecessor's digest.
    pub const ZERO: Self = Self([0; 32]);

    /// The digest of `bytes`.
    ///
    /// ```
    /// use audit::Digest;
    ///
    /// assert!(Digest::of(b"").to_string().starts_with("e3b0c442"));
    /// assert!("E3B0".parse::<Digest>().is_err());
    /// ```
    pub fn of(bytes: &[u8]) -> Self {
        Self::of_output(digest(&SHA256, bytes))
    }

    /// The digest of everything `from` still has to give, and how much that was.
    pub fn of_reader(mut from: impl Read) -> io::Result<(Self, u64)> {
        let mut hasher = Hasher::default();
        let mut size = 0;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return Ok((hasher.finish(), size)),
                Ok(count) => {
                    hasher.update(buffer.get(..count).unwrap_or_default());
                    size += count as u64;
                }
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(err),
            }
        }
    }
}

impl Digest {
    fn of_output(output: aws_lc_rs::digest::Digest) -> Self {
        Self(output.as_ref().try_into().expect("a SHA-256 has 32 bytes"))
    }

    /// Every line of a log has one, so it is spelled without the formatter.
    fn written<T>(&self, take: impl FnOnce(&str) -> T) -> T {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 64];
        for (pair, byte) in hex.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'?');
            *pair = [digit(byte >> 4), digit(byte & 15)];
        }
        take(str::from_utf8(&hex).unwrap_or_default())
    }
}

/// Makes a [`Digest`] of bytes that come in pieces.
#[derive(Clone)]
pub struct Hasher(Context);

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> Digest {
        Digest::of_output(self.0.finish())
    }
}

impl Default for Hasher {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written(|hex| f.write_str(hex))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a SHA-256 in lower-case hex.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a SHA-256: write 64 lower-case hex digits")]
pub struct NotADigest;

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(written: &str) -> Result<Self, NotADigest> {
        let (pairs, rest) = written.as_bytes().as_chunks::<2>();
        if !rest.is_empty() || pairs.len() != 32 {
            return Err(NotADigest);
        }
        let mut bytes = [0; 32];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Ok(Self(bytes))
    }
}

/// Upper case is refused: one digest has one spelling.
fn nibble(digit: u8) -> Result<u8, NotADigest> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(NotADigest),
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written(|hex| serializer.serialize_str(hex))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        written.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_64_digits_are_a_digest() {
        for length in [0, 2, 32, 62, 63, 65, 66, 128] {
            assert_eq!("0".repeat(length).parse::<Digest>(), Err(NotADigest), "{length}");
        }
        assert_eq!("0".repeat(64).parse(), Ok(Digest([0; 32])));
    }

    #[test]
    fn it_is_shown_to_developers_as_to_everybody() {
        assert_eq!(format!("{:?}", Digest([0xa5; 32])), "a5".repeat(32));
    }

    /// Gives these, one a read.
    struct Reads(Vec<io::Result<&'static [u8]>>);

    impl Read for Reads {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let mut given = match self.0.is_empty() {
                true => return Ok(0),
                false => self.0.remove(0)?,
            };
            given.read(into)
        }
    }

    #[test]
    fn an_interrupted_read_goes_on_and_a_failed_one_has_no_digest() {
        let reads = || vec![Ok(&b"ab"[..]), Err(io::ErrorKind::Interrupted.into()), Ok(b"c")];
        let (digest, size) = Digest::of_reader(Reads(reads())).unwrap();
        assert_eq!((digest, size), (Digest::of(b"abc"), 3));
        let mut failing = reads();
        failing.push(Err(io::ErrorKind::TimedOut.into()));
        let err = Digest::of_reader(Reads(failing)).unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::TimedOut);
    }

    proptest! {
        #[test]
        fn writing_and_reading_is_the_identity(bytes: [u8; 32]) {
            let digest = Digest(bytes);
            prop_assert_eq!(digest.to_string().parse(), Ok(digest));
        }

        #[test]
        fn a_digest_has_one_spelling(written in "[0-9a-fA-F]{62,66}") {
            if let Ok(digest) = written.parse::<Digest>() {
                prop_assert_eq!(digest.to_string(), written);
            }
        }
    }
}
