//! Promises that hold for whatever a command writes: the bodies of fuzz targets.
//!
//! Each function takes arbitrary bytes and panics if a promise is broken. The
//! targets in `fuzz/` call them with generated input (`./test --full`), and the
//! test below calls them with the kept corpus, so that a target that no longer
//! compiles or holds is noticed by an ordinary `cargo test`.

use files::printable::is_deceptive;

use crate::terminal::filter::Filter;
use crate::terminal::passes::Keep;

/// A fuzz target's body.
pub type Target = fn(&[u8]);

/// Every target of this crate, by the name it has in `fuzz/`.
pub const TARGETS: [(&str, Target); 1] = [("terminal_filter", terminal_filter)];

/// What passes the terminal filter is the same whole or in pieces, passes it
/// again unchanged, and can only draw: it cannot make a terminal answer, fill
/// the clipboard or set a title; live it can also ask and set modes. The first
/// byte is the piece's size.
pub fn terminal_filter(input: &[u8]) {
    let Some((piece, written)) = input.split_first() else { return };
    let text = String::from_utf8_lossy(written);
    let characters: Vec<char> = text.chars().collect();
    for keep in [Keep::Text, Keep::Colours, Keep::Drawing, Keep::Live] {
        // Whatever bytes come, also those that are no text.
        assert_draws_only(&Filter::new(keep).pass_bytes(written), keep);
        let passed = Filter::new(keep).pass(&text);
        let mut filter = Filter::new(keep);
        let pieces = characters.chunks(usize::from(*piece).max(1));
        let in_pieces: String =
            pieces.map(|piece| filter.pass(&piece.iter().collect::<String>())).collect();
        assert_eq!(in_pieces, passed, "in pieces of {piece}");
        assert_eq!(Filter::new(keep).pass(&passed), passed, "a second time");
        assert_draws_only(&passed, keep);
    }
}

fn assert_draws_only(passed: &str, keep: Keep) {
    let mut rest = passed.chars();
    while let Some(character) = rest.next() {
        assert!(keep == Keep::Live || !is_deceptive(character), "{passed:?}");
        match character {
            '\n' | '\t' => {}
            '\r' | '\u{8}' if keep >= Keep::Drawing => {}
            '\u{7}' | '\u{b}' | '\u{c}' | '\u{e}' | '\u{f}' if keep == Keep::Live => {}
            '\u{1b}' if keep >= Keep::Colours => match rest.next() {
                Some('7' | '8' | 'D' | 'E' | 'M') if keep >= Keep::Drawing => {}
                Some('=' | '>') if keep == Keep::Live => {}
                Some('(' | ')') if keep >= Keep::Drawing => {
                    assert!(matches!(rest.next(), Some('B' | '0')), "{passed:?}");
                }
                Some('[') => {
                    let own = |c: &char| !matches!(c, '0'..='9' | ';' | ':' | '?' | '<'..='>' | ' ' | '!' | '$');
                    let last = rest.find(own);
                    let known = match keep {
                        Keep::Text | Keep::Colours => "m",
                        Keep::Drawing => DRAWING,
                        Keep::Live => LIVE,
                    };
                    assert!(last.is_some_and(|c| known.contains(c)), "{passed:?}");
                }
                other => panic!("ESC {other:?} passed: {passed:?}"),
            },
            _ => assert!(!character.is_control(), "{passed:?}"),
        }
    }
}

/// The last characters of control sequences that draw (ECMA-48): moving, erasing,
/// inserting, scrolling, colours, and the modes that the filter lists.
const DRAWING: &str = "ABCDEFGHIJKLMPSTXZ@`abdefhlmrsu";
/// Besides them: what asks, and sets the keyboard and the cursor's shape.
const LIVE: &str = "ABCDEFGHIJKLMPSTXZ@`abdefhlmrsucnpq";

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod tests;
