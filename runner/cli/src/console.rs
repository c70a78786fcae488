//! What a person or a script sees.
//!
//! Results go to stdout and everything else to stderr. Results come in one of
//! three forms: a table for people, one JSON document, or one JSON object a
//! line. Colour is for terminals, and only where nobody has said otherwise
//! (`--color`, `NO_COLOR`, `CLICOLOR_FORCE`).

use std::fmt;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use engine::work_budget::NotDone;
use files::printable::{Printable, ascii_json};
use serde::Serialize;

use crate::exit::Failure;
use crate::terminal;

/// The form of a result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// One JSON document.
    Json,
    /// One JSON object per line.
    Jsonl,
    /// For people.
    Table,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum Color {
    Always,
    #[default]
    Auto,
    Never,
}

/// The colours we use, by what they say.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tone {
    Bad,
    Faint,
    Good,
    Warn,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Self::Bad => AnsiColor::Red.on_default().bold(),
            Self::Faint => Style::new().dimmed(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Warn => AnsiColor::Yellow.on_default(),
        }
    }
}

/// Where a verb's words go.
pub struct Console {
    pub format: Format,
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    colored_out: bool,
    colored_err: bool,
}

impl Console {
    /// How wide stdout is, if it is a terminal or somebody said it (`COLUMNS`).
    pub fn columns(&self) -> Option<usize> {
        let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let columns = said.or_else(|| terminal::size().map(|size| usize::from(size.columns)));
        columns.filter(|columns| *columns > 0)
    }

    /// Whether a person looks at stdout as it comes.
    pub fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// The process's own stdout and stderr.
    pub fn standard(format: Format, color: Color) -> Self {
        let colored = |auto: ColorChoice| match color {
            Color::Always => true,
            Color::Auto => auto != ColorChoice::Never,
            Color::Never => false,
        };
        Self {
            format,
            colored_out: colored(AutoStream::choice(&io::stdout())),
            colored_err: colored(AutoStream::choice(&io::stderr())),
            out: Box::new(BufWriter::new(io::stdout())),
            err: Box::new(io::stderr()),
        }
    }

    /// One line of the result.
    pub fn line(&mut self, line: impl fmt::Display) -> Result<(), Failure> {
        writeln!(self.out, "{line}").map_err(output_failed)
    }

    /// A part of the result, exactly as it is.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(output_failed)
    }

    /// The result's way out, for whoever writes many small parts.
    pub fn out(&mut self) -> &mut Box<dyn Write> {
        &mut self.out
    }

    /// Something beside the result. That it could not be said stops nothing.
    pub fn say(&mut self, line: impl fmt::Display) {
        drop(self.flush());
        // In one piece: what passes letter by letter would cost a call for each,
        // and others write here too.
        drop(self.err.write_all(format!("{line}\n").as_bytes()));
    }

    /// A line beside the result that begins with a coloured word. The text may come
    /// from anywhere: it is made harmless here.
    pub fn say_labelled(&mut self, tone: Tone, label: &str, text: impl fmt::Display) {
        let label = self.toned_aside(tone, label);
        self.say(format_args!("{label} {}", Printable(&text.to_string())));
    }

    /// Something that a person should know before it goes on.
    pub fn note(&mut self, text: impl fmt::Display) {
        self.say_labelled(Tone::Warn, "note:", text);
    }

    /// Something that failed, where the verb still has more to do or say.
    pub fn error(&mut self, text: impl fmt::Display) {
        self.say_labelled(Tone::Bad, "error:", text);
    }

    /// Says what of a run or session could not be removed, and what its evidence lacks.
    pub fn say_unfinished(
        &mut self,
        left: impl IntoIterator<Item: fmt::Display>,
        missing: &[String],
        not_done: &[NotDone],
    ) {
        for left in left {
            let text = format_args!("{left}; `sluice sweep` tries again");
            self.say_labelled(Tone::Warn, "left behind:", text);
        }
        for missing in missing {
            self.say_labelled(Tone::Warn, "not in the evidence:", missing);
        }
        for not_done in not_done {
            self.say_labelled(Tone::Warn, "not whole in the evidence:", not_done);
        }
    }

    /// The whole result as one JSON value; on one line if lines were asked for.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = match self.format {
            Format::Jsonl => serde_json::to_string(value),
            Format::Json | Format::Table => serde_json::to_string_pretty(value),
        };
        self.line(ascii_json(&text.expect("our results have only strings as keys")))
    }

    /// The whole result as a list: an array, or one object a line.
    pub fn json_list<T: Serialize>(&mut self, items: &[T]) -> Result<(), Failure> {
        match self.format {
            Format::Json | Format::Table => self.json(&items),
            Format::Jsonl => items.iter().try_for_each(|item| self.json(item)),
        }
    }

    /// Hands over what was written so far.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(output_failed)
    }

    /// Whether colours are wanted on stdout.
    pub fn has_colours(&self) -> bool {
        self.colored_out
    }

    /// `text` in a colour, on stdout, if colours are wanted there.
    pub fn toned(&self, tone: Tone, text: impl fmt::Display) -> String {
        toned(self.colored_out, tone, text)
    }

    /// `text` in a colour, on stderr, if colours are wanted there.
    pub fn toned_aside(&self, tone: Tone, text: impl fmt::Display) -> String {
        toned(self.colored_err, tone, text)
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("format", &self.format).finish_non_exhaustive()
    }
}

fn toned(colored: bool, tone: Tone, text: impl fmt::Display) -> String {
    if !colored {
        return text.to_string();
    }
    let style = tone.style();
    format!("{style}{text}{style:#}")
}

pub(crate) fn output_failed(err: io::Error) -> Failure {
    if err.kind() == io::ErrorKind::BrokenPipe {
        return Failure::OutputClosed;
    }
    Failure::Failed(anyhow::Error::new(err).context("cannot write the result"))
}

/// Says that what comes after a command takes a while, and how to end it.
pub(crate) fn recording_takes_a_while(part: &'static str, limit: Duration) {
    // Whoever does not read it need not.
    drop(writeln!(
        io::stderr(),
        "sluice: recording {part} takes a while, at most {} s; Ctrl-C ends that, and the evidence \
         says what is missing",
        limit.as_secs()
    ));
}
