//! A sandbox that others might reach: it listens everywhere, and tells when
//! somebody comes.
//!
//! The first line says where it is: its own addresses, and its gateway's. Every
//! later one is a visitor, which there must not be, or something that it needs
//! and could not have for a moment.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use super::pools;
use crate::names;

/// `sluice-probe attack listen PORT TOKEN`.
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
    thread::spawn(|| pools::keep_asking(|line| println!("{line}")));
    for visitor in listener.incoming().flatten() {
        println!("visited by {:?}", visitor.peer_addr());
        let token = token.clone();
        thread::spawn(move || tell(visitor, &token));
    }
    ExitCode::SUCCESS
}

/// Tells a visitor the token, which proves that they were here. They are heard
/// first and answered in one piece: a connection closed over something unread is
/// reset, and what was not yet sent is lost.
pub fn tell(mut visitor: TcpStream, token: &str) {
    drop(visitor.set_read_timeout(Some(Duration::from_secs(2))));
    let mut asked = [0; 1024];
    drop(visitor.read(&mut asked));
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n", token.len() + 1);
    let answer = format!("{head}Connection: close\r\n\r\n{token}\n");
    drop(visitor.write_all(answer.as_bytes()));
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
