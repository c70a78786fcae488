//! What is wrong with a file, all of it, in words its author can act on.
//!
//! A [`Problem`] says where (file, line, column, the path of fields), quotes
//! the line, and says what to write instead. Readers collect problems rather
//! than stop at the first: an author who fixes one error per attempt stops
//! trusting the tool before the file is right.

use std::fmt;
use std::sync::Arc;

use crate::quoted_input::PrintableMessage;

/// A text with the name a person knows it by.
#[derive(Clone, Debug)]
pub struct Source {
    pub name: Arc<str>,
    pub text: Arc<str>,
}

impl Source {
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// A problem at `at`, quoting that line.
    pub fn problem(
        &self,
        at: Position,
        path: impl Into<String>,
        message: impl Into<String>,
    ) -> Problem {
        let line = self.text.lines().nth(at.line.saturating_sub(1)).unwrap_or_default();
        Problem {
            source: Arc::clone(&self.name),
            at: Some(at),
            path: path.into(),
            message: message.into(),
            quoted: line.chars().take(MAX_LINE_CHARS).collect(),
        }
    }

    /// A problem of the file as a whole.
    pub fn whole(&self, message: impl Into<String>) -> Problem {
        Problem {
            source: Arc::clone(&self.name),
            at: None,
            path: String::new(),
            message: message.into(),
            quoted: String::new(),
        }
    }
}

/// A place in a text. Both count from one, as editors do; columns count
/// characters.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Position {
    pub line: usize,
    pub column: usize,
    /// How many characters the thing takes on its line; for the underline only.
    pub width: usize,
}

/// One thing that is wrong, and where.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    pub source: Arc<str>,
    pub at: Option<Position>,
    /// Such as `net.allow[2].host`; empty for the document itself.
    pub path: String,
    pub message: String,
    quoted: String,
}

impl Problem {
    /// The line it stands on, as written.
    pub fn quoted(&self) -> &str {
        &self.quoted
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        let Some(Position { line, column, width }) = self.at else {
            return write!(f, ": {}", PrintableMessage(&self.message));
        };
        write!(f, ":{line}:{column}: ")?;
        if !self.path.is_empty() {
            write!(f, "{}: ", PrintableMessage(&self.path))?;
        }
        write!(f, "{}", PrintableMessage(&self.message))?;
        if self.quoted.trim().is_empty() {
            return Ok(());
        }
        let left = self.quoted.chars().count().saturating_sub(column.saturating_sub(1));
        let gutter = line.to_string().len();
        write!(f, "\n  {line} | {}", PrintableMessage(&self.quoted))?;
        write!(f, "\n  {:gutter$} | {:indent$}", "", "", indent = column.saturating_sub(1))?;
        for _ in 0..width.clamp(1, left.max(1)) {
            f.write_str("^")?;
        }
        Ok(())
    }
}

/// Everything wrong with a file and with what it extends.
#[derive(Clone, Debug, Default, Eq, PartialEq, thiserror::Error)]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    pub fn append(&mut self, mut others: Problems) {
        self.0.append(&mut others.0);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    /// `value` when nothing was found wrong, else what was.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self.in_reading_order()) }
    }

    /// As a person meets them: file by file, line by line. Files stay in the
    /// order in which they were read.
    #[must_use]
    pub fn in_reading_order(mut self) -> Self {
        let mut files: Vec<Arc<str>> = Vec::new();
        for problem in &self.0 {
            if !files.contains(&problem.source) {
                files.push(Arc::clone(&problem.source));
            }
        }
        self.0.sort_by_key(|problem| {
            let file = files.iter().position(|name| *name == problem.source);
            // What is wrong with a file as a whole comes after its lines.
            (file, problem.at.is_none(), problem.at)
        });
        self
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

/// The closest of `known` to what was written, where one is close enough to
/// be a slip of the finger.
pub fn did_you_mean<'k>(
    written: &str,
    known: impl IntoIterator<Item = &'k str>,
) -> Option<&'k str> {
    known
        .into_iter()
        .map(|candidate| (distance(written, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.chars().count() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many characters must be put in, taken out, changed or swapped with
/// their neighbour to get from one to the other.
fn distance(from: &str, to: &str) -> usize {
    let from: Vec<char> = from.chars().take(MAX_LINE_CHARS).collect();
    let to: Vec<char> = to.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for (row, a) in from.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, b) in to.iter().enumerate() {
            let cell = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX - 1);
            let mut best = (cell(&above, column) + usize::from(a != b))
                .min(cell(&above, column + 1) + 1)
                .min(cell(&current, column) + 1);
            let swapped = row > 0
                && column > 0
                && from.get(row - 1) == Some(b)
                && to.get(column - 1) == Some(a);
            if swapped {
                best = best.min(cell(&before, column - 1) + 1);
            }
            current.push(best);
        }
        before = std::mem::replace(&mut above, current);
    }
    above.last().copied().unwrap_or_default()
}

