use std::time::Duration;

use super::*;
use crate::frames::reader::FrameReader;

const WINDOW: u32 = 1 << 20;
const END_STREAM: u8 = 1;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

fn limit(opener: StreamOpener) -> FrameLimit {
    FrameLimit::new(opener, WINDOW, Instant::now())
}

/// A frame with as much payload as it says.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Http2Frame {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let wire = [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat();
    let mut found = None;
    FrameReader::after(0).feed(&wire, |frame| found = Some(frame));
    found.unwrap()
}

/// How many of a frame are let in, up to a hundred thousand.
fn let_in(limit: &mut FrameLimit, frame: &Http2Frame) -> usize {
    let now = Instant::now();
    (0..100_000).take_while(|_| limit.read(frame, now).is_ok()).count()
}

#[tokio::test(start_paused = true)]
async fn every_frame_without_content_comes_to_an_end() {
    let payloads: [(u8, u8, &[u8]); 9] = [
        (DATA, 0, &[]),
        (DATA, 8, &[3, 0, 0, 0]),
        (2, 0, &[0; 5]),
        (RST_STREAM, 0, &[0; 4]),
        (4, 0, &[]),
        (PING, 0, &[0; 8]),
        (7, 0, &[0; 8]),
        (WINDOW_UPDATE, 0, &[0; 4]),
        (0xfa, 0, &[0; 100]),
    ];
    for (kind, flags, payload) in payloads {
        let mut limit = limit(StreamOpener::We);
        limit.wrote(&frame(HEADERS, 0, 1, &[]));
        let flood = frame(kind, flags, 1, payload);
        let passed = let_in(&mut limit, &flood);
        assert!((100..20_000).contains(&passed), "{}: {passed}", flood.name());
    }
}

