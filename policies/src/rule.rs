//! One rule, ready to be compared with requests.
//!
//! A rule has one verdict and one or more [`Shape`]s; it matches when one of
//! them does. A shape says everything about a request that must hold.
//!
//! An allow must fit beyond doubt and a deny must not be dodged, so where a
//! request gives several values (a parameter twice, a header twice) an allow
//! or ask wants the one right value, and a deny is content with any.

use std::fmt;
use std::sync::Arc;

use crate::authority::Destination;
use crate::capability::{BodyCheck, PythonFiles};
use crate::decide::Question;
use crate::glob::{PathPattern, TextPattern};
use crate::method::Method;
use crate::names::{HeaderName, SecretName};
use crate::path::RequestPath;
use crate::pattern::HostPattern;
use crate::reach::Reach;
use crate::target::Scheme;
use crate::verdict::Verdict;

/// One entry of a policy, compiled.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) id: Arc<str>,
    pub(crate) verdict: Verdict,
    pub(crate) written_at: WrittenAt,
    pub(crate) reason: Option<Arc<str>>,
    pub(crate) reach: Reach,
    pub(crate) secret: Option<SecretName>,
    pub(crate) spares_bound_secrets: bool,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) summary: Arc<str>,
}

/// Where a rule stands: which file or preset, and on which line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WrittenAt {
    pub source: Arc<str>,
    pub line: usize,
}

impl Rule {
    /// What reports call it: its name, or its place such as `net.allow[2]` or
    /// `github-read:net.allow[0]`.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    pub fn written_at(&self) -> &WrittenAt {
        &self.written_at
    }

    /// Why the rule is there, in its author's words.
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
    pub(crate) ports: Ports,
    pub(crate) carries: Carries,
    pub(crate) methods: Methods,
    pub(crate) paths: Paths,
    pub(crate) query: Vec<(String, TextPattern)>,
    pub(crate) headers: Vec<(HeaderName, TextPattern)>,
    pub(crate) websocket: Websocket,
    pub(crate) body_check: Option<BodyCheck>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Ports {
    Any,
    Only(Vec<u16>),
}

/// What the connection carries, as far as the rule cares.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Carries {
    Anything,
    Http,
    Https,
    /// TLS that is not opened.
    Sealed,
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
            Self::Sealed | Self::Tcp => false,
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
            ports: Ports::Any,
            carries: Carries::Anything,
            methods: Methods::any(),
            paths: Paths::Any,
            query: Vec::new(),
            headers: Vec::new(),
            websocket: Websocket::No,
            body_check: None,
        }
    }

    /// Whether the port fits. The host was the index's business.
    pub(crate) fn fits_port(&self, to: &Destination) -> bool {
        match &self.ports {
            Ports::Any => true,
            Ports::Only(ports) => ports.contains(&to.port),
        }
    }

    /// Whether it matches whatever is asked of a host it names.
    pub(crate) fn is_unconditional(&self) -> bool {
        self.carries == Carries::Anything
            && self.methods.is_any()
            && matches!(self.paths, Paths::Any)
            && self.query.is_empty()
            && self.headers.is_empty()
            && self.websocket == Websocket::Either
    }

    /// Everything but host and path patterns, which the index has looked up.
    pub(crate) fn fits(&self, verdict: Verdict, question: &Question<'_>) -> bool {
        self.fits_port(question.to)
            && self.carries.fits(question.scheme)
            && self.fits_websocket(question)
            && self.methods.has(question.method)
            && self.fits_files(question)
            && self.fits_query(verdict, question)
            && self.fits_headers(verdict, question)
    }

    /// Whether the path fits, without the index's automaton; for explanations.
    pub(crate) fn fits_path(&self, path: &RequestPath) -> bool {
        match &self.paths {
            Paths::Any => true,
            Paths::Patterns(patterns) => patterns
                .iter()
                .any(|pattern| pattern.glob().compile_matcher().is_match(path.as_str())),
            Paths::PythonFiles(files) => files.matches(path),
        }
    }

    fn fits_websocket(&self, question: &Question<'_>) -> bool {
        match self.websocket {
            Websocket::Either => true,
            Websocket::No => !question.websocket,
            Websocket::Only => question.websocket,
        }
    }

    fn fits_files(&self, question: &Question<'_>) -> bool {
        match &self.paths {
            Paths::PythonFiles(files) => files.matches(question.path),
            Paths::Any | Paths::Patterns(_) => true,
        }
    }

    fn fits_query(&self, verdict: Verdict, question: &Question<'_>) -> bool {
        self.query.iter().all(|(name, pattern)| {
            let mut counted = Counted::default();
            if let Some(query) = question.query {
                for (key, value) in query.pairs() {
                    if key == name.as_str() {
                        counted.add(pattern.matches(value.as_bytes()));
                    }
                }
            }
            counted.suffices(verdict)
        })
    }

    fn fits_headers(&self, verdict: Verdict, question: &Question<'_>) -> bool {
        self.headers.iter().all(|(name, pattern)| {
            let mut counted = Counted::default();
            question
                .headers
                .values(name.as_str(), &mut |value| counted.add(pattern.matches(value)));
            counted.suffices(verdict)
        })
    }
}

/// How many values were there, and how many of them fit.
#[derive(Default)]
struct Counted {
    there: usize,
    fitting: usize,
}

impl Counted {
    fn add(&mut self, fits: bool) {
        self.there += 1;
        self.fitting += usize::from(fits);
    }

    fn suffices(&self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Deny => self.fitting > 0,
            Verdict::Allow | Verdict::Ask => self.there == 1 && self.fitting == 1,
        }
    }
}
