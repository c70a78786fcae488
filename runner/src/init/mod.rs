//! The first process of every sandbox, `sluice-init`.
//!
//! It is ours, it is static, and it is mounted into whatever image a run uses.
//! Before the command exists it measures what isolation is in force
//! ([`measure`]) and tells the runner, which answers `go` or hangs up; so a
//! command never starts in a sandbox that is weaker than planned. Afterwards it
//! reaps, passes signals on, keeps the deadline by itself, and says how the
//! command ended ([`supervise`]).
//!
//! The two speak over a socket ([`wire`]) whose first connection is this
//! process's, made before any command could run: nothing else in the sandbox
//! can speak for it. When the runner is gone the connection breaks, and a
//! sandbox that nobody watches ends itself.
//!
//! A sandbox that is kept for several commands has none of its own. Its first
//! process [`serve`]s a socket instead, which nothing in the sandbox can see, and
//! keeps its time when the runner is long gone.
//!
//! Nothing here needs more than the standard library and system calls: the
//! program is one file in an image that may hold nothing else.

pub mod charge;
mod crowd;
pub mod files;
pub mod measure;
pub mod passing;
mod serve;
pub mod supervise;
pub mod terminal;
pub mod wire;
