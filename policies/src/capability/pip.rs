//! `pip:` rules: read packages' index pages and files from a registry.
//!
//! Files are judged too, by the package that their name says: an index page
//! that is allowed must not be a way to any file on the same host. Uploads use
//! other methods and are not part of the capability.

use super::registry::RegistryUrl;
use crate::names::NameError;
use crate::python_package::{PythonFiles, PythonPackage};
use crate::rule::{Paths, Shape};

/// The requests that reading these packages is made of.
pub(crate) fn expand(
    packages: &[PythonPackage],
    registry: &RegistryUrl,
    files: &[RegistryUrl],
) -> Result<Vec<Shape>, NameError> {
    let mut index = Vec::new();
    for package in packages {
        index.push(registry.below(&format!("/{package}"))?);
        index.push(registry.below(&format!("/{package}/"))?);
    }
    let mut shapes = vec![registry.reading(Paths::Patterns(index))];
    let of = |below: &str| Paths::PythonFiles(PythonFiles::new(packages, below));
    // An index keeps its files beside it, not below it: anywhere on its host.
    shapes.push(registry.reading(of("/")));
    for place in files {
        let below = format!("{}/", place.path.as_str().trim_end_matches('/'));
        shapes.push(place.reading(of(&below)));
    }
    Ok(shapes)
}
