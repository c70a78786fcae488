//! Names of secrets in records. A value is never recorded.
//!
//! The log has no field that takes a secret's value. Where one was used or was
//! caught leaving, it appears by the name the policy gave it, and that name has
//! a shape most credentials do not have.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::text::Text;

/// The most names one record lists; more than that are counted.
const MAX_RECORDED_SECRETS: usize = 32;

/// A secret's name as policies write it: letters, digits and `_`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "Text<64>")]
pub struct RecordedSecret(Text<64>);

impl RecordedSecret {
    /// Reads a name.
    ///
    /// ```
    /// use audit::RecordedSecret;
    ///
    /// assert!(RecordedSecret::parse("GITHUB_TOKEN").is_ok());
    ///
    /// let err = RecordedSecret::parse("sk-live-4242").unwrap_err();
    /// assert_eq!(
    ///     err.to_string(),
    ///     "not a secret's name: write letters, digits and `_`, at most 64",
    /// );
    /// ```
    pub fn parse(written: &str) -> Result<Self, NotASecretName> {
        let shaped = written.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !shaped || written.is_empty() || written.len() > 64 {
            return Err(NotASecretName);
        }
        Ok(Self(written.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// The string is no secret's name. It is not quoted: it may be a secret.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a secret's name: write letters, digits and `_`, at most 64")]
pub struct NotASecretName;

impl TryFrom<Text<64>> for RecordedSecret {
    type Error = NotASecretName;

    fn try_from(written: Text<64>) -> Result<Self, NotASecretName> {
        Self::parse(written.as_str())
    }
}

impl fmt::Display for RecordedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The secrets that were put into one request, each once.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct RecordedSecrets(Vec<RecordedSecret>);

impl RecordedSecrets {
    /// Adds a name. Returns whether the record had room for it: a request that
    /// carries more secrets than a record can list should not be sent.
    #[must_use = "a secret that is not recorded must not be used"]
    pub fn add(&mut self, name: RecordedSecret) -> bool {
        if self.0.contains(&name) {
            return true;
        }
        if self.0.len() == MAX_RECORDED_SECRETS {
            return false;
        }
        self.0.push(name);
        true
    }

    /// No secret was used.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names, in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = &RecordedSecret> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_not_a_name_and_is_not_repeated() {
        for written in ["", "a b", "eyJhbGciOi.J9.x", "token\n", &"A".repeat(65)] {
            let err = RecordedSecret::parse(written).unwrap_err();
            assert!(written.is_empty() || !err.to_string().contains(written));
        }
    }

    #[test]
    fn a_name_is_shown_as_it_was_given() {
        let name = RecordedSecret::parse("API_TOKEN").unwrap();
        assert_eq!((name.as_str(), name.to_string().as_str()), ("API_TOKEN", "API_TOKEN"));
        let mut names = RecordedSecrets::default();
        assert!(names.is_empty());
        assert!(names.add(name.clone()));
        assert!(!names.is_empty());
        assert_eq!(names.iter().collect::<Vec<_>>(), [&name]);
    }

    #[test]
    fn a_secret_used_twice_is_listed_once_and_the_list_ends() {
        let mut names = RecordedSecrets::default();
        for n in 0..MAX_RECORDED_SECRETS {
            assert!(names.add(RecordedSecret::parse(&format!("S{n}")).unwrap()));
        }
        assert!(names.add(RecordedSecret::parse("S0").unwrap()));
        assert!(!names.add(RecordedSecret::parse("ONE_MORE").unwrap()));
        assert_eq!(names.iter().count(), MAX_RECORDED_SECRETS);
    }
}
