//! A whole URL: the absolute form of a request target.
//!
//! It is taken apart here rather than by a general URL parser, because such
//! parsers repair what they are given. A URL that needs repair has two readings,
//! and is refused.

use std::fmt;

use crate::authority::{Authority, AuthorityError, Destination};
use crate::path::{PathError, RequestPath};
use crate::query::Query;
use crate::quoted_input::QuotedInput;

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Everything a URL says. Its text is rebuilt from these parts, never copied.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Target {
    pub scheme: Scheme,
    pub destination: Destination,
    pub path: RequestPath,
    pub query: Option<Query>,
}

impl Target {
    /// Reads an `http` or `https` URL.
    ///
    /// ```
    /// use policies::Target;
    ///
    /// let target = Target::parse_url("HTTPS://Example.com:443/%7ea?q=1")?;
    /// assert_eq!(target.to_string(), "https://example.com/~a?q=1");
    ///
    /// let err = Target::parse_url("ftp://example.com/").unwrap_err();
    /// assert_eq!(
    ///     err.to_string(),
    ///     "`ftp://example.com/` is not a URL we can request: \
    ///      it does not start with `http://` or `https://`",
    /// );
    /// # Ok::<(), policies::TargetError>(())
    /// ```
    pub fn parse_url(written: &str) -> Result<Self, TargetError> {
        let err = |why| TargetError::Url(UrlError { written: QuotedInput::of(written), why });

        let (scheme, rest) = scheme(written).ok_or_else(|| err(UrlFault::Scheme))?;
        // Some parsers read it as `/`, and so end the host where others do not.
        if written.contains('\\') {
            return Err(err(UrlFault::Backslash));
        }
        if written.contains('#') {
            return Err(err(UrlFault::Fragment));
        }
        let (before_query, query) = match rest.split_once('?') {
            Some((before, query)) => (before, Some(Query::parse(query)?)),
            None => (rest, None),
        };
        let (authority, path) = match before_query.find('/') {
            Some(at) => before_query.split_at(at),
            None => (before_query, "/"),
        };
        let authority = Authority::parse(authority)?;
        let path = RequestPath::parse(path)?;
        let destination = authority.destination(scheme.default_port());
        Ok(Self { scheme, destination, path, query })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, destination: Destination { host, port }, path, query } = self;
        write!(f, "{scheme}://{host}")?;
        if *port != scheme.default_port() {
            write!(f, ":{port}")?;
        }
        write!(f, "{path}")?;
        match query {
            None => Ok(()),
            Some(query) => write!(f, "?{query}"),
        }
    }
}

/// A URL that has no single reading, and why.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TargetError {
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Url(#[from] UrlError),
}

/// What is wrong with a URL before its parts are looked at.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{written}` is not a URL we can request: {why}")]
pub struct UrlError {
    written: QuotedInput,
    why: UrlFault,
}

impl UrlError {
    pub fn fault(&self) -> UrlFault {
        self.why
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlFault {
    #[error("it holds a backslash, which some programs read as `/`")]
    Backslash,
    #[error("it holds a fragment, which is never sent; leave out `#` and what follows")]
    Fragment,
    #[error("it does not start with `http://` or `https://`")]
    Scheme,
}

fn scheme(written: &str) -> Option<(Scheme, &str)> {
    [Scheme::Http, Scheme::Https].into_iter().find_map(|scheme| {
        let (before, rest) = written.split_once("://")?;
        before.eq_ignore_ascii_case(scheme.as_str()).then_some((scheme, rest))
    })
}

#[cfg(test)]
mod tests;
