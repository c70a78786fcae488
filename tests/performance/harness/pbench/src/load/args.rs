//! What `pbench load` is told.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Workload {
    /// Requests over connections that stay (HTTP/1.1, or HTTP/2 with --h2 and --streams)
    Get,
    /// A new connection (CONNECT, TLS, one GET) for each operation
    Conn,
    /// A new connection for each operation, to a host that the proxy refuses
    Deny,
    /// One large download for each connection
    Download,
    /// One large upload for each connection
    Upload,
    /// Server-sent events: the delay from the origin to the client
    Sse,
    /// Connections that had one answer and are held: memory
    Idle,
}

impl Workload {
    /// As it is spelt on the command line and in results.
    pub(super) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(value_enum)]
    pub(super) workload: Workload,
    /// The proxy as ADDRESS:PORT; without it, connections are direct
    #[arg(long)]
    pub(super) proxy: Option<SocketAddr>,
    #[arg(long, default_value = "127.0.0.77:443")]
    pub(super) origin: SocketAddr,
    /// Where the origin's counters are; empty to leave them out
    #[arg(long, default_value = "127.0.0.77:8077")]
    pub(super) admin: String,
    /// A file with CAs to trust (the proxy's, the origin's); may be repeated
    #[arg(long)]
    pub(super) ca: Vec<PathBuf>,
    #[arg(long, default_value = "a.bench.test")]
    pub(super) host: String,
    /// A new host for each connection: PREFIXnnnnnn.ZONE
    #[arg(long, value_name = "PREFIX")]
    pub(super) many: Option<String>,
    #[arg(long, default_value = "bench.test")]
    pub(super) zone: String,
    #[arg(long, default_value_t = 1)]
    pub(super) conns: usize,
    /// Streams at once on each connection (HTTP/2)
    #[arg(long, default_value_t = 1)]
    pub(super) streams: usize,
    #[arg(long)]
    pub(super) h2: bool,
    /// Seconds that are measured (get, conn, deny, idle)
    #[arg(long, default_value_t = 5.0)]
    pub(super) duration: f64,
    /// Seconds before that (get, conn, deny)
    #[arg(long, default_value_t = 1.0)]
    pub(super) warmup: f64,
    /// So many operations instead of a time (conn, deny)
    #[arg(long)]
    pub(super) count: Option<u64>,
    /// Bytes of an answer, or of an upload
    #[arg(long, default_value_t = 1024)]
    pub(super) bytes: u64,
    /// Events of each stream (sse)
    #[arg(long, default_value_t = 200)]
    pub(super) events: u64,
    /// Milliseconds between events (sse)
    #[arg(long, default_value_t = 10)]
    pub(super) every: u64,
    /// Seconds between the last connection and the look at memory (idle)
    #[arg(long, default_value_t = 2.0)]
    pub(super) settle: f64,
    /// Resume TLS sessions; otherwise every handshake is a full one
    #[arg(long)]
    pub(super) resume: bool,
    /// Offer X25519MLKEM768 first
    #[arg(long)]
    pub(super) pq: bool,
    /// A process whose tree's CPU and memory to report; may be repeated
    #[arg(long, value_name = "NAME=PID")]
    pub(super) watch: Vec<String>,
    /// Seconds that one operation may take
    #[arg(long, default_value_t = 15.0)]
    pub(super) timeout: f64,
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
}
