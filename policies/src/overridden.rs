//! What a request says besides its first line: headers and parameters by which
//! servers and frameworks let a request replace its method, path, host or scheme.
//!
//! Whether a server honours one of them is its secret, so a request must be
//! allowed both as it was sent and as it says. A method or a path is judged as a
//! further method or path. A host, a port or a scheme must be the connection's: it
//! was resolved, dialled and judged, and another one would be judged by nobody. A
//! prefix moves every path, so any but the empty one is refused.
//!
//! Clients that talk to a server directly send none of these.

mod forwarded;
#[cfg(test)]
mod tests;

use crate::authority::{Authority, AuthorityError, Destination};
use crate::fields::{Headers, is_same_field};
use crate::method::{Method, MethodError};
use crate::path::{PathError, RequestPath};
use crate::query::Query;
use crate::target::{Scheme, Target, TargetError};
use crate::written::Written;

/// What a request says instead of its first line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Overridden {
    pub method: Option<Method>,
    pub paths: Vec<FurtherPath>,
}

/// A path that a server may serve instead of the one that was asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FurtherPath {
    pub path: RequestPath,
    pub query: Option<Query>,
}

/// A request as it was sent, as far as overriding it is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    pub scheme: Scheme,
    pub to: &'a Destination,
    pub method: Method,
    pub query: Option<&'a Query>,
    pub headers: &'a dyn Headers,
}

impl Overridden {
    /// Reads every override in a request. One that has no reading, or that names
    /// another host or scheme, is an error.
    pub fn read(sent: &Sent<'_>) -> Result<Self, OverrideError> {
        let mut reader = Reader { sent: *sent, found: Self::default() };
        let mut outcome = Ok(());
        sent.headers.each(&mut |name, value| {
            if outcome.is_ok()
                && let Some(replaced) = replaced_by_header(name)
            {
                outcome = reader.header(replaced, name, value);
            }
        });
        outcome?;
        if let Some(query) = sent.query {
            reader.parameters(query)?;
        }
        Ok(reader.found)
    }
}

/// Why an override is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OverrideError {
    #[error("{0}")]
    Ambiguous(String),
    #[error("{0}")]
    Authority(#[from] AuthorityError),
    #[error("{0}")]
    Method(#[from] MethodError),
    /// It names another host, port or scheme than the connection's.
    #[error("`{named}` was asked for by a header")]
    Mismatch { named: String },
    #[error("{0}")]
    Path(#[from] PathError),
}

/// What a header replaces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Replaced {
    /// `Forwarded` (RFC 7239): host and scheme.
    Forwarded,
    Host,
    Method,
    /// Where `COPY` and `MOVE` write to.
    MoveTarget,
    Path,
    Port,
    Prefix,
    Scheme,
}

/// What a parameter replaces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ReplacedByParameter {
    Method,
    /// A word that often means something else: an override only if it is a
    /// method that writes.
    MethodPerhaps,
    /// A route of WordPress' REST interface, `/wp-json/...` otherwise.
    RestRoute,
}

struct Reader<'a> {
    sent: Sent<'a>,
    found: Overridden,
}

