//! Counted where it leaves and where it comes in, and recorded.

use serde_json::Value;
use tests::{Plan, Way, World, code, until, within};

use super::frames::{PREFACE, frame, request, settings};
use super::pour::{self, next_head};

const MOST: usize = 8 << 20;

/// Sends `some` again and again; how much until the gateway hung up.
async fn until_hung_up(mut line: tests::Line, some: Vec<u8>) -> usize {
    let mut sent = 0;
    while sent < MOST && matches!(within("a write", line.try_send(&some)).await, Ok(())) {
        sent += some.len();
    }
    sent
}

/// Waits until what all requests sent and received is what the metrics say: a
/// record is written a moment after its answer.
async fn assert_metrics_agree(world: &World) {
    let agree = async {
        loop {
            let (recorded, counted) = both_counts(world).await;
            if recorded == counted {
                return;
            }
            assert!(recorded <= counted, "{recorded:?} recorded, {counted:?} counted");
            tokio::task::yield_now().await;
        }
    };
    within("records and metrics to agree", agree).await;
}

/// Received and sent, as recorded and as counted.
async fn both_counts(world: &World) -> ([u64; 2], [u64; 2]) {
    let metrics = world.control.get("/metrics").await.text();
    let counted = |name: &str| -> u64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    let requests = world.audit.of_kind("request");
    let sum = |field: &str| requests.iter().filter_map(|r| r[field].as_u64()).sum::<u64>();
    (
        [sum("sluice.bytes.received"), sum("sluice.bytes.sent")],
        [counted("sluice_downloaded_bytes_total "), counted("sluice_uploaded_bytes_total ")],
    )
}

fn policy(limits: &str) -> String {
    format!(
        "version: 1\nnet:\n  enabled: true\n  limits: {{{limits}}}\n  allow:\n    \
         - {{host: allowed.test}}\n    - {{host: two.test}}\n    - {{host: nobody.test}}\n"
    )
}

/// B17: hints in HTTP/2 have no window and were no bytes.
#[tokio::test]
async fn hints_of_an_http2_upstream_are_counted_and_end() {
    let hinting = Plan::scripted(|mut peer| async move {
        peer.line.send(settings()).await;
        let (mut reading, mut writing) = tokio::io::split(peer.line.into_stream());
        let Some(id) = next_head(&mut reading, PREFACE.len()).await else { return };
        // `:status: 103`, and a field of a thousand bytes.
        let field = [&[0x00, 1, b'a', 0x7f, 0xe9, 0x06][..], &[b'x'; 1000]].concat();
        let block = [&[0x08, 3, b'1', b'0', b'3'][..], &field].concat();
        let hints = frame(1, 4, id, &block).repeat(16);
        let mut sent = 0;
        while sent < MOST && pour::try_say(&mut writing, &hints).await {
            sent += hints.len();
        }
    })
    .alpn(&["h2"]);
    let world = World::new()
        .policy(&policy("download: 1MiB"))
        .upstream("two.test", hinting)
        .start_program()
        .await;
    let mut client = world.sandbox.http2(Way::Proxy, "two.test").await;
    client.get("https://two.test/").await.assert_refused(502, "upstream_malformed");
    drop(client);
    let record = world.audit.refused("two.test", "upstream_malformed").await;
    let received = record["sluice.bytes.received"].as_u64().unwrap();
    assert!((16_000..1 << 20).contains(&received), "{record}");
    world.assert_still_serves().await;
    world.end().await;
}

/// B17: the same in HTTP/1.1, to a client that is not even sent them.
#[tokio::test]
async fn hints_of_an_http1_upstream_are_counted_and_end() {
    let hinting = Plan::scripted(|mut peer| async move {
        peer.request().await;
        let hint = format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", "x".repeat(1000));
        until_hung_up(peer.line, hint.repeat(16).into_bytes()).await;
    });
    let world = World::new()
        .policy(&policy("download: 1MiB"))
        .upstream("two.test", hinting)
        .start_program()
        .await;
    for version in ["1.1", "1.0"] {
        let mut line = world.sandbox.tls(Way::Proxy, "two.test", &["http/1.1"]).await.unwrap();
        line.send(format!("GET / HTTP/{version}\r\nHost: two.test\r\n\r\n")).await;
        line.reply().await.assert_refused(502, "upstream_malformed");
        drop(line);
        let record = world.audit.refused("two.test", "upstream_malformed").await;
        assert!(record["sluice.bytes.received"].as_u64().unwrap() > 16_000, "{record}");
    }
    world.assert_still_serves().await;
    assert_metrics_agree(&world).await;
    world.end().await;
}

