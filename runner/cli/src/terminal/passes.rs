//! Which escape sequences pass: the one list.
//!
//! A terminal obeys what it is shown: it can be told to answer (which then looks
//! typed), to fill the clipboard, to change its title, to remap keys, to print.
//! What is not in this list is dropped, so a sequence that nobody thought of does
//! nothing. All strings are (OSC, DCS, SOS, PM, APC): no title, no clipboard, no
//! link, no notification, no picture; and so are window operations (`CSI t`),
//! media copy (`CSI i`), clearing what has scrolled away (`CSI 3 J`), tab stops,
//! other character sets and the terminal's own settings.
//!
//! | kept | what it is for |
//! |---|---|
//! | [`Keep::Text`] | a file, a pipe, a terminal without colours |
//! | [`Keep::Colours`] | what was recorded, on a terminal |
//! | [`Keep::Drawing`] | a replay; a command without a terminal of its own |
//! | [`Keep::Live`] | a command that has the caller's terminal: also modes, which are reset at the end, and queries, whose answers are its input |

use vte::Params;

/// What passes; each has all that the ones before it have.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Keep {
    Text,
    Colours,
    Drawing,
    Live,
}

/// One family of control sequences (`CSI`).
struct SequenceFamily {
    /// Private marker and intermediate characters, as they come.
    marks: &'static [u8],
    /// The characters that end it.
    last: &'static str,
    parameters: Parameters,
    from: Keep,
}

