//! What the host asks of a sandbox that is kept for several commands.
//!
//! One connection, one [`Ask`], in one frame: its length in four bytes, most
//! significant first, then fields that each end with a zero byte, since neither
//! an argument nor a variable can hold one. A field is a word, a space and the
//! rest; the first says what is asked.
//!
//! ```text
//! hello                 who is there: facts, then `ready`
//! end                   everything ends: facts, then `ended`
//! run                   one command
//!   pipes               its three descriptors come with the frame
//!   terminal 80x24      or: its terminal goes back with `started`
//!   deadline 1500       milliseconds; at most one
//!   directory /srv      at most one
//!   env NAME=VALUE      any number
//!   arg WORD            at least one, the program first
//! ```
//!
//! To a command the answer is `started` or `ended unstartable`, then, when it
//! ends, facts and `ended`. Meanwhile the host may say `signal`, `size` and
//! `kill`; when it hangs up, the command's process group is ended.

use std::fmt;
use std::time::Duration;

use super::NotAMessage;

/// A frame longer than this is none of ours; the kernel takes no more
/// arguments either.
pub const LONGEST_ASK: usize = 2 << 20;

/// What one connection is for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ask {
    End,
    Hello,
    Run(Command),
}

/// A command of a session.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Command {
    /// The program first; never empty.
    pub words: Vec<String>,
    /// Where it starts, if not where the sandbox does.
    pub directory: Option<String>,
    /// Beside what every command of the sandbox has.
    pub environment: Vec<(String, String)>,
    pub streams: Streams,
    pub deadline: Option<Duration>,
}

/// How a command is connected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Streams {
    Pipes,
    Terminal(Size),
}

/// The size of a terminal: `80x24`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Size {
    pub columns: u16,
    pub rows: u16,
}

impl Size {
    pub fn parse(text: &str) -> Option<Self> {
        let (columns, rows) = text.split_once('x')?;
        Some(Self { columns: columns.parse().ok()?, rows: rows.parse().ok()? })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.columns, self.rows)
    }
}