/// B17: an extension of a chunk is passed on to nobody, and counted nonetheless.
#[tokio::test]
async fn extensions_of_chunks_are_counted_and_end() {
    let chunks = Plan::scripted(|mut peer| async move {
        peer.request().await;
        peer.line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        let chunk = format!("1;{}\r\nx\r\n", "a".repeat(250));
        until_hung_up(peer.line, chunk.repeat(64).into_bytes()).await;
    });
    let world = World::new().policy(&policy("")).upstream("two.test", chunks).start_program().await;
    let mut line = world.sandbox.tls(Way::Proxy, "two.test", &["http/1.1"]).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: two.test\r\n\r\n").await;
    assert!(line.rest().await.len() < 64 * 1024);
    let fits = |event: &Value| event["kind"] == "request" && code(event) == "upstream_malformed";
    let record = world.audit.find("its record", fits).await;
    assert!(record["sluice.bytes.received"].as_u64().unwrap() > 16_000, "{record}");
    world.assert_still_serves().await;
    assert_metrics_agree(&world).await;
    world.end().await;
}

/// Nothing has left for somebody who was never reached, or who was refused.
#[tokio::test]
async fn a_request_that_was_never_dialled_has_sent_nothing() {
    let world = World::new().policy(&policy("")).start_program().await;
    let long = format!("https://nobody.test/{}", "a".repeat(1000));
    world.sandbox.get(&long).await.assert_refused(502, "upstream_unreachable");
    let mut two = world.sandbox.http2(Way::Proxy, "nobody.test").await;
    two.get(&long).await.assert_refused(502, "upstream_unreachable");
    let denied = world.sandbox.ask("DELETE", "https://allowed.test/").send().await;
    denied.assert_refused(403, "no_rule");
    drop(two);
    for _ in 0..2 {
        let record = world.audit.refused("nobody.test", "upstream_unreachable").await;
        assert_eq!(record["sluice.bytes.sent"], 0, "{record}");
    }
    let record = world.audit.refused("allowed.test", "no_rule").await;
    assert_eq!(record["sluice.bytes.sent"], 0, "{record}");
    assert_metrics_agree(&world).await;
    world.end().await;
}

/// Bytes that were sent and received are those of the exchange, on both protocols.
#[tokio::test]
async fn records_and_metrics_count_the_same_bytes() {
    let plan = tests::answering_http2(|_| tests::Reply {
        status: 200,
        body: vec![b'x'; 100_000],
        ..tests::Reply::default()
    });
    let world = World::new().policy(&policy("")).upstream("two.test", plan).start_program().await;
    world.sandbox.get("https://allowed.test/").await.assert_relayed(200);
    let mut two = world.sandbox.http2(Way::Proxy, "two.test").await;
    for _ in 0..3 {
        assert_eq!(two.get("https://two.test/").await.body.len(), 100_000);
    }
    drop(two);
    until("all records", || (world.audit.of_kind("request").len() == 4).then_some(())).await;
    for record in world.audit.of_kind("request") {
        assert!(record["sluice.bytes.sent"].as_u64().unwrap() > 8, "{record}");
        if record["server.address"] == "two.test" {
            let received = record["sluice.bytes.received"].as_u64().unwrap();
            assert!((100_000..101_000).contains(&received), "{record}");
        }
    }
    // The name in the hello of the connection that found out what is spoken is
    // the connection's.
    let metrics = world.control.get("/metrics").await.text();
    let sent: u64 = world
        .audit
        .of_kind("request")
        .iter()
        .filter_map(|record| record["sluice.bytes.sent"].as_u64())
        .sum();
    let names = "two.test".len() as u64;
    let expected = format!("sluice_uploaded_bytes_total {}", sent + names);
    assert!(metrics.contains(&expected), "{expected}: {metrics}");
    world.end().await;
}

/// Takes requests and answers none.
fn quiet() -> Plan {
    Plan::scripted(|peer| async move {
        let (mut reading, mut writing) = tokio::io::split(peer.line.into_stream());
        pour::say(&mut writing, &settings()).await;
        let mut skip = PREFACE.len();
        while next_head(&mut reading, skip).await.is_some() {
            skip = 0;
        }
    })
    .alpn(&["h2"])
}

