//! Takes out of what a command wrote what would make a terminal act.
//!
//! A parser of terminals' own (`vte`) cuts the bytes into text and sequences; a
//! sequence that is on the list ([`passes`](super::passes)) is written anew from
//! what was read, so a terminal sees what was judged and nothing else. Memory is
//! bounded whatever comes, and a sequence that is cut in two is judged as one.
//! Bytes that are no UTF-8 become U+FFFD, eight-bit controls vanish.

use std::fmt::Write as _;
use std::time::Instant;

use files::printable::is_deceptive;
use vte::{Params, Parser, Perform};

use super::modes::Modes;
use super::passes::{self, Keep};

/// A filter that bytes are fed to piece by piece.
pub(crate) struct Filter {
    parser: Parser,
    screen: Screen,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter").field("screen", &self.screen).finish_non_exhaustive()
    }
}

/// What the parser tells about what it read.
#[derive(Debug)]
struct Screen {
    keep: Keep,
    modes: Modes,
    out: String,
    /// Where lines are all there is, a carriage return waits for what comes.
    returned: bool,
}

impl Filter {
    pub(crate) fn new(keep: Keep) -> Self {
        let screen = Screen { keep, modes: Modes::default(), out: String::new(), returned: false };
        Self { parser: Parser::new(), screen }
    }

    /// What passes of `text`.
    pub(crate) fn pass(&mut self, text: &str) -> String {
        self.pass_bytes(text.as_bytes())
    }

    pub(crate) fn pass_bytes(&mut self, bytes: &[u8]) -> String {
        self.screen.out.reserve(bytes.len());
        self.parser.advance(&mut self.screen, bytes);
        std::mem::take(&mut self.screen.out)
    }

    /// What puts the terminal back as it was; nothing if nothing was changed.
    pub(crate) fn reset(&mut self) -> String {
        self.screen.modes.reset()
    }

    /// When the terminal was last asked something that it answers.
    pub(crate) fn asked(&self) -> Option<Instant> {
        self.screen.modes.asked
    }
}

impl Screen {
    fn is_lines(&self) -> bool {
        self.keep <= Keep::Colours
    }

    /// A line that was begun anew, as progress bars do, is a line of its own.
    fn settle_return(&mut self, next: Option<u8>) {
        if self.is_lines()
            && !matches!(next, Some(b'\n' | b'\r'))
            && std::mem::take(&mut self.returned)
        {
            self.out.push('\n');
        }
    }
}

impl Perform for Screen {
    fn print(&mut self, character: char) {
        if character.is_control() || (self.keep < Keep::Live && is_deceptive(character)) {
            return;
        }
        self.settle_return(None);
        self.out.push(character);
    }

    fn execute(&mut self, byte: u8) {
        if self.is_lines() && byte == b'\r' {
            self.returned = true;
            return;
        }
        if passes::character(self.keep, byte) {
            self.settle_return(Some(byte));
            if byte == b'\n' {
                self.returned = false;
            }
            self.modes.character(byte);
            self.out.push(char::from(byte));
        }
    }

    fn csi_dispatch(&mut self, params: &Params, marks: &[u8], ignore: bool, last: char) {
        if ignore {
            return;
        }
        let Some(params) = passes::control(self.keep, marks, params, last) else { return };
        if !self.modes.control(marks, &params, last) {
            return;
        }
        if passes::is_query(marks, last) {
            self.modes.asked = Some(Instant::now());
        }
        // A private marker comes before the parameters, the rest after them.
        let (before, after) =
            marks.split_at(marks.iter().take_while(|mark| **mark >= b'<').count());
        let characters =
            |marks: &[u8]| marks.iter().map(|mark| char::from(*mark)).collect::<String>();
        self.out.push_str("\x1b[");
        self.out.push_str(&characters(before));
        for (number, one) in params.iter().enumerate() {
            if number > 0 {
                self.out.push(';');
            }
            for (number, part) in one.iter().enumerate() {
                let colon = if number > 0 { ":" } else { "" };
                // A string takes whatever is written to it.
                write!(self.out, "{colon}{part}").ok();
            }
        }
        self.out.push_str(&characters(after));
        self.out.push(last);
    }

