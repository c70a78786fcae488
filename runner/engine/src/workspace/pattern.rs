//! Patterns of `fs.deny`, asked about every name of a project.
//!
//! Nearly every name is meant by no pattern, and its last part alone says so: it
//! does not begin or does not end as the pattern's last part does. Only what
//! passes that is put together as a path and compared whole.

use files::TreePath;
use policies::FileGlob;

/// A pattern, with what its last part begins and ends with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern<'g> {
    glob: &'g FileGlob,
    /// The last part up to its first `*`, and after its last.
    ends: Option<(&'g str, &'g str)>,
    /// The last part has no `*`.
    exact: bool,
}

impl<'g> Pattern<'g> {
    pub(super) fn new(glob: &'g FileGlob) -> Self {
        let written = glob.as_str();
        let last = written.rsplit('/').next().unwrap_or_default();
        // What is no text is compared as this character, see `TreePath::lossy`.
        let is_plain = last != "**" && !last.contains(char::REPLACEMENT_CHARACTER);
        let first = last.split('*').next().unwrap_or_default();
        let end = last.rsplit('*').next().unwrap_or_default();
        Self { glob, ends: is_plain.then_some((first, end)), exact: !last.contains('*') }
    }

    /// Whether the pattern names `name` in the directory `at`.
    pub(super) fn matches(&self, at: &TreePath, name: &[u8]) -> bool {
        self.may_mean(name) && self.glob.matches(&at.join(name).lossy())
    }

    fn may_mean(&self, name: &[u8]) -> bool {
        match self.ends {
            None => true,
            Some((whole, _)) if self.exact => name == whole.as_bytes(),
            Some((first, end)) => {
                name.len() >= first.len() + end.len()
                    && name.starts_with(first.as_bytes())
                    && name.ends_with(end.as_bytes())
            }
        }
    }

    /// The plainest path that the pattern names: `.env` for `**/.env*`. None if
    /// there is a wildcard on the way.
    pub(super) fn plainest(&self) -> Option<TreePath> {
        let written = self.glob.as_str();
        let written = written.strip_prefix("**/").unwrap_or(written);
        let (way, last) = written.rsplit_once('/').unwrap_or(("", written));
        let last = last.replace('*', "");
        if way.contains('*') || last.is_empty() {
            return None;
        }
        let path = TreePath::parse(format!("{way}/{last}").trim_start_matches('/').as_bytes());
        path.ok().filter(|path| self.glob.matches(&path.lossy()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plainest(written: &str) -> Option<String> {
        let glob = FileGlob::parse(written).unwrap();
        Pattern::new(&glob).plainest().map(|path| path.to_string())
    }

    #[test]
    fn the_plainest_path_is_the_one_without_wildcards() {
        assert_eq!(plainest("**/.env*").as_deref(), Some(".env"));
        assert_eq!(plainest("config/secret.yml").as_deref(), Some("config/secret.yml"));
        assert_eq!(plainest("**/keys/*.pem").as_deref(), Some("keys/.pem"));
        assert_eq!(plainest("a/*/b"), None);
        assert_eq!(plainest("secrets/**"), None);
        assert_eq!(plainest("*"), None);
    }

    proptest! {
        /// What is kept away from a pattern is nothing that it means.
        #[test]
        fn the_short_way_answers_as_the_long_one(
            pattern in prop::collection::vec("[ab*.]{1,4}|\\*\\*", 1..4),
            path in prop::collection::vec("[ab.]{1,5}", 1..4),
        ) {
            let Ok(glob) = FileGlob::parse(&pattern.join("/")) else { return Ok(()) };
            let Ok(path) = TreePath::parse(path.join("/").as_bytes()) else { return Ok(()) };
            let (Some(at), Some(name)) = (path.parent(), path.name()) else { return Ok(()) };
            let short = Pattern::new(&glob).matches(&at, name);
            prop_assert_eq!(short, glob.matches(&path.lossy()));
        }
    }
}
