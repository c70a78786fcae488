//! Patterns for paths, refs, files and plain text.
//!
//! Two languages, no more. Where `/` means something, `*` and `?` stay within
//! one segment and `**` stands for whole segments. In plain text `*` is any
//! text. Brackets and braces are refused rather than half supported: a list
//! takes several patterns, and a pattern that means more than its author
//! thinks is how a rule becomes a hole.

use std::sync::Arc;

use globset::{Glob, GlobBuilder, GlobMatcher};

use crate::case_fold::lower;
use crate::from_text::{from_text, shown_as_written};
use crate::names::NameError;
use crate::path::RequestPath;
use crate::path_readings;
use crate::path_spelling::PathFault;

/// A pattern for the path of a request, such as `/repos/acme/**`.
#[derive(Clone, Debug)]
pub struct PathPattern {
    written: Arc<str>,
    glob: Glob,
    /// What servers take the pattern's own text for, if it holds `%2F`, `;` or
    /// the like: its author named that spelling.
    others: Box<[Box<str>]>,
}

impl PathPattern {
    /// ```
    /// # use policies::PathPattern;
    /// assert!(PathPattern::parse("/repos/acme/**").is_ok());
    /// assert_eq!(
    ///     PathPattern::parse("repos/acme").unwrap_err().to_string(),
    ///     "`repos/acme` is not a path pattern: it must start with `/`",
    /// );
    /// ```
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let fault = |instead| Err(NameError::new(text, "a path pattern", instead));
        if !text.starts_with('/') {
            return fault("it must start with `/`");
        }
        if text.contains(['?', '#']) {
            return fault("it ends before `?`; write the query under `query:`");
        }
        // Requests are compared in their canonical form, so a pattern in another
        // form could never match, or match by accident. The wildcards stand for
        // characters that are always in that form.
        let sample = text.replace('*', "x");
        match RequestPath::parse(&sample) {
            Ok(path) if path.as_str() == sample => {}
            Ok(_) => {
                return fault("write it unescaped where possible and escapes in capitals (`%2F`)");
            }
            Err(err) if matches!(err.fault(), PathFault::HiddenSegment | PathFault::Readings) => {
                return fault(
                    "write it without parameters, spaces, dots or look-alikes that servers drop",
                );
            }
            Err(_) => {
                return fault(
                    "write one plain path without `..`, `//` or `\\`; wildcards are `*` and `**`",
                );
            }
        }
        let glob = segments(text, "a path pattern")?;
        let others = path_readings::others(text).unwrap_or_default();
        Ok(Self { written: text.into(), glob, others })
    }

    pub fn as_str(&self) -> &str {
        &self.written
    }

    pub(crate) fn glob(&self) -> Glob {
        self.glob.clone()
    }

    /// What servers take the pattern's own text for besides itself.
    pub(crate) fn others(&self) -> impl Iterator<Item = &str> {
        self.others.iter().map(|reading| &**reading).filter(|reading| self.is_as_wide(reading))
    }

    /// Patterns for what servers take a path for that is spelt as this one is.
    pub(crate) fn other_globs(&self) -> impl Iterator<Item = Glob> {
        self.others().filter_map(|reading| segments(reading, "a path pattern").ok())
    }

    /// The pattern in lower case and in every spelling of its text, for what
    /// must not be dodged: see [`crate::case_fold`].
    pub(crate) fn folded(&self) -> impl Iterator<Item = Glob> {
        let others = path_readings::respellings(&self.written).into_iter();
        let spellings = std::iter::once(Box::from(&*self.written)).chain(others);
        spellings
            .filter(|reading| self.is_as_wide(reading))
            .filter_map(|reading| segments(&lower(&reading), "a path pattern").ok())
    }

    /// Whether a reading of the pattern has its wildcards and no others: two that
    /// move together, or one that comes of a look-alike, would match too much.
    fn is_as_wide(&self, reading: &str) -> bool {
        let count = |text: &str| (text.matches('*').count(), text.matches("**").count());
        let (own, other) = (count(&self.written), count(reading));
        other.0 <= own.0 && other.1 <= own.1
    }

    /// The pattern below another path: for registries that do not start at `/`.
    pub(crate) fn below(prefix: &RequestPath, rest: &str) -> Result<Self, NameError> {
        Self::parse(&format!("{}{rest}", prefix.as_str().trim_end_matches('/')))
    }
}

from_text!(
    PathPattern,
    "PathPattern",
    "A path such as `/v1/messages` or `/repos/acme/**`.",
    pattern = "^/"
);

/// A pattern for a git ref, such as `refs/heads/agent/*`.
#[derive(Clone, Debug)]
pub struct RefPattern {
    written: Arc<str>,
    matcher: GlobMatcher,
}

