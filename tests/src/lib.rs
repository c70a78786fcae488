//! The gateway from outside: a world around it that does as a test says.
//!
//! A [`World`] has one real gateway with real listeners, scripted upstreams and a
//! scripted name server that remember whatever reaches them, a [`Sandbox`] that
//! speaks bytes, and the [`Evidence`] the gateway leaves. Tests are sorted by
//! promise: `functional/` is what it does, `security/` what it does not let
//! happen, one test per line of the list of attacks.
//!
//! **Invariant:** all traffic stays on loopback.
//! **Invariant:** a world that ended well has a whole audit log in which
//! everything was closed exactly once; [`World::end`] checks it in every test.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "what does not hold in a test ends it"
)]

pub mod authority;
pub mod available;
pub mod boxes;
pub mod control;
pub mod deadline;
pub mod evidence;
pub mod line;
pub mod lying_engine;
pub mod memory;
pub mod postgres;
pub mod reply;
pub mod resolver;
mod running;
pub mod sandbox;
pub mod skip;
pub mod tool;
pub mod upstream;
pub mod websocket;

pub mod world;

pub use authority::Certificate;
pub use available::own_address;
pub use control::Control;
pub use deadline::{ChildDeadline, CommandDeadline, JoinDeadline, until, wait_for, within};
pub use evidence::{Evidence, code};
pub use line::Line;
pub use reply::Reply;
pub use resolver::Resolver;
pub use running::program;
pub use sandbox::{Http2, Sandbox, SocksName, Way};
pub use upstream::{
    Answer, Http2Request, Peer, Plan, Received, Upstream, answering_http2, speaking_http2,
};
pub use world::{Setup, World};
