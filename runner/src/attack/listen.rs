//! A sandbox that others might reach: it listens everywhere, and tells when
//! somebody comes.
//!
//! The first line says where it is: its own addresses, and its gateway's. Every
//! later one is a visitor, which there must not be.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::ExitCode;

use crate::inside::names;

/// `init attack listen PORT TOKEN`.
#[expect(clippy::print_stdout, reason = "this is a program's own output")]
pub(super) fn main(arguments: &[String]) -> ExitCode {
    let [port, token] = arguments else { return ExitCode::from(2) };
    let Ok(port) = port.parse::<u16>() else { return ExitCode::from(2) };
    let listener = match TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)) {
        Ok(listener) => listener,
        Err(err) => {
            println!("cannot listen: {err}");
            return ExitCode::FAILURE;
        }
    };
    let here: Vec<String> = own_addresses().iter().map(ToString::to_string).collect();
    let gateway = names::in_hosts("gateway.sluice").map(|at| at.to_string()).unwrap_or_default();
    println!("listening {} gateway {gateway}", here.join(","));
    for visitor in listener.incoming().flatten() {
        println!("visited by {:?}", visitor.peer_addr());
        let mut visitor = visitor;
        drop(write!(visitor, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{token}\n"));
    }
    ExitCode::SUCCESS
}

/// Every local IPv4 address beyond loopback, as the kernel's table has them.
pub fn own_addresses() -> Vec<IpAddr> {
    let table = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let mut found: Vec<Ipv4Addr> = Vec::new();
    let mut last = None;
    for line in table.lines() {
        if let Some(address) = line.trim().strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line.contains("/32 host LOCAL")
            && let Some(address) = last
            && !address.is_loopback()
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found.into_iter().map(IpAddr::from).collect()
}
