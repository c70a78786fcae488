//! What a request says besides its first line: headers and parameters by which
//! servers and frameworks let a request replace its method, path, host or scheme.
//!
//! We cannot know whether a server honours one of them, so a request must be
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
use crate::header_fields::{Headers, is_same_field};
use crate::method::{Method, MethodError};
use crate::path::{PathError, RequestPath};
use crate::query::Query;
use crate::quoted_input::QuotedInput;
use crate::target::{Scheme, Target, TargetError};

/// What a request says instead of its first line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RequestOverrides {
    pub method: Option<Method>,
    pub paths: Vec<AlternatePath>,
}

/// A path that a server may serve instead of the one that was asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AlternatePath {
    pub path: RequestPath,
    pub query: Option<Query>,
}

/// A request as it was sent, as far as overriding it is concerned.
#[derive(Clone, Copy, Debug)]
pub struct SentRequest<'a> {
    pub scheme: Scheme,
    pub to: &'a Destination,
    pub method: Method,
    pub query: Option<&'a Query>,
    pub headers: &'a dyn Headers,
}

impl RequestOverrides {
    /// Reads every override in a request. One that has no reading, or that names
    /// another host or scheme, is an error.
    pub fn read(sent: &SentRequest<'_>) -> Result<Self, OverrideError> {
        let mut reader = OverrideReader { sent: *sent, found: Self::default() };
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
enum OverriddenPart {
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
enum OverridingParameter {
    Method,
    /// A word that often means something else: an override only if it is a
    /// method that writes.
    MethodPerhaps,
    /// A route of WordPress' REST interface, `/wp-json/...` otherwise.
    RestRoute,
}

struct OverrideReader<'a> {
    sent: SentRequest<'a>,
    found: RequestOverrides,
}

impl OverrideReader<'_> {
    fn header(
        &mut self,
        replaced: OverriddenPart,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), OverrideError> {
        let name = || QuotedInput::of_bytes(name);
        let text = std::str::from_utf8(value).map_err(|_| {
            OverrideError::Ambiguous(format!("the header `{}` is not ASCII", name()))
        })?;
        match replaced {
            OverriddenPart::Method => self.method(Method::parse_override(text)?),
            OverriddenPart::MoveTarget => match self.sent.method {
                Method::Copy | Method::Move => self.path(&name(), text),
                _ => Ok(()),
            },
            OverriddenPart::Path if text.contains(',') => Err(OverrideError::Ambiguous(format!(
                "the header `{}` may name several paths: `{}`",
                name(),
                QuotedInput::of(text)
            ))),
            OverriddenPart::Path => self.path(&name(), text),
            OverriddenPart::Prefix if matches!(text, "" | "/") => Ok(()),
            OverriddenPart::Prefix => Err(OverrideError::Ambiguous(format!(
                "the header `{}` moves every path on some servers; leave it out",
                name()
            ))),
            OverriddenPart::Forwarded => forwarded::read(text, self),
            OverriddenPart::Host => listed(text).try_for_each(|host| self.host(host)),
            OverriddenPart::Port => listed(text).try_for_each(|port| self.port(&name(), port)),
            OverriddenPart::Scheme => {
                listed(text).try_for_each(|scheme| self.scheme(&name(), scheme))
            }
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
                (OverridingParameter::Method, method) => self.method(method?)?,
                (OverridingParameter::MethodPerhaps, Ok(method)) if is_common_write(method) => {
                    self.method(method)?;
                }
                (OverridingParameter::MethodPerhaps, _) => {}
                (OverridingParameter::RestRoute, _) => {
                    let route = value.trim_start_matches('/');
                    self.further(&format!("/{route}"))?;
                    self.further(&format!("/wp-json/{route}"))?;
                }
            }
        }
        Ok(())
    }

    /// A second method that disagrees is ambiguous: only the server knows which of
    /// them counts.
    fn method(&mut self, method: Method) -> Result<(), OverrideError> {
        match self.found.method.replace(method) {
            Some(other) if other != method => Err(OverrideError::Ambiguous(format!(
                "two method overrides name different methods: {other} and {method}"
            ))),
            _ => Ok(()),
        }
    }

