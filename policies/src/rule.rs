//! One rule, ready to be compared with requests.
//!
//! A rule has one verdict and one or more [`Shape`]s; it matches when one of
//! them does. A shape says everything about a request that must hold.
//!
//! An allow must match in every reading, and a deny must not be evaded. So where a
//! request has several values (a parameter twice, a header twice), an allow or ask
//! wants exactly one right value, and for a deny any one is enough.

use std::fmt;
use std::sync::Arc;

use crate::authority::Destination;
use crate::glob::{PathPattern, RefPattern, TextPattern};
use crate::header_fields::is_same_field;
use crate::host_pattern::HostPattern;
use crate::method::Method;
use crate::names::{HeaderName, SecretName};
use crate::python_package::PythonFiles;
use crate::query::QueryKey;
use crate::question::PolicyQuestion;
use crate::reach::Reach;
use crate::target::Scheme;
use crate::verdict::Verdict;

/// One entry of a policy, compiled.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) id: Arc<str>,
    pub(crate) verdict: Verdict,
    pub(crate) location: RuleLocation,
    pub(crate) reason: Option<Arc<str>>,
    pub(crate) reach: Reach,
    pub(crate) secret: Option<SecretName>,
    pub(crate) exempts_secret_rules: bool,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) summary: Arc<str>,
}

/// Where a rule is written: which file or preset, and on which line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RuleLocation {
    pub source: Arc<str>,
    pub line: usize,
}

impl Rule {
    /// What reports call it: its name, or its position such as `net.allow[2]` or
    /// `github-read:net.allow[0]`.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    pub fn location(&self) -> &RuleLocation {
        &self.location
    }

    /// The author's reason for the rule.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Which addresses its host may resolve to.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The secret that the gateway puts into its requests.
    pub fn secret(&self) -> Option<&SecretName> {
        self.secret.as_ref()
    }

    /// Its conditions in one line, for people.
    pub fn summary(&self) -> &str {
        &self.summary
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)
    }
}

/// Everything that must hold of a request.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) host: HostPattern,
    pub(crate) ports: PortSet,
    pub(crate) carries: Carries,
    pub(crate) methods: Methods,
    pub(crate) paths: Paths,
    pub(crate) query: Vec<(QueryKey, TextPattern)>,
    pub(crate) headers: Vec<(HeaderName, TextPattern)>,
    pub(crate) websocket: Websocket,
    pub(crate) body_check: Option<BodyCheck>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum PortSet {
    Any,
    Only(Vec<u16>),
}

/// Which connections a rule is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Carries {
    Anything,
    Http,
    Https,
    /// TLS that is not opened.
    Passthrough,
    /// Bytes that are not looked at.
    Tcp,
}

impl Carries {
    pub(crate) fn of(scheme: Scheme) -> Self {
        match scheme {
            Scheme::Http => Self::Http,
            Scheme::Https => Self::Https,
        }
    }

    fn fits(self, scheme: Scheme) -> bool {
        match self {
            Self::Anything => true,
            Self::Http => scheme == Scheme::Http,
            Self::Https => scheme == Scheme::Https,
            Self::Passthrough | Self::Tcp => false,
        }
    }
}

/// A set of methods.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Methods(u32);

impl Methods {
    pub(crate) fn any() -> Self {
        Self(u32::MAX)
    }

    pub(crate) fn of(methods: impl IntoIterator<Item = Method>) -> Self {
        Self(methods.into_iter().fold(0, |set, method| set | 1 << method as u32))
    }

    pub(crate) fn safe() -> Self {
        Self::of(Method::ALL.into_iter().filter(|method| method.is_safe()))
    }

    pub(crate) fn has(self, method: Method) -> bool {
        self.0 & 1 << method as u32 != 0
    }

    pub(crate) fn is_any(self) -> bool {
        self == Self::any()
    }

    /// Whether every method of `other` is in this set.
    pub(crate) fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Paths {
    Any,
    Patterns(Vec<PathPattern>),
    PythonFiles(PythonFiles),
}

/// What the gateway must find in a request's body before it may go out.
#[derive(Clone, Debug)]
pub enum BodyCheck {
    /// A push that updates only refs that one of the patterns names.
    GitRefs(Vec<RefPattern>),
}

/// A condition of a shape that a request does not meet, in the order in which
/// they are looked at: the later, the nearer the request came.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Mismatch {
    Protocol,
    Port,
    Websocket,
    Method,
    Path,
    Query,
    Headers,
}

