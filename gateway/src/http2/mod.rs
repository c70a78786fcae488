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
use crate::frames::{Opener, Unread, Watch, watched};
use crate::refuse::Refusal;
use crate::write_batch::{Gate, batched_behind, in_turns};
use head::Outgoing;
use stream::{Afterwards, answer};

/// Serves a connection until it ends, or until it should.
pub(crate) async fn serve<C>(client: C, ctx: Arc<ConnectionContext>) -> Result<(), Refusal>
where
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (client, sender) = batched_behind(recorded(&ctx), client);
    let (client, watch) = watched(client, Opener::Peer, STREAM_WINDOW);
    let ended = in_turns(sender, serve_each(client, &ctx, &watch)).await;
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

async fn serve_each<C>(client: C, ctx: &ConnectionContext, watch: &Watch) -> Result<(), Refusal>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let outgoing = Outgoing::to(&ctx.destination)?;
    let mut websockets = ctx.gateway.dialer.extended_connect(&ctx.destination);
    let mut connection = shake_hands(client, ctx, websockets).await?;
    let mut signals = ctx.gateway.signals();
    let mut streams = FuturesUnordered::new();
    let mut asked_once = false;
    let mut leaving = signals.draining();
    if leaving {
        connection.graceful_shutdown();
    }

    loop {
        let idle = streams.is_empty();
        let turn = tokio::select! {
            biased;
            Some(afterwards) = streams.next(), if !idle => Turn::Answered(afterwards),
            asked = accept(&mut connection, ctx, watch) => match asked {
                Some(Ok((request, respond))) => {
                    watch.taken(respond.stream_id().as_u32());
                    streams.push(answer(ctx, &outgoing, request, respond));
                    asked_once = true;
                    if streams.len() > MOST_ANSWERING {
                        connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    }
                    continue;
                }
                Some(Err(err)) => Turn::Ended(Err(err)),
                None => Turn::Ended(Ok(())),
            },
            () = signals.changed() => Turn::Signalled,
            () = time::sleep(patience(ctx, asked_once, leaving)), if idle => Turn::Idle,
        };
        match turn {
            Turn::Answered(Afterwards { extended_connect, leave }) => {
                // Known only once the upstream has said so, which may be after
                // our own settings went out.
                if extended_connect && !websockets {
                    websockets = connection.enable_connect_protocol().is_ok();
                }
                leaving |= leave;
            }
            Turn::Signalled => leaving |= signals.draining() || !ctx.still_admitted(),
            // We said goodbye, and the client does not leave.
            Turn::Idle if leaving => return Ok(()),
            Turn::Idle => leaving = true,
            Turn::Ended(how) => {
                // Each finds out by itself that the client has gone, and closes
                // its record.
                while streams.next().await.is_some() {}
                return match watch.fault() {
                    Some(fault) => Err(Refusal::Malformed(fault.to_string())),
                    None => ended(how),
                };
            }
        }
        if leaving {
            // Says goodbye once, lets open streams finish, and then accepts
            // nothing any more.
            connection.graceful_shutdown();
        }
    }
}

/// The next request, or the end. Streams that the library answered by itself
/// are recorded on the way.
async fn accept<C>(
    connection: &mut Connection<C, Bytes>,
    ctx: &ConnectionContext,
    watch: &Watch,
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

/// Records streams whose requests nobody got to see; when the connection has
/// ended, all that are left.
fn record_unread(ctx: &ConnectionContext, watch: &Watch, ended: Option<&Result<(), Refusal>>) {
    for unread in watch.unread(ended.is_some()) {
        let refusal = match unread {
            Unread::Answered => Refusal::HeadTooLarge { limit: ctx.gateway.limits.header_bytes() },
            Unread::Reset(code) => Refusal::Malformed(match Reason::from(code) {
                Reason::REFUSED_STREAM => {
                    format!("it is one stream more than the {STREAMS} that may be open at once")
                }
                reason => format!("its head is not one of HTTP/2: {reason}"),
            }),
            Unread::Unseen => match ended {
                Some(Err(refusal)) => Refusal::Malformed(refusal.to_string()),
                _ => Refusal::ClientGone("before its request was looked at".to_owned()),
            },
        };
        ctx.record_unread(&refusal);
    }
}

/// What a connection does next.
enum Turn {
    Answered(Afterwards),
    Ended(Result<(), h2::Error>),
    Idle,
    Signalled,
}

async fn shake_hands<C>(
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
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS)
        // A little above what we take, so that it is we who say that a head is
        // too large, and record it.
        .max_header_list_size(largest_head.saturating_add(HEAD_MARGIN))
        .max_concurrent_reset_streams(RESET_STREAMS)
        .max_pending_accept_reset_streams(RESET_STREAMS)
        .max_local_error_reset_streams(Some(ERRORS))
        .max_send_buffer_size(SEND_BUFFER);
    if websockets {
        builder.enable_connect_protocol();
    }
    match time::timeout(limits.opening, builder.handshake(client)).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(err)) => Err(Refusal::Malformed(format!("the HTTP/2 preface is wrong: {err}"))),
        Err(_) => Err(Refusal::OpeningTimeout { limit: limits.opening }),
    }
}

/// How long a connection without streams may stay. The first head has less time:
/// a client that connects to ask something has something to ask.
fn patience(ctx: &ConnectionContext, asked_once: bool, leaving: bool) -> Duration {
    let limits = &ctx.gateway.limits;
    match (leaving, asked_once) {
        (true, _) => GOODBYE,
        (false, true) => limits.idle(),
        (false, false) => limits.header().min(limits.idle()),
    }
}

/// A client that closes without a goodbye is no news: most do.
fn ended(how: Result<(), h2::Error>) -> Result<(), Refusal> {
    match how {
        Ok(()) => Ok(()),
        Err(err) if err.is_io() => Ok(()),
        Err(err) if err.is_go_away() && err.is_remote() => Ok(()),
        Err(err) => Err(Refusal::Malformed(format!("the client does not speak HTTP/2: {err}"))),
    }
}

/// What one upload may have under way. The sandbox is next door, so this is
/// plenty.
const STREAM_WINDOW: u32 = 512 << 10;
/// What all uploads of a connection may have under way together: enough for
/// some to stall without stopping the others, and the most we can be made to
/// hold.
const CONNECTION_WINDOW: u32 = 8 << 20;
/// What we hold of one download beside what is on the wire.
const SEND_BUFFER: usize = 128 << 10;
/// Streams at a time. A client that wants more waits.
const STREAMS: u32 = 128;
/// Requests being answered, counting those whose stream is gone already. Only a
/// client that cancels what it has just asked, over and over, gets there.
const MOST_ANSWERING: usize = 2 * STREAMS as usize;
/// Streams that were cancelled and not yet forgotten. A client that opens and
/// cancels faster than this is hung up on (CVE-2023-44487).
const RESET_STREAMS: usize = 64;
/// Streams that we had to reset because the client broke the rules.
const ERRORS: usize = 256;
const HEAD_MARGIN: u32 = 16 << 10;
/// How long a client may take to leave after the goodbye.
const GOODBYE: Duration = Duration::from_secs(5);
