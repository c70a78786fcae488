//! What happened, where nobody can unsay it.
//!
//! A log is a folder of lines, one JSON object each ([`event`] is the format),
//! chained by SHA-256 and written by one thread. The gateway holds an [`Entry`]
//! for every connection and request it serves; an entry that cannot be had means
//! that nothing may pass. When a run ends its folder is sealed ([`seal()`]), and
//! from then on [`verify()`] names the first byte that is not as it was.
//!
//! ```
//! use audit::{Decision, Destination, Key, Log, Options, Outcome, Request, Verdict};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let home = tempfile::tempdir()?;
//! # let folder = home.path().join("runs/run-1");
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let (log, opening) = Log::open(&folder, Options::new("run-1"))?;
//! assert!(opening.recovered.is_none());
//!
//! // One entry per request. Facts are filled in as they become known.
//! let mut entry = log.begin(Request::default())?;
//! entry.destination = Destination::new("api.github.com", 443);
//! entry.http.method = Some("POST".into());
//! entry.decision = Decision { verdict: Some(Verdict::Allow), ..Decision::default() };
//! entry.opened().await?; // safe on disk: now the first byte may leave
//! entry.http.status = Some(201);
//! entry.close(Outcome::Relayed);
//!
//! // A task that panics or is dropped leaves its record all the same.
//! drop(log.begin(Request::default())?);
//! log.close().await?;
//!
//! // Sealed, checked, searched.
//! let key = Key::load_or_create(&home.path().join("keys/seal.pem"))?;
//! audit::seal(&folder, &key)?;
//! let verified = audit::verify(&folder, &[key.public()])?;
//! assert_eq!(verified.log.unwrap().head.seq, 5);
//!
//! let query = audit::search::Query { status: "2xx".parse().ok(), ..Default::default() };
//! assert_eq!(audit::search::search(&folder, &query)?.count(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })
//! # }
//! ```
//!
//! **Invariant:** an entry has exactly one closing line, also on drop and panic.
//! **Invariant:** after a failed write nothing is begun; after a full disk, until
//! there is room.
//! **Invariant:** a line is printable ASCII, whatever a peer called itself.
//! **Invariant:** no type of [`event`] has a place for a secret or a body.

pub mod chain;
mod digest;
pub mod event;
pub mod export;
mod folder_lock;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod id;
mod key;
pub mod line;
mod lines;
pub mod log;
pub mod seal;
pub mod search;
mod secret;
pub mod segment;
mod text;
mod time;
pub mod verify;

pub use chain::Head;
pub use digest::{Digest, NotADigest};
pub use event::{
    Client, Connection, Decision, Destination, Dns, Event, Facts, Failure, Finding, Handling, Hold,
    HoldState, Http, Kind, Limit, Note, Opened, Operator, Origin, Outcome, PolicyLoaded,
    PolicyRefused, Request, Run, RunEnded, RunStarted, Sighting, Timing, Tls, Traffic, Verdict,
    WayIn, What,
};
pub use key::{Key, KeyError, NotAPublicKey, PublicKey};
pub use lines::Place;
pub use log::{
    Durable, Entry, Folder, Health, Log, Notice, OpenError, Opening, Options, Previous, Sink, Step,
    Sync, Ticket, Unavailable,
};
pub use seal::{Seal, SealError, SealFault, seal};
pub use secret::{NotAName, SecretName, SecretNames};
pub use text::{Long, Name, Text};
pub use time::{Millis, Time};
pub use verify::{Break, Fault, Verified, VerifiedLog, VerifiedSeal, VerifyError, verify};
