//! What the host and the first process of a sandbox, `sluice-init`, say to each
//! other.
//!
//! The first process is told [`InitArgs`] on its command line. It connects to the
//! host, reports [`InitMessage::Fact`]s and [`InitMessage::Ready`], and waits for a
//! listening socket ([`InitOrder::Serve`]). From then on it answers whoever
//! connects there: one connection, one [`InitRequest`] in a frame (its length in
//! four bytes, most significant first, then JSON), answers and [`CommandOrder`]s one
//! line of JSON each.
//!
//! ```text
//! host   Hello            first process: facts, then Ready
//! host   End              first process: facts, then Ended; everything has ended
//! host   Run(command)     first process: Started or Ended{Unstartable}; then Output
//!                         whenever the command printed, and at its end facts, Ended
//! host   Attach           the same, of the run's command that was started before
//! ```

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::launcher::ListenerSpec;

/// Where a sandbox sees its trust kit.
pub const TRUST_KIT: &str = "/etc/sluice/ca";
/// The last of the trust kit's files to be written, in that folder.
pub const TRUST_STORE: &str = "truststore.p12";
/// A longer line is no message of ours.
pub const MAX_LINE_BYTES: usize = 64 * 1024;
/// A longer frame is no request of ours; the kernel takes no more arguments either.
pub const MAX_REQUEST_BYTES: usize = 2 << 20;

/// What the first process is told on its command line, as one argument of JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct InitArgs {
    /// Where the host listens for it.
    pub socket: PathBuf,
    /// Between asking a process to end and ending it.
    pub grace: Duration,
    /// File systems whose being full is worth telling.
    pub bounded: Vec<String>,
    pub lifetime: SandboxLifetime,
    /// Where nobody outside can open the gateway's sockets in the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelayArgs>,
}

/// The doors that the first process opens by itself and relays ([`crate::relay`]).
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RelayArgs {
    /// Where the host listens for the channel. Only the first connection is one:
    /// commands of the sandbox may connect there later.
    pub socket: PathBuf,
    /// For connections and datagrams alone.
    pub doors: Vec<ListenerSpec>,
}

/// How long a sandbox lives.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum SandboxLifetime {
    /// As long as whoever started it stays connected.
    Attached,
    /// To this moment, whether whoever started it lives or not.
    Until(SystemTime),
}

/// From the first process.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InitMessage {
    /// How a command ended. The last line of a connection.
    Ended(CommandEnd),
    /// Something measured.
    Fact { name: String, value: String },
    /// The spool has grown.
    Output,
    /// Everything is measured; it waits for a socket, or answers on one.
    Ready,
    /// The command runs.
    Started,
}

/// To the first process, once; the listening socket comes with it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InitOrder {
    Serve,
}

/// What one connection to the first process is for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InitRequest {
    Attach,
    End,
    Hello,
    Run(CommandSpec),
}

/// A command, and what becomes of it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CommandSpec {
    /// The program first.
    pub words: Vec<String>,
    /// Where it starts, if not where the sandbox does.
    pub directory: Option<String>,
    /// Beside what every command of the sandbox has.
    pub environment: Vec<(String, String)>,
    pub streams: Streams,
    pub deadline: Option<Duration>,
    /// The sandbox ends when this command does: a run.
    pub ends_sandbox: bool,
    /// The command goes on when whoever started it hangs up.
    pub outlives_client: bool,
}

/// How a command is connected. Descriptors come with the request.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Streams {
    /// Its three streams are the three descriptors, and nobody records them.
    Direct,
    /// Its input is the first descriptor. What it prints is written to the second,
    /// the spool ([`crate::spool`]), up to a limit that ends it.
    Spooled { max_output_bytes: u64, terminal: Option<TerminalSize> },
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

/// About a command that runs.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandOrder {
    /// End it at once; a run's with everything else in the sandbox.
    Kill,
    Resize(TerminalSize),
    Signal(u8),
}

/// How a command ended, as its parent saw it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandEnd {
    /// The deadline came first.
    Deadline,
    Exited(u8),
    /// It printed more than it may.
    OutputLimit,
    Signaled(u8),
    /// What it printed could not be recorded, so it was ended.
    Unrecorded(String),
    /// It could not be started: 126 or 127, and why.
    Unstartable {
        code: u8,
        why: String,
    },
}
