//! What a command changed about the caller's terminal, and how that is undone.
//!
//! Only what passed is followed, so only what was changed is reset: a command that
//! prints text leaves not a byte more on the terminal than its text.

use std::collections::BTreeSet;
use std::time::Instant;

/// How a terminal is left.
#[derive(Debug, Default)]
pub(super) struct Modes {
    /// Private modes that are not as they were found; 7 and 25 are on by default.
    private: BTreeSet<u16>,
    colours: bool,
    inserting: bool,
    region: bool,
    keypad: bool,
    shape: bool,
    charsets: bool,
    other_keys: bool,
    /// Keyboard settings that were pushed, on the first screen and the second.
    pushed: [u16; 2],
    /// When the terminal was last asked something.
    pub(super) asked: Option<Instant>,
}

const SECOND_SCREEN: [u16; 3] = [47, 1047, 1049];

impl Modes {
    /// Notes what a control sequence does; whether it may be done.
    pub(super) fn control(&mut self, marks: &[u8], params: &[Vec<u16>], last: char) -> bool {
        let first = params.first().and_then(|one| one.first()).copied().unwrap_or_default();
        let screen = usize::from(SECOND_SCREEN.iter().any(|mode| self.private.contains(mode)));
        match (marks, last) {
            (b"", 'm') => self.colours = true,
            (b"", 'r') => self.region = true,
            (b"", 'h' | 'l') => self.inserting = last == 'h',
            (b"?", 'h' | 'l') => {
                for mode in params.iter().flatten() {
                    let is_usual = (last == 'h') == matches!(mode, 7 | 25);
                    match is_usual {
                        true => drop(self.private.remove(mode)),
                        // The cursor is kept there, and nothing else is changed.
                        false if *mode == 1048 => {}
                        false => drop(self.private.insert(*mode)),
                    }
                }
            }
            (b" ", 'q') => self.shape = true,
            (b">", 'm' | 'n') => self.other_keys = true,
            (b">", 'u') => {
                if let Some(pushed) = self.pushed.get_mut(screen) {
                    *pushed = pushed.saturating_add(1);
                }
            }
            // What the caller had pushed is the caller's.
            (b"<", 'u') => match self.pushed.get_mut(screen) {
                Some(pushed) if *pushed >= first.max(1) => *pushed -= first.max(1),
                Some(_) | None => return false,
            },
            (b"=", 'u') => return self.pushed.get(screen).is_some_and(|pushed| *pushed > 0),
            _ => {}
        }
        true
    }

    pub(super) fn escape(&mut self, marks: &[u8], last: u8) {
        match (marks, last) {
            (b"", b'=') => self.keypad = true,
            (b"", b'>') => self.keypad = false,
            (b"(" | b")", _) => self.charsets = true,
            _ => {}
        }
    }

    pub(super) fn character(&mut self, byte: u8) {
        if byte == b'\x0e' {
            self.charsets = true;
        }
    }

    /// Puts everything back as it is found usually; forgets what was changed.
    pub(super) fn reset(&mut self) -> String {
        let before = std::mem::take(self);
        self.asked = before.asked;
        let mut out = String::new();
        let [first, second] = before.pushed;
        let on_second = SECOND_SCREEN.iter().find(|mode| before.private.contains(mode));
        if on_second.is_some() && second > 0 {
            out.push_str(&format!("\x1b[<{second}u"));
        }
        for mode in before.private.iter().filter(|mode| !SECOND_SCREEN.contains(mode)) {
            let to = if matches!(mode, 7 | 25) { 'h' } else { 'l' };
            out.push_str(&format!("\x1b[?{mode}{to}"));
        }
        if before.region {
            // That moves the cursor, which is to stay.
            out.push_str("\x1b7\x1b[r\x1b8");
        }
        if let Some(mode) = on_second {
            out.push_str(&format!("\x1b[?{mode}l"));
        }
        if first > 0 {
            out.push_str(&format!("\x1b[<{first}u"));
        }
        for (changed, undone) in [
            (before.inserting, "\x1b[4l"),
            (before.other_keys, "\x1b[>4m"),
            (before.keypad, "\x1b>"),
            (before.shape, "\x1b[0 q"),
            (before.charsets, "\x1b(B\x1b)B\x0f"),
            (before.colours, "\x1b[0m"),
        ] {
            if changed {
                out.push_str(undone);
            }
        }
        out
    }
}
