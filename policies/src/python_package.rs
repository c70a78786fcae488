//! The names of Python packages and of their files.

use std::fmt;

use crate::case_fold::lower;
use crate::from_text::from_text;
use crate::names::NameError;

/// A package name in the normal form in which indexes compare them: lower
/// case, runs of `-`, `_` and `.` as one `-`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PythonPackage(String);

impl PythonPackage {
    /// ```
    /// # use policies::PythonPackage;
    /// assert_eq!(PythonPackage::parse("Zope.Interface").unwrap().to_string(), "zope-interface");
    /// assert!(PythonPackage::parse("requests==2.0").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        let ends = |c: char| c.is_ascii_alphanumeric();
        let right = text.len() <= 128 && text.starts_with(ends) && text.ends_with(ends);
        if !right || !text.bytes().all(plain) {
            let instead = "write the name alone, such as `requests`, without a version";
            return Err(NameError::new(text, "a Python package", instead));
        }
        Ok(Self(normal(text)))
    }
}

impl fmt::Display for PythonPackage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

from_text!(
    PythonPackage,
    "PythonPackage",
    "A Python package such as `requests`, without a version."
);

fn normal(name: &str) -> String {
    let mut normal = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '-' | '_' | '.' if normal.ends_with('-') => {}
            '-' | '_' | '.' => normal.push('-'),
            c => normal.push(c.to_ascii_lowercase()),
        }
    }
    normal
}

/// Files of certain packages, below a certain path.
#[derive(Clone, Debug)]
pub(crate) struct PythonFiles {
    packages: Vec<PythonPackage>,
    below: String,
    /// The same without letter case.
    below_folded: String,
}

impl PythonFiles {
    pub(crate) fn new(packages: &[PythonPackage], below: &str) -> Self {
        Self { packages: packages.to_vec(), below: below.to_owned(), below_folded: lower(below) }
    }

    /// Whether a path, in one of its readings, is that of such a file.
    pub(crate) fn matches(&self, reading: &str) -> bool {
        self.has(reading.strip_prefix(self.below.as_str()))
    }

    /// The same for a reading without letter case: see [`crate::case_fold`].
    pub(crate) fn matches_folded(&self, reading: &str) -> bool {
        self.has(reading.strip_prefix(self.below_folded.as_str()))
    }

    fn has(&self, rest: Option<&str>) -> bool {
        let Some(rest) = rest else { return false };
        let file = rest.rsplit('/').next().unwrap_or_default();
        package_of(file).is_some_and(|package| self.packages.contains(&package))
    }
}

/// The package that a file's name says it belongs to.
///
/// In a wheel's name the package ends at the first `-`, in a source archive's
/// at the last one that a version follows. A name that is neither is nobody's.
fn package_of(file: &str) -> Option<PythonPackage> {
    let file = file.strip_suffix(".metadata").unwrap_or(file);
    let name = if let Some(wheel) = file.strip_suffix(".whl") {
        wheel.split_once('-')?.0
    } else {
        let archive =
            [".tar.gz", ".zip", ".tar.bz2"].iter().find_map(|end| file.strip_suffix(end))?;
        let (name, version) = archive.rsplit_once('-')?;
        version.starts_with(|c: char| c.is_ascii_digit()).then_some(name)?
    };
    PythonPackage::parse(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_package_its_name_says() {
        let package = |file| package_of(file).map(|package| package.to_string());
        assert_eq!(package("requests-2.31.0-py3-none-any.whl").as_deref(), Some("requests"));
        assert_eq!(package("zope.interface-6.0.tar.gz").as_deref(), Some("zope-interface"));
        assert_eq!(
            package("typing_extensions-4.8.0-py3-none-any.whl.metadata").as_deref(),
            Some("typing-extensions")
        );
        assert_eq!(package("requests-toolbelt-1.0.0.tar.gz").as_deref(), Some("requests-toolbelt"));
        assert_eq!(package("requests.exe"), None);
        assert_eq!(package("requests-evil.tar.gz"), None);
    }
}
