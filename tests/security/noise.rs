//! Bytes that mean nothing: no panic, no hang, and nobody contacted.
//!
//! Starts from good openings and changes a few bytes of each at random, always
//! the same random. `World::end` fails when a task of the gateway panicked.

use std::fmt::Write as _;

use tests::{Plan, Way, World};

/// A small generator, so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % below.max(1)
    }

    /// Changes, drops, doubles or inserts a few bytes.
    fn spoil(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut spoilt = bytes.to_vec();
        for _ in 0..=self.roll(4) {
            let at = self.roll(spoilt.len());
            let byte = match self.roll(3) {
                0 => b"\r\n\0 :/\\%@[];,\t\x7f\xff"[self.roll(16)],
                _ => u8::try_from(self.roll(256)).unwrap(),
            };
            match self.roll(5) {
                0 if !spoilt.is_empty() => spoilt[at] = byte,
                1 => spoilt.insert(at, byte),
                2 if !spoilt.is_empty() => drop(spoilt.remove(at)),
                3 => spoilt.truncate(at),
                _ => {
                    let end = (at + self.roll(40)).min(spoilt.len());
                    let piece = spoilt[at..end].to_vec();
                    spoilt.splice(at..at, piece);
                }
            }
        }
        spoilt
    }
}

/// A ClientHello for `evil.test`.
fn client_hello() -> Vec<u8> {
    let name = b"evil.test";
    let length = |bytes: usize| u16::try_from(bytes).unwrap().to_be_bytes();
    let names = [&[0][..], &length(name.len()), name].concat();
    let server_name =
        [&[0, 0][..], &length(names.len() + 2), &length(names.len()), &names].concat();
    let rest = [
        0x00, 0x0a, 0x00, 0x04, 0x00, 0x02, 0x00, 0x1d, 0x00, 0x0d, 0x00, 0x04, 0x00, 0x02, 0x04,
        0x03, 0x00, 0x2b, 0x00, 0x03, 0x02, 0x03, 0x04, 0x00, 0x33, 0x00, 0x02, 0x00, 0x00,
    ];
    let extensions = [server_name.as_slice(), &rest].concat();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &[0, 2, 0x13, 0x01],
        &[1, 0],
        &length(extensions.len()),
        &extensions,
    ]
    .concat();
    let message = [&[1, 0][..], &length(body.len()), &body].concat();
    [&[0x16, 3, 1][..], &length(message.len()), &message].concat()
}

#[tokio::test]
async fn spoilt_openings_reach_nobody_and_break_nothing() {
    let world = World::allowing(&["{host: allowed.test}", "\"*.wild.test\""])
        .limits("opening: 500ms, header: 500ms")
        .start()
        .await;
    let doors = world.sandbox.doors.clone();
    let hello = client_hello();
    let openings: [(_, &[u8]); 6] = [
        (doors.proxy, b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n"),
        (doors.proxy, b"GET http://evil.test/a?b=c HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 3\r\n\r\nabc"),
        (doors.http, b"POST /a HTTP/1.1\r\nHost: evil.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
        (doors.socks, b"\x05\x01\x00\x05\x01\x00\x03\x09evil.test\x01\xbb"),
        (doors.https, &hello),
        (doors.dns, b"\x00\x1c\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04evil\x04test\x00\x00\x01\x00\x01"),
    ];
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for round in 0..60 {
        for (door, opening) in &openings {
            let spoilt = dice.spoil(opening);
            let mut line = tests::sandbox::open(*door).await;
            line.send(&spoilt).await;
            line.finish().await;
            // Whatever it is, it comes to an end.
            let answer = line.rest().await;
            let told = String::from_utf8_lossy(&answer);
            assert!(
                !told.starts_with("HTTP/1.1 200 Scripted"),
                "round {round}: {:?} got {told:?}",
                String::from_utf8_lossy(&spoilt)
            );
        }
    }
    world.upstream("evil.test").assert_never_contacted();
    for name in world.resolver.asked() {
        assert!(name.ends_with(".wild.test"), "asked for {name}");
    }
    world.assert_still_serves().await;
    world.end().await;
}

/// The same inside TLS, where the host is allowed and the path is not.
#[tokio::test]
async fn spoilt_requests_never_become_what_is_not_allowed() {
    let world =
        World::allowing(&["{host: allowed.test, methods: [GET, POST], paths: [/ok, /still-here]}"])
            .upstream("allowed.test", Plan::echoing())
            .limits("header: 500ms, idle: 1s")
            .start()
            .await;
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let mut sent = String::new();
    for _ in 0..150 {
        let requests: [&[u8]; 3] = [
            b"GET /secret HTTP/1.1\r\nHost: allowed.test\r\nAccept: */*\r\n\r\n",
            b"POST /ok HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 41\r\n\r\nGET /secret HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
            b"POST /ok HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET /secret HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
        ];
        let request = requests[dice.roll(3)];
        let spoilt = dice.spoil(request);
        let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
        line.send(&spoilt).await;
        line.finish().await;
        line.rest().await;
        writeln!(sent, "{}", String::from_utf8_lossy(&spoilt).escape_debug()).unwrap();
    }
    // The naive upstream saw requests, and none that the policy does not allow.
    for received in world.upstream("allowed.test").requests() {
        let target = received.target.split('?').next().unwrap();
        assert!(matches!(target, "/ok" | "/still-here"), "{received:?}\n{sent}");
        assert!(["GET", "POST"].contains(&received.method.as_str()), "{received:?}");
        assert_eq!(received.values("host"), ["allowed.test"], "{received:?}");
    }
    world.upstream("evil.test").assert_never_contacted();
    world.resolver.assert_never_asked();
    world.assert_still_serves().await;
    world.end().await;
}