/// Which parameters a sequence may have.
enum Parameters {
    Any,
    /// At most one, and one of these; 0 is none.
    One(&'static [u16]),
    /// Only these; others are taken out.
    These(&'static [u16]),
}
use Parameters::{Any, One, These};

const fn row(
    marks: &'static [u8],
    last: &'static str,
    parameters: Parameters,
    from: Keep,
) -> SequenceFamily {
    SequenceFamily { marks, last, parameters, from }
}

static CONTROL_SEQUENCES: [SequenceFamily; 25] = [
    row(b"", "m", Any, Keep::Colours),
    // Moving, erasing, inserting, deleting, repeating.
    row(b"", "ABCDEFGHILMPXZ@`abdef", Any, Keep::Drawing),
    row(b"", "JK", One(&[0, 1, 2]), Keep::Drawing),
    row(b"?", "JK", One(&[0, 1, 2]), Keep::Drawing),
    // Scrolling by so many lines; with more parameters it is something else.
    row(b"", "ST", One(SMALL), Keep::Drawing),
    // The lines that scroll; where the cursor is, kept and taken back.
    row(b"", "r", Any, Keep::Drawing),
    row(b"", "su", One(&[0]), Keep::Drawing),
    // Wrapping, the cursor's visibility, the second screen.
    row(b"?", "hl", These(DRAWING_MODES), Keep::Drawing),
    row(b"?", "hl", These(LIVE_MODES), Keep::Live),
    // Inserting instead of overwriting.
    row(b"", "hl", These(&[4]), Keep::Live),
    row(b" ", "q", One(&[0, 1, 2, 3, 4, 5, 6]), Keep::Live),
    row(b"!", "p", One(&[0]), Keep::Live),
    // Keyboard protocols: xterm's and kitty's.
    row(b">", "m", Any, Keep::Live),
    row(b">", "n", One(&[4]), Keep::Live),
    row(b">", "u", Any, Keep::Live),
    row(b"<", "u", One(SMALL), Keep::Live),
    row(b"=", "u", Any, Keep::Live),
    // Queries: is all well, where is the cursor, who are you, is this mode set.
    row(b"", "n", One(&[5, 6]), Keep::Live),
    row(b"?", "n", One(&[6]), Keep::Live),
    row(b"", "c", One(&[0]), Keep::Live),
    row(b">", "c", One(&[0]), Keep::Live),
    row(b">", "q", One(&[0]), Keep::Live),
    row(b"?$", "p", Any, Keep::Live),
    row(b"$", "p", Any, Keep::Live),
    row(b"?", "u", One(&[0]), Keep::Live),
];

const SMALL: &[u16] = &[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
    26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49,
    50,
];
const DRAWING_MODES: &[u16] = &[7, 25, 47, 1047, 1049];
/// Besides those: application keys and keypad, reverse video, origin, a blinking
/// cursor, mouse and focus reports, bracketed paste, synchronized output.
const LIVE_MODES: &[u16] = &[
    1, 5, 6, 7, 12, 25, 47, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 1047, 1048, 1049,
    2004, 2026,
];

/// The parameters with which a control sequence passes; none if it does not.
pub(super) fn control(
    keep: Keep,
    marks: &[u8],
    params: &Params,
    last: char,
) -> Option<Vec<Vec<u16>>> {
    let mut given: Vec<Vec<u16>> = params.iter().map(<[u16]>::to_vec).collect();
    if given == [[0]] {
        given.clear();
    }
    let rows = CONTROL_SEQUENCES.iter().rev();
    let mut rows =
        rows.filter(|row| row.from <= keep && row.marks == marks && row.last.contains(last));
    // The last row that fits is the one that permits most.
    let row = rows.next()?;
    match row.parameters {
        Any => {}
        One(known) => {
            let value = match given.as_slice() {
                [] => 0,
                [only] => *only.first().filter(|_| only.len() == 1)?,
                _ => return None,
            };
            known.contains(&value).then_some(())?;
        }
        These(known) => {
            given.retain(|one| matches!(one.as_slice(), [value] if known.contains(value)));
            if given.is_empty() {
                return None;
            }
        }
    }
    if keep == Keep::Colours && !given.is_empty() {
        given = without_concealing(given);
        // Nothing is left of it, which is not the same as nothing asked for: that
        // takes all colours back.
        if given.is_empty() {
            return None;
        }
    }
    if given == [[0]] {
        given.clear();
    }
    // Only xterm's keyboard setting of that family: the others outlive us.
    if (marks, last) == (b">", 'm') && given.first().is_none_or(|first| *first != [4]) {
        return None;
    }
    Some(given)
}

/// What is recorded cannot be hidden by its colour being none. A palette's index
/// 8 is a colour like others.
fn without_concealing(given: Vec<Vec<u16>>) -> Vec<Vec<u16>> {
    let mut kept = Vec::new();
    let mut skip = 0_usize;
    let mut after_extended = false;
    for one in given {
        let first = one.first().copied().unwrap_or_default();
        let is_plain = skip == 0 && !after_extended;
        if after_extended {
            skip = match first {
                2 => 3,
                5 => 1,
                _ => 0,
            };
            after_extended = false;
        } else if skip > 0 {
            skip -= 1;
        } else {
            after_extended = one.len() == 1 && matches!(first, 38 | 48 | 58);
        }
        if !(is_plain && first == 8) {
            kept.push(one);
        }
    }
    kept
}

/// Sequences of `ESC` and one or two characters that pass as they are.
pub(super) fn escape(keep: Keep, marks: &[u8], last: u8) -> bool {
    let from = match (marks, last) {
        (b"", b'7' | b'8' | b'D' | b'E' | b'M') | (b"(" | b")", b'B' | b'0') => Keep::Drawing,
        (b"", b'=' | b'>') => Keep::Live,
        _ => return false,
    };
    from <= keep
}

/// Control characters that pass.
pub(super) fn character(keep: Keep, byte: u8) -> bool {
    let from = match byte {
        b'\n' | b'\t' => Keep::Text,
        b'\r' | b'\x08' => Keep::Drawing,
        // The bell; down a line; the other character set and back.
        b'\x07' | b'\x0b' | b'\x0c' | b'\x0e' | b'\x0f' => Keep::Live,
        _ => return false,
    };
    from <= keep
}

/// Whether a terminal answers this.
pub(super) fn is_query(marks: &[u8], last: char) -> bool {
    matches!(
        (marks, last),
        (b"" | b"?", 'n') | (b"" | b">", 'c') | (b">", 'q') | (b"?$" | b"$", 'p') | (b"?", 'u')
    )
}
