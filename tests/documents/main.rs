//! The documents are true: what they name exists, and what they tell people to
//! type works.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what does not hold in a test ends it"
)]

mod crates;
mod first_page;
mod named;
mod pages;
mod reliability;
mod runbook;
mod test_script;

use tests::boxes::Programs;

fn programs() -> Programs {
    Programs {
        sluice: env!("CARGO_BIN_EXE_sluice-under-test"),
        init: env!("CARGO_BIN_EXE_sluice-init-under-test"),
        probe: env!("CARGO_BIN_EXE_sluice-probe-under-test"),
        gateway: env!("CARGO_BIN_EXE_sluice-gateway-under-test"),
        launch: env!("CARGO_BIN_EXE_sluice-launch-under-test"),
    }
}