#[tokio::test(start_paused = true)]
async fn pings_every_second_may_go_on_for_ever() {
    let mut limit = limit(StreamOpener::Peer);
    let ping = frame(PING, 0, 0, &[0; 8]);
    for _ in 0..1_000_000 {
        tokio::time::advance(Duration::from_secs(1)).await;
        limit.read(&ping, Instant::now()).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn data_pays_for_its_window_updates_however_small_it_is() {
    let mut limit = limit(StreamOpener::Peer);
    let now = Instant::now();
    limit.read(&frame(HEADERS, 0, 1, &[]), now).unwrap();
    limit.taken(1);
    for _ in 0..100_000 {
        limit.wrote(&frame(DATA, 0, 1, b"x"));
        limit.read(&frame(WINDOW_UPDATE, 0, 0, &[0; 4]), now).unwrap();
        limit.read(&frame(WINDOW_UPDATE, 0, 1, &[0; 4]), now).unwrap();
        limit.read(&frame(PING, 0, 0, &[0; 8]), now).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn small_frames_of_data_may_go_on_for_ever() {
    let mut limit = limit(StreamOpener::We);
    limit.wrote(&frame(HEADERS, 0, 1, &[]));
    assert_eq!(let_in(&mut limit, &frame(DATA, 0, 1, b"x")), 100_000);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_we_reset_may_send_what_was_under_way_and_no_more() {
    let mut limit = limit(StreamOpener::We);
    limit.wrote(&frame(HEADERS, 0, 1, &[]));
    let data = frame(DATA, 0, 1, &[0; 16_384]);
    limit.wrote(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    let passed = let_in(&mut limit, &data);
    assert!((64..=72).contains(&passed), "one window is 64 frames: {passed}");
}

#[tokio::test(start_paused = true)]
async fn a_window_full_of_small_frames_is_let_in_before_anybody_looks_and_after() {
    let small = frame(DATA, 0, 1, &[0; 100]);
    let frames = WINDOW as usize / 100;
    let mut client = limit(StreamOpener::Peer);
    client.read(&frame(HEADERS, 0, 1, &[]), Instant::now()).unwrap();
    assert_eq!(let_in(&mut client, &small), frames);
    let mut upstream = limit(StreamOpener::We);
    upstream.wrote(&frame(HEADERS, 0, 1, &[]));
    upstream.wrote(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    assert!(let_in(&mut upstream, &small) >= frames);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_has_ended_sends_nothing() {
    let mut limit = limit(StreamOpener::We);
    limit.wrote(&frame(HEADERS, 0, 1, &[]));
    limit.read(&frame(HEADERS, END_STREAM, 1, &[]), Instant::now()).unwrap();
    assert_eq!(let_in(&mut limit, &frame(DATA, 0, 1, b"x")), 0);
}

#[tokio::test(start_paused = true)]
async fn heads_on_one_stream_come_to_an_end() {
    let mut limit = limit(StreamOpener::We);
    limit.wrote(&frame(HEADERS, 0, 1, &[]));
    assert_eq!(let_in(&mut limit, &frame(HEADERS, 0, 1, b"x")), usize::from(MAX_HEADS_PER_STREAM));
}

#[tokio::test(start_paused = true)]
async fn heads_on_a_stream_that_we_reset_come_to_an_end_at_once() {
    let mut limit = limit(StreamOpener::We);
    limit.wrote(&frame(HEADERS, 0, 1, &[]));
    limit.wrote(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    assert_eq!(let_in(&mut limit, &frame(HEADERS, 0, 1, b"x")), 4);
}

#[tokio::test(start_paused = true)]
async fn what_carries_nothing_is_told_by_the_byte() {
    let mut limit = limit(StreamOpener::We);
    let now = Instant::now();
    limit.wrote(&frame(HEADERS, 0, 1, &[]));
    assert_eq!(limit.read(&frame(PING, 0, 0, &[0; 8]), now), Ok(17));
    assert_eq!(limit.read(&frame(DATA, 0, 1, &[0; 100]), now), Ok(9));
    assert_eq!(limit.read(&frame(DATA, 8, 1, &[4, 1, 2, 0, 0, 0, 0]), now), Ok(14));
    assert_eq!(limit.read(&frame(HEADERS, 0, 1, &[0; 50]), now), Ok(9));
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_owed_a_record_until_its_request_is_taken() {
    let mut limit = limit(StreamOpener::Peer);
    let now = Instant::now();
    for id in [1, 3, 5, 7, 9] {
        limit.read(&frame(HEADERS, END_STREAM, id, &[]), now).unwrap();
    }
    limit.taken(1);
    limit.wrote(&frame(HEADERS, END_STREAM, 1, &[]));
    limit.wrote(&frame(RST_STREAM, 0, 3, &[0, 0, 0, 1]));
    limit.wrote(&frame(HEADERS, END_STREAM, 5, &[]));
    // Reset, and its request is taken all the same: it has a record already.
    limit.wrote(&frame(RST_STREAM, 0, 7, &[0, 0, 0, 1]));
    limit.taken(7);
    assert_eq!(limit.unread(false), [UnreadStream::Reset(1), UnreadStream::Answered]);
    assert_eq!(limit.unread(false), []);
    assert_eq!(limit.unread(true), [UnreadStream::Unseen]);
    assert!(limit.streams.is_empty());
}

#[tokio::test(start_paused = true)]
async fn streams_that_nobody_looks_at_come_to_an_end() {
    let mut limit = limit(StreamOpener::Peer);
    let now = Instant::now();
    let opened = (0..100_000u32)
        .take_while(|n| limit.read(&frame(HEADERS, 0, 2 * n + 1, &[]), now).is_ok())
        .count();
    assert_eq!(opened, MAX_TRACKED_STREAMS);
}

/// Spends all there is on pings, and says how many there were.
fn spend(limit: &mut FrameLimit) -> usize {
    let_in(limit, &frame(PING, 0, 0, &[0; 8]))
}

const PING_COSTS: u64 = FRAME_COST + 8;

#[tokio::test(start_paused = true)]
async fn what_was_spent_is_earned_again_by_content_and_by_time() {
    let mut limit = limit(StreamOpener::We);
    limit.wrote(&frame(HEADERS, 0, 1, &[]));
    let left = MAX_ALLOWANCE % PING_COSTS;
    assert_eq!(spend(&mut limit), usize::try_from(MAX_ALLOWANCE / PING_COSTS).unwrap());
    assert_eq!(spend(&mut limit), 0);

    // Content earns, in either direction.
    limit.read(&frame(DATA, 0, 1, b"x"), Instant::now()).unwrap();
    limit.wrote(&frame(DATA, 0, 1, b"x"));
    let earned = left + 2 * FRAME_EARNINGS;
    assert_eq!(spend(&mut limit), usize::try_from(earned / PING_COSTS).unwrap());
    let left = earned % PING_COSTS;

    tokio::time::advance(Duration::from_secs(1)).await;
    let earned = left + 1000 * EARNED_PER_MILLISECOND;
    assert_eq!(spend(&mut limit), usize::try_from(earned / PING_COSTS).unwrap());
    // The same second earns once.
    assert_eq!(spend(&mut limit), 0);
}

#[tokio::test(start_paused = true)]
async fn a_fault_says_how_many_frames_there_were() {
    let mut limit = limit(StreamOpener::We);
    limit.wrote(&frame(HEADERS, 0, 1, &[]));
    let passed = spend(&mut limit) as u64;
    // The one that did not pass, and this one.
    let fault = FrameFault::Empty { count: passed + 2, last: "PING" };
    assert_eq!(limit.read(&frame(PING, 0, 0, &[0; 8]), Instant::now()), Err(fault));

    limit.wrote(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    let head = frame(HEADERS, 0, 1, b"x");
    let passed = let_in(&mut limit, &head) as u64;
    let fault = FrameFault::Over { count: passed + 2, last: "HEADERS" };
    assert_eq!(limit.read(&head, Instant::now()), Err(fault));
}

#[tokio::test(start_paused = true)]
async fn on_a_stream_that_is_over_an_empty_frame_costs_its_work() {
    let allowed = u64::from(WINDOW) + MAX_HEAD_BYTES;
    for (flags, payload, price) in
        [(0, &[][..], FRAME_COST), (8, &[3, 0, 0, 0][..], FRAME_COST + 4), (0, &[0; 100], 100)]
    {
        let mut limit = limit(StreamOpener::We);
        limit.wrote(&frame(HEADERS, 0, 1, &[]));
        limit.wrote(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
        let data = frame(DATA, flags, 1, payload);
        let all = HEADER_BYTES + payload.len() as u64;
        assert_eq!(limit.read(&data, Instant::now()), Ok(all), "all of it carries nothing");
        assert_eq!(let_in(&mut limit, &data) as u64 + 1, allowed / price, "{payload:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_the_peer_reset_sends_nothing_more() {
    let mut limit = limit(StreamOpener::We);
    limit.wrote(&frame(HEADERS, 0, 1, &[]));
    let reset = frame(RST_STREAM, 0, 1, &[0; 4]);
    assert_eq!(limit.read(&reset, Instant::now()), Ok(13));
    assert_eq!(let_in(&mut limit, &frame(DATA, 0, 1, b"x")), 0);
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_head_is_counted_with_the_head() {
    let mut limit = limit(StreamOpener::Peer);
    let rest = frame(CONTINUATION, 0, 1, &[0; 50]);
    assert_eq!(limit.read(&rest, Instant::now()), Ok(9));
    // It costs its work alone, not its length.
    let most = usize::try_from(MAX_ALLOWANCE / FRAME_COST).unwrap();
    assert_eq!(let_in(&mut limit, &rest), most - 1);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_opens_no_stream() {
    let mut limit = limit(StreamOpener::We);
    let fault = FrameFault::Over { count: 1, last: "HEADERS" };
    assert_eq!(limit.read(&frame(HEADERS, 0, 2, b"x"), Instant::now()), Err(fault));
    assert!(limit.streams.is_empty());
}

#[tokio::test(start_paused = true)]
async fn trailers_open_no_stream() {
    let mut upstream = limit(StreamOpener::We);
    upstream.wrote(&frame(HEADERS, 0, 1, &[]));
    upstream.wrote(&frame(HEADERS, END_STREAM, 1, &[]));
    assert_eq!(upstream.streams.len(), 1);

    let mut client = limit(StreamOpener::Peer);
    let now = Instant::now();
    client.read(&frame(HEADERS, 0, 1, &[]), now).unwrap();
    client.read(&frame(HEADERS, 0, 1, &[]), now).unwrap();
    assert_eq!(client.streams.len(), 1);
    // What we say on a stream that was never opened opens none, either.
    client.wrote(&frame(HEADERS, 0, 9, &[]));
    assert_eq!((client.streams.len(), client.newest), (1, 1));
}
