//! The caller's terminal: lent to the sandbox, and a person to ask.

pub(crate) mod filter;
mod modes;
pub(crate) mod output;
pub(crate) mod passes;

use std::io::{self, IsTerminal as _, Write as _};

use protocol::init::TerminalSize;
use rustix::termios::{
    OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetwinsize, tcsetattr,
};

/// The terminal in raw mode; as it was again when this is dropped.
#[derive(Debug)]
pub struct Raw {
    before: Termios,
    /// What becomes of what was typed and not read.
    after: OptionalActions,
}

impl Raw {
    /// From now on every key goes to the sandbox, Ctrl-C among them.
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self { before, after: OptionalActions::Drain })
    }

    /// What is not read by the end is thrown away.
    fn forget_input(&mut self) {
        self.after = OptionalActions::Flush;
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        tcsetattr(io::stdin(), self.after, &self.before).ok();
    }
}

/// How large the terminal is; nothing if it is none.
pub fn size() -> Option<TerminalSize> {
    let found = tcgetwinsize(io::stdout()).ok()?;
    let size = TerminalSize { columns: found.ws_col, rows: found.ws_row };
    (size.columns > 0 && size.rows > 0).then_some(size)
}

/// How large the terminal is, or how large one usually is.
pub fn size_or_usual() -> TerminalSize {
    size().unwrap_or(TerminalSize { columns: 80, rows: 24 })
}

/// Whether there is somebody who sees a question and can answer it.
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a question; anything but a yes is a no. What was typed before it was asked
/// is no answer to it.
pub fn ask(question: &str) -> bool {
    tcflush(io::stdin(), QueueSelector::IFlush).ok();
    let mut screen = io::stderr();
    drop(screen.write_all(question.as_bytes()).and_then(|()| screen.flush()));
    // A byte at a time: what comes after the line is for the command.
    let mut line = Vec::new();
    let mut byte = [0];
    while let Ok(1) = rustix::io::retry_on_intr(|| rustix::io::read(io::stdin(), &mut byte)) {
        match byte {
            [b'\n'] => {
                let said = line.trim_ascii().to_ascii_lowercase();
                return said == b"y" || said == b"yes";
            }
            [other] if line.len() < MAX_ANSWER_BYTES => line.push(other),
            _ => {}
        }
    }
    // The input ended in the middle of a line, or there was none.
    drop(writeln!(screen));
    false
}

const MAX_ANSWER_BYTES: usize = 80;
