//! A relay: doors of a sandbox that reach their gateway over one stream.
//!
//! Where the gateway's sockets can be opened in a sandbox, nothing of this is used. Where
//! they cannot (a second kernel, another machine) the sandbox's first process opens
//! doors of its own, without any privilege ([`doors`]), and announces every connection
//! over a channel. Outside, a process that owns a network like the sandbox's makes the
//! same connection there, where nobody but the gateway listens ([`twin`]). What crosses
//! the channel is `protocol::relay`.
//!
//! Both ends are one engine: what they must keep of every stream is [`table`] and [`stream`], which
//! does no I/O and judges every frame; what they do about it is [`event_loop`], with
//! the sockets in [`local`]. The end inside is untrusted, and nothing depends on it: it can say
//! no more than a program of the sandbox that connects to a door.
//!
//! **Invariant:** whatever the other end sends, memory is bounded, nothing blocks, and
//! what breaks the protocol ends the channel with everything in it.

pub(crate) mod doors;
mod event_loop;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod local;
mod stream;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod twin;

pub(crate) use event_loop::RelayEnd;
