//! What is sent once there is a WebSocket.

use tests::websocket::{BINARY, CLOSE, Frame, TEXT};

use super::{asking, assert_closed_for_a_protocol_error, connected, switching_then, world};

const PING: u8 = 9;

/// Frames that are none, from whoever must mask them or must not.
fn violations(masked: bool) -> Vec<(&'static str, Vec<u8>)> {
    let frame = |opcode, payload: &[u8]| {
        Frame { last: true, opcode, payload: payload.to_vec() }.bytes(masked)
    };
    let part = |opcode, payload: &[u8]| {
        Frame { last: false, opcode, payload: payload.to_vec() }.bytes(masked)
    };
    let reserved = |bits: u8, opcode| {
        let mut bytes = frame(opcode, b"hi");
        bytes[0] |= bits;
        bytes
    };
    let bit = if masked { 0x80 } else { 0 };
    let key: &[u8] = if masked { &[0; 4] } else { &[] };
    let long = |head: &[u8]| [head, key, &[0; 200]].concat();
    vec![
        ("plain text", b"GET /secret HTTP/1.1\r\nHost: ws.test\r\n\r\n".to_vec()),
        ("a TLS hello", vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]),
        ("SSH", b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()),
        ("the wrong side's mask", Frame::text("hi").bytes(!masked)),
        ("the first reserved bit", reserved(0x40, TEXT)),
        ("the second reserved bit", reserved(0x20, TEXT)),
        ("the third reserved bit", reserved(0x10, BINARY)),
        ("a reserved opcode", frame(3, b"hi")),
        ("another reserved opcode", frame(7, b"hi")),
        ("a reserved control opcode", frame(11, b"")),
        ("the last opcode", frame(15, b"")),
        ("a ping in parts", part(PING, b"hi")),
        ("a close in parts", part(CLOSE, &[3, 232])),
        ("a long ping", [&[0x89, bit | 126, 0, 126], key, &[0; 126]].concat()),
        ("a long close", [&[0x88, bit | 126, 0, 126], key, &[3; 126]].concat()),
        ("a length of 16 bits for 125", long(&[0x82, bit | 126, 0, 125])),
        ("a length of 64 bits for 65535", long(&[0x82, bit | 127, 0, 0, 0, 0, 0, 0, 255, 255])),
        ("a length of 64 bits for 0", long(&[0x82, bit | 127, 0, 0, 0, 0, 0, 0, 0, 0])),
        ("a negative length", long(&[0x82, bit | 127, 128, 0, 0, 0, 0, 0, 0, 1])),
        ("a part of nothing", frame(0, b"hi")),
        ("a message inside another", [part(TEXT, b"one"), frame(TEXT, b"two")].concat()),
        ("binary inside text", [part(TEXT, b"one"), part(BINARY, b"two")].concat()),
        ("half a close code", frame(CLOSE, &[3])),
        ("a close code that is none", frame(CLOSE, &[0, 0])),
        ("a close code below all", frame(CLOSE, &999u16.to_be_bytes())),
        ("a close code nobody may send", frame(CLOSE, &1006u16.to_be_bytes())),
        ("another of those", frame(CLOSE, &1005u16.to_be_bytes())),
        ("one for TLS", frame(CLOSE, &1015u16.to_be_bytes())),
        ("one that nobody defined", frame(CLOSE, &2999u16.to_be_bytes())),
        ("one above all", frame(CLOSE, &5000u16.to_be_bytes())),
        ("a reason that is no text", frame(CLOSE, &[3, 232, 0xff, 0xfe])),
        ("a message after the close", [frame(CLOSE, &[3, 232]), frame(TEXT, b"hi")].concat()),
        ("bytes after the close", [frame(CLOSE, b""), b"raw".to_vec()].concat()),
    ]
}

