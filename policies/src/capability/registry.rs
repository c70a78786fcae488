//! Where packages come from.

use std::fmt;

use crate::authority::{Destination, Host};
use crate::from_text::from_text;
use crate::glob::PathPattern;
use crate::host_pattern::HostPattern;
use crate::method::Method;
use crate::names::NameError;
use crate::path::RequestPath;
use crate::rule::{Carries, Methods, Paths, PortSet, Shape};
use crate::target::{Scheme, Target};

/// The address of a package registry, such as `https://registry.example/npm/`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RegistryUrl {
    pub scheme: Scheme,
    pub destination: Destination,
    /// Where the registry starts on that host.
    pub path: RequestPath,
}

impl RegistryUrl {
    /// ```
    /// # use policies::RegistryUrl;
    /// let url = RegistryUrl::parse("https://registry.example/npm/").unwrap();
    /// assert_eq!(url.to_string(), "https://registry.example/npm");
    /// assert!(RegistryUrl::parse("https://user:pw@registry.example/").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let instead = "write it as `https://registry.example/path/`, without user name or query";
        let fault = || NameError::new(text, "a registry's address", instead);
        let target = Target::parse_url(text).map_err(|_| fault())?;
        if target.query.is_some() {
            return Err(fault());
        }
        let trimmed = target.path.as_str().trim_end_matches('/');
        let path = if trimmed.is_empty() { "/" } else { trimmed };
        let path = RequestPath::parse(path).map_err(|_| fault())?;
        Ok(Self { scheme: target.scheme, destination: target.destination, path })
    }

    /// Requests that read these paths of the registry's host.
    pub(super) fn reading(&self, paths: Paths) -> Shape {
        let host = match &self.destination.host {
            Host::Address(address) => HostPattern::Address(*address),
            Host::Name(name) => HostPattern::Exact(name.clone()),
        };
        Shape {
            carries: Carries::of(self.scheme),
            methods: Methods::of([Method::Get, Method::Head]),
            paths,
            ports: PortSet::Only(vec![self.destination.port]),
            ..Shape::to(host)
        }
    }

    pub(super) fn below(&self, rest: &str) -> Result<PathPattern, NameError> {
        PathPattern::below(&self.path, rest)
    }
}

impl fmt::Display for RegistryUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.destination.host)?;
        if self.destination.port != self.scheme.default_port() {
            write!(f, ":{}", self.destination.port)?;
        }
        f.write_str(self.path.as_str().trim_end_matches('/'))
    }
}

from_text!(
    RegistryUrl,
    "RegistryUrl",
    "A package registry's address, such as `https://registry.example/npm/`.",
    pattern = "^https?://"
);

/// The registries that the package managers of this machine are set up to use.
///
/// A fact about the machine, found by whoever calls: this crate reads nothing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Registries {
    pub npm: Vec<RegistryUrl>,
    pub pip: Vec<RegistryUrl>,
    /// Where `pip`'s indexes keep their files, if that is another host.
    pub pip_files: Vec<RegistryUrl>,
}

/// What a rule may leave to this machine's package managers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RegistryKind {
    Npm,
    Pip,
    /// Where `pip`'s indexes keep their files.
    PipFiles,
}

/// Who knows what a rule leaves to this machine.
pub(crate) type RegistryLookup<'l> = dyn Fn(RegistryKind) -> Vec<RegistryUrl> + 'l;

impl Registries {
    pub fn of(&self, kind: RegistryKind) -> &[RegistryUrl] {
        match kind {
            RegistryKind::Npm => &self.npm,
            RegistryKind::Pip => &self.pip,
            RegistryKind::PipFiles => &self.pip_files,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.npm.is_empty() && self.pip.is_empty()
    }
}
