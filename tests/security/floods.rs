//! B17, G6: whatever a peer sends is counted and bounded.
//!
//! Each kind of frame, and each kind of filler of HTTP/1.1, is sent without end
//! from either side, to a gateway whose other side reads or does not. The
//! gateway is the program that ships, in a process of its own: what it may grow
//! by is a bound far below what the flood would make it hold.

mod counted;
mod frames;
mod pour;

use std::fs;
use std::sync::Arc;

use serde_json::Value;
use tests::memory::{MIB, peak, resident};
use tests::{Plan, Way, World, until};
use tokio::sync::mpsc;

use frames::{FLOODS, Flood, PREFACE, request, response_head, settings};
use pour::{Poured, drain, next_head, pour};

/// What one flood may make the gateway grow by.
const MOST_GROWTH: u64 = 64 * MIB;

/// What a flood did.
struct Outcome {
    poured: Poured,
    grown: u64,
    received: u64,
}

/// An upstream that answers the first request on each connection with a flood.
fn flooding(flood: &'static Flood, reads: bool, tell: mpsc::UnboundedSender<Poured>) -> Plan {
    let tell = Arc::new(tell);
    Plan::scripted(move |peer| {
        let tell = Arc::clone(&tell);
        async move {
            let (mut reading, mut writing) = tokio::io::split(peer.line.into_stream());
            pour::say(&mut writing, &settings()).await;
            let Some(stream) = next_head(&mut reading, PREFACE.len()).await else { return };
            if flood.after_head {
                pour::say(&mut writing, &response_head(stream)).await;
            }
            let draining = reads.then(|| tokio::spawn(drain(reading)));
            tell.send(pour(&mut writing, stream, flood).await).ok();
            if let Some(draining) = draining {
                draining.abort();
            }
        }
    })
    .alpn(&["h2"])
}

fn host(flood: &Flood, reads: bool) -> String {
    format!("{}-{}.test", flood.name, if reads { "read" } else { "unread" })
}

/// Writes one line of the table that the documents have.
#[expect(clippy::print_stdout, reason = "seen with --nocapture alone")]
fn print(side: &str, flood: &str, reads: bool, outcome: &Outcome) {
    println!(
        "| {flood} | {side} | {} | {:.1} | {} | {} | {} |",
        if reads { "read" } else { "unread" },
        outcome.poured.sent as f64 / MIB as f64,
        outcome.poured.how.name(),
        outcome.grown / MIB,
        outcome.received,
    );
}

/// Forgets the most memory that a process ever held.
fn forget_peak(pid: u32) -> u64 {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    resident(pid)
}

