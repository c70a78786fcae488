//! Whom a leaf is for: one DNS name or one address.
//!
//! A [`Subject`] is canonical (lower case, no trailing dot), so it can be the
//! key of the leaf cache: one host has one leaf, however it was written.

use std::fmt;
use std::net::IpAddr;

use rustls_pki_types::{DnsName, ServerName};

/// The one host a leaf is good for.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Subject {
    Address(IpAddr),
    Name(DnsName<'static>),
}

impl Subject {
    /// Reads a host as it stands in an authority, without port or brackets.
    ///
    /// ```
    /// use certs::Subject;
    ///
    /// assert_eq!(Subject::parse("API.GitHub.com.")?.to_string(), "api.github.com");
    /// assert_eq!(Subject::parse("::1")?.to_string(), "::1");
    ///
    /// let err = Subject::parse("*.github.com").unwrap_err();
    /// assert_eq!(
    ///     err.to_string(),
    ///     "`*.github.com` is not a host a certificate can name: write one DNS name or one IP address",
    /// );
    /// # Ok::<(), certs::SubjectError>(())
    /// ```
    pub fn parse(written: &str) -> Result<Self, SubjectError> {
        if let Ok(address) = written.parse() {
            return Ok(Self::Address(address));
        }
        let name = written.strip_suffix('.').unwrap_or(written);
        match DnsName::try_from_str(name) {
            // A name that still ends in a dot ended in two.
            Ok(name) if !name.as_ref().ends_with('.') => Ok(Self::Name(name.to_lowercase_owned())),
            Ok(_) | Err(_) => Err(SubjectError { written: written.to_owned() }),
        }
    }
}

impl From<IpAddr> for Subject {
    fn from(address: IpAddr) -> Self {
        Self::Address(address)
    }
}

impl From<&Subject> for ServerName<'static> {
    fn from(subject: &Subject) -> Self {
        match subject {
            Subject::Address(address) => ServerName::from(*address),
            Subject::Name(name) => ServerName::DnsName(name.clone()),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => f.write_str(name.as_ref()),
        }
    }
}

/// A host that no certificate can name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{written}` is not a host a certificate can name: write one DNS name or one IP address")]
pub struct SubjectError {
    written: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_one_host_are_one_subject() {
        let plain = Subject::parse("api.github.com").unwrap();
        for spelling in ["API.github.com", "api.github.com.", "Api.GitHub.Com."] {
            assert_eq!(Subject::parse(spelling).unwrap(), plain, "{spelling}");
        }
    }

    #[test]
    fn what_is_not_one_host_is_refused() {
        for written in
            ["", ".", "a..", "*.a.com", "a b", "a.com:443", "[::1]", "a/b", "ä.com", "1.2.3"]
        {
            let err = Subject::parse(written).unwrap_err();
            assert!(
                err.to_string().starts_with(&format!("`{written}` is not a host")),
                "{written}"
            );
        }
    }

    proptest! {
        /// Reading is idempotent, so a subject can be printed and read back.
        #[test]
        fn parse_is_idempotent(written in "[A-Za-z0-9._:-]{1,80}") {
            if let Ok(subject) = Subject::parse(&written) {
                prop_assert_eq!(&Subject::parse(&subject.to_string()).unwrap(), &subject);
            }
        }
    }
}
