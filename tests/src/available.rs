//! What this machine has. What it lacks is skipped.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;

use crate::deadline::CommandDeadline as _;
pub use crate::skip::{is_installed, skip};

/// An address of this machine that is not loopback and not public, so that it is
/// dialled only where a rule names it; if there is none, the test says so and ends.
pub fn own_address() -> Option<Ipv4Addr> {
    match routed_address() {
        Some(IpAddr::V4(address)) if address.is_private() || address.is_documentation() => {
            Some(address)
        }
        _ => {
            skip("a private address");
            None
        }
    }
}

/// The address that packets to elsewhere would bear. None is sent.
#[expect(clippy::disallowed_methods, reason = "connecting UDP sends nothing")]
fn routed_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// A Python that can import these modules; if there is none, the test says so
/// and ends.
pub fn python(modules: &[&str]) -> Option<PathBuf> {
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tools/venv/bin/python3");
    let candidates = [PathBuf::from(tools), PathBuf::from("python3")];
    let imports = format!("import {}", modules.join(", "));
    let found = candidates.into_iter().find(|python| {
        let tried = Command::new(python).args(["-c", &imports]).output_in_time();
        tried.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        modules.iter().for_each(|module| skip(module));
    }
    found
}
