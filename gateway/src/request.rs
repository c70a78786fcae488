//! Step 5 of 10: the request, parsed once.
//!
//! HTTP/1.1 and HTTP/2 say the same things in different places. Both are brought
//! into a [`RawRequest`], which holds what was sent, and [`ParsedRequest::read`] makes
//! of it the one form that policy judges and the upstream gets. What cannot be judged
//! in each of its readings is refused here: two hosts, a host that is not the
//! connection's, a path with dot segments, a method we do not know, two spellings
//! of one header.
//!
//! **Invariant:** after this step no code reads a name the client sent. The
//! `Host` that goes out is rebuilt from the connection's destination.

use policies::{
    AlternatePath, Authority, Destination, Headers, Method, OverrideError, PolicyQuestion, Query,
    RequestOverrides, RequestPath, Scheme, SentRequest, Target, check_fields,
};

use crate::http_version::HttpVersion;
use crate::refuse::Refusal;

/// A request's headers, shared by tasks.
pub(crate) type RequestHeaders = dyn Headers + Sync;

/// A request as it was sent, head only.
#[derive(Clone, Copy)]
pub(crate) struct RawRequest<'h> {
    pub(crate) method: &'h [u8],
    /// Origin form (`/path?query`), or absolute form.
    pub(crate) target: &'h [u8],
    /// HTTP/2's `:authority`. `Host` is read from the headers.
    pub(crate) authority: Option<&'h [u8]>,
    /// The headers that will be sent, and `Host`.
    pub(crate) headers: &'h RequestHeaders,
    pub(crate) version: HttpVersion,
    /// It asks to become a WebSocket. HTTP/2's extended CONNECT is given as
    /// `GET`, which is what the same request is in HTTP/1.1: one rule fits both.
    pub(crate) websocket: bool,
}

/// A request, parsed.
#[derive(Clone)]
pub(crate) struct ParsedRequest<'h> {
    pub(crate) method: Method,
    pub(crate) override_method: Option<Method>,
    /// Paths that it tells the server to serve instead.
    pub(crate) alternate_paths: Vec<AlternatePath>,
    pub(crate) path: RequestPath,
    pub(crate) query: Option<Query>,
    pub(crate) websocket: bool,
    pub(crate) grpc: bool,
    pub(crate) version: HttpVersion,
    pub(crate) headers: &'h RequestHeaders,
}

impl<'h> ParsedRequest<'h> {
    /// Reads a request on a connection to `to`, which `authority` spells.
    pub(crate) fn read(
        raw: &RawRequest<'h>,
        scheme: Scheme,
        to: &Destination,
        authority: &str,
    ) -> Result<Self, Refusal> {
        let method = method(raw.method)?;
        let (path, query) = if raw.target.first() == Some(&b'/') {
            check_authority(raw, None, to, authority)?;
            split(raw.target)?
        } else {
            let target = absolute(raw.target)?;
            if target.scheme != scheme {
                return Err(mismatch(to, format_args!("{}://", target.scheme)));
            }
            check_authority(raw, Some(&target.destination), to, authority)?;
            (target.path, target.query)
        };
        let RawRequest { version, headers, websocket, .. } = *raw;
        check_fields(headers).map_err(|err| Refusal::Ambiguous(err.to_string()))?;
        let sent = SentRequest { scheme, to, method, query: query.as_ref(), headers };
        let RequestOverrides { method: override_method, paths: alternate_paths } =
            RequestOverrides::read(&sent).map_err(|err| refused_override(err, to))?;
        match override_method {
            Some(Method::Connect) => return Err(Refusal::ConnectInside),
            Some(Method::Trace) => return Err(Refusal::Trace),
            _ => {}
        }
        let grpc = is_grpc(headers);
        Ok(Self {
            method,
            override_method,
            alternate_paths,
            path,
            query,
            websocket,
            grpc,
            version,
            headers,
        })
    }

    /// What policy is asked about it.
    pub(crate) fn question<'q>(
        &'q self,
        scheme: Scheme,
        to: &'q Destination,
    ) -> PolicyQuestion<'q> {
        PolicyQuestion {
            scheme,
            to,
            method: self.method,
            override_method: self.override_method,
            alternate_paths: &self.alternate_paths,
            path: &self.path,
            query: self.query.as_ref(),
            headers: self.headers,
            websocket: self.websocket,
        }
    }

    /// Whether it may change something on the server, as sent or as meant.
    pub(crate) fn mutates(&self) -> bool {
        self.method.mutates() || self.override_method.is_some_and(Method::mutates) || self.websocket
    }
}

/// The destination of a request in the clear, which only its head names. A `Host`
/// without a port means `usual_port`.
pub(crate) fn destination(
    raw: &RawRequest<'_>,
    usual_port: u16,
) -> Result<(Scheme, Destination), Refusal> {
    if raw.target.first() == Some(&b'/') {
        let host = only_host(raw.headers)?.ok_or(Refusal::NoServerName)?;
        return Ok((Scheme::Http, host.destination(usual_port)));
    }
    let target = absolute(raw.target)?;
    Ok((target.scheme, target.destination))
}