impl Mismatch {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Port => "port",
            Self::Websocket => "websocket",
            Self::Method => "method",
            Self::Path => "path",
            Self::Query => "query",
            Self::Headers => "headers",
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether the rule is about WebSocket connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Websocket {
    Either,
    No,
    Only,
}

impl Shape {
    /// A shape that asks nothing but the host.
    pub(crate) fn to(host: HostPattern) -> Self {
        Self {
            host,
            ports: PortSet::Any,
            carries: Carries::Anything,
            methods: Methods::any(),
            paths: Paths::Any,
            query: Vec::new(),
            headers: Vec::new(),
            websocket: Websocket::No,
            body_check: None,
        }
    }

    /// Whether the port fits. The index has already matched the host.
    pub(crate) fn fits_port(&self, to: &Destination) -> bool {
        match &self.ports {
            PortSet::Any => true,
            PortSet::Only(ports) => ports.contains(&to.port),
        }
    }

    /// Whether it matches every request to a host it names.
    pub(crate) fn is_unconditional(&self) -> bool {
        self.carries == Carries::Anything
            && self.methods.is_any()
            && matches!(self.paths, Paths::Any)
            && self.query.is_empty()
            && self.headers.is_empty()
            && self.websocket == Websocket::Either
    }

    /// The first condition that a request does not meet; none means that it
    /// fits. The index matches the host and the path, so the caller passes whether
    /// the path fits.
    ///
    /// Both `decide` and `explain` call this, so they cannot disagree.
    pub(crate) fn first_mismatch(
        &self,
        verdict: Verdict,
        question: &PolicyQuestion<'_>,
        path_fits: bool,
    ) -> Option<Mismatch> {
        if !self.carries.fits(question.scheme) {
            return Some(Mismatch::Protocol);
        }
        if !self.fits_port(question.to) {
            return Some(Mismatch::Port);
        }
        if !self.fits_websocket(question) {
            return Some(Mismatch::Websocket);
        }
        if !self.methods.has(question.method) {
            return Some(Mismatch::Method);
        }
        if !path_fits {
            return Some(Mismatch::Path);
        }
        if !self.fits_query(verdict, question) {
            return Some(Mismatch::Query);
        }
        (!self.fits_headers(verdict, question)).then_some(Mismatch::Headers)
    }

    fn fits_websocket(&self, question: &PolicyQuestion<'_>) -> bool {
        match self.websocket {
            Websocket::Either => true,
            Websocket::No => !question.websocket,
            Websocket::Only => question.websocket,
        }
    }

    fn fits_query(&self, verdict: Verdict, question: &PolicyQuestion<'_>) -> bool {
        self.query.iter().all(|(key, pattern)| {
            question.query.is_some_and(|query| query.fits(key, pattern, verdict))
        })
    }

    fn fits_headers(&self, verdict: Verdict, question: &PolicyQuestion<'_>) -> bool {
        self.headers.iter().all(|(name, pattern)| {
            let mut counted = HeaderMatches::default();
            question.headers.each(&mut |written, value| {
                if is_same_field(written, name.as_str().as_bytes()) {
                    counted.add(written, value, name, pattern, verdict);
                }
            });
            counted.suffices(verdict)
        })
    }
}

/// How many values a header has, and how many of them fit.
#[derive(Default)]
struct HeaderMatches {
    present: usize,
    fitting: usize,
}

impl HeaderMatches {
    /// Counts a field that a server could read as the header `name`. A deny matches
    /// any spelling of it and any member of a list.
    fn add(
        &mut self,
        written: &[u8],
        value: &[u8],
        name: &HeaderName,
        pattern: &TextPattern,
        verdict: Verdict,
    ) {
        let member = |value: &[u8]| pattern.matches(value.trim_ascii());
        let fits = match verdict {
            Verdict::Deny => pattern.matches(value) || value.split(|b| *b == b',').any(member),
            Verdict::Allow | Verdict::Ask => {
                pattern.matches(value) && written.eq_ignore_ascii_case(name.as_str().as_bytes())
            }
        };
        self.present += 1;
        self.fitting += usize::from(fits);
    }

    fn suffices(&self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Deny => self.fitting > 0,
            Verdict::Allow | Verdict::Ask => self.present == 1 && self.fitting == 1,
        }
    }
}
