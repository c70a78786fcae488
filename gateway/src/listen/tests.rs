//! Accepting, and stopping to.

#![expect(clippy::disallowed_methods, reason = "a test is on the sandbox's side of the gateway")]

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};

use super::*;
use crate::limits::Bounds;
use crate::testing::{ALLOWED_TEST, Stage};

async fn door() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let at = listener.local_addr().expect("it is bound");
    (listener, at)
}

/// Serves by handing the connection to the test.
fn hand_over(to: mpsc::UnboundedSender<Accepted>) -> impl Fn(Accepted, Arc<Gateway>) -> Held {
    move |accepted, _| {
        let to = to.clone();
        Box::pin(async move {
            let mut stream = accepted.stream;
            let (kind, peer) = (accepted.kind, accepted.peer);
            let mut byte = [0];
            let ended = stream.read(&mut byte).await;
            assert!(ended.is_ok());
            to.send(Accepted { stream, peer, kind }).expect("the test is there");
        })
    }
}

type Held = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

#[tokio::test]
async fn each_way_in_is_told_apart() {
    let stage = Stage::new(ALLOWED_TEST);
    let ((proxy, at_proxy), (https, at_https)) = (door().await, door().await);
    let (sender, mut served) = mpsc::unbounded_channel();
    let (_stop, phases) = watch::channel(DrainPhase::Serving);
    let doors = vec![(ListenerKind::Proxy, proxy), (ListenerKind::CapturedHttps, https)];
    tokio::spawn(listen(doors, Arc::clone(&stage.gateway), hand_over(sender), phases));

    for (at, kind) in [(at_https, ListenerKind::CapturedHttps), (at_proxy, ListenerKind::Proxy)] {
        let mut client = TcpStream::connect(at).await.expect("it listens");
        client.write_all(b"x").await.expect("it is open");
        let accepted = served.recv().await.expect("it is served");
        assert_eq!(accepted.kind, kind);
        assert_eq!(accepted.peer, client.local_addr().expect("it is connected"));
    }
}

#[tokio::test]
async fn who_finds_no_room_waits_outside_and_is_let_in_later() {
    let bounds = Bounds { connections: 1, ..Bounds::default() };
    let stage = Stage::with_bounds(ALLOWED_TEST, bounds);
    let (listener, at) = door().await;
    let (sender, mut served) = mpsc::unbounded_channel();
    let (_stop, phases) = watch::channel(DrainPhase::Serving);
    let doors = vec![(ListenerKind::Proxy, listener)];
    tokio::spawn(listen(doors, Arc::clone(&stage.gateway), hand_over(sender), phases));

    let mut first = TcpStream::connect(at).await.expect("it listens");
    let mut second = TcpStream::connect(at).await.expect("the kernel takes it");
    second.write_all(b"2").await.expect("the kernel takes it");
    // The second has spoken and the first has not, and still the first is served.
    first.write_all(b"1").await.expect("it is open");
    let served_first = served.recv().await.expect("it is served");
    assert_eq!(served_first.peer, first.local_addr().expect("it is connected"));
    let served_second = served.recv().await.expect("there is room now");
    assert_eq!(served_second.peer, second.local_addr().expect("it is connected"));
}

#[tokio::test]
async fn a_drain_lets_nobody_in_and_waits_for_who_is() {
    let stage = Stage::new(ALLOWED_TEST);
    let (listener, at) = door().await;
    let (sender, mut served) = mpsc::unbounded_channel();
    let (stop, phases) = watch::channel(DrainPhase::Serving);
    let doors = vec![(ListenerKind::Socks, listener)];
    let gateway = Arc::clone(&stage.gateway);
    let listening = tokio::spawn(listen(doors, gateway, hand_over(sender), phases));

    let mut inside = TcpStream::connect(at).await.expect("it listens");
    while stage.gateway.limits.open_connections() < 1 {
        tokio::task::yield_now().await;
    }
    stop.send(DrainPhase::Draining).expect("it listens");
    listening.await.expect("it ends in order");
    assert!(TcpStream::connect(at).await.is_err(), "nobody is let in any more");

    let all_free = stage.gateway.limits.all_slots_free();
    tokio::pin!(all_free);
    let waiting =
        std::future::poll_fn(|context| Poll::Ready(all_free.as_mut().poll(context))).await;
    assert!(waiting.is_pending(), "one is still inside");
    inside.write_all(b"x").await.expect("it is still served");
    served.recv().await.expect("it is still served");
    all_free.await;
}