impl Reader<'_> {
    fn header(
        &mut self,
        replaced: Replaced,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), OverrideError> {
        let name = || Written::of_bytes(name);
        let text = std::str::from_utf8(value).map_err(|_| {
            OverrideError::Ambiguous(format!("the header `{}` is not ASCII", name()))
        })?;
        match replaced {
            Replaced::Method => self.method(Method::parse_override(text)?),
            Replaced::MoveTarget => match self.sent.method {
                Method::Copy | Method::Move => self.path(&name(), text),
                _ => Ok(()),
            },
            Replaced::Path if text.contains(',') => Err(OverrideError::Ambiguous(format!(
                "the header `{}` may name several paths: `{}`",
                name(),
                Written::of(text)
            ))),
            Replaced::Path => self.path(&name(), text),
            Replaced::Prefix if matches!(text, "" | "/") => Ok(()),
            Replaced::Prefix => Err(OverrideError::Ambiguous(format!(
                "the header `{}` moves every path on some servers; leave it out",
                name()
            ))),
            Replaced::Forwarded => forwarded::read(text, self),
            Replaced::Host => listed(text).try_for_each(|host| self.host(host)),
            Replaced::Port => listed(text).try_for_each(|port| self.port(&name(), port)),
            Replaced::Scheme => listed(text).try_for_each(|scheme| self.scheme(&name(), scheme)),
        }
    }

    fn parameters(&mut self, query: &Query) -> Result<(), OverrideError> {
        let names = BY_PARAMETER.iter().map(|(name, _)| *name);
        let mut found = Vec::new();
        query.read_as(names, &mut |at, values| {
            if let Some((_, replaced)) = BY_PARAMETER.get(at) {
                found.extend(values.into_iter().map(|value| (*replaced, value)));
            }
        });
        for (replaced, value) in found {
            match (replaced, Method::parse_override(&value)) {
                (ReplacedByParameter::Method, method) => self.method(method?)?,
                (ReplacedByParameter::MethodPerhaps, Ok(method)) if is_common_write(method) => {
                    self.method(method)?;
                }
                (ReplacedByParameter::MethodPerhaps, _) => {}
                (ReplacedByParameter::RestRoute, _) => {
                    let route = value.trim_start_matches('/');
                    self.further(&format!("/{route}"))?;
                    self.further(&format!("/wp-json/{route}"))?;
                }
            }
        }
        Ok(())
    }

    /// A second method that disagrees is ambiguous: which of them counts is the
    /// server's secret.
    fn method(&mut self, method: Method) -> Result<(), OverrideError> {
        match self.found.method.replace(method) {
            Some(other) if other != method => Err(OverrideError::Ambiguous(format!(
                "two method overrides name different methods: {other} and {method}"
            ))),
            _ => Ok(()),
        }
    }

    fn path(&mut self, name: &Written, text: &str) -> Result<(), OverrideError> {
        if text.starts_with('/') || text.is_empty() {
            return self.further(text);
        }
        let target = Target::parse_url(text).map_err(|err| match err {
            TargetError::Authority(err) => OverrideError::Authority(err),
            TargetError::Path(err) => OverrideError::Path(err),
            TargetError::Url(_) => OverrideError::Ambiguous(format!(
                "the header `{name}` names a path in no form that servers agree on: `{}`",
                Written::of(text)
            )),
        })?;
        if target.scheme != self.sent.scheme || target.destination != *self.sent.to {
            let named = format!("{}://{}", target.scheme, target.destination);
            return Err(OverrideError::Mismatch { named });
        }
        self.add(target.path, target.query)
    }

    /// A path in origin form.
    fn further(&mut self, text: &str) -> Result<(), OverrideError> {
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(Query::parse(query)?)),
            None => (text, None),
        };
        self.add(RequestPath::parse(path)?, query)
    }

    fn add(&mut self, path: RequestPath, query: Option<Query>) -> Result<(), OverrideError> {
        // Some servers keep the query that was sent.
        let own = query.is_some().then(|| FurtherPath { path: path.clone(), query });
        let kept = FurtherPath { path, query: self.sent.query.cloned() };
        for further in own.into_iter().chain([kept]) {
            if !self.found.paths.contains(&further) {
                self.found.paths.push(further);
            }
        }
        if self.found.paths.len() > MOST_PATHS {
            return Err(OverrideError::Ambiguous("it replaces its path too many times".to_owned()));
        }
        Ok(())
    }

    fn host(&self, text: &str) -> Result<(), OverrideError> {
        let named = Authority::parse(text)?.destination(self.sent.to.port);
        if named == *self.sent.to {
            return Ok(());
        }
        Err(OverrideError::Mismatch { named: named.to_string() })
    }

    fn port(&self, name: &Written, text: &str) -> Result<(), OverrideError> {
        let unreadable = || {
            let why = format!("the header `{name}` is no port: `{}`", Written::of(text));
            Err(OverrideError::Ambiguous(why))
        };
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u16>() {
            Err(_) => unreadable(),
            Ok(_) if !digits => unreadable(),
            Ok(port) if port == self.sent.to.port => Ok(()),
            Ok(port) => Err(OverrideError::Mismatch { named: format!("port {port}") }),
        }
    }

    fn scheme(&self, name: &Written, text: &str) -> Result<(), OverrideError> {
        let named = match text.to_ascii_lowercase().as_str() {
            "https" | "wss" | "on" | "1" | "true" | "yes" => Scheme::Https,
            "http" | "ws" | "off" | "0" | "false" | "no" => Scheme::Http,
            // What Cloudflare's header says.
            "{\"scheme\":\"https\"}" => Scheme::Https,
            "{\"scheme\":\"http\"}" => Scheme::Http,
            _ => {
                return Err(OverrideError::Ambiguous(format!(
                    "the header `{name}` names no scheme we know: `{}`",
                    Written::of(text)
                )));
            }
        };
        if named == self.sent.scheme {
            return Ok(());
        }
        Err(OverrideError::Mismatch { named: format!("{named}://") })
    }
}

/// The members of a list; an empty value is one empty member.
fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(|member| member.trim_matches([' ', '\t']))
}

fn is_common_write(method: Method) -> bool {
    matches!(method, Method::Delete | Method::Patch | Method::Post | Method::Put)
}

