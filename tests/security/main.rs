//! What must not happen: one test per line of the list of attacks.
//!
//! "Denied" means four things, and [`tests::World::assert_denied`] asks for all
//! of them: nobody is contacted and no name is asked for, the client is told in
//! its own protocol, one record says who and why, and nobody else is disturbed.
//! `evil.test` has a real upstream and could be reached, so that a defence that
//! fails is seen to fail.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what does not hold in a test ends it"
)]

mod addresses;
mod attacked;
mod contacted;
mod control;
mod files;
mod framing;
mod names;
mod noise;
mod podman;
mod prerequisites;
mod spaces;
mod the_box;
