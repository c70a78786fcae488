//! A gateway as a whole: what it holds, and its end, in order.

use std::fs;

use audit::RequestFacts;
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::*;
use crate::control::{ask, status};

#[tokio::test]
async fn who_finds_nobody_at_the_control_socket_finds_the_log_closed() {
    let (server, place) = start(1).await;
    let socket = place.path().join("run/c.sock");
    let log = server.gateway.log.clone();
    // As long as it is open, the log cannot be closed.
    let entry = log.begin(RequestFacts::default()).expect("the log is open");

    let ending = tokio::spawn(server.drain());
    while !matches!(log.begin(RequestFacts::default()), Err(audit::Unavailable::Closed)) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    status(&socket).await.expect("it answers while its log is being closed");
    drop(entry);
    assert_eq!(ending.await.expect("it ends"), Drained::All);
    status(&socket).await.expect_err("there is nobody");
    let lines = fs::read_to_string(place.path().join("audit/audit.jsonl")).expect("it is there");
    assert!(lines.lines().next_back().is_some_and(|line| line.contains("log_closed")), "{lines}");
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a test is on the sandbox's side of the gateway")]
async fn tasks_of_every_worker_are_counted_until_they_end() {
    let (server, place) = start(3).await;
    let socket = place.path().join("run/c.sock");
    let before = tasks(&socket).await;
    let at = &server.listening()[0].address;
    let mut clients = Vec::new();
    for _ in 0..30 {
        clients.push(TcpStream::connect(at).await.expect("it listens"));
    }
    // Each connection is a task of the worker that accepted it.
    while tasks(&socket).await < before + clients.len() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(clients);
    while tasks(&socket).await > before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(server.drain().await, Drained::All);
}

async fn tasks(socket: &Path) -> usize {
    let (_, page) = ask(socket, "GET", "/metrics", "").await.expect("it answers");
    let value = page.lines().find_map(|line| line.strip_prefix("sluice_tasks "));
    value.and_then(|value| value.parse().ok()).expect("the gauge is there")
}

async fn start(workers: usize) -> (Server, TempDir) {
    let place = tempfile::tempdir().expect("a directory can be made");
    let settings = place.path().join("gateway.yaml");
    let text = "run: end\npolicy: p.yaml\nlisten: {proxy: 127.0.0.1:0, dns: 127.0.0.1:0}\n\
                control: run/c.sock\naudit: audit\n";
    fs::write(&settings, text).expect("a file can be written");
    fs::write(place.path().join("p.yaml"), "version: 1\n").expect("a file can be written");
    let config = crate::config::load(&settings).expect("the settings are right");
    let config = Config { workers, ..config };
    (Server::start(config, Inherited::nothing()).await.expect("it starts"), place)
}
