//! Names and paths that stand in a policy, each right by construction.

use std::sync::Arc;

use crate::from_text::{from_text, shown_as_written};
use crate::quoted_input::QuotedInput;

/// A name of a policy or a rule: short, printable, without spaces, so that it
/// stands for itself in a log line and on a command line.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct PlainName(Arc<str>);

impl PlainName {
    /// ```
    /// # use policies::PlainName;
    /// assert_eq!(PlainName::parse("widgets-agent").unwrap().as_str(), "widgets-agent");
    /// assert_eq!(
    ///     PlainName::parse("my agent").unwrap_err().to_string(),
    ///     "`my agent` is not a name: write 1 to 64 letters, digits, `-`, `_` or `.`",
    /// );
    /// ```
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
            return Ok(Self(text.into()));
        }
        Err(NameError::new(text, "a name", "write 1 to 64 letters, digits, `-`, `_` or `.`"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

from_text!(
    PlainName,
    "Name",
    "1 to 64 letters, digits, `-`, `_` or `.`.",
    pattern = "^[A-Za-z0-9._-]{1,64}$"
);

/// Which secret, never what it is. Spelt as an environment variable is, since
/// the sandbox finds its placeholder under that name.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SecretName(Arc<str>);

impl SecretName {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let mut bytes = text.bytes();
        let head = |b: u8| b.is_ascii_uppercase() || b == b'_';
        let right = text.len() <= 64
            && bytes.next().is_some_and(head)
            && bytes.all(|b| head(b) || b.is_ascii_digit());
        if right {
            return Ok(Self(text.into()));
        }
        Err(NameError::new(text, "a secret's name", "write it in capitals, such as `API_KEY`"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

from_text!(
    SecretName,
    "SecretName",
    "A secret's name, as an environment variable is written.",
    pattern = "^[A-Z_][A-Z0-9_]{0,63}$"
);

/// A header name in lower case: header names compare without case.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HeaderName(Arc<str>);

impl HeaderName {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if (1..=128).contains(&text.len()) && text.bytes().all(token) {
            return Ok(Self(text.to_ascii_lowercase().into()));
        }
        Err(NameError::new(text, "a header name", "write it as in `x-api-key`"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

from_text!(HeaderName, "HeaderName", "The name of a request header.");

/// A path inside the project, such as `.git` or `tools/build`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RelativePath(Arc<str>);

impl RelativePath {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let trimmed = text.strip_prefix("./").unwrap_or(text);
        let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
        let plain = |segment: &str| !matches!(segment, "" | "." | "..");
        let printable = !trimmed.contains(|c: char| c.is_control() || c == '\\');
        if trimmed.len() <= 1024 && printable && trimmed.split('/').all(plain) {
            return Ok(Self(trimmed.into()));
        }
        let instead = "write it relative to the project, without `..`, such as `scripts`";
        Err(NameError::new(text, "a path in the project", instead))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

from_text!(RelativePath, "RelativePath", "A path inside the project, without `..`.");

/// An absolute path in the sandbox that a mount may cover.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct SandboxPath(Arc<str>);

impl SandboxPath {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let trimmed = text.strip_suffix('/').unwrap_or(text);
        let fault = |instead| Err(NameError::new(text, "a place for a mount", instead));
        let Some(rest) = trimmed.strip_prefix('/') else {
            return fault("write an absolute path, such as `/deps`");
        };
        let plain = |segment: &str| !matches!(segment, "" | "." | "..");
        let printable = !rest.contains(|c: char| c.is_control() || matches!(c, '\\' | ':' | ','));
        if rest.len() > 1024 || !printable || !rest.split('/').all(plain) {
            return fault("write an absolute path without `.`, `..`, `:` or `,`, such as `/deps`");
        }
        // Mounts must not cover the sandbox's own file system.
        let top = rest.split('/').next().unwrap_or_default();
        if RESERVED_DIRECTORIES.contains(&top) {
            return fault("this belongs to the sandbox itself; choose a place such as `/deps`");
        }
        Ok(Self(trimmed.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const RESERVED_DIRECTORIES: &[&str] = &[
    "bin",
    "boot",
    "dev",
    "etc",
    "lib",
    "lib64",
    "proc",
    "run",
    "sbin",
    "sys",
    "usr",
    "workspace",
];

from_text!(
    SandboxPath,
    "SandboxPath",
    "An absolute path in the sandbox, such as `/deps`.",
    pattern = "^/"
);

/// A name or path we refuse, and what to write instead.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{written}` is not {kind}: {instead}")]
pub struct NameError {
    written: QuotedInput,
    kind: &'static str,
    instead: &'static str,
}

impl NameError {
    pub(crate) fn new(text: &str, kind: &'static str, instead: &'static str) -> Self {
        Self { written: QuotedInput::of(text), kind, instead }
    }
}

shown_as_written!(HeaderName, PlainName, RelativePath, SandboxPath, SecretName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protected_path_cannot_lead_out_of_the_project() {
        for bad in ["", "/etc", "..", "a/../b", "a//b", "./", "a\\b", "a\nb"] {
            assert!(RelativePath::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(RelativePath::parse("./tools/x/").unwrap().as_str(), "tools/x");
    }

    #[test]
    fn a_mount_cannot_cover_what_the_sandbox_is_made_of() {
        for bad in ["deps", "/", "/etc/x", "/proc", "/usr/bin", "/workspace", "/a/../etc", "/a:b"] {
            assert!(SandboxPath::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(SandboxPath::parse("/deps/").unwrap().as_str(), "/deps");
    }

    #[test]
    fn names_that_could_break_a_line_are_refused() {
        for bad in ["", "a b", "a\nb", "ä", "a\u{1b}", &"a".repeat(65)] {
            assert!(PlainName::parse(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "key", "1KEY", "API-KEY", "API KEY"] {
            assert!(SecretName::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(HeaderName::parse("X-Api-Key").unwrap().as_str(), "x-api-key");
        assert!(HeaderName::parse("x api").is_err());
    }

    #[test]
    fn a_place_for_a_mount_has_a_longest_name() {
        let of = |length: usize| SandboxPath::parse(&format!("/{}", "a".repeat(length)));
        assert!(of(1024).is_ok());
        assert!(of(1025).is_err());
        assert!(of(1026).is_err());
    }

    #[test]
    fn a_secrets_name_is_kept_as_written() {
        assert_eq!(SecretName::parse("API_KEY").unwrap().as_str(), "API_KEY");
    }
}