/// B18: what a client sends is frames.
#[tokio::test]
async fn a_client_that_sends_no_frames_is_hung_up_on() {
    let world = world(switching_then(|_| Vec::new())).await;
    let mut passed = Vec::new();
    for (case, bytes) in violations(true) {
        let mut line = connected(&world).await;
        line.send(asking("/0", "")).await;
        assert_eq!(line.reply().await.status, 101);
        line.send(&bytes).await;
        line.finish().await;
        if let Err(got) = assert_closed_for_a_protocol_error(&mut line).await {
            passed.push((case, got));
            continue;
        }
        let record = world.audit.refused("ws.test", "websocket_malformed").await;
        assert_eq!(record["http.response.status_code"], 101, "{record}");
    }
    for seen in world.upstream("ws.test").seen() {
        tests::until("the upstream to be hung up on", || seen.ended().then_some(())).await;
        let text = seen.bytes();
        assert!(text.ends_with(b"\r\n\r\n"), "more than the head arrived: {text:?}");
    }
    assert_eq!(passed, []);
    world.end().await;
}

/// And so is what an upstream sends.
#[tokio::test]
async fn an_upstream_that_sends_no_frames_is_hung_up_on() {
    let world = world(switching_then(|number| violations(false)[number].1.clone())).await;
    let mut passed = Vec::new();
    for (index, (case, _)) in violations(false).into_iter().enumerate() {
        let mut line = connected(&world).await;
        line.send(asking(&format!("/{index}"), "")).await;
        assert_eq!(line.reply().await.status, 101);
        if let Err(got) = assert_closed_for_a_protocol_error(&mut line).await {
            passed.push((case, got));
            continue;
        }
        world.audit.refused("ws.test", "upstream_malformed").await;
    }
    assert_eq!(passed, []);
    world.end().await;
}

/// A message that was compressed as agreed says so in its first frame, and there
/// alone.
#[tokio::test]
async fn compression_marks_messages_that_begin_and_nothing_else() {
    let marked = |mut bytes: Vec<u8>| {
        bytes[0] |= 0x40;
        bytes
    };
    let part = Frame { last: false, opcode: TEXT, payload: b"one".to_vec() };
    let rest = Frame { last: true, opcode: 0, payload: b"two".to_vec() };
    let ping = Frame { last: true, opcode: PING, payload: b"hi".to_vec() };
    let cases = [
        (vec![marked(Frame::text("hi").bytes(true))], true),
        (vec![marked(part.bytes(true)), ping.bytes(true), rest.bytes(true)], true),
        (vec![marked(part.bytes(true)), marked(rest.bytes(true))], false),
        (vec![marked(ping.bytes(true))], false),
    ];
    let world = world(switching_then(|_| Vec::new())).await;
    let offer = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
    for (frames, fits) in cases {
        let mut line = connected(&world).await;
        line.send(asking("/0", offer)).await;
        assert_eq!(line.reply().await.status, 101);
        let bytes = frames.concat();
        line.send(&bytes).await;
        if fits {
            let arrived = || {
                let seen = world.upstream("ws.test").seen().pop().unwrap();
                seen.bytes().ends_with(&bytes).then_some(())
            };
            tests::until("the frames as they are", arrived).await;
            drop(line);
        } else {
            assert_closed_for_a_protocol_error(&mut line).await.unwrap();
            world.audit.refused("ws.test", "websocket_malformed").await;
        }
    }
    world.end().await;
}

/// Frames may come in any pieces, and of any length that there is: what is
/// relayed is what was sent, and nothing is kept until it is whole.
#[tokio::test]
async fn frames_go_through_in_whatever_pieces_they_come() {
    let world = world(switching_then(|_| Vec::new())).await;
    let mut line = connected(&world).await;
    line.send(asking("/0", "")).await;
    assert_eq!(line.reply().await.status, 101);
    let mut bytes = [
        Frame { last: false, opcode: BINARY, payload: vec![1; 126] }.bytes(true),
        Frame { last: true, opcode: PING, payload: vec![2; 125] }.bytes(true),
        Frame { last: true, opcode: 0, payload: vec![3; 300] }.bytes(true),
        Frame { last: true, opcode: TEXT, payload: Vec::new() }.bytes(true),
    ]
    .concat();
    // And the head of one that nobody could ever hold.
    bytes.extend([0x82, 0xff, 0x7f, 255, 255, 255, 255, 255, 255, 255, 1, 2, 3, 4, 5]);
    for byte in &bytes {
        line.send([*byte]).await;
    }
    let arrived = || {
        let seen = world.upstream("ws.test").seen().pop().unwrap();
        seen.bytes().ends_with(&bytes).then_some(())
    };
    tests::until("every byte of it", arrived).await;
    drop(line);
    world.end().await;
}
