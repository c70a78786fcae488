//! HTTP/2 with the sandbox: steps 5 to 10, once per stream.
//!
//! Comes after TLS was terminated for one destination whose upstream speaks
//! HTTP/2 as well. Every stream is a request of its own: read once, judged by
//! the policy of that moment, recorded once, relayed frame by frame.
//!
//! All streams of a connection live in its one task, beside the connection
//! itself. A stream that waits costs nothing and holds up nobody; what streams
//! have to say in one turn leaves in one write.
//!
//! **Invariant:** nothing is queued here. A frame is read from one side only
//! when the frame before it has been handed to the other, and window is given
//! back only for what was handed on. So what a connection can make us hold is
//! bounded by the windows below, whatever either side does.

mod flow;
mod head;
mod pump;
mod stream;

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time;

use crate::connection::ConnectionContext;
use crate::frames::{FrameWatch, StreamOpener, UnreadStream, watched};
use crate::refuse::Refusal;
use crate::write_batch::{Gate, batched_behind, in_turns};
use head::UpstreamAuthority;
pub(crate) use pump::{ClientSide, ClientStream};
pub(crate) use stream::{IncomingStream, OutgoingStream, StreamFailure, UpstreamLearned};

/// Serves a connection until it ends, or until it should. `answer` does steps 5 to
/// 10 for each of its streams.
pub(crate) async fn serve<C>(
    client: C,
    ctx: Arc<ConnectionContext>,
    answer: impl AsyncFn(IncomingStream<'_>) -> UpstreamLearned,
) -> Result<(), Refusal>
where
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (client, sender) = batched_behind(recorded(&ctx), client);
    let (client, watch) = watched(client, StreamOpener::Peer, STREAM_WINDOW_BYTES);
    let ended = in_turns(sender, serve_streams(client, &ctx, &watch, answer)).await;
    record_unread(&ctx, &watch, Some(&ended));
    ended
}

/// What is sent waits for the records of the streams it belongs to. A stream
/// hands its record over before or in the turn in which it has something to say.
fn recorded(ctx: &Arc<ConnectionContext>) -> Gate {
    let ctx = Arc::clone(ctx);
    Box::new(move |cx| {
        let written = ctx.gateway.log.poll_written(ctx.last_recorded(), cx);
        written.map_err(io::Error::other)
    })
}

async fn serve_streams<C>(
    client: C,
    ctx: &ConnectionContext,
    watch: &FrameWatch,
    answer: impl AsyncFn(IncomingStream<'_>) -> UpstreamLearned,
) -> Result<(), Refusal>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let authority = UpstreamAuthority::to(&ctx.destination)?;
    let mut websockets = ctx.gateway.dialer.extended_connect(&ctx.destination);
    let mut connection = handshake(client, ctx, websockets).await?;
    let mut signals = ctx.gateway.signals();
    let mut streams = FuturesUnordered::new();
    let mut had_request = false;
    let mut leaving = signals.draining();
    if leaving {
        connection.graceful_shutdown();
    }

    loop {
        let idle = streams.is_empty();
        let event = tokio::select! {
            biased;
            Some(learned) = streams.next(), if !idle => ConnectionEvent::StreamEnded(learned),
            asked = accept(&mut connection, ctx, watch) => match asked {
                Some(Ok((request, respond))) => {
                    watch.taken(respond.stream_id().as_u32());
                    let incoming = IncomingStream::new(ctx, &authority, request, respond);
                    streams.push(answer(incoming));
                    had_request = true;
                    if streams.len() > MAX_ANSWERING {
                        connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    }
                    continue;
                }
                Some(Err(err)) => ConnectionEvent::Ended(Err(err)),
                None => ConnectionEvent::Ended(Ok(())),
            },
            () = signals.changed() => ConnectionEvent::Signalled,
            () = time::sleep(idle_limit(ctx, had_request, leaving)), if idle => ConnectionEvent::Idle,
        };
        match event {
            ConnectionEvent::StreamEnded(UpstreamLearned { extended_connect, no_http2 }) => {
                // Known only once the upstream has said so, which may be after
                // our own settings went out.
                if extended_connect && !websockets {
                    websockets = connection.enable_connect_protocol().is_ok();
                }
                leaving |= no_http2;
            }
            ConnectionEvent::Signalled => leaving |= signals.draining() || !ctx.still_admitted(),
            // We sent GOAWAY, and the client does not close.
            ConnectionEvent::Idle if leaving => return Ok(()),
            ConnectionEvent::Idle => leaving = true,
            ConnectionEvent::Ended(how) => {
                // Each stream notices that the client is gone, and closes its record.
                while streams.next().await.is_some() {}
                return match watch.fault() {
                    Some(fault) => Err(Refusal::Malformed(fault.to_string())),
                    None => connection_result(how),
                };
            }
        }
        if leaving {
            // Sends GOAWAY once, lets open streams finish, and accepts no new ones.
            connection.graceful_shutdown();
        }
    }
}

