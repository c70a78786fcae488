//! The program that ships: started, told, stopped.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tests::CommandDeadline as _;
use tests::world::policy;
use tests::{Peer, Plan, Way, World, until, within};
use tokio::sync::Notify;

fn signal(world: &World, name: &str) {
    let told = Command::new("kill").args([&format!("-{name}"), &world.pid().to_string()]).status();
    assert!(told.unwrap().success());
}

/// Whoever is inside may finish; nobody else comes in; then it ends well.
#[tokio::test]
async fn told_to_stop_it_finishes_what_it_began() {
    let stopping = Arc::new(Notify::new());
    let go_on = Arc::clone(&stopping);
    let slow = Plan::scripted(move |mut peer: Peer| {
        let go_on = Arc::clone(&go_on);
        async move {
            peer.request().await;
            peer.line.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf").await;
            go_on.notified().await;
            peer.line.send("half").await;
            peer.request().await;
        }
    });
    let world = World::allowing(&["{host: allowed.test}", "{host: slow.test}"])
        .limits("drain: 10s")
        .upstream("slow.test", slow)
        .start_program()
        .await;
    let mut idle = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    idle.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    idle.reply().await.assert_relayed(200);
    let mut busy = world.sandbox.tls(Way::Proxy, "slow.test", &["http/1.1"]).await.unwrap();
    busy.send("GET / HTTP/1.1\r\nHost: slow.test\r\n\r\n").await;
    busy.read_through(b"half").await;

    signal(&world, "TERM");

    idle.assert_ends().await;
    stopping.notify_one();
    assert_eq!(busy.take(4).await, b"half");
    busy.assert_ends().await;
    let door = world.sandbox.doors.proxy;
    until("the doors to close", || std::net::TcpListener::bind(door).ok()).await;
    world.end().await;
}

/// What does not end in time is cut, and still has its record.
#[tokio::test]
async fn what_does_not_end_is_cut() {
    let endless = Plan::scripted(|mut peer: Peer| async move {
        peer.request().await;
        peer.line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        while peer.line.try_send(b"4\r\ntick\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let world = World::allowing(&["{host: ticks.test}"])
        .limits("drain: 1s")
        .upstream("ticks.test", endless)
        .start_program()
        .await;
    let mut line = world.sandbox.tls(Way::Proxy, "ticks.test", &["http/1.1"]).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: ticks.test\r\n\r\n").await;
    line.read_through(b"tick").await;
    signal(&world, "TERM");
    line.rest().await;
    let log = world.end_cut().await;
    let requests: Vec<_> = log.iter().filter(|event| event["kind"] == "request").collect();
    assert_eq!(requests.len(), 1, "recorded exactly once");
}

#[tokio::test]
async fn told_to_read_its_policy_again_it_does() {
    let world = World::new().upstream("new.test", Plan::echoing()).start_program().await;
    world.sandbox.get("https://new.test/").await.assert_refused(403, "no_rule");
    let wider = policy(&["{host: allowed.test}", "{host: new.test}"]);
    std::fs::write(world.folder().join("sandbox.policy.yaml"), wider).unwrap();
    signal(&world, "HUP");
    // Recorded first, and in force a moment later.
    within("the new policy", async {
        while world.sandbox.get("https://new.test/").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(world.audit.of_kind("policy_loaded").len(), 2);
    world.end().await;
}

#[tokio::test]
async fn settings_are_checked_without_being_carried_out() {
    let world = World::new().start_program().await;
    let settings = world.folder().join("gateway.yaml");
    let checked = Command::new(tests::program())
        .args(["--check", "--config"])
        .arg(&settings)
        .output_in_time();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    assert!(!checked.stdout.is_empty());

    let text = std::fs::read_to_string(&settings).unwrap();
    let wrong =
        text.replace("audit: audit", "audt: audit").replace("dns: 127.0.0.1:0", "dns: everywhere");
    std::fs::write(world.folder().join("wrong.yaml"), wrong).unwrap();
    let checked = Command::new(tests::program())
        .args(["--check", "--config"])
        .arg(world.folder().join("wrong.yaml"))
        .output_in_time()
        .unwrap();
    assert_eq!(checked.status.code(), Some(2));
    let told = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(told.contains("audt") && told.contains("everywhere"), "every problem at once: {told}");
    world.end().await;
}

/// An image without a shell has no other way to ask.
#[tokio::test]
async fn asked_for_its_health_it_says_whether_it_serves() {
    let world = World::new().start_program().await;
    let settings = world.folder().join("gateway.yaml");
    let health = || {
        let mut asked = Command::new(tests::program());
        asked.args(["--health", "--config"]).arg(&settings).output_in_time().unwrap()
    };
    assert!(health().status.success());
    let folder = world.kill().await;
    let asked = health();
    assert_eq!(asked.status.code(), Some(1));
    let told = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(told.contains("no gateway answers"), "{told}");
    drop(folder);
}

#[tokio::test]
async fn settings_may_name_what_only_the_command_line_knows() {
    let world = World::new().start_program().await;
    let settings = world.folder().join("gateway.yaml");
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(&settings, text.replace("dns: 127.0.0.1:0", "dns: \"${inside}:0\"")).unwrap();
    let check = |given: &[&str]| {
        let mut asked = Command::new(tests::program());
        asked.args(["--check", "--config"]).arg(&settings).args(given).output_in_time().unwrap()
    };
    let told = String::from_utf8_lossy(&check(&[]).stderr).into_owned();
    assert!(told.contains("--set inside=VALUE"), "{told}");
    let told = check(&["--set", "inside=127.0.0.9"]);
    assert!(String::from_utf8_lossy(&told.stdout).contains("127.0.0.9:0"), "{told:?}");
    world.end().await;
}

/// The sandbox is handed a certificate, never the key; and only what it may read.
#[tokio::test]
async fn a_trust_kit_is_there_before_the_gateway_says_it_serves() {
    let world = World::new().settings("trust_kit: kit").start_program().await;
    let kit = world.folder().join("kit");
    let ca = std::fs::read_to_string(kit.join("ca.pem")).unwrap();
    assert_eq!(ca, world.control.get("/ca.pem").await.text());
    for entry in std::fs::read_dir(&kit).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("PRIVATE KEY"));
    }
    world.end().await;
}

/// A dead gateway is no way out: nothing it served goes on without it.
#[tokio::test]
async fn killed_it_takes_everything_with_it() {
    let world = World::new().start_program().await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    line.reply().await.assert_relayed(200);
    let doors = world.sandbox.doors.clone();
    let folder = world.kill().await;
    line.rest().await;
    for door in [doors.proxy, doors.socks, doors.http, doors.https] {
        std::net::TcpListener::bind(door).expect("nobody listens there any more");
    }
    // What it had written holds, as far as it goes.
    let verified = audit::verify(&folder.path().join("audit"), &[]).unwrap();
    assert!(!verified.log.unwrap().closed);
}