    fn path(&mut self, name: &QuotedInput, text: &str) -> Result<(), OverrideError> {
        if text.starts_with('/') || text.is_empty() {
            return self.further(text);
        }
        let target = Target::parse_url(text).map_err(|err| match err {
            TargetError::Authority(err) => OverrideError::Authority(err),
            TargetError::Path(err) => OverrideError::Path(err),
            TargetError::Url(_) => OverrideError::Ambiguous(format!(
                "the header `{name}` names a path in no form that servers agree on: `{}`",
                QuotedInput::of(text)
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
        let own = query.is_some().then(|| AlternatePath { path: path.clone(), query });
        let kept = AlternatePath { path, query: self.sent.query.cloned() };
        for further in own.into_iter().chain([kept]) {
            if !self.found.paths.contains(&further) {
                self.found.paths.push(further);
            }
        }
        if self.found.paths.len() > MAX_ALTERNATE_PATHS {
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

    fn port(&self, name: &QuotedInput, text: &str) -> Result<(), OverrideError> {
        let unreadable = || {
            let why = format!("the header `{name}` is no port: `{}`", QuotedInput::of(text));
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

    fn scheme(&self, name: &QuotedInput, text: &str) -> Result<(), OverrideError> {
        let named = match text.to_ascii_lowercase().as_str() {
            "https" | "wss" | "on" | "1" | "true" | "yes" => Scheme::Https,
            "http" | "ws" | "off" | "0" | "false" | "no" => Scheme::Http,
            // What Cloudflare's header says.
            "{\"scheme\":\"https\"}" => Scheme::Https,
            "{\"scheme\":\"http\"}" => Scheme::Http,
            _ => {
                return Err(OverrideError::Ambiguous(format!(
                    "the header `{name}` names no scheme we know: `{}`",
                    QuotedInput::of(text)
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
fn replaced_by_header(name: &[u8]) -> Option<OverriddenPart> {
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
const MAX_ALTERNATE_PATHS: usize = 8;

const BY_HEADER: [(&str, OverriddenPart); 62] = [
    ("cf-visitor", OverriddenPart::Scheme),
    ("cloudfront-forwarded-proto", OverriddenPart::Scheme),
    ("destination", OverriddenPart::MoveTarget),
    ("forwarded", OverriddenPart::Forwarded),
    ("forwarded-host", OverriddenPart::Host),
    ("forwarded-proto", OverriddenPart::Scheme),
    ("front-end-https", OverriddenPart::Scheme),
    ("http-host", OverriddenPart::Host),
    ("http-method", OverriddenPart::Method),
    ("http-method-override", OverriddenPart::Method),
    ("http-x-forwarded-host", OverriddenPart::Host),
    ("http-x-forwarded-proto", OverriddenPart::Scheme),
    ("http-x-http-method-override", OverriddenPart::Method),
    ("http-x-original-url", OverriddenPart::Path),
    ("http-x-rewrite-url", OverriddenPart::Path),
    ("path-info", OverriddenPart::Path),
    ("proxy-host", OverriddenPart::Host),
    ("script-name", OverriddenPart::Prefix),
    ("x-backend-host", OverriddenPart::Host),
    ("x-envoy-original-host", OverriddenPart::Host),
    ("x-envoy-original-path", OverriddenPart::Path),
    ("x-forwarded-base", OverriddenPart::Prefix),
    ("x-forwarded-basepath", OverriddenPart::Prefix),
    ("x-forwarded-context", OverriddenPart::Prefix),
    ("x-forwarded-host", OverriddenPart::Host),
    ("x-forwarded-method", OverriddenPart::Method),
    ("x-forwarded-path", OverriddenPart::Path),
    ("x-forwarded-port", OverriddenPart::Port),
    ("x-forwarded-prefix", OverriddenPart::Prefix),
    ("x-forwarded-proto", OverriddenPart::Scheme),
    ("x-forwarded-protocol", OverriddenPart::Scheme),
    ("x-forwarded-scheme", OverriddenPart::Scheme),
    ("x-forwarded-script-name", OverriddenPart::Prefix),
    ("x-forwarded-server", OverriddenPart::Host),
    ("x-forwarded-ssl", OverriddenPart::Scheme),
    ("x-forwarded-uri", OverriddenPart::Path),
    ("x-forwarded-url", OverriddenPart::Path),
    ("x-host", OverriddenPart::Host),
    ("x-host-override", OverriddenPart::Host),
    ("x-http-host-override", OverriddenPart::Host),
    ("x-http-method", OverriddenPart::Method),
    ("x-http-method-override", OverriddenPart::Method),
    ("x-invoke-path", OverriddenPart::Path),
    ("x-matched-path", OverriddenPart::Path),
    ("x-method", OverriddenPart::Method),
    ("x-method-override", OverriddenPart::Method),
    ("x-middleware-rewrite", OverriddenPart::Path),
    ("x-original-host", OverriddenPart::Host),
    ("x-original-method", OverriddenPart::Method),
    ("x-original-path", OverriddenPart::Path),
    ("x-original-proto", OverriddenPart::Scheme),
    ("x-original-scheme", OverriddenPart::Scheme),
    ("x-original-uri", OverriddenPart::Path),
    ("x-original-url", OverriddenPart::Path),
    ("x-override-url", OverriddenPart::Path),
    ("x-proto", OverriddenPart::Scheme),
    ("x-rest-method", OverriddenPart::Method),
    ("x-rewrite-url", OverriddenPart::Path),
    ("x-scheme", OverriddenPart::Scheme),
    ("x-script-name", OverriddenPart::Prefix),
    ("x-url-scheme", OverriddenPart::Scheme),
    ("x-waws-unencoded-url", OverriddenPart::Path),
];

/// Folded as [`Query::read_as`] folds names.
const BY_PARAMETER: [(&str, OverridingParameter); 10] = [
    ("_http_method", OverridingParameter::Method),
    ("_httpmethod", OverridingParameter::Method),
    ("_method", OverridingParameter::Method),
    ("http_method", OverridingParameter::MethodPerhaps),
    ("httpmethod", OverridingParameter::MethodPerhaps),
    ("method", OverridingParameter::MethodPerhaps),
    ("rest_route", OverridingParameter::RestRoute),
    ("x-http-method", OverridingParameter::Method),
    ("x-http-method-override", OverridingParameter::Method),
    ("x-method-override", OverridingParameter::Method),
];