/// The next request, or the end. Streams that the library answered by itself
/// are recorded on the way.
async fn accept<C>(
    connection: &mut Connection<C, Bytes>,
    ctx: &ConnectionContext,
    watch: &FrameWatch,
) -> Option<Result<(Request<RecvStream>, SendResponse<Bytes>), h2::Error>>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let mut accepting = pin!(connection.accept());
    poll_fn(|cx| {
        let accepted = accepting.as_mut().poll(cx);
        if accepted.is_pending() {
            record_unread(ctx, watch, None);
        }
        accepted
    })
    .await
}

/// Records streams whose requests were never read; when the connection has ended,
/// all that are left.
fn record_unread(ctx: &ConnectionContext, watch: &FrameWatch, ended: Option<&Result<(), Refusal>>) {
    for unread in watch.unread(ended.is_some()) {
        let refusal = match unread {
            UnreadStream::Answered => {
                Refusal::HeadTooLarge { limit: ctx.gateway.limits.bounds().header_bytes }
            }
            UnreadStream::Reset(code) => Refusal::Malformed(match Reason::from(code) {
                Reason::REFUSED_STREAM => {
                    format!("it is one stream more than the {MAX_STREAMS} that may be open at once")
                }
                reason => format!("its head is not one of HTTP/2: {reason}"),
            }),
            UnreadStream::Unseen => match ended {
                Some(Err(refusal)) => Refusal::Malformed(refusal.to_string()),
                _ => Refusal::ClientGone("before its request was looked at".to_owned()),
            },
        };
        ctx.record_unread(&refusal);
    }
}

/// What a connection has to act on next.
enum ConnectionEvent {
    Ended(Result<(), h2::Error>),
    Idle,
    Signalled,
    StreamEnded(UpstreamLearned),
}

async fn handshake<C>(
    client: C,
    ctx: &ConnectionContext,
    websockets: bool,
) -> Result<Connection<C, Bytes>, Refusal>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let limits = ctx.gateway.limits.bounds();
    let largest_head = u32::try_from(limits.header_bytes).unwrap_or(u32::MAX);
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        // A little above what we take, so that it is we who say that a head is
        // too large, and record it.
        .max_header_list_size(largest_head.saturating_add(HEAD_MARGIN_BYTES))
        .max_concurrent_reset_streams(MAX_RESET_STREAMS)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(Some(MAX_LOCAL_RESETS))
        .max_send_buffer_size(SEND_BUFFER_BYTES);
    if websockets {
        builder.enable_connect_protocol();
    }
    match time::timeout(limits.opening, builder.handshake(client)).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(err)) => Err(Refusal::Malformed(format!("the HTTP/2 preface is wrong: {err}"))),
        Err(_) => Err(Refusal::OpeningTimeout { limit: limits.opening }),
    }
}

/// How long a connection without streams may stay open. The first head has less
/// time: a client connects because it has a request.
fn idle_limit(ctx: &ConnectionContext, had_request: bool, leaving: bool) -> Duration {
    let limits = &ctx.gateway.limits;
    match (leaving, had_request) {
        (true, _) => GOODBYE_TIMEOUT,
        (false, true) => limits.bounds().idle,
        (false, false) => limits.bounds().header.min(limits.bounds().idle),
    }
}

/// A client that closes without GOAWAY is not an error: most do.
fn connection_result(how: Result<(), h2::Error>) -> Result<(), Refusal> {
    match how {
        Ok(()) => Ok(()),
        Err(err) if err.is_io() => Ok(()),
        Err(err) if err.is_go_away() && err.is_remote() => Ok(()),
        Err(err) => Err(Refusal::Malformed(format!("the client does not speak HTTP/2: {err}"))),
    }
}

/// Flow-control window of one upload. The sandbox is near, so this is plenty.
const STREAM_WINDOW_BYTES: u32 = 512 << 10;
/// Flow-control window of all uploads of a connection: enough for some to stall
/// without stopping the others, and the most that a client can make us buffer.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// What we buffer of one download.
const SEND_BUFFER_BYTES: usize = 128 << 10;
/// Streams open at a time. A client that wants more waits.
const MAX_STREAMS: u32 = 128;
/// Requests being answered, counting those whose stream is gone already. Only a
/// client that cancels what it has just asked, over and over, gets there.
const MAX_ANSWERING: usize = 2 * MAX_STREAMS as usize;
/// Cancelled streams that the library remembers. A client that opens and cancels
/// faster than that is disconnected (CVE-2023-44487).
const MAX_RESET_STREAMS: usize = 64;
/// Streams that we had to reset because the client broke the rules.
const MAX_LOCAL_RESETS: usize = 256;
const HEAD_MARGIN_BYTES: u32 = 16 << 10;
/// How long a client may take to close after GOAWAY.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);