impl RefPattern {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./*+@".contains(&b);
        let right = text.starts_with("refs/")
            && text.len() <= 256
            && text.bytes().all(plain)
            && !text.split('/').any(|segment| matches!(segment, "" | "." | ".."));
        if !right {
            let instead = "write it in full, such as `refs/heads/agent/*`";
            return Err(NameError::new(text, "a ref pattern", instead));
        }
        let glob = segments(text, "a ref pattern")?;
        Ok(Self { written: text.into(), matcher: glob.compile_matcher() })
    }

    pub fn matches(&self, name: &str) -> bool {
        self.matcher.is_match(name)
    }

    pub fn as_str(&self) -> &str {
        &self.written
    }
}

from_text!(RefPattern, "RefPattern", "A git ref such as `refs/heads/agent/*`.", pattern = "^refs/");

/// A pattern for files in the project, such as `**/.env*`.
#[derive(Clone, Debug)]
pub struct FileGlob {
    written: Arc<str>,
    matcher: GlobMatcher,
}

impl FileGlob {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let pattern = text.strip_prefix("./").unwrap_or(text);
        let plain = |segment: &str| !matches!(segment, "" | "." | "..");
        let right = pattern.len() <= 1024
            && !pattern.contains(|c: char| c.is_control() || c == '\\')
            && pattern.split('/').all(plain);
        if !right {
            let instead = "write it relative to the project, without `..`, such as `**/.env*`";
            return Err(NameError::new(text, "a file pattern", instead));
        }
        let glob = segments(pattern, "a file pattern")?;
        Ok(Self { written: pattern.into(), matcher: glob.compile_matcher() })
    }

    /// Whether the pattern names this file, given relative to the project.
    pub fn matches(&self, file: &str) -> bool {
        self.matcher.is_match(file)
    }

    pub fn as_str(&self) -> &str {
        &self.written
    }
}

from_text!(FileGlob, "FileGlob", "Files in the project, such as `**/.env*` or `dist/**`.");

impl PartialEq for FileGlob {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

/// A pattern for a value: exact, but that `*` stands for any text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TextPattern(Arc<str>);

impl TextPattern {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > 1024 || text.contains(char::is_control) {
            let instead = "write the exact value, or `*` for any text";
            return Err(NameError::new(text, "a value pattern", instead));
        }
        Ok(Self(text.into()))
    }

    /// Each `*` is tried as short as possible; when what follows does not fit,
    /// the last one grows. One backtrack point is enough, so time is at most
    /// the product of the two lengths.
    pub fn matches(&self, value: &[u8]) -> bool {
        let pattern = self.0.as_bytes();
        let (mut at, mut seen, mut star) = (0, 0, None);
        while let Some(byte) = value.get(seen) {
            match pattern.get(at) {
                Some(b'*') => {
                    star = Some((at, seen));
                    at += 1;
                }
                Some(wanted) if wanted == byte => {
                    at += 1;
                    seen += 1;
                }
                _ => {
                    let Some((star_at, taken)) = star else { return false };
                    at = star_at + 1;
                    seen = taken + 1;
                    star = Some((star_at, taken + 1));
                }
            }
        }
        pattern.iter().skip(at).all(|byte| *byte == b'*')
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

from_text!(TextPattern, "TextPattern", "An exact value; `*` stands for any text.");

/// The language of paths, refs and files.
fn segments(pattern: &str, kind: &'static str) -> Result<Glob, NameError> {
    if pattern.contains(['[', ']', '{', '}', '?']) {
        let instead =
            "wildcards are `*` and `**`; write several patterns instead of `[`, `{` or `?`";
        return Err(NameError::new(pattern, kind, instead));
    }
    if pattern.split('/').any(|segment| segment.contains("**") && segment != "**") {
        let instead = "`**` stands for whole segments: write `/**/` or `/**` at the end";
        return Err(NameError::new(pattern, kind, instead));
    }
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .backslash_escape(false)
        .build()
        .map_err(|_| NameError::new(pattern, kind, "wildcards are `*` and `**`"))
}

shown_as_written!(FileGlob, PathPattern, RefPattern, TextPattern);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_stays_within_its_segment() {
        let pattern = PathPattern::parse("/repos/*/issues").unwrap().glob().compile_matcher();
        assert!(pattern.is_match("/repos/a/issues"));
        assert!(!pattern.is_match("/repos/a/b/issues"));
        let all = PathPattern::parse("/repos/ok/**").unwrap().glob().compile_matcher();
        assert!(all.is_match("/repos/ok/a/b") && all.is_match("/repos/ok/"));
        assert!(!all.is_match("/repos/ok") && !all.is_match("/repos/okay/a"));
    }

    #[test]
    fn a_pattern_that_means_something_else_than_it_looks_is_refused() {
        for bad in [
            "",
            "repos",
            "/a/../b",
            "/a//b",
            "/a?x=1",
            "/a#b",
            "/a[bc]",
            "/{a,b}",
            "/a**",
            "/%7euser",
            "/%2f",
            "/a\\b",
            "/a/%2e%2e/b",
            "/ä",
        ] {
            assert!(PathPattern::parse(bad).is_err(), "{bad:?}");
        }
        for good in ["/", "/a", "/a/", "/@scope%2Fname", "/a/*/b", "/**", "/a/**/b", "/a*b"] {
            assert!(PathPattern::parse(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn hidden_files_are_matched_like_any_other() {
        let env = FileGlob::parse("**/.env*").unwrap();
        assert!(env.matches(".env") && env.matches("a/b/.env.local"));
        assert!(!env.matches("a/env") && !env.matches(".envs/a"));
    }

    #[test]
    fn refs_are_matched_whole() {
        let agent = RefPattern::parse("refs/heads/agent/*").unwrap();
        assert!(agent.matches("refs/heads/agent/x"));
        assert!(!agent.matches("refs/heads/agent/x/y") && !agent.matches("refs/heads/main"));
        assert!(RefPattern::parse("main").is_err() && RefPattern::parse("refs/../x").is_err());
    }

    #[test]
    fn a_pattern_has_a_longest_length() {
        let refs = |length: usize| RefPattern::parse(&format!("refs/{}", "a".repeat(length - 5)));
        assert!(refs(256).is_ok() && refs(257).is_err());
        let file = |length: usize| FileGlob::parse(&"a".repeat(length));
        assert!(file(1024).is_ok() && file(1025).is_err());
        let text = |length: usize| TextPattern::parse(&"a".repeat(length));
        assert!(text(1024).is_ok() && text(1025).is_err());
        assert!(text(0).is_err() && TextPattern::parse("a\tb").is_err());
    }

    proptest! {
        /// The matcher agrees with the obvious recursive one.
        #[test]
        fn a_star_is_any_text(pattern in "[ab*]{1,8}", value in "[ab]{0,10}") {
            fn obvious(pattern: &[u8], value: &[u8]) -> bool {
                match pattern.split_first() {
                    None => value.is_empty(),
                    Some((b'*', rest)) => (0..=value.len()).any(|n| obvious(rest, &value[n..])),
                    Some((byte, rest)) => value.split_first().is_some_and(|(b, v)| b == byte && obvious(rest, v)),
                }
            }
            let matched = TextPattern::parse(&pattern).unwrap().matches(value.as_bytes());
            prop_assert_eq!(matched, obvious(pattern.as_bytes(), value.as_bytes()));
        }

        #[test]
        fn no_text_makes_a_pattern_panic(text in "\\PC{0,60}") {
            drop((PathPattern::parse(&text), RefPattern::parse(&text), FileGlob::parse(&text), TextPattern::parse(&text)));
        }
    }

    #[test]
    fn a_pattern_is_kept_as_written() {
        assert_eq!(RefPattern::parse("refs/heads/*").unwrap().as_str(), "refs/heads/*");
        assert_eq!(FileGlob::parse("./dist/**").unwrap().as_str(), "dist/**");
        assert_eq!(TextPattern::parse("a*").unwrap().as_str(), "a*");
        let [one, same, other] =
            ["./a/*", "a/*", "b/*"].map(|pattern| FileGlob::parse(pattern).unwrap());
        assert!(one == same && one != other);
    }

    #[test]
    fn a_file_pattern_cannot_break_a_line_or_name_a_windows_path() {
        for bad in ["a\nb", "a\\b", "a\u{1b}b", "/a", "a//b", "../a", "a/./b"] {
            assert!(FileGlob::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_star_takes_as_much_as_what_follows_needs() {
        let matches = |pattern: &str, value: &str| {
            TextPattern::parse(pattern).unwrap().matches(value.as_bytes())
        };
        for (pattern, value) in
            [("*ab", "aab"), ("*b", "ab"), ("a*bc", "abbc"), ("*", ""), ("x*y*z", "xyyzz")]
        {
            assert!(matches(pattern, value), "{pattern} {value}");
        }
        for (pattern, value) in [("*ab", "aba"), ("a*bc", "abbcd"), ("a*", "ba"), ("*b", "")] {
            assert!(!matches(pattern, value), "{pattern} {value}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_path_pattern_is_said() {
        let why = |text: &str| PathPattern::parse(text).unwrap_err().to_string();
        for text in ["/;x/y", "/a/;b/c", "/%E3%80%82%E3%80%82/x"] {
            assert!(why(text).contains("write it without parameters"), "{}", why(text));
        }
        for text in ["/a/../b", "/a//b", "/a\\b", "/a b"] {
            assert!(why(text).contains("write one plain path"), "{}", why(text));
        }
        assert!(why("/%61").contains("write it unescaped where possible"));
    }
}
