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
mod floods;
mod framing;
mod judged_is_sent;
mod names;
mod noise;
mod podman;
mod prerequisites;
mod readings;
mod selftest;
mod slow_leaks;
mod spaces;
mod the_box;
mod websocket;

use tests::boxes::Programs;

/// What sandboxes are made with.
fn programs() -> Programs {
    Programs {
        sluice: env!("CARGO_BIN_EXE_sluice-under-test"),
        init: env!("CARGO_BIN_EXE_sluice-init-under-test"),
        probe: env!("CARGO_BIN_EXE_sluice-probe-under-test"),
        gateway: env!("CARGO_BIN_EXE_sluice-gateway-under-test"),
        launch: env!("CARGO_BIN_EXE_sluice-launch-under-test"),
    }
}