fn received(records: &[Value], host: &str) -> u64 {
    let of = |record: &&Value| record["server.address"] == host;
    records.iter().filter(of).filter_map(|r| r["sluice.bytes.received"].as_u64()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_frame_of_an_upstream_can_be_sent_without_end() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut entries = vec!["{host: allowed.test}".to_owned()];
    let mut setup = World::new();
    for flood in FLOODS {
        for reads in [true, false] {
            let name = host(flood, reads);
            setup = setup.upstream(&name, flooding(flood, reads, tell.clone()));
            entries.push(format!("{{host: {name}}}"));
        }
    }
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    let world = setup.policy(&tests::world::policy(&entries)).start_program().await;
    world.assert_still_serves().await;
    let mut failed = Vec::new();
    for flood in FLOODS {
        for reads in [true, false] {
            let name = host(flood, reads);
            let line = world.sandbox.tls(Way::Proxy, &name, &["h2"]).await.unwrap();
            let (reading, mut writing) = tokio::io::split(line.into_stream());
            let before = forget_peak(world.pid());
            pour::say(&mut writing, &[PREFACE, &settings(), &request(1, &name)].concat()).await;
            let draining = reads.then(|| tokio::spawn(drain(reading)));
            let poured = tests::within("the flood's end", told.recv()).await.unwrap();
            let grown = peak(world.pid()).saturating_sub(before);
            drop(writing);
            if let Some(draining) = draining {
                draining.abort();
            }
            let record = || {
                let records = world.audit.of_kind("request");
                let ended = records.iter().any(|record| record["server.address"] == *name);
                ended.then_some(records)
            };
            let received = received(&until("its record", record).await, &name);
            let outcome = Outcome { poured, grown, received };
            print("upstream", flood.name, reads, &outcome);
            if grown > MOST_GROWTH {
                failed.push(format!("{name} took {} MiB", grown / MIB));
            }
            if reads && !flood.is_content && !outcome.poured.how.is_ended() {
                failed.push(format!("{name} was never ended"));
            }
        }
    }
    world.assert_still_serves().await;
    assert!(failed.is_empty(), "{failed:#?}");
    world.end_cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_frame_of_a_client_can_be_sent_without_end() {
    // Answers with a head and then nothing, so that streams stay.
    let quiet = Plan::scripted(|peer| async move {
        let (mut reading, mut writing) = tokio::io::split(peer.line.into_stream());
        pour::say(&mut writing, &settings()).await;
        let mut skip = PREFACE.len();
        while let Some(stream) = next_head(&mut reading, skip).await {
            skip = 0;
            pour::say(&mut writing, &response_head(stream)).await;
        }
    })
    .alpn(&["h2"]);
    let world =
        World::allowing(&["{host: allowed.test}", "{host: two.test, methods: [GET, POST]}"])
            .upstream("two.test", quiet)
            .start_program()
            .await;
    world.assert_still_serves().await;
    let mut failed = Vec::new();
    for flood in FLOODS {
        for reads in [true, false] {
            let line = world.sandbox.tls(Way::Proxy, "two.test", &["h2"]).await.unwrap();
            let (reading, mut writing) = tokio::io::split(line.into_stream());
            let before = forget_peak(world.pid());
            pour::say(&mut writing, &[PREFACE, &settings(), &request(1, "two.test")].concat())
                .await;
            let draining = reads.then(|| tokio::spawn(drain(reading)));
            let poured = pour(&mut writing, 1, flood).await;
            let grown = peak(world.pid()).saturating_sub(before);
            drop(writing);
            if let Some(draining) = draining {
                draining.abort();
            }
            let outcome = Outcome { poured, grown, received: 0 };
            print("client", flood.name, reads, &outcome);
            if grown > MOST_GROWTH {
                failed.push(format!("{} ({reads}) took {} MiB", flood.name, grown / MIB));
            }
            if reads && !flood.is_content && !outcome.poured.how.is_ended() {
                failed.push(format!("{} was never ended", flood.name));
            }
        }
    }
    world.assert_still_serves().await;
    assert!(failed.is_empty(), "{failed:#?}");
    world.end_cut().await;
}

/// The fillers of HTTP/1.1, from the upstream and from the client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_filler_of_http1_can_be_sent_without_end() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    const POST: &str = "POST / HTTP/1.1\r\nHost: one.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    let extension = format!("1;{}\r\nx\r\n", "a".repeat(200));
    let from_upstream: [(&'static str, &'static str, String); 5] = [
        ("hints", "", "HTTP/1.1 103 Early Hints\r\n\r\n".to_owned()),
        ("header fields", "HTTP/1.1 200 OK\r\n", "a: b\r\n".to_owned()),
        ("empty lines", "", "\r\n".to_owned()),
        ("chunk extensions", HEAD, extension.clone()),
        (
            "chunked trailers",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            "a: b\r\n".to_owned(),
        ),
    ];
    let from_client = [
        ("header fields", "GET / HTTP/1.1\r\nHost: one.test\r\n", "a: b\r\n".to_owned()),
        ("empty lines", "", "\r\n".to_owned()),
        ("chunk extensions", POST, extension),
        (
            "chunked trailers",
            "POST / HTTP/1.1\r\nHost: one.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            "a: b\r\n".to_owned(),
        ),
    ];
    let pipelined = "GET / HTTP/1.1\r\nHost: one.test\r\n\r\n";
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut entries = vec![
        "{host: allowed.test}".to_owned(),
        "{host: one.test, methods: [GET, POST]}".to_owned(),
    ];
    let mut setup = World::new().upstream("one.test", Plan::echoing());
    for (index, (_, first, filler)) in from_upstream.iter().enumerate() {
        let (name, tell) = (format!("one-{index}.test"), tell.clone());
        let (first, filler) = (*first, filler.repeat(16 * 1024 / filler.len()));
        let plan = Plan::scripted(move |mut peer| {
            let (filler, tell) = (filler.clone(), tell.clone());
            async move {
                peer.request().await;
                peer.line.send(first).await;
                let mut stream = peer.line.into_stream();
                tell.send(pour::pour_bytes(&mut stream, filler.as_bytes()).await).ok();
            }
        });
        setup = setup.upstream(&name, plan);
        entries.push(format!("{{host: {name}}}"));
    }
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    let world = setup.policy(&tests::world::policy(&entries)).start_program().await;
    world.assert_still_serves().await;
    let mut failed = Vec::new();
    for (index, (what, ..)) in from_upstream.iter().enumerate() {
        for reads in [true, false] {
            let name = format!("one-{index}.test");
            let mut line = world.sandbox.tls(Way::Proxy, &name, &["http/1.1"]).await.unwrap();
            let before = forget_peak(world.pid());
            line.send(format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n")).await;
            let (reading, writing) = tokio::io::split(line.into_stream());
            let draining = reads.then(|| tokio::spawn(drain(reading)));
            let poured = tests::within("the flood's end", told.recv()).await.unwrap();
            let grown = peak(world.pid()).saturating_sub(before);
            drop((writing, draining));
            let outcome = Outcome { poured, grown, received: 0 };
            print("upstream, HTTP/1.1", what, reads, &outcome);
            if grown > MOST_GROWTH || !poured.how.is_ended() {
                failed.push(format!("{what} of an upstream, read: {reads}"));
            }
        }
    }
    for (what, first, filler) in &from_client {
        let filler = filler.repeat(16 * 1024 / filler.len());
        let mut line = world.sandbox.tls(Way::Proxy, "one.test", &["http/1.1"]).await.unwrap();
        let before = forget_peak(world.pid());
        line.send(first).await;
        let (reading, mut writing) = tokio::io::split(line.into_stream());
        let draining = tokio::spawn(drain(reading));
        let poured = pour::pour_bytes(&mut writing, filler.as_bytes()).await;
        let grown = peak(world.pid()).saturating_sub(before);
        drop((writing, draining));
        print("client, HTTP/1.1", what, true, &Outcome { poured, grown, received: 0 });
        if grown > MOST_GROWTH || !poured.how.is_ended() {
            failed.push(format!("{what} of a client"));
        }
    }
    let mut line = world.sandbox.tls(Way::Proxy, "one.test", &["http/1.1"]).await.unwrap();
    let before = forget_peak(world.pid());
    line.send(pipelined).await;
    let (_unread, mut writing) = tokio::io::split(line.into_stream());
    let poured = pour::pour_bytes(&mut writing, pipelined.repeat(400).as_bytes()).await;
    let grown = peak(world.pid()).saturating_sub(before);
    print("client, HTTP/1.1", "pipelined requests", false, &Outcome { poured, grown, received: 0 });
    assert!(grown < MOST_GROWTH, "pipelined requests took {} MiB", grown / MIB);
    drop((_unread, writing));
    world.assert_still_serves().await;
    assert!(failed.is_empty(), "{failed:#?}");
    world.end_cut().await;
}