/// A head that the library takes for none of HTTP/2: no request gets to us, and
/// each leaves a record all the same.
#[tokio::test]
async fn streams_that_are_reset_beneath_us_leave_one_record_each() {
    let world =
        World::new().policy(&policy("")).upstream("two.test", quiet()).start_program().await;
    let good = [&[0x82, 0x87, 0x84, 0x41, 8][..], b"two.test"].concat();
    let field = |name: &[u8], value: &[u8]| {
        let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
        [&[0x00, length(name)][..], name, &[length(value)], value].concat()
    };
    let bad: Vec<Vec<u8>> = vec![
        // Capital letters; a field of the connection; no path; a status; two
        // paths; a pseudo-header that is behind; one that nobody knows.
        [&good[..], &field(b"X-Up", b"1")].concat(),
        [&good[..], &field(b"connection", b"close")].concat(),
        [&good[..], &field(b"transfer-encoding", b"chunked")].concat(),
        [&good[..], &field(b"te", b"gzip")].concat(),
        [&[0x82, 0x87, 0x41, 8][..], b"two.test"].concat(),
        [&good[..], &[0x88]].concat(),
        [&good[..], &[0x84]].concat(),
        [&good[..], &field(b"a", b"b"), &[0x85]].concat(),
        [&good[..], &field(b":new", b"b")].concat(),
        // It says that it has a body, and ends.
        [&good[..], &field(b"content-length", b"5")].concat(),
        [&good[..], &field(b"content-length", b"-5")].concat(),
    ];
    let longer = [&good[..], &field(b"content-length", b"5")].concat();
    let mut all: Vec<Vec<u8>> = bad.iter().map(|block| frame(1, 5, 1, block)).collect();
    // More data than was announced: the head gets to us, and no further. A block
    // that is not HPACK, behind a good head that nobody gets to look at.
    all.push([frame(1, 4, 1, &longer), frame(0, 1, 1, b"longer")].concat());
    all.push([frame(1, 5, 1, &good), frame(1, 5, 3, &[0xff; 5])].concat());
    let mut expected = 0;
    for (index, frames) in all.iter().enumerate() {
        let mut line = world.sandbox.tls(Way::Proxy, "two.test", &["h2"]).await.unwrap();
        line.send([PREFACE, &settings(), frames].concat()).await;
        expected += if index + 1 == all.len() { 2 } else { 1 };
        let records = || Some(world.audit.of_kind("request")).filter(|all| all.len() >= expected);
        let records = until(&format!("a record of {index}"), records).await;
        assert_eq!(records.len(), expected, "{index}: {records:#?}");
        let last = records.last().unwrap();
        assert_eq!(code(last), "malformed", "{index}: {last}");
        assert_eq!(last["network.protocol.version"], "2", "{index}: {last}");
    }
    let ended = |event: &Value| event["kind"] == "connection" && code(event) == "malformed";
    world.audit.find("the connection's record", ended).await;
    world.assert_still_serves().await;
    world.end().await;
}

/// One stream more than may be open at once, and a head that is far too large.
#[tokio::test]
async fn streams_that_are_too_many_or_too_large_leave_a_record() {
    let world =
        World::new().policy(&policy("")).upstream("two.test", quiet()).start_program().await;
    let mut line = world.sandbox.tls(Way::Proxy, "two.test", &["h2"]).await.unwrap();
    line.send([PREFACE, &settings()].concat()).await;
    // Twenty fields of 5000 bytes: 127 + 0x09 + (0x26 << 7).
    let field = [&[0x00, 1, b'a', 0x7f, 0x89, 0x26][..], &[b'x'; 5000]].concat();
    let large = [&[0x82, 0x87, 0x84, 0x41, 8][..], b"two.test", &field.repeat(20)].concat();
    let (first, rest) = large.split_at(16_000);
    line.send(frame(1, 1, 1, first)).await;
    let parts: Vec<&[u8]> = rest.chunks(16_000).collect();
    for (index, part) in parts.iter().enumerate() {
        line.send(frame(9, if index + 1 == parts.len() { 4 } else { 0 }, 1, part)).await;
    }
    world.audit.refused("two.test", "head_too_large").await;
    for n in 0..130 {
        line.send(request(3 + 2 * n, "two.test")).await;
    }
    for _ in 0..2 {
        let record = world.audit.refused("two.test", "malformed").await;
        assert!(record.to_string().contains("one stream more"), "{record}");
    }
    drop(line);
    until("all records", || (world.audit.of_kind("request").len() == 131).then_some(())).await;
    world.assert_still_serves().await;
    world.end().await;
}
