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

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

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

/// An upstream for one request, at this port: it answers with `body`, and gives the head
/// that it was asked with.
fn answering_once(body: String) -> (u16, JoinHandle<String>) {
    let upstream = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = upstream.local_addr().unwrap().port();
    let serving = thread::spawn(move || {
        let (mut stream, _) = upstream.accept().unwrap();
        let mut head = [0; 1024];
        let length = stream.read(&mut head).unwrap();
        let fields = format!("Content-Length: {}\r\nConnection: close", body.len());
        let answer = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8_lossy(&head[..length]).into_owned()
    });
    (port, serving)
}
