//! Takes the dangerous part out of what a command wrote to its terminal.
//!
//! A terminal obeys what it is shown: it can be told to answer (which then looks
//! typed), to fill the clipboard, to change its title. [`Keep::Text`] keeps words
//! alone; [`Keep::Drawing`] keeps also what a replay needs (colours, moving the
//! cursor, erasing) from a list. What is not on the list is dropped, so a
//! sequence nobody thought of does nothing.

use crate::shown::is_deceptive;

/// What passes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Keep {
    /// Text, and what draws it.
    Drawing,
    /// Text, tabs and ends of lines.
    Text,
}

/// A filter that text is fed to piece by piece.
#[derive(Debug)]
pub(crate) struct Filter {
    keep: Keep,
    state: State,
    /// The sequence so far.
    sequence: String,
    /// For [`Keep::Text`]: a carriage return waits for what comes.
    returned: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// `ESC (` and the like: one character names a set.
    Charset,
    /// `ESC [`, until a final character.
    Control,
    /// `ESC`.
    Escape,
    Ground,
    /// `ESC ]`, `ESC P`, ...: until the terminator or a bell.
    Words,
    /// The same after an `ESC`, which may begin the terminator.
    WordsEscape,
}

/// No sequence we let through is longer.
const LONGEST: usize = 64;

impl Filter {
    pub(crate) fn new(keep: Keep) -> Self {
        Self { keep, state: State::Ground, sequence: String::new(), returned: false }
    }

    /// What passes of `text`.
    pub(crate) fn pass(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for character in text.chars() {
            self.character(character, &mut out);
        }
        out
    }

    fn character(&mut self, character: char, out: &mut String) {
        // These end whatever was going on.
        if matches!(character, '\u{18}' | '\u{1a}') {
            self.state = State::Ground;
            return;
        }
        self.state = match (self.state, character) {
            (State::WordsEscape, '\\') => State::Ground,
            (State::Words | State::WordsEscape, '\u{7}' | '\u{9c}') => State::Ground,
            (State::Words | State::WordsEscape, '\u{1b}') => State::WordsEscape,
            (State::Words | State::WordsEscape, _) => State::Words,
            (_, '\u{1b}') => {
                self.sequence.clear();
                State::Escape
            }
            // One character for what takes two elsewhere.
            (_, '\u{9b}') => {
                self.sequence = "[".to_owned();
                State::Control
            }
            (_, '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}') => State::Words,
            (State::Escape, '[') => {
                self.sequence.push('[');
                State::Control
            }
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => State::Words,
            (State::Escape, '(' | ')') => {
                self.sequence.push(character);
                State::Charset
            }
            // `ESC % G`, `ESC # 8`: one more follows, none is let through.
            (State::Escape, ' '..='/') => {
                self.sequence.push('?');
                State::Charset
            }
            (State::Escape, _) => {
                self.sequence.push(character);
                self.emit(matches!(character, '7' | '8' | 'D' | 'E' | 'M'), out);
                State::Ground
            }
            (State::Charset, _) => {
                self.sequence.push(character);
                let known = matches!(self.sequence.as_str(), "(B" | "(0" | ")B" | ")0");
                self.emit(known, out);
                State::Ground
            }
            (State::Control, '\u{20}'..='\u{3f}') => {
                if self.sequence.len() < LONGEST {
                    self.sequence.push(character);
                    State::Control
                } else {
                    // Too long to be meant well; its end is still awaited.
                    self.sequence = "[~".to_owned();
                    State::Control
                }
            }
            (State::Control, '\u{40}'..='\u{7e}') => {
                self.sequence.push(character);
                self.emit(draws(&self.sequence), out);
                State::Ground
            }
            // A control character inside a sequence acts at once, in terminals;
            // anything else breaks the sequence off.
            (State::Control, _) if character.is_control() => State::Control,
            (State::Control | State::Ground, _) => {
                self.plain(character, out);
                State::Ground
            }
        };
    }

