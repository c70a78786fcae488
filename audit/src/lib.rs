//! What happened, where nobody can unsay it.

pub mod chain;
mod digest;
pub mod event;
pub mod export;
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
    HoldState, Http, Kind, Limit, Note, Opened, Operator, Outcome, PolicyLoaded, PolicyRefused,
    Request, Run, RunEnded, RunStarted, Sighting, Timing, Tls, Traffic, Verdict, WayIn, What,
};
pub use key::{Key, KeyError, NotAPublicKey, PublicKey};
pub use lines::Place;
pub use log::{
    Entry, Folder, Health, Log, OpenError, Opening, Options, Previous, Sink, Step, Sync,
    Unavailable,
};
pub use seal::{Seal, SealError, SealFault, seal};
pub use secret::{NotAName, SecretName, SecretNames};
pub use text::{Long, Name, Text};
pub use time::{Millis, Time};
pub use verify::{Break, Fault, Verified, VerifiedLog, VerifiedSeal, VerifyError, verify};
