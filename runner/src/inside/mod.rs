//! Small tools that `sluice-init` brings into every sandbox: an image may hold
//! nothing else.
//!
//! `sluice doctor`, `selftest` and `demo` need a client that is there whatever
//! the image is, that speaks through the proxy or past it, and that believes
//! exactly what the trust kit says. They are clients like any other: a command
//! could bring the same.

pub mod fetch;
pub mod names;
pub mod tools;
pub mod walk;
