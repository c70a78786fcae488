//! The end of a gateway, in order.

use std::fs;

use audit::RequestFacts;

use super::*;
use crate::control::status;

#[tokio::test]
async fn who_finds_nobody_at_the_control_socket_finds_the_log_closed() {
    let place = tempfile::tempdir().expect("a directory can be made");
    let settings = place.path().join("gateway.yaml");
    let text = "run: end\npolicy: p.yaml\nlisten: {proxy: 127.0.0.1:0, dns: 127.0.0.1:0}\n\
                control: run/c.sock\naudit: audit\n";
    fs::write(&settings, text).expect("a file can be written");
    fs::write(place.path().join("p.yaml"), "version: 1\n").expect("a file can be written");
    let config = crate::config::load(&settings).expect("the settings are right");
    let server = Server::start(config, Inherited::nothing()).await.expect("it starts");
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
