//! Upstreams that speak HTTP/2: few connections, shared by many requests.
//!
//! A connection belongs to one destination and is shared by the requests whose
//! reach holds its address. One request at a time opens the next one, so that
//! sixty-four streams that find none do not open sixty-four. Server push is off,
//! and what an upstream may make us hold is bounded by the windows below.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, SendStream};
use http::Request;
use parking_lot::Mutex;
use policies::Destination;
use tokio::time::{self, Instant};

use super::Permit;
use super::capabilities::UpstreamCapabilities;
use super::establish::Dialled;
use super::facts::UpstreamFacts;
use super::route::Dialable;
use super::settings::PoolSizes;
use super::stream::Tls;
use crate::authorize::RequestPermit;
use crate::frames::{FrameWatch, StreamOpener, WatchedStream, watched};
use crate::write_batch::{Batched, batched, in_turns};

/// A place on a shared connection, for one request. Dropping it gives the place
/// back; it does not end the request's stream.
#[derive(Debug)]
#[must_use]
pub(crate) struct Http2Upstream {
    send: SendRequest<Bytes>,
    facts: UpstreamFacts,
    busy: Arc<StreamCount>,
    watch: Arc<FrameWatch>,
}

impl Http2Upstream {
    pub(crate) fn facts(&self) -> &UpstreamFacts {
        &self.facts
    }

    /// Whether the upstream takes a WebSocket on a stream (RFC 8441), as far as
    /// it has told us.
    pub(crate) fn extended_connect(&self) -> bool {
        self.send.is_extended_connect_protocol_enabled()
    }

    /// What is known of the connection's frames.
    pub(crate) fn watch(&self) -> &Arc<FrameWatch> {
        &self.watch
    }

    #[cfg(test)]
    pub(super) fn max_streams(&self) -> usize {
        self.send.current_max_send_streams()
    }

    /// Opens a stream with this request's head.
    pub(crate) fn send(
        &mut self,
        // Not read. Needing one is the point.
        _permit: &RequestPermit,
        head: Request<()>,
        end_of_stream: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        self.send.send_request(head, end_of_stream)
    }
}

impl Drop for Http2Upstream {
    fn drop(&mut self) {
        self.busy.leave();
    }
}

/// The HTTP/2 connections of one gateway.
#[derive(Debug)]
pub(super) struct Http2Pool {
    sizes: PoolSizes,
    open: Mutex<HashMap<Destination, Arc<DestinationConnections>>>,
}

impl Http2Pool {
    pub(super) fn new(sizes: PoolSizes) -> Arc<Self> {
        Arc::new(Self { sizes, open: Mutex::default() })
    }

    /// The connections to one destination, perhaps none yet.
    pub(super) fn with(&self, to: &Destination) -> Arc<DestinationConnections> {
        let mut open = self.open.lock();
        if let Some(connections) = open.get(to) {
            return Arc::clone(connections);
        }
        // Only those that carry nothing make room: the others are bounded by how
        // many streams the sandbox has open.
        if open.len() >= self.sizes.http2_destinations {
            open.retain(|_, connections| connections.is_busy());
        }
        Arc::clone(open.entry(to.clone()).or_default())
    }

    /// Lets go of what leads to where `keep` says no. Streams that are under way
    /// end with the connection that opened them.
    pub(super) fn close_unless(&self, keep: impl Fn(&Destination) -> bool) {
        self.open.lock().retain(|to, _| keep(to));
    }

    fn remove(&self, to: &Destination, ended: &Arc<StreamCount>) {
        let mut open = self.open.lock();
        let Some(connections) = open.get(to) else { return };
        connections.live.lock().retain(|live| !Arc::ptr_eq(&live.busy, ended));
        if connections.is_unused() {
            open.remove(to);
        }
    }
}

/// Those to one destination.
#[derive(Debug, Default)]
pub(super) struct DestinationConnections {
    live: Mutex<Vec<LiveConnection>>,
    /// Held by the request that makes the next one.
    pub(super) connecting: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct LiveConnection {
    send: SendRequest<Bytes>,
    at: Dialable,
    facts: UpstreamFacts,
    busy: Arc<StreamCount>,
    watch: Arc<FrameWatch>,
}

impl DestinationConnections {
    /// A place on a connection that is open, if there is one to be had.
    pub(super) fn join(&self, permit: Permit<'_>, sizes: PoolSizes) -> Option<Http2Upstream> {
        let mut live = self.live.lock();
        live.retain_mut(LiveConnection::takes_requests);
        let full = live.len() >= sizes.http2_per_destination;
        let chosen = live
            .iter()
            .filter(|live| live.at.is_within(permit.reach()))
            .filter(|live| full || !live.is_full())
            .min_by_key(|live| live.busy.streams())?;
        Some(chosen.place(chosen.facts.as_reused()))
    }

    fn add(&self, live: LiveConnection) -> Http2Upstream {
        let first = live.place(live.facts.clone());
        self.live.lock().push(live);
        first
    }

    fn is_busy(&self) -> bool {
        self.connecting.try_lock().is_err() || self.live.lock().iter().any(|l| l.busy.streams() > 0)
    }