#[tokio::test]
async fn who_does_not_finish_in_time_is_cut() {
    let stage = Stage::new(ALLOWED_TEST);
    let (listener, at) = door().await;
    let (sender, _served) = mpsc::unbounded_channel();
    let (stop, phases) = watch::channel(DrainPhase::Serving);
    let doors = vec![(ListenerKind::Proxy, listener)];
    let gateway = Arc::clone(&stage.gateway);
    let listening = tokio::spawn(listen(doors, gateway, hand_over(sender), phases));

    let mut inside = TcpStream::connect(at).await.expect("it listens");
    while stage.gateway.limits.open_connections() < 1 {
        tokio::task::yield_now().await;
    }
    stop.send(DrainPhase::Cut).expect("it listens");
    listening.await.expect("it ends in order");
    stage.gateway.limits.all_slots_free().await;
    assert_eq!(inside.read(&mut [0]).await.expect("it is closed in order"), 0);
}

/// Both doors have somebody waiting.
#[tokio::test]
async fn each_door_has_its_turn() {
    let ((proxy, at_proxy), (https, at_https)) = (door().await, door().await);
    let doors = vec![(ListenerKind::Proxy, proxy), (ListenerKind::CapturedHttps, https)];
    let mut waiting = Vec::new();
    for at in [at_proxy, at_proxy, at_https, at_https] {
        waiting.push(TcpStream::connect(at).await.expect("it listens"));
    }
    for (first, expected) in [
        (1, ListenerKind::CapturedHttps),
        (0, ListenerKind::Proxy),
        (3, ListenerKind::CapturedHttps),
        (2, ListenerKind::Proxy),
    ] {
        let accepted = poll_fn(|context| accept_any(&doors, first, context)).await;
        assert_eq!(accepted.expect("somebody waits").0, expected, "{first}");
    }
}

#[tokio::test]
async fn a_flood_at_one_door_does_not_keep_the_other_shut() {
    let stage = Stage::with_bounds(ALLOWED_TEST, Bounds { connections: 1, ..Bounds::default() });
    let ((proxy, at_proxy), (https, at_https)) = (door().await, door().await);
    let mut waiting = Vec::new();
    for at in [at_proxy, at_proxy, at_proxy, at_https] {
        let mut client = TcpStream::connect(at).await.expect("it listens");
        client.write_all(b"x").await.expect("it is open");
        waiting.push(client);
    }
    let (sender, mut served) = mpsc::unbounded_channel();
    let (_stop, phases) = watch::channel(DrainPhase::Serving);
    let doors = vec![(ListenerKind::Proxy, proxy), (ListenerKind::CapturedHttps, https)];
    tokio::spawn(listen(doors, Arc::clone(&stage.gateway), hand_over(sender), phases));
    let mut ways = Vec::new();
    for _ in 0..4 {
        ways.push(served.recv().await.expect("it is served").kind);
    }
    assert_eq!(
        ways,
        [
            ListenerKind::Proxy,
            ListenerKind::CapturedHttps,
            ListenerKind::Proxy,
            ListenerKind::Proxy
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn what_does_not_get_better_by_asking_is_asked_again_after_a_moment() {
    let began = time::Instant::now();
    for kind in [io::ErrorKind::ConnectionAborted, io::ErrorKind::Interrupted] {
        back_off("test", &kind.into()).await;
        assert_eq!(began.elapsed(), Duration::ZERO, "{kind} is over by now");
    }
    back_off("test", &io::ErrorKind::OutOfMemory.into()).await;
    assert!(began.elapsed() >= ACCEPT_RETRY_DELAY);
}
