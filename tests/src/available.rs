//! What this machine has, and saying loudly what it has not.

use std::env;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;

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
        let tried = Command::new(python).args(["-c", &imports]).output();
        tried.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        modules.iter().for_each(|module| skip(module));
    }
    found
}

/// Whether a program is in `PATH`; if not, the test says so and ends.
pub fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        skip(program);
    }
    found
}

/// Says that something is missing, where it is seen.
///
/// `SLUICE_TEST_REQUIRE` lists by comma what must not be missing, or is `all`: a
/// machine that is meant to have it must not skip in silence.
pub fn skip(what: &str) {
    let required = env::var("SLUICE_TEST_REQUIRE").unwrap_or_default();
    assert!(
        required != "all" && !required.split(',').any(|name| name.trim() == what),
        "SLUICE_TEST_REQUIRE asks for {what}, and it is not here"
    );
    // Not the macro, whose output is shown only when a test fails.
    let line = format!("SKIP: {what} is not here\n");
    io::stderr().write_all(line.as_bytes()).unwrap();
}
