//! Where what a command prints goes: our own output, and with it perhaps the
//! terminal of the person who runs us.
//!
//! To a terminal only passes what draws ([`Filter`]); to a file or a pipe
//! everything does, byte by byte. When the command has ended, however it ended,
//! the terminal is as it was: what was changed is reset, what it still answers is
//! thrown away, and keys are lines again.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use async_trait::async_trait;
use engine::backend::{Chunk, OutputSide};
use engine::supervise::OutputSink;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time;

use super::Raw;
use super::filter::Filter;
use super::passes::Keep;

/// A terminal has answered by then, also one at the other end of a slow line.
const ANSWER_TIME: Duration = Duration::from_millis(300);

/// Our own output, lent to a command while it runs.
#[derive(Debug)]
pub(crate) struct CallerOutput {
    /// Our own result goes to stdout, and what the command prints to stderr.
    keep_stdout: bool,
    /// The command has the caller's terminal, keys and all.
    tty: bool,
    lent: Option<Lent>,
}

impl CallerOutput {
    pub(crate) fn new(keep_stdout: bool, tty: bool) -> Self {
        Self { keep_stdout, tty, lent: None }
    }
}

/// As it was again when this is dropped.
#[derive(Debug)]
struct Lent {
    out: Option<Filter>,
    err: Option<Filter>,
    raw: Option<Raw>,
}

impl Lent {
    fn new(tty: bool) -> Self {
        let keep = if tty { Keep::Live } else { Keep::Drawing };
        let filter = |is_terminal: bool| is_terminal.then(|| Filter::new(keep));
        Self {
            out: filter(io::stdout().is_terminal()),
            err: filter(io::stderr().is_terminal()),
            raw: if tty { Raw::enter().ok() } else { None },
        }
    }

    /// Waits for what the terminal may still answer: left alone, it would look
    /// typed to whoever reads the terminal next.
    async fn await_answers(&self) {
        let asked = [&self.out, &self.err].into_iter().flatten().filter_map(Filter::asked).max();
        if let Some(left) = asked.and_then(|asked| ANSWER_TIME.checked_sub(asked.elapsed())) {
            time::sleep(left).await;
        }
    }
}

#[async_trait]
impl OutputSink for CallerOutput {
    async fn printed(&mut self, chunk: &Chunk, _: Duration) -> io::Result<()> {
        let Some(lent) = &mut self.lent else { return Ok(()) };
        match if self.keep_stdout { OutputSide::Err } else { chunk.to } {
            OutputSide::Err => write(lent.err.as_mut(), chunk, tokio::io::stderr()).await,
            OutputSide::Out => write(lent.out.as_mut(), chunk, tokio::io::stdout()).await,
        }
    }

    fn starts(&mut self) {
        self.lent = Some(Lent::new(self.tty));
    }

    async fn ended(&mut self) {
        if let Some(lent) = &self.lent {
            lent.await_answers().await;
        }
        self.lent = None;
    }
}

async fn write(
    filter: Option<&mut Filter>,
    chunk: &Chunk,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    match filter {
        Some(filter) => to.write_all(filter.pass_bytes(&chunk.bytes).as_bytes()).await?,
        None => to.write_all(&chunk.bytes).await?,
    }
    to.flush().await
}

impl Drop for Lent {
    fn drop(&mut self) {
        let asked = [&self.out, &self.err].into_iter().flatten().any(|one| one.asked().is_some());
        // Whoever does not look any more need not.
        if let Some(reset) = self.out.as_mut().map(Filter::reset).filter(|it| !it.is_empty()) {
            let mut out = io::stdout();
            drop(out.write_all(reset.as_bytes()).and_then(|()| out.flush()));
        }
        if let Some(reset) = self.err.as_mut().map(Filter::reset).filter(|it| !it.is_empty()) {
            drop(io::stderr().write_all(reset.as_bytes()));
        }
        if let (Some(raw), true) = (&mut self.raw, asked) {
            raw.forget_input();
        }
    }
}
