//! How a command ends, as its caller sees it.

use std::process::ExitCode;

use files::printable::Printable;
use policies::Problems;

/// The exit codes; all but the last are of verbs that run no command of the user's.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[must_use]
// From the best to the worst: of several files, the worst one counts.
pub enum Exit {
    /// 0: done; also when the reader of our output left early.
    Success,
    /// 3: policy would not allow it, and the caller asked to be told that way.
    Denied,
    /// 1: it did not work, or what was checked did not hold.
    Failed,
    /// 2: the command line or a policy is wrong.
    Invalid,
    /// What the user's own command ended with.
    Command(u8),
}

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Invalid => 2,
            Self::Denied => 3,
            Self::Command(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// Why a verb stopped before it had an answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
    /// Whoever read our output has left, as `head` does. Not worth a word.
    #[error("nobody reads the output")]
    OutputClosed,
    /// A command or a session was not started; the code is not a command's own.
    #[error(transparent)]
    NotStarted(anyhow::Error),
    #[error(transparent)]
    Policy(#[from] Problems),
    #[error("{0}")]
    Usage(String),
}

impl Failure {
    /// The same failure of a verb whose exit code is the command's own: 1 would say
    /// that the command ran.
    pub fn before_the_command(self) -> Self {
        match self {
            Self::Failed(err) => Self::NotStarted(err),
            Self::NotStarted(_) | Self::OutputClosed | Self::Policy(_) | Self::Usage(_) => self,
        }
    }

    /// What is told of it, with its causes, harmless for a terminal.
    pub fn in_one_line(&self) -> String {
        match self {
            Self::Failed(err) | Self::NotStarted(err) => Printable(&format!("{err:#}")).to_string(),
            Self::OutputClosed | Self::Policy(_) | Self::Usage(_) => {
                Printable(&self.to_string()).to_string()
            }
        }
    }

    pub fn exit(&self) -> Exit {
        match self {
            Self::Failed(_) => Exit::Failed,
            Self::NotStarted(_) => Exit::Command(NOT_STARTED),
            Self::OutputClosed => Exit::Success,
            Self::Policy(_) | Self::Usage(_) => Exit::Invalid,
        }
    }
}

/// As `env` and `timeout` say it.
const NOT_STARTED: u8 = 125;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_several_files_decides() {
        let worst = [Exit::Failed, Exit::Invalid, Exit::Success].into_iter().max();
        assert_eq!(worst.map(Exit::code), Some(2));
    }
}
