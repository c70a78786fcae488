//! `npm:` rules: read packages' metadata and tarballs from a registry.
//!
//! Publishing, tagging, tokens and search use other methods or paths and are
//! not part of the capability.

use std::fmt;

use super::registry::RegistryUrl;
use crate::from_text::from_text;
use crate::names::NameError;
use crate::rule::{Paths, Shape};

/// A package name: `left-pad`, or `@scope/name`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NpmPackage {
    scope: Option<String>,
    name: String,
}

impl NpmPackage {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let fault = |instead| NameError::new(text, "an npm package", instead);
        let (scope, name) = match text.strip_prefix('@') {
            None => (None, text),
            Some(rest) => match rest.split_once('/') {
                Some((scope, name)) => (Some(scope), name),
                None => return Err(fault("write a scoped name in full, such as `@scope/name`")),
            },
        };
        let plain = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_alphanumeric())
                && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        if text.len() > 214 || !plain(name) || scope.is_some_and(|scope| !plain(scope)) {
            return Err(fault("write the name alone, such as `left-pad`, without a version"));
        }
        Ok(Self { scope: scope.map(str::to_owned), name: name.to_owned() })
    }

    /// The paths of this package below a registry.
    fn paths(&self) -> Vec<String> {
        // A client may or may not escape the `/` of a scope; both name one package.
        let roots = match &self.scope {
            None => vec![format!("/{}", self.name)],
            Some(scope) => {
                vec![format!("/@{scope}/{}", self.name), format!("/@{scope}%2F{}", self.name)]
            }
        };
        let below = |root: &String| {
            let tarball = format!("{root}/-/{}-*.tgz", self.name);
            [root.clone(), format!("{root}/*"), tarball]
        };
        roots.iter().flat_map(below).collect()
    }
}

impl fmt::Display for NpmPackage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scope) = &self.scope {
            write!(f, "@{scope}/")?;
        }
        f.write_str(&self.name)
    }
}

from_text!(NpmPackage, "NpmPackage", "An npm package such as `left-pad` or `@scope/name`.");

/// The requests that reading these packages is made of.
pub(crate) fn expand(
    packages: &[NpmPackage],
    registry: &RegistryUrl,
) -> Result<Vec<Shape>, NameError> {
    let paths = packages
        .iter()
        .flat_map(NpmPackage::paths)
        .map(|path| registry.below(&path))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(vec![registry.reading(Paths::Patterns(paths))])
}