    fn is_unused(&self) -> bool {
        self.connecting.try_lock().is_ok() && self.live.lock().is_empty()
    }
}

impl LiveConnection {
    /// A place on it for one more request.
    fn place(&self, facts: UpstreamFacts) -> Http2Upstream {
        self.busy.enter();
        let (busy, watch) = (Arc::clone(&self.busy), Arc::clone(&self.watch));
        Http2Upstream { send: self.send.clone(), facts, busy, watch }
    }

    /// Not after the upstream said goodbye, even while it still answers what it
    /// has already taken.
    fn takes_requests(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        !matches!(self.send.poll_ready(&mut cx), Poll::Ready(Err(_)))
    }

    fn is_full(&self) -> bool {
        self.busy.streams() >= self.send.current_max_send_streams()
    }
}

/// How much a connection has to do.
#[derive(Debug)]
struct StreamCount {
    streams: AtomicUsize,
    since: Mutex<Instant>,
}

impl StreamCount {
    fn new() -> Arc<Self> {
        Arc::new(Self { streams: AtomicUsize::new(0), since: Mutex::new(Instant::now()) })
    }

    fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    fn enter(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self) {
        if self.streams.fetch_sub(1, Ordering::Relaxed) == 1 {
            *self.since.lock() = Instant::now();
        }
    }

    fn is_idle_for(&self, limit: Duration) -> bool {
        self.streams() == 0 && self.since.lock().elapsed() >= limit
    }
}

/// Starts HTTP/2 and the task that drives it, and adds it to the shared connections.
pub(super) async fn start(
    shared: &Arc<Http2Pool>,
    capabilities: &Arc<UpstreamCapabilities>,
    to: &Destination,
    dialled: Dialled<Tls>,
) -> Result<Http2Upstream, h2::Error> {
    let Dialled { stream, at, facts } = dialled;
    let (stream, sender) = batched(stream);
    let (stream, watch) = watched(stream, StreamOpener::We, STREAM_WINDOW_BYTES);
    let (send, mut connection) = Builder::new()
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(MAX_HEAD_BYTES)
        .max_concurrent_reset_streams(MAX_RESET_STREAMS)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .handshake::<_, Bytes>(stream)
        .await?;
    let busy = StreamCount::new();
    let ping = connection.ping_pong();
    let maintain = maintain(shared, capabilities, to, &busy, send.clone(), ping);
    let driven = drive(connection, maintain, Arc::downgrade(shared), to.clone(), Arc::clone(&busy));
    tokio::spawn(in_turns(sender, driven));
    Ok(shared.with(to).add(LiveConnection { send, at, facts, busy, watch }))
}

/// Keeps a connection going until its end, and then takes it off the list.
async fn drive(
    connection: Connection<WatchedStream<Batched<Tls>>, Bytes>,
    maintain: impl Future<Output = ()>,
    shared: Weak<Http2Pool>,
    to: Destination,
    busy: Arc<StreamCount>,
) {
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        // It was idle and is off the list, so it ends with its last stream.
        () = maintain => connection.await,
    };
    if let Err(err) = ended {
        tracing::debug!(%to, %err, "an HTTP/2 connection ended");
    }
    if let Some(shared) = shared.upgrade() {
        shared.remove(&to, &busy);
    }
}

/// Learns the upstream's settings, then waits until the connection was idle for too
/// long.
fn maintain(
    shared: &Arc<Http2Pool>,
    capabilities: &Arc<UpstreamCapabilities>,
    to: &Destination,
    busy: &Arc<StreamCount>,
    send: SendRequest<Bytes>,
    ping: Option<PingPong>,
) -> impl Future<Output = ()> + use<> {
    let (limit, shared) = (shared.sizes.idle_timeout, Arc::downgrade(shared));
    let (capabilities, to, busy) = (Arc::clone(capabilities), to.clone(), Arc::clone(busy));
    async move {
        // Settings are the first thing an upstream says, so whoever answers a
        // ping has said them. This is the only ping: gRPC servers hang up on
        // those who send many.
        if let Some(mut ping) = ping
            && ping.ping(Ping::opaque()).await.is_ok()
        {
            capabilities.learn_extended_connect(&to, send.is_extended_connect_protocol_enabled());
        }
        drop(send);
        while !busy.is_idle_for(limit) {
            time::sleep(limit / 2).await;
        }
        if let Some(shared) = shared.upgrade() {
            shared.remove(&to, &busy);
        }
    }
}

/// What one stream of an upstream may send before we have passed it on. With a
/// tenth of a second between us this is ten to twenty megabytes a second.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
/// What all streams of a connection may, together: the most a connection can
/// make us hold, however many streams stall.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Cookies and content policies grow large; h2's own limit of 16 KiB is too
/// small for some well-known sites.
const MAX_HEAD_BYTES: u32 = 64 << 10;
const MAX_RESET_STREAMS: usize = 64;
/// What we hold of one upload beside what is on the wire.
const SEND_BUFFER_BYTES: usize = 128 << 10;
