//! What happened, recorded so that nobody can change it unnoticed.
//!
//! A log is a folder of lines, one JSON object each ([`event`] is the format),
//! chained by SHA-256 and written by one thread. The gateway holds an [`Entry`]
//! for every connection and request it serves; an entry that cannot be had means
//! that nothing may pass. When a run ends its folder is sealed ([`seal()`]), and
//! from then on [`verify()`] names the first byte that is not as it was.
//!
//! ```
//! use audit::{DecisionRecord, DestinationRecord, EntryOutcome, Log, Options, RequestFacts};
//! use audit::{SigningKey, VerdictRecord};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let home = tempfile::tempdir()?;
//! # let folder = home.path().join("runs/run-1");
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let (log, opening) = Log::open(&folder, Options::new("run-1"))?;
//! assert!(opening.recovered.is_none());
//!
//! // One entry per request. Facts are filled in as they become known.
//! let mut entry = log.begin(RequestFacts::default())?;
//! entry.destination = DestinationRecord::new("api.github.com", 443);
//! entry.http.method = Some("POST".into());
//! let verdict = Some(VerdictRecord::Allow);
//! entry.decision = DecisionRecord { verdict, ..DecisionRecord::default() };
//! entry.opened().await?; // safe on disk: now the first byte may leave
//! entry.http.status = Some(201);
//! entry.close(EntryOutcome::Relayed);
//!
//! // A task that panics or is dropped leaves its record all the same.
//! drop(log.begin(RequestFacts::default())?);
//! log.close().await?;
//!
//! // Sealed, checked, searched.
//! let key = SigningKey::load_or_create(&home.path().join("keys/seal.pem"))?;
//! audit::seal(&folder, &key)?;
//! let verified = audit::verify(&folder, &[key.public()])?;
//! assert_eq!(verified.log.unwrap().head.seq, 5);
//!
//! let query = audit::search::SearchQuery { status: "2xx".parse().ok(), ..Default::default() };
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
mod error_chain;
pub mod event;
pub mod export;
mod folder_lock;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod key;
pub mod line;
mod line_reader;
pub mod log;
mod record_id;
pub mod seal;
mod sealing;
pub mod search;
mod secret_name;
pub mod segment;
mod text;
mod time;
pub mod verify;
mod whole_file;

pub use chain::ChainHead;
pub use digest::{Digest, Hasher, NotADigest};
pub use error_chain::ErrorChain;
pub use event::{
    ClientRecord, ConnectionFacts, DecisionRecord, DestinationRecord, DnsFacts, EntryFacts,
    EntryOutcome, Event, EventBody, EventKind, FailureRecord, FindingEvent, Handling, Hold,
    HoldState, Http, LimitEvent, LogOrigin, NegotiatedTls, Note, OpenedEvent, Operator, PeerRecord,
    PolicyLoaded, PolicyRefused, RequestFacts, RunEnded, RunName, RunStarted, Sighting, Timing,
    TrafficRecord, VerdictRecord, WayIn,
};
pub use key::{KeyError, NotAPublicKey, PublicKey, SigningKey};
pub use line_reader::LinePosition;
pub use log::{
    Durable, Entry, Folder, FoundLog, Health, Log, LogNotice, OpenError, Options, PreviousWriter,
    Sink, SyncPolicy, Ticket, Unavailable, WriterStep,
};
pub use seal::{Seal, SealFault};
pub use sealing::{SealError, seal, seal_knowing};
pub use secret_name::{NotASecretName, RecordedSecret, RecordedSecrets};
pub use text::{Long, Name, Text};
pub use time::{Millis, Time};
pub use verify::{Break, Fault, Verified, VerifiedLog, VerifiedSeal, VerifyError, verify};
pub use whole_file::{put_whole_file, write_whole_file};
