//! What an operator can ask of a running gateway, over a unix socket.
//!
//! The socket stands in a directory that only we can enter, and it asks the
//! kernel who is calling besides. It is never mounted into a sandbox. HTTP/1.1
//! is spoken on it because every tool has a client for that:
//!
//! ```text
//! curl --unix-socket run/control.sock http://gateway/status
//! ```
//!
//! [`action`] is the list of what can be asked, and the only place where it is
//! done. The types of the answers are in [`protocol::control`].

mod action;
mod ask;
mod error;
mod serve;
mod socket;

pub(crate) use action::{Action, ControlCaller, Controller};
pub use ask::{ask, status};
pub(crate) use error::ActionError;
pub(crate) use serve::serve;
pub(crate) use socket::ControlSocket;
pub use socket::SocketError;

#[cfg(test)]
mod tests;