    fn plain(&mut self, character: char, out: &mut String) {
        if self.keep == Keep::Drawing {
            let drawn =
                !character.is_control() || matches!(character, '\n' | '\r' | '\t' | '\u{8}');
            if drawn && !is_deceptive(character) {
                out.push(character);
            }
            return;
        }
        if std::mem::take(&mut self.returned) && character != '\n' && character != '\r' {
            // The line was begun anew, as progress bars do.
            out.push('\n');
        }
        match character {
            '\r' => self.returned = true,
            '\n' | '\t' => out.push(character),
            character if character.is_control() || is_deceptive(character) => {}
            character => out.push(character),
        }
    }

    fn emit(&mut self, allowed: bool, out: &mut String) {
        if allowed && self.keep == Keep::Drawing {
            out.push('\u{1b}');
            out.push_str(&self.sequence);
        }
        self.sequence.clear();
    }
}

/// Control sequences that draw and do nothing else.
fn draws(sequence: &str) -> bool {
    let Some((body, last)) = sequence.strip_prefix('[').and_then(|rest| {
        let last = rest.chars().next_back()?;
        Some((rest.strip_suffix(last)?, last))
    }) else {
        return false;
    };
    let numbers = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == ';' || c == ':');
    match last {
        // Modes: the cursor's visibility, wrapping, the second screen.
        'h' | 'l' => matches!(body, "?7" | "?25" | "?47" | "?1047" | "?1049"),
        'A'..='H'
        | 'J'
        | 'K'
        | 'L'
        | 'M'
        | 'P'
        | 'S'
        | 'T'
        | 'X'
        | '@'
        | 'd'
        | 'f'
        | 'm'
        | 'r'
        | 's'
        | 'u' => numbers(body),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pass(keep: Keep, text: &str) -> String {
        Filter::new(keep).pass(text)
    }

    #[test]
    fn text_alone_is_left() {
        let shown = pass(
            Keep::Text,
            "\u{1b}[1;31mred\u{1b}[0m \u{1b}]0;title\u{7}a\tb\r\n10%\r20%\r\n\u{202e}x",
        );
        assert_eq!(shown, "red a\tb\n10%\n20%\nx");
    }

    #[test]
    fn what_makes_a_terminal_answer_or_obey_never_passes() {
        for hostile in [
            "\u{1b}[6n", // where is the cursor? the answer looks typed
            "\u{1b}[c",  // who are you?
            "\u{1b}[>c",
            "\u{1b}]52;c;ZXZpbA==\u{7}", // the clipboard
            "\u{1b}]0;title\u{1b}\\",
            "\u{1b}P$q\"p\u{1b}\\",
            "\u{1b}[21t", // report the title
            "\u{1b}[?2004h",
            "\u{1b}[?1000h", // report the mouse
            "\u{1b}c",
            "\u{1b}_app\u{1b}\\",
            "\u{9d}52;c;x\u{9c}",
            "\u{9b}6n",
            "\u{5}", // answer back
            "\u{7}",
        ] {
            assert_eq!(pass(Keep::Drawing, hostile), "", "{hostile:?}");
            assert_eq!(pass(Keep::Text, hostile), "", "{hostile:?}");
        }
    }

    #[test]
    fn what_draws_passes_a_replay() {
        for drawing in
            ["\u{1b}[38;5;9m", "\u{1b}[2J", "\u{1b}[10;20H", "\u{1b}[?25l", "\u{1b}7", "\u{1b}(B"]
        {
            assert_eq!(pass(Keep::Drawing, drawing), drawing);
        }
    }

    proptest! {
        #[test]
        fn no_text_leaves_a_control_character(text in "[\u{1b}\\[\\]a-z0-9;?\u{7}\u{9b}\u{9c}\\\\\r\n\u{80}-\u{a0}]{0,40}") {
            let shown = pass(Keep::Text, &text);
            prop_assert!(shown.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'), "{shown:?}");
        }

        /// Cutting a sequence in two does not smuggle it through.
        #[test]
        fn pieces_pass_as_the_whole_does(text in "[\u{1b}\\[\\]()P6ncm;?0-9a\u{7}\\\\\r\n]{0,30}", cut in 0_usize..30) {
            for keep in [Keep::Drawing, Keep::Text] {
                let cut = cut.min(text.chars().count());
                let first: String = text.chars().take(cut).collect();
                let second: String = text.chars().skip(cut).collect();
                let mut filter = Filter::new(keep);
                prop_assert_eq!(filter.pass(&first) + &filter.pass(&second), pass(keep, &text));
            }
        }
    }
}