/// What a header of this name replaces on some server.
fn replaced_by_header(name: &[u8]) -> Option<Replaced> {
    // Nearly every name ends here: it begins otherwise.
    if !matches!(name.first()?.to_ascii_lowercase(), b'c' | b'd' | b'f' | b'h' | b'p' | b's' | b'x')
    {
        return None;
    }
    BY_HEADER
        .iter()
        .find(|(known, _)| is_same_field(name, known.as_bytes()))
        .map(|(_, replaced)| *replaced)
}

/// Whether a header of this name replaces something on some server.
pub fn is_override_field(name: &[u8]) -> bool {
    replaced_by_header(name).is_some()
}

/// More than any client that means well sends.
const MOST_PATHS: usize = 8;

const BY_HEADER: [(&str, Replaced); 62] = [
    ("cf-visitor", Replaced::Scheme),
    ("cloudfront-forwarded-proto", Replaced::Scheme),
    ("destination", Replaced::MoveTarget),
    ("forwarded", Replaced::Forwarded),
    ("forwarded-host", Replaced::Host),
    ("forwarded-proto", Replaced::Scheme),
    ("front-end-https", Replaced::Scheme),
    ("http-host", Replaced::Host),
    ("http-method", Replaced::Method),
    ("http-method-override", Replaced::Method),
    ("http-x-forwarded-host", Replaced::Host),
    ("http-x-forwarded-proto", Replaced::Scheme),
    ("http-x-http-method-override", Replaced::Method),
    ("http-x-original-url", Replaced::Path),
    ("http-x-rewrite-url", Replaced::Path),
    ("path-info", Replaced::Path),
    ("proxy-host", Replaced::Host),
    ("script-name", Replaced::Prefix),
    ("x-backend-host", Replaced::Host),
    ("x-envoy-original-host", Replaced::Host),
    ("x-envoy-original-path", Replaced::Path),
    ("x-forwarded-base", Replaced::Prefix),
    ("x-forwarded-basepath", Replaced::Prefix),
    ("x-forwarded-context", Replaced::Prefix),
    ("x-forwarded-host", Replaced::Host),
    ("x-forwarded-method", Replaced::Method),
    ("x-forwarded-path", Replaced::Path),
    ("x-forwarded-port", Replaced::Port),
    ("x-forwarded-prefix", Replaced::Prefix),
    ("x-forwarded-proto", Replaced::Scheme),
    ("x-forwarded-protocol", Replaced::Scheme),
    ("x-forwarded-scheme", Replaced::Scheme),
    ("x-forwarded-script-name", Replaced::Prefix),
    ("x-forwarded-server", Replaced::Host),
    ("x-forwarded-ssl", Replaced::Scheme),
    ("x-forwarded-uri", Replaced::Path),
    ("x-forwarded-url", Replaced::Path),
    ("x-host", Replaced::Host),
    ("x-host-override", Replaced::Host),
    ("x-http-host-override", Replaced::Host),
    ("x-http-method", Replaced::Method),
    ("x-http-method-override", Replaced::Method),
    ("x-invoke-path", Replaced::Path),
    ("x-matched-path", Replaced::Path),
    ("x-method", Replaced::Method),
    ("x-method-override", Replaced::Method),
    ("x-middleware-rewrite", Replaced::Path),
    ("x-original-host", Replaced::Host),
    ("x-original-method", Replaced::Method),
    ("x-original-path", Replaced::Path),
    ("x-original-proto", Replaced::Scheme),
    ("x-original-scheme", Replaced::Scheme),
    ("x-original-uri", Replaced::Path),
    ("x-original-url", Replaced::Path),
    ("x-override-url", Replaced::Path),
    ("x-proto", Replaced::Scheme),
    ("x-rest-method", Replaced::Method),
    ("x-rewrite-url", Replaced::Path),
    ("x-scheme", Replaced::Scheme),
    ("x-script-name", Replaced::Prefix),
    ("x-url-scheme", Replaced::Scheme),
    ("x-waws-unencoded-url", Replaced::Path),
];

/// Folded as [`Query::read_as`] folds names.
const BY_PARAMETER: [(&str, ReplacedByParameter); 10] = [
    ("_http_method", ReplacedByParameter::Method),
    ("_httpmethod", ReplacedByParameter::Method),
    ("_method", ReplacedByParameter::Method),
    ("http_method", ReplacedByParameter::MethodPerhaps),
    ("httpmethod", ReplacedByParameter::MethodPerhaps),
    ("method", ReplacedByParameter::MethodPerhaps),
    ("rest_route", ReplacedByParameter::RestRoute),
    ("x-http-method", ReplacedByParameter::Method),
    ("x-http-method-override", ReplacedByParameter::Method),
    ("x-method-override", ReplacedByParameter::Method),
];
