//! Text from outside, made harmless for a terminal.
//!
//! A sandbox chooses host names, paths and file names; a policy may come from
//! anybody. Whatever of that reaches a person's terminal passes through here, so
//! it cannot recolour a line, move the cursor, hide its neighbours or fake a row.

use std::fmt::{self, Write as _};

/// Shows as itself what is a letter, a digit or printable ASCII; everything
/// else as its number.
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a>(pub &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            let plain = character == ' '
                || character.is_ascii_graphic()
                || (!character.is_ascii() && character.is_alphanumeric());
            if plain {
                f.write_char(character)?;
            } else {
                write!(f, "{}", character.escape_default())?;
            }
        }
        Ok(())
    }
}

/// A line of text, such as one of a patch: every script and its signs are shown
/// as they are, and what acts on a terminal or hides its neighbours as numbers.
#[derive(Clone, Copy, Debug)]
pub struct PrintableLine<'a>(pub &'a str);

impl fmt::Display for PrintableLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            if character == '\t' || !(character.is_control() || is_deceptive(character)) {
                f.write_char(character)?;
            } else {
                write!(f, "{}", character.escape_default())?;
            }
        }
        Ok(())
    }
}

/// Marks that reorder or hide what stands beside them.
pub fn is_deceptive(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// JSON in ASCII alone: what is not ASCII stands inside strings, where an
/// escape means the same. So that machine output is harmless on a screen too.
pub fn ascii_json(json: &str) -> String {
    let mut ascii = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() && character != '\u{7f}' {
            ascii.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(ascii, "\\u{unit:04x}").expect("writing to a string cannot fail");
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_are_shown_not_obeyed() {
        assert_eq!(Printable("a\r\n\x1b[2Jb\u{202e}c").to_string(), r"a\r\n\u{1b}[2Jb\u{202e}c");
        assert_eq!(Printable("bücher.example").to_string(), "bücher.example");
    }

    proptest! {
        #[test]
        fn nothing_shown_controls_a_terminal(text: String) {
            prop_assert!(!Printable(&text).to_string().chars().any(char::is_control));
            let line = PrintableLine(&text).to_string();
            prop_assert!(!line.chars().any(|c| (c.is_control() && c != '\t') || is_deceptive(c)));
        }

        #[test]
        fn ascii_json_means_the_same(text: String) {
            let json = ascii_json(&serde_json::to_string(&text).unwrap());
            prop_assert!(json.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }
}
