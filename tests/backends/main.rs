//! One suite for every backend this machine has: the promise is the same for all.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what does not hold in a test ends it"
)]

mod after_work;
mod at_once;
mod attachments;
mod automatic;
mod delegated;
mod doors;
mod ends;
mod engines;
mod leftovers;
mod library;
mod network;
mod outside;
mod overrides;
mod pools;
mod races;
mod sessions;
mod streams;
mod terminals;
mod unprivileged;
mod unprotected;
mod workspace;

use tests::boxes::{Person, Programs};

fn programs() -> Programs {
    Programs {
        sluice: env!("CARGO_BIN_EXE_sluice-under-test"),
        init: env!("CARGO_BIN_EXE_sluice-init-under-test"),
        probe: env!("CARGO_BIN_EXE_sluice-probe-under-test"),
        gateway: env!("CARGO_BIN_EXE_sluice-gateway-under-test"),
        launch: env!("CARGO_BIN_EXE_sluice-launch-under-test"),
    }
}

/// Somebody on each backend that is here.
fn people() -> Vec<Person> {
    Person::everywhere(programs())
}
