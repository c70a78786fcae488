//! `git:` rules: fetch from and push to a repository over https.
//!
//! The smart protocol asks two questions per operation, and both name the
//! repository in the path and the service in the query or the path. The dumb
//! protocol and anything else below the repository (web pages, releases, wikis)
//! is not part of the capability.

use std::fmt;

use crate::from_text::from_text;
use crate::glob::{PathPattern, RefPattern, TextPattern};
use crate::host::HostName;
use crate::host_pattern::HostPattern;
use crate::method::Method;
use crate::names::NameError;
use crate::query::QueryKey;
use crate::rule::{BodyCheck, Carries, Methods, Paths, PortSet, Shape};
use crate::verdict::Verdict;

/// A repository, such as `github.com/acme/widgets`; `*` stands for one segment
/// of its path.
#[derive(Clone, Debug)]
pub struct GitRepository {
    host: HostName,
    path: String,
}

impl GitRepository {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let fault = |instead| NameError::new(text, "a repository", instead);
        if text.contains("://") || text.contains('@') {
            return Err(fault("write host and path alone, such as `github.com/acme/widgets`"));
        }
        let (host, path) = text
            .split_once('/')
            .ok_or_else(|| fault("write host and path, such as `github.com/acme/widgets`"))?;
        let host = HostName::parse(host).map_err(|_| fault("it must start with a host name"))?;
        let path = path.trim_end_matches('/');
        let path = format!("/{}", path.strip_suffix(".git").unwrap_or(path));
        let whole = |segment: &str| segment == "*" || !segment.contains('*');
        if path == "/" || !path.split('/').all(whole) || PathPattern::parse(&path).is_err() {
            return Err(fault("write the path plainly; `*` may stand for a whole segment"));
        }
        Ok(Self { host, path })
    }

    pub fn host(&self) -> &HostName {
        &self.host
    }

    /// The paths under which servers know one thing of the repository.
    fn at(&self, rest: &str) -> Paths {
        let spell = |suffix: &str| {
            PathPattern::parse(&format!("{}{suffix}{rest}", self.path))
                .expect("a repository's path followed by plain segments is a pattern")
        };
        Paths::Patterns(vec![spell(""), spell(".git")])
    }
}

impl fmt::Display for GitRepository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.host, self.path)
    }
}

from_text!(GitRepository, "GitRepository", "A repository such as `github.com/acme/widgets`.");

/// What may be done with a repository.
#[derive(Clone, Copy, Debug, Eq, schemars::JsonSchema, PartialEq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Clone and fetch.
    Fetch,
    /// Push, and in `allow` also clone and fetch.
    Push,
}

/// The requests that such access is made of.
pub(crate) fn expand(
    repository: &GitRepository,
    access: Option<Access>,
    refs: Option<&[RefPattern]>,
    verdict: Verdict,
) -> Vec<Shape> {
    let shape = |methods, paths| Shape {
        carries: Carries::Https,
        methods,
        paths,
        ports: PortSet::Only(vec![443]),
        ..Shape::to(HostPattern::Exact(repository.host.clone()))
    };
    if verdict == Verdict::Deny && access.is_none() {
        return vec![
            shape(Methods::any(), repository.at("")),
            shape(Methods::any(), repository.at("/**")),
        ];
    }
    let service = |name: &str| {
        let advertise = Shape {
            query: vec![(QueryKey::new("service"), exactly(name))],
            ..shape(Methods::of([Method::Get]), repository.at("/info/refs"))
        };
        let carry_out = shape(Methods::of([Method::Post]), repository.at(&format!("/{name}")));
        [advertise, carry_out]
    };
    let mut shapes = Vec::new();
    let push = access == Some(Access::Push);
    // Who may push must be able to fetch; who is denied a push may still fetch.
    if !push || verdict == Verdict::Allow {
        shapes.extend(service("git-upload-pack"));
    }
    if push {
        let [advertise, carry_out] = service("git-receive-pack");
        let body_check = refs.map(|refs| BodyCheck::GitRefs(refs.to_vec()));
        shapes.extend([advertise, Shape { body_check, ..carry_out }]);
    }
    shapes
}

fn exactly(value: &str) -> TextPattern {
    TextPattern::parse(value).expect("a service's name is plain text")
}