impl Ask {
    /// The frame, its length first. Nothing if it is too long, or if a word
    /// holds a zero byte.
    pub fn frame(&self) -> Option<Vec<u8>> {
        let mut fields = Vec::new();
        match self {
            Self::End => fields.push("end".to_owned()),
            Self::Hello => fields.push("hello".to_owned()),
            Self::Run(command) => {
                fields.push("run".to_owned());
                fields.push(match command.streams {
                    Streams::Pipes => "pipes".to_owned(),
                    Streams::Terminal(size) => format!("terminal {size}"),
                });
                fields.extend(command.deadline.map(|at| format!("deadline {}", at.as_millis())));
                fields.extend(command.directory.iter().map(|path| format!("directory {path}")));
                let set = command.environment.iter();
                fields.extend(set.map(|(name, value)| format!("env {name}={value}")));
                fields.extend(command.words.iter().map(|word| format!("arg {word}")));
            }
        }
        let mut body = Vec::new();
        for field in fields {
            if field.contains('\0') {
                return None;
            }
            body.extend_from_slice(field.as_bytes());
            body.push(0);
        }
        let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= LONGEST_ASK)?;
        let mut frame = length.to_be_bytes().to_vec();
        frame.append(&mut body);
        Some(frame)
    }

    /// Reads what stands in a frame after its length.
    pub fn parse(body: &[u8]) -> Result<Self, NotAMessage> {
        let wrong = || NotAMessage::of(&String::from_utf8_lossy(body));
        let text = std::str::from_utf8(body).map_err(|_| wrong())?;
        let mut fields = text.strip_suffix('\0').ok_or_else(wrong)?.split('\0');
        let ask = match fields.next() {
            Some("end") => Self::End,
            Some("hello") => Self::Hello,
            Some("run") => return Self::command(fields).ok_or_else(wrong),
            Some(_) | None => return Err(wrong()),
        };
        if fields.next().is_none() { Ok(ask) } else { Err(wrong()) }
    }

    fn command<'f>(fields: impl Iterator<Item = &'f str>) -> Option<Self> {
        let mut streams = None;
        let mut command = Command {
            words: Vec::new(),
            directory: None,
            environment: Vec::new(),
            streams: Streams::Pipes,
            deadline: None,
        };
        for field in fields {
            let (word, rest) = field.split_once(' ').unwrap_or((field, ""));
            let twice = match word {
                "arg" if field.len() > word.len() => {
                    command.words.push(rest.to_owned());
                    false
                }
                "env" => {
                    let (name, value) =
                        rest.split_once('=').filter(|(name, _)| !name.is_empty())?;
                    command.environment.push((name.to_owned(), value.to_owned()));
                    false
                }
                "deadline" => {
                    let millis = Duration::from_millis(rest.parse().ok()?);
                    command.deadline.replace(millis).is_some()
                }
                "directory" if !rest.is_empty() => {
                    command.directory.replace(rest.to_owned()).is_some()
                }
                "pipes" if rest.is_empty() => streams.replace(Streams::Pipes).is_some(),
                "terminal" => streams.replace(Streams::Terminal(Size::parse(rest)?)).is_some(),
                _ => return None,
            };
            if twice {
                return None;
            }
        }
        command.streams = streams?;
        (!command.words.is_empty()).then_some(Self::Run(command))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn body(frame: &[u8]) -> &[u8] {
        let (length, body) = frame.split_at(4);
        assert_eq!(u32::from_be_bytes(length.try_into().unwrap()) as usize, body.len());
        body
    }

    #[test]
    fn what_is_not_understood_is_refused_whole() {
        for wrong in [
            "",
            "hello",
            "hello\0more\0",
            "end now\0",
            "run\0",
            "run\0pipes\0",
            "run\0arg ls\0",
            "run\0pipes\0pipes\0arg ls\0",
            "run\0pipes\0terminal 80x24\0arg ls\0",
            "run\0terminal 80\0arg ls\0",
            "run\0terminal 80x99999\0arg ls\0",
            "run\0pipes\0arg\0",
            "run\0pipes\0env =x\0arg ls\0",
            "run\0pipes\0env X\0arg ls\0",
            "run\0pipes\0deadline -1\0arg ls\0",
            "run\0pipes\0deadline 1\0deadline 2\0arg ls\0",
            "run\0pipes\0directory \0arg ls\0",
            "run\0pipes\0umask 0\0arg ls\0",
            "run\0pipes\0arg ls",
        ] {
            assert!(Ask::parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        assert!(Ask::parse(b"run\0pipes\0arg \xff\0").is_err());
    }

    #[test]
    fn what_a_frame_cannot_hold_is_not_sent() {
        let command = |word: String| {
            Ask::Run(Command {
                words: vec![word],
                directory: None,
                environment: Vec::new(),
                streams: Streams::Pipes,
                deadline: None,
            })
        };
        assert_eq!(command("a\0arg b".to_owned()).frame(), None);
        assert_eq!(command("a".repeat(LONGEST_ASK)).frame(), None);
    }

    fn words() -> impl Strategy<Value = String> {
        "[^\u{0}]{0,12}"
    }

    prop_compose! {
        fn commands()(
            words in prop::collection::vec(words(), 1..5),
            directory in prop::option::of("/[^\u{0}]{0,12}"),
            environment in prop::collection::vec(("[A-Za-z_]{1,6}", words()), 0..4),
            size in prop::option::of((any::<u16>(), any::<u16>())),
            deadline in prop::option::of(any::<u32>()),
        ) -> Command {
            Command {
                words,
                directory,
                environment,
                streams: match size {
                    Some((columns, rows)) => Streams::Terminal(Size { columns, rows }),
                    None => Streams::Pipes,
                },
                deadline: deadline.map(|millis| Duration::from_millis(millis.into())),
            }
        }
    }

    proptest! {
        #[test]
        fn a_command_arrives_as_it_was_sent(command in commands()) {
            let ask = Ask::Run(command);
            let frame = ask.frame().unwrap();
            prop_assert_eq!(Ask::parse(body(&frame)), Ok(ask));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(ask) = Ask::parse(&bytes) {
                let again = ask.frame().unwrap();
                prop_assert_eq!(Ask::parse(body(&again)), Ok(ask));
            }
        }

        #[test]
        fn any_fields_are_read_or_refused(
            fields in prop::collection::vec("(run|arg|env|pipes|deadline|terminal)( [a-z0-9=x]{0,5})?", 0..6)
        ) {
            let body: String = fields.iter().map(|field| format!("{field}\0")).collect();
            if let Ok(ask) = Ask::parse(body.as_bytes()) {
                prop_assert!(ask.frame().is_some());
            }
        }
    }
}