    fn esc_dispatch(&mut self, marks: &[u8], ignore: bool, byte: u8) {
        if ignore {
            return;
        }
        if (marks, byte, self.keep) == (b"".as_slice(), b'c', Keep::Live) {
            // A full reset also clears what has scrolled away, tab stops and the
            // title. What is left of it is the screen.
            self.out.push_str("\x1b[!p\x1b[H\x1b[2J");
            return;
        }
        if passes::escape(self.keep, marks, byte) {
            self.modes.escape(marks, byte);
            self.out.push('\x1b');
            self.out.extend(marks.iter().chain([&byte]).map(|byte| char::from(*byte)));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pass(keep: Keep, text: &str) -> String {
        Filter::new(keep).pass(text)
    }

    const EVERY: [Keep; 4] = [Keep::Text, Keep::Colours, Keep::Drawing, Keep::Live];

    #[test]
    fn text_alone_is_left() {
        let shown = pass(
            Keep::Text,
            "\u{1b}[1;31mred\u{1b}[0m \u{1b}]0;title\u{7}a\tb\r\n10%\r20%\r\n\u{202e}x",
        );
        assert_eq!(shown, "red a\tb\n10%\n20%\nx");
    }

    #[test]
    fn of_what_was_recorded_colours_pass_and_nothing_else() {
        let written =
            "\u{1b}[1;8;31mred\u{1b}[38;5;8mgrey\u{1b}[0m\u{1b}[2J\u{1b}[6n\u{1b}[?25l\u{1b}7\u{7}";
        let shown = pass(Keep::Colours, written);
        assert_eq!(shown, "\u{1b}[1;31mred\u{1b}[38;5;8mgrey\u{1b}[m");
        assert_eq!(pass(Keep::Colours, "\u{1b}[8m"), "");
        assert_eq!(pass(Keep::Colours, "\u{1b}[8;m"), "\u{1b}[m");
    }

    #[test]
    fn what_acts_beyond_the_screen_never_passes() {
        for hostile in [
            "\u{1b}]52;c;ZXZpbA==\u{7}", // the clipboard
            "\u{1b}]52;c;?\u{1b}\\",
            "\u{1b}]0;title\u{1b}\\",
            "\u{1b}]2;title\u{7}",
            "\u{1b}]8;;https://evil.test/\u{1b}\\",
            "\u{1b}]9;note\u{7}",
            "\u{1b}]99;;note\u{1b}\\",
            "\u{1b}]777;notify;a;b\u{7}",
            "\u{1b}]11;?\u{7}",
            "\u{1b}]4;1;#000000\u{7}",
            "\u{1b}P$q\"p\u{1b}\\",           // DECRQSS
            "\u{1b}Pq#0;2;0;0;0#0~~\u{1b}\\", // a picture
            "\u{1b}P+q544e\u{1b}\\",
            "\u{1b}_Gf=24;AAAA\u{1b}\\",
            "\u{1b}^private\u{1b}\\",
            "\u{1b}Xstring\u{1b}\\",
            "\u{1b}[21t", // report the title
            "\u{1b}[22;0t",
            "\u{1b}[8;1;1t",
            "\u{1b}[5i", // print
            "\u{1b}[?5i",
            "\u{1b}[3J", // what has scrolled away
            "\u{1b}[3g", // tab stops
            "\u{1b}H",
            "\u{1b}[?3h", // 132 columns
            "\u{1b}[?8l",
            "\u{1b}[?69h",
            "\u{1b}[?1001h", // waits for an answer
            "\u{1b}[1;2;3;4;5T",
            "\u{1b}[61\"p",
            "\u{1b}[1$r",
            "\u{1b}[?1049r",
            "\u{1b}[>1m", // other keyboard settings of xterm
            "\u{1b}[=1u", // the caller's own keyboard setting
            "\u{1b}[<1u",
            "\u{1b}%@",
            "\u{1b}(A",
            "\u{1b}n",
            "\u{9d}52;c;x\u{9c}",
            "\u{9b}6n",
            "\u{5}", // answer back
        ] {
            for keep in EVERY {
                let left: String =
                    pass(keep, hostile).chars().filter(|one| !one.is_ascii_graphic()).collect();
                assert_eq!(left, "", "{keep:?} {hostile:?}");
            }
            assert!(!pass(Keep::Live, hostile).contains('\u{1b}'), "{hostile:?}");
        }
    }

    #[test]
    fn queries_and_modes_pass_live_and_nowhere_else() {
        for live in [
            "\u{1b}[6n",
            "\u{1b}[5n",
            "\u{1b}[?6n",
            "\u{1b}[c",
            "\u{1b}[>c",
            "\u{1b}[>q",
            "\u{1b}[?2026$p",
            "\u{1b}[?u",
            "\u{1b}[?1000h",
            "\u{1b}[?1002;1006h",
            "\u{1b}[?2004h",
            "\u{1b}[?1004h",
            "\u{1b}[>1u",
            "\u{1b}[>4;2m",
            "\u{1b}[2 q",
            "\u{1b}=",
            "\u{7}",
        ] {
            assert_eq!(pass(Keep::Live, live), live);
            for keep in [Keep::Text, Keep::Colours, Keep::Drawing] {
                assert_eq!(pass(keep, live), "", "{keep:?} {live:?}");
            }
        }
    }

    #[test]
    fn what_draws_passes_a_replay() {
        for drawing in [
            "\u{1b}[38;5;9m",
            "\u{1b}[38:2:1:2:3m",
            "\u{1b}[2J",
            "\u{1b}[10;20H",
            "\u{1b}[?25l",
            "\u{1b}7",
            "\u{1b}(B",
            "\u{1b}[?1049h",
            "\u{1b}[5S",
        ] {
            assert_eq!(pass(Keep::Drawing, drawing), drawing);
            assert_eq!(pass(Keep::Live, drawing), drawing);
        }
    }

    #[test]
    fn a_full_reset_is_one_of_the_screen() {
        assert_eq!(pass(Keep::Live, "\u{1b}c"), "\u{1b}[!p\u{1b}[H\u{1b}[2J");
        assert_eq!(pass(Keep::Drawing, "\u{1b}c"), "");
    }

    #[test]
    fn text_of_every_language_is_unharmed_and_eight_bit_controls_are_not_obeyed() {
        // Its bytes hold 0x9b, 0x9c, 0x9d.
        let text = "\u{201c}\u{201d} \u{c8}\u{cb} \u{6f22}\u{5b57} \u{1f600} \u{416}\u{41b}";
        for keep in EVERY {
            assert_eq!(pass(keep, text), text);
            let mut filter = Filter::new(keep);
            let one_by_one: String = text.bytes().map(|byte| filter.pass_bytes(&[byte])).collect();
            assert_eq!(one_by_one, text);
        }
        for raw in [&b"\x9d52;c;x\x9c"[..], b"\x9b6n", b"\x90q\x9c", b"\xc2\x9b6n"] {
            let passed = Filter::new(Keep::Live).pass_bytes(raw);
            assert!(!passed.contains(char::is_control), "{passed:?}");
        }
    }

    #[test]
    fn what_was_changed_is_reset_and_nothing_else() {
        let reset = |written: &str| {
            let mut filter = Filter::new(Keep::Live);
            filter.pass(written);
            filter.reset()
        };
        assert_eq!(reset("plain \u{1b}[6n\r\n"), "");
        assert_eq!(reset("\u{1b}[31m"), "\u{1b}[0m");
        assert_eq!(
            reset("\u{1b}[?25l\u{1b}[?1000h\u{1b}[?2004h"),
            "\u{1b}[?25h\u{1b}[?1000l\u{1b}[?2004l"
        );
        assert_eq!(reset("\u{1b}[?1000h\u{1b}[?1000l\u{1b}[?25l\u{1b}[?25h"), "");
        assert_eq!(reset("\u{1b}[?1049h\u{1b}[2;5r"), "\u{1b}7\u{1b}[r\u{1b}8\u{1b}[?1049l");
        assert_eq!(reset("\u{1b}[>1u\u{1b}[>3u\u{1b}[<1u"), "\u{1b}[<1u");
        assert_eq!(reset("\u{1b}[>1u\u{1b}[?1049h\u{1b}[>1u"), "\u{1b}[<1u\u{1b}[?1049l\u{1b}[<1u");
        assert_eq!(reset("\u{1b}(0\u{e}"), "\u{1b}(B\u{1b})B\u{f}");
        assert_eq!(reset("\u{1b}[>4;2m\u{1b}="), "\u{1b}[>4m\u{1b}>");
    }

    #[test]
    fn a_string_without_end_takes_no_memory_and_hides_nothing_after_it() {
        let mut filter = Filter::new(Keep::Live);
        filter.pass("\u{1b}]52;c;");
        for _ in 0..1000 {
            assert_eq!(filter.pass(&"A".repeat(10_000)), "");
        }
        assert_eq!(filter.pass("\u{7}after"), "after");
        assert_eq!(filter.pass(&format!("\u{1b}[{}mx", "1;".repeat(10_000))), "x");
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
            for keep in EVERY {
                let cut = cut.min(text.chars().count());
                let first: String = text.chars().take(cut).collect();
                let second: String = text.chars().skip(cut).collect();
                let mut filter = Filter::new(keep);
                prop_assert_eq!(filter.pass(&first) + &filter.pass(&second), pass(keep, &text));
            }
        }

        #[test]
        fn what_passed_passes_again_unchanged(text in "[\u{1b}\\[\\]()6ncmhlu<>=;?0-9a ]{0,30}") {
            for keep in EVERY {
                let passed = pass(keep, &text);
                prop_assert_eq!(pass(keep, &passed), passed);
            }
        }
    }
}
