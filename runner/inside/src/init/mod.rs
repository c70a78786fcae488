//! The first process of every sandbox, `sluice-init`.
//!
//! It is ours, it is static, and it is mounted into whatever image a run uses.
//! Before any command exists it measures what isolation is in force ([`measure`])
//! and tells the host, which hands it a listening socket or hangs up; so a command
//! never starts in a sandbox that is weaker than planned ([`start`]). From then on
//! it serves that socket ([`server`]): it starts commands, writes what they print
//! where the sandbox cannot reach it, passes signals on, keeps deadlines by itself,
//! reaps, and says how commands ended ([`command`]).
//!
//! Where the gateway's sockets could not be opened in the sandbox, it opens doors by itself
//! and relays them (`relay`), from before it measures.
//!
//! A run is one command with which the sandbox ends; a session has any number of
//! them. The first connection to the host is this process's, made before any command
//! could run, and the socket is nowhere in the sandbox: nothing else in it can speak
//! for us. A sandbox whose starter must stay ends when that connection breaks.
//!
//! Nothing here needs more than the standard library and system calls: the
//! program is one file in an image that may hold nothing else.

mod command;
pub mod files;
pub mod measure;
mod pids_limit;
mod server;
mod spool;
pub mod start;
pub mod terminal;