fn method(written: &[u8]) -> Result<Method, Refusal> {
    let text = std::str::from_utf8(written)
        .map_err(|err| Refusal::Malformed(format!("the method is not ASCII: {err}")))?;
    match Method::parse(text) {
        Ok(Method::Connect) => Err(Refusal::ConnectInside),
        Ok(Method::Trace) => Err(Refusal::Trace),
        Ok(method) => Ok(method),
        Err(err) => Err(Refusal::Method(err)),
    }
}

fn refused_override(err: OverrideError, to: &Destination) -> Refusal {
    match err {
        OverrideError::Ambiguous(why) => Refusal::Ambiguous(why),
        OverrideError::Authority(err) => Refusal::BadAuthority(err),
        OverrideError::Method(err) => Refusal::Method(err),
        OverrideError::Mismatch { named } => mismatch(to, format_args!("{named}")),
        OverrideError::Path(err) => Refusal::Path(err),
    }
}

fn split(target: &[u8]) -> Result<(RequestPath, Option<Query>), Refusal> {
    let at = target.iter().position(|byte| *byte == b'?');
    let (path, query) = match at.and_then(|at| target.split_at_checked(at)) {
        Some((path, query)) => (path, query.get(1..)),
        None => (target, None),
    };
    Ok((RequestPath::parse_bytes(path)?, query.map(Query::parse_bytes).transpose()?))
}

fn absolute(written: &[u8]) -> Result<Target, Refusal> {
    let text = std::str::from_utf8(written)
        .map_err(|err| Refusal::Malformed(format!("the request target is not ASCII: {err}")))?;
    Target::parse_url(text).map_err(|err| match err {
        policies::TargetError::Authority(err) => Refusal::BadAuthority(err),
        policies::TargetError::Path(err) => Refusal::Path(err),
        policies::TargetError::Url(err) => Refusal::Malformed(err.to_string()),
    })
}

/// Every place that names a host must name the connection's.
///
/// A name without a port means the connection's port: the port that was dialled
/// is not in doubt, and many clients leave it out.
fn check_authority(
    raw: &RawRequest<'_>,
    in_target: Option<&Destination>,
    to: &Destination,
    authority: &str,
) -> Result<(), Refusal> {
    // Most clients spell it as we do, and then there is nothing to read.
    if in_target.is_none() && names_only(raw, authority) {
        return Ok(());
    }
    let host = only_host(raw.headers)?;
    let pseudo = raw.authority.map(Authority::parse_bytes).transpose()?;
    if host.is_none() && pseudo.is_none() && raw.version != HttpVersion::Http10 {
        return Err(Refusal::Malformed("there is no Host header".to_owned()));
    }
    let host = host.map(|host| host.destination(to.port));
    let pseudo = pseudo.map(|authority| authority.destination(to.port));
    let named = [in_target, pseudo.as_ref(), host.as_ref()];

    let mut named = named.into_iter().flatten();
    let Some(first) = named.next() else { return Ok(()) };
    if let Some(other) = named.find(|other| *other != first) {
        return Err(Refusal::Ambiguous(format!("it names two hosts: `{first}` and `{other}`")));
    }
    if first != to {
        return Err(mismatch(to, format_args!("{first}")));
    }
    Ok(())
}

/// Whether everything that names a host says exactly `authority`, and something
/// does.
fn names_only(raw: &RawRequest<'_>, authority: &str) -> bool {
    let (mut hosts, mut same) = (0usize, true);
    raw.headers.values("host", &mut |written| {
        hosts += 1;
        same &= written == authority.as_bytes();
    });
    if let Some(written) = raw.authority {
        same &= written == authority.as_bytes();
    }
    same && hosts <= 1 && (hosts == 1 || raw.authority.is_some())
}

pub(crate) fn mismatch(admitted: &Destination, named: std::fmt::Arguments<'_>) -> Refusal {
    Refusal::NameMismatch { admitted: admitted.to_string(), named: named.to_string() }
}

/// The value of `Host`, if there is one; never one of two.
fn only_host(headers: &RequestHeaders) -> Result<Option<Authority>, Refusal> {
    let mut hosts = 0usize;
    let mut read = None;
    headers.values("host", &mut |value| {
        hosts += 1;
        read = Some(Authority::parse_bytes(value));
    });
    if hosts > 1 {
        return Err(Refusal::Ambiguous("there are two Host headers".to_owned()));
    }
    Ok(read.transpose()?)
}

/// Whether a refusal has to be a gRPC status.
pub(crate) fn is_grpc(headers: &RequestHeaders) -> bool {
    let mut grpc = false;
    headers.values("content-type", &mut |value| {
        let kind = value.get(..GRPC.len()).unwrap_or_default();
        let after = value.get(GRPC.len());
        grpc |= kind.eq_ignore_ascii_case(GRPC) && matches!(after, None | Some(b'+' | b';' | b' '));
    });
    grpc
}

const GRPC: &[u8] = b"application/grpc";

#[cfg(test)]
mod tests;
