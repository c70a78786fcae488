//! `sluice-probe`: what tries a sandbox from inside, whatever its image holds.
//!
//! [`attack`] is what escapes are made of, for `sluice selftest`. `sluice doctor`
//! and `sluice demo` need a client that speaks through the proxy or past it and
//! believes exactly what the trust kit says. Any command could bring the same;
//! no user's sandbox holds this program.

pub mod attack;
pub mod fetch;
pub mod tools;
pub mod walk;
