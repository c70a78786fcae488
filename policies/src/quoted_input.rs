//! Input as error messages quote it.
//!
//! Errors quote their input, and the input is hostile: it may be long, hold
//! terminal escapes, or look like the end of a log line. A [`QuotedInput`] is cut
//! to a bounded length and made printable when it is made, so messages can print
//! it as it is.

use std::fmt::{self, Write as _};

/// Longer input is cut here and marked with `…`.
const MAX_QUOTED_CHARS: usize = 120;

/// A printable, bounded copy of some input.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct QuotedInput(Box<str>);

impl QuotedInput {
    pub(crate) fn of(input: &str) -> Self {
        Self::of_bytes(input.as_bytes())
    }

    pub(crate) fn of_bytes(input: &[u8]) -> Self {
        let mut shown = String::new();
        let mut left = MAX_QUOTED_CHARS;
        // A character has at most four bytes: the rest cannot be shown anyway.
        let (head, cut) = match input.split_at_checked(MAX_QUOTED_CHARS * 4) {
            Some((head, rest)) => (head, !rest.is_empty()),
            None => (input, false),
        };
        for chunk in head.utf8_chunks() {
            for c in chunk.valid().chars() {
                if left == 0 {
                    break;
                }
                left -= 1;
                push_printable(&mut shown, c);
            }
            for byte in chunk.invalid() {
                if left == 0 {
                    break;
                }
                left -= 1;
                write!(shown, "\\x{byte:02x}").expect("writing to a string cannot fail");
            }
        }
        if cut || (left == 0 && String::from_utf8_lossy(head).chars().count() > MAX_QUOTED_CHARS) {
            shown.push('…');
        }
        Self(shown.into())
    }
}

impl fmt::Display for QuotedInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Letters and digits of any script show as themselves, which is what the
/// author of a policy wants to read back. Everything else outside ASCII may
/// be invisible or reorder the line, and shows as its number.
fn push_printable(shown: &mut String, c: char) {
    if c == ' ' || c.is_ascii_graphic() || (!c.is_ascii() && c.is_alphanumeric()) {
        shown.push(c);
    } else {
        shown.extend(c.escape_default());
    }
}

/// A whole message, made harmless for a terminal. It is less strict than
/// [`QuotedInput`], because a message has punctuation of its own.
pub(crate) struct PrintableMessage<'a>(pub(crate) &'a str);

impl fmt::Display for PrintableMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '\t' => f.write_str(" ")?,
                c if c.is_control() || hides_or_reorders(c) => write!(f, "{}", c.escape_unicode())?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

/// Characters that change how their neighbours are shown, or show nothing.
fn hides_or_reorders(character: char) -> bool {
    matches!(
        character,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}

/// What every error message must be, whatever it quotes: one line of bounded
/// length that does nothing to a terminal.
#[cfg(test)]
pub(crate) fn is_harmless(message: &str) -> bool {
    message.len() < 4096 && !message.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_cannot_be_forged_by_what_it_quotes() {
        assert_eq!(QuotedInput::of("a\r\n\x1b[31mb\0").to_string(), r"a\r\n\u{1b}[31mb\u{0}");
        assert_eq!(QuotedInput::of("a\u{202e}b\u{200b}").to_string(), r"a\u{202e}b\u{200b}");
        assert_eq!(QuotedInput::of_bytes(b"a\xffb").to_string(), r"a\xffb");
    }

    #[test]
    fn letters_of_any_script_are_shown_as_written() {
        assert_eq!(QuotedInput::of("bücher.例え").to_string(), "bücher.例え");
    }

    #[test]
    fn long_input_is_cut_and_says_so() {
        assert_eq!(QuotedInput::of(&"a".repeat(120)).to_string(), "a".repeat(120));
        assert_eq!(QuotedInput::of(&"a".repeat(121)).to_string(), format!("{}…", "a".repeat(120)));
        assert_eq!(
            QuotedInput::of(&"é".repeat(9_999)).to_string(),
            format!("{}…", "é".repeat(120))
        );
    }

    #[test]
    fn what_is_not_text_is_cut_as_well() {
        assert_eq!(QuotedInput::of_bytes(&[0xff; 120]).to_string(), r"\xff".repeat(120));
        let cut = QuotedInput::of_bytes(&[0xff; 130]).to_string();
        assert_eq!(cut, format!("{}…", r"\xff".repeat(120)));
    }

    /// Characters of four bytes: as many as are shown fill the bytes that are looked at.
    #[test]
    fn the_longest_characters_are_cut_at_the_same_number() {
        let letter = "\u{10400}";
        assert_eq!(QuotedInput::of(&letter.repeat(120)).to_string(), letter.repeat(120));
        assert_eq!(
            QuotedInput::of(&letter.repeat(121)).to_string(),
            format!("{}…", letter.repeat(120))
        );
    }
}
