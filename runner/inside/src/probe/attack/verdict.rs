//! What came of an attempt.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

/// What an attack finds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AttackVerdict {
    /// The attack worked.
    Broken(String),
    Held(String),
    /// Nothing was started, because the limit that it is aimed at cannot be kept
    /// here.
    Refused(String),
    /// Something that the attempt needs is not here.
    Untried(String),
}

/// One line of the report.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Attempt {
    pub id: String,
    pub name: String,
    pub tried: String,
    pub result: AttackOutcome,
    pub detail: String,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum AttackOutcome {
    #[serde(rename = "held")]
    Held,
    #[serde(rename = "refused to start")]
    Refused,
    #[serde(rename = "could not be tried")]
    Untried,
    #[serde(rename = "BROKEN")]
    Broken,
}

impl fmt::Display for AttackOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Held => "held",
            Self::Refused => "refused to start",
            Self::Untried => "could not be tried",
            Self::Broken => "BROKEN",
        })
    }
}

impl Attempt {
    pub fn new(id: &str, name: &str, tried: &str, verdict: AttackVerdict) -> Self {
        let (result, detail) = match verdict {
            AttackVerdict::Broken(detail) => (AttackOutcome::Broken, detail),
            AttackVerdict::Held(detail) => (AttackOutcome::Held, detail),
            AttackVerdict::Refused(detail) => (AttackOutcome::Refused, detail),
            AttackVerdict::Untried(detail) => (AttackOutcome::Untried, detail),
        };
        Self { id: id.to_owned(), name: name.to_owned(), tried: tried.to_owned(), result, detail }
    }
}

impl From<Attempt> for AttackVerdict {
    fn from(attempt: Attempt) -> Self {
        match attempt.result {
            AttackOutcome::Broken => Self::Broken(attempt.detail),
            AttackOutcome::Held => Self::Held(attempt.detail),
            AttackOutcome::Refused => Self::Refused(attempt.detail),
            AttackOutcome::Untried => Self::Untried(attempt.detail),
        }
    }
}

impl AttackVerdict {
    pub(super) fn held(why: impl fmt::Display) -> Self {
        Self::Held(why.to_string())
    }

    pub(super) fn broken(what: impl fmt::Display) -> Self {
        Self::Broken(what.to_string())
    }

    /// Of an attempt whose success alone is the harm.
    pub(super) fn unless_done<T>(done: Result<T, impl Into<io::Error>>) -> Self {
        match done {
            Ok(_) => Self::broken("it was done"),
            Err(err) => Self::held(err.into()),
        }
    }

    /// Of an attempt whose arguments are wrong on purpose: what is not refused
    /// for want of permission was let in.
    pub(super) fn unless_let_in<T>(done: Result<T, impl Into<io::Error>>) -> Self {
        let err: io::Error = match done {
            Ok(_) => return Self::broken("it was done"),
            Err(err) => err.into(),
        };
        match err.raw_os_error() {
            Some(EPERM | EACCES | ENOSYS) => Self::held(err),
            _ => Self::broken(format_args!("the kernel let it in, and then said: {err}")),
        }
    }
}

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const ENOSYS: i32 = 38;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_argument_is_seen_only_by_a_kernel_that_let_us_in() {
        let after =
            |code| AttackVerdict::unless_let_in(Err::<(), _>(io::Error::from_raw_os_error(code)));
        assert!(matches!(after(EPERM), AttackVerdict::Held(_)));
        assert!(matches!(after(ENOSYS), AttackVerdict::Held(_)));
        assert!(matches!(after(22), AttackVerdict::Broken(_)));
    }

    #[test]
    fn a_line_reads_back_as_itself() {
        let attempt = Attempt::new("H1", "x", "tried", AttackVerdict::broken("it was done"));
        let line = serde_json::to_string(&attempt).unwrap();
        assert!(line.contains(r#""result":"BROKEN""#), "{line}");
        assert_eq!(serde_json::from_str::<Attempt>(&line).unwrap(), attempt);
    }
}