/// Enough of a line to recognise it, little enough to print.
const MAX_LINE_CHARS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_problem_quotes_the_line_and_underlines_the_place() {
        let source = Source::new("p.yaml", "version: 1\nnet: {enabled: maybe}\n");
        let at = Position { line: 2, column: 16, width: 5 };
        expect![[r#"
            p.yaml:2:16: net.enabled: expected true or false
              2 | net: {enabled: maybe}
                |                ^^^^^"#]]
        .assert_eq(&source.problem(at, "net.enabled", "expected true or false").to_string());
    }

    #[test]
    fn terminal_escapes_in_a_file_are_shown_not_obeyed() {
        let source = Source::new("p.yaml", "name: \u{1b}[2Jx\u{202e}y\n");
        let shown =
            source.problem(Position { line: 1, column: 1, width: 4 }, "", "bad").to_string();
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown:?}");
        assert!(shown.contains("\\u{1b}[2Jx\\u{202e}y"), "{shown:?}");
    }

    #[test]
    fn a_slip_of_the_finger_is_recognised_and_a_different_word_is_not() {
        let known = ["host", "methods", "paths"];
        assert_eq!(did_you_mean("hots", known), Some("host"));
        assert_eq!(did_you_mean("method", known), Some("methods"));
        assert_eq!(did_you_mean("colour", known), None);
    }

    #[test]
    fn a_distance_counts_slips_of_the_finger() {
        for (from, to, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("paths", "paths", 0),
            ("path", "paths", 1),
            ("pathss", "paths", 1),
            ("pxths", "paths", 1),
            ("ptahs", "paths", 1),
            ("apths", "paths", 1),
            ("pahts", "paths", 1),
            ("paht", "paths", 2),
            ("ab", "ba", 1),
            ("abcd", "badc", 2),
            ("host", "query", 5),
            ("aab", "aba", 1),
        ] {
            assert_eq!(distance(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn only_a_slip_is_taken_for_a_known_word() {
        assert_eq!(did_you_mean("hots", ["host", "paths"]), Some("host"));
        assert_eq!(did_you_mean("hosts", ["host"]), Some("host"));
        assert_eq!(did_you_mean("abcd", ["host"]), None);
        assert_eq!(did_you_mean("xx", ["ab"]), None);
    }

    #[test]
    fn a_problem_keeps_the_line_and_problems_are_counted() {
        let source = Source::new("p.yaml", "version: 1\nnet: x\n");
        let problem = source.problem(Position { line: 2, column: 6, width: 1 }, "net", "bad");
        assert_eq!(problem.quoted(), "net: x");
        assert!(Problems::default().is_empty());
        let problems = Problems::from(problem.clone());
        assert!(!problems.is_empty());
        assert_eq!((problems.len(), problems.iter().next()), (1, Some(&problem)));
        assert!(problems.or(()).is_err());
    }

    #[test]
    fn problems_are_told_file_by_file_and_line_by_line() {
        let (own, other) = (Source::new("own", "a\nb\n"), Source::new("other", "a\nb\n"));
        let at = |line| Position { line, column: 1, width: 1 };
        let mut problems = Problems::default();
        problems.push(own.whole("whole"));
        problems.push(other.problem(at(2), "", "second of other"));
        problems.push(own.problem(at(2), "", "second"));
        problems.push(other.problem(at(1), "", "first of other"));
        problems.push(own.problem(at(1), "", "first"));
        let order: Vec<_> = problems.in_reading_order().iter().map(|p| p.message.clone()).collect();
        assert_eq!(order, ["first", "second", "whole", "first of other", "second of other"]);
    }

    #[test]
    fn a_longer_word_may_differ_more() {
        // One slip, and one more for every four letters of the known word.
        assert_eq!(did_you_mean("xbc", ["abc"]), Some("abc"));
        assert_eq!(did_you_mean("xyc", ["abc"]), None);
        assert_eq!(did_you_mean("xycd", ["abcd"]), Some("abcd"));
        assert_eq!(did_you_mean("xyzd", ["abcd"]), None);
        assert_eq!(did_you_mean("xyzdefgh", ["abcdefgh"]), Some("abcdefgh"));
        assert_eq!(did_you_mean("wxyzefgh", ["abcdefgh"]), None);
    }
}
