//! What the runner and the first process of a sandbox say to each other.
//!
//! One line a message, words apart by one space, the last of them free text.
//! The side in the sandbox is ours too, and still the runner reads with limits:
//! a line is short, and what is not understood is an error.
//!
//! ```text
//! sandbox: fact NAME VALUE ...   ready
//! runner:  go                        or hangs up, and nothing was run
//! runner:  signal N | kill
//! sandbox: fact NAME VALUE ...   ended HOW
//! ```
//!
//! A sandbox that is kept for several commands is told `serve` in place of `go`,
//! and a listening socket comes with it: from then on it answers whoever
//! connects there, as [`ask`] says, whether its runner lives or not.

pub mod ask;

use std::fmt;

use ask::Size;

/// A line longer than this is no message of ours.
pub const LONGEST: usize = 64 * 1024;

/// From the sandbox to the runner.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Report {
    /// How the command ended; the last line.
    Ended(End),
    /// Something measured, before the command or after it.
    Fact { name: String, value: String },
    /// Everything is measured; the command waits for `go`.
    Ready,
    /// A command of a session has begun; its terminal comes with this.
    Started,
}

/// How the command ended, as its parent saw it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum End {
    /// The deadline came first.
    Deadline,
    Exited(u8),
    Signaled(u8),
    /// It could not be started: 126 or 127, and why.
    Unstartable {
        code: u8,
        why: String,
    },
}

/// From the runner to the sandbox.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Order {
    Go,
    /// End everything now; in a session, one command.
    Kill,
    /// Serve the socket that comes with this.
    Serve,
    Signal(u8),
    /// A command's terminal has another size.
    Size(Size),
}

/// A line that is none of ours.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a message between a runner and its sandbox")]
pub struct NotAMessage(String);

impl NotAMessage {
    /// Of what was received, as much as fits into a message to people.
    fn of(received: &str) -> Self {
        Self(received.chars().filter(|c| !c.is_control()).take(80).collect())
    }
}

impl Report {
    /// Reads one line, without its end.
    pub fn parse(line: &str) -> Result<Self, NotAMessage> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let report = match word {
            "ended" => End::parse(rest).map(Self::Ended),
            "fact" => rest
                .split_once(' ')
                .map(|(name, value)| Self::Fact { name: name.to_owned(), value: value.to_owned() }),
            "ready" if rest.is_empty() => Some(Self::Ready),
            "started" if rest.is_empty() => Some(Self::Started),
            _ => None,
        };
        report.ok_or_else(|| NotAMessage::of(line))
    }
}

impl End {
    fn parse(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "deadline" if rest.is_empty() => Some(Self::Deadline),
            "exited" => rest.parse().ok().map(Self::Exited),
            "signaled" => rest.parse().ok().map(Self::Signaled),
            "unstartable" => {
                let (code, why) = rest.split_once(' ')?;
                Some(Self::Unstartable { code: code.parse().ok()?, why: why.to_owned() })
            }
            _ => None,
        }
    }
}

impl Order {
    /// Reads one line, without its end.
    pub fn parse(line: &str) -> Result<Self, NotAMessage> {
        match line.split_once(' ') {
            None if line == "go" => Ok(Self::Go),
            None if line == "kill" => Ok(Self::Kill),
            None if line == "serve" => Ok(Self::Serve),
            Some(("signal", number)) => {
                number.parse().map(Self::Signal).map_err(|_| NotAMessage::of(line))
            }
            Some(("size", size)) => {
                Size::parse(size).map(Self::Size).ok_or_else(|| NotAMessage::of(line))
            }
            _ => Err(NotAMessage::of(line)),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(End::Deadline) => f.write_str("ended deadline"),
            Self::Ended(End::Exited(code)) => write!(f, "ended exited {code}"),
            Self::Ended(End::Signaled(number)) => write!(f, "ended signaled {number}"),
            Self::Ended(End::Unstartable { code, why }) => {
                write!(f, "ended unstartable {code} {}", one_line(why))
            }
            Self::Fact { name, value } => write!(f, "fact {name} {}", one_line(value)),
            Self::Ready => f.write_str("ready"),
            Self::Started => f.write_str("started"),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Go => f.write_str("go"),
            Self::Kill => f.write_str("kill"),
            Self::Serve => f.write_str("serve"),
            Self::Signal(number) => write!(f, "signal {number}"),
            Self::Size(size) => write!(f, "size {size}"),
        }
    }
}

/// Text that cannot end its line early.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST / 8).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_understood_is_an_error_not_a_guess() {
        let half = ["", "ended", "ended exited", "ended exited 256", "fact x", "ready now", "go"];
        for line in half.into_iter().chain(["started 1"]) {
            assert!(Report::parse(line).is_err(), "{line:?}");
        }
        for line in ["", "signal", "signal -1", "signal 9 9", "size 80", "size 8x", "ready"] {
            assert!(Order::parse(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn orders_read_back_as_themselves() {
        let size = Order::Size(Size { columns: 80, rows: 24 });
        for order in [Order::Go, Order::Kill, Order::Serve, Order::Signal(15), size] {
            assert_eq!(Order::parse(&order.to_string()), Ok(order));
        }
    }

    proptest! {
        #[test]
        fn no_value_becomes_a_second_message(name in "[a-z_]{1,20}", value: String) {
            let report = Report::Fact { name, value };
            let line = report.to_string();
            prop_assert!(!line.contains('\n') && line.len() < LONGEST);
            let is_fact = matches!(Report::parse(&line), Ok(Report::Fact { .. }));
            prop_assert!(is_fact);
        }

        #[test]
        fn any_line_is_read_or_refused(line: String) {
            if let Ok(report) = Report::parse(&line) {
                prop_assert_eq!(Report::parse(&report.to_string()).is_ok(), true);
            }
        }
    }
}
