//! The caller's terminal, lent to the sandbox.

use std::io;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::backend::TerminalSize;

/// The terminal in raw mode; as it was again when this is dropped.
#[derive(Debug)]
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// From now on every key goes to the sandbox, Ctrl-C among them.
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        tcsetattr(io::stdin(), OptionalActions::Drain, &self.before).ok();
    }
}

/// How large the terminal is; nothing if it is none.
pub fn size() -> Option<TerminalSize> {
    let found = tcgetwinsize(io::stdout()).ok()?;
    let size = TerminalSize { columns: found.ws_col, rows: found.ws_row };
    (size.columns > 0 && size.rows > 0).then_some(size)
}
