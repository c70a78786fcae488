//! A connection that speaks HTTP/1.1: one request after the other.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time;

use crate::connection::ConnectionContext;
use crate::gateway::Gateway;
use crate::http_version::HttpVersion;
use crate::http1::destinations::Destinations;
use crate::http1::exchange::{ClientIo, ExchangeBuffers, ExchangeEnd};
use crate::http1::forward::{self, ConnectionOption};
use crate::http1_codec::fields::KnownField;
use crate::http1_codec::framing::{self, Framing};
use crate::http1_codec::head::{HeadSearch, RequestHead};
use crate::inbox::{HeadError, Inbox};
use crate::limits::GatewayLimits;
use crate::refuse::{Refusal, Reply};
use crate::relay::{ExchangeDeadlines, Waited};
use crate::request::RawRequest;

/// Serves requests until one side has had enough. `inbox` holds what was read
/// while the connection was opened; `answer` does steps 5 to 10 for each.
pub(crate) async fn serve<C: AsyncRead + AsyncWrite + Unpin>(
    io: &mut C,
    inbox: &mut Inbox,
    source: &mut Destinations<'_>,
    answer: impl AsyncFn(
        &mut ClientIo<'_, C>,
        &RequestHead,
        &mut Destinations<'_>,
        &mut ExchangeBuffers,
    ) -> ExchangeEnd,
) -> ConnectionEnd {
    let gateway = Arc::clone(source.gateway());
    let mut deadlines = ExchangeDeadlines::new(&gateway);
    let mut buffers = ExchangeBuffers::new(gateway.limits.bounds().header_bytes);
    let mut head = RequestHead::default();
    loop {
        let next = next_head(io, inbox, &mut head, &mut deadlines, source, &mut buffers).await;
        let is_readable = next.is_ok();
        let end = match next {
            Ok(true) => {
                let client = &mut ClientIo { io, inbox, deadlines: &mut deadlines };
                answer(client, &head, source, &mut buffers).await
            }
            Ok(false) => ExchangeEnd::Close,
            Err(refusal) => ExchangeEnd::Refused(source.refuse(&refusal)),
        };
        match end {
            ExchangeEnd::KeepAlive => {}
            ExchangeEnd::Close => {
                close(io).await;
                return ConnectionEnd::Close;
            }
            ExchangeEnd::CloseUnread => {
                linger(io).await;
                return ConnectionEnd::Close;
            }
            ExchangeEnd::Drop => return ConnectionEnd::Close,
            ExchangeEnd::Reset => return ConnectionEnd::Reset,
            ExchangeEnd::Refused(reply) => {
                let framing = RefusalFraming::of(is_readable.then_some(&head));
                if !refuse(io, reply, framing, &gateway).await {
                    return ConnectionEnd::Close;
                }
            }
        }
    }
}

/// How a connection is to be closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum ConnectionEnd {
    Close,
    /// Its end would be taken for the end of the answer. Only a reset says that
    /// it is not.
    Reset,
}

impl ConnectionEnd {
    /// Has the connection end with a reset where its client would take a plain end
    /// for the end of its answer. That TLS did not say goodbye is not enough: many
    /// clients overlook it.
    pub(crate) fn apply_to(self, stream: &TcpStream) {
        if self == Self::Reset
            && let Err(err) = SockRef::from(stream).set_linger(Some(Duration::ZERO))
        {
            tracing::debug!(%err, "a connection cannot be reset");
        }
    }
}

/// Step 5, as far as HTTP/1.1 goes: what a head asks for, on which destination's
/// behalf it is judged, and where its body ends.
pub(crate) fn read_request<'h>(
    head: &'h RequestHead,
    source: &mut Destinations<'_>,
) -> Result<(Arc<ConnectionContext>, RawRequest<'h>, Framing), Refusal> {
    let websocket = asks_for_websocket(head);
    let raw = RawRequest {
        method: head.method(),
        target: head.target(),
        authority: None,
        headers: &head.fields,
        version: head.version,
        websocket,
    };
    let framing = framing::of_request(&head.fields, head.version)
        .map_err(|fault| Refusal::Malformed(fault.to_string()))?;
    if websocket && framing != Framing::Empty {
        let why = "a request that asks for a WebSocket cannot have a body".to_owned();
        return Err(Refusal::Malformed(why));
    }
    Ok((source.context(&raw)?, raw, framing))
}

/// Waits for the next head. `false` means that there will be none: the client is
/// done, or it was silent for too long, or we are closing.
async fn next_head<C: AsyncRead + Unpin>(
    io: &mut C,
    inbox: &mut Inbox,
    head: &mut RequestHead,
    deadlines: &mut ExchangeDeadlines,
    source: &Destinations<'_>,
    buffers: &mut ExchangeBuffers,
) -> Result<bool, Refusal> {
    let limits = &source.gateway().limits;
    deadlines.restart(SHRINK_AFTER.min(limits.bounds().idle));
    let mut shrunk = SHRINK_AFTER >= limits.bounds().idle;
    let mut reading = HeadWait { io, inbox, search: HeadSearch::new(limits.bounds().header_bytes) };
    let mut begun = !reading.inbox.is_empty();
    if begun {
        deadlines.restart(limits.bounds().header);
    } else if deadlines.signals().draining() {
        // The order to stop came while the request before was under way, and was
        // heard there.
        return Ok(false);
    }
    loop {
        let poll = |reading: &mut HeadWait<'_, C>, cx: &mut Context<'_>| match begun {
            true => reading.poll_head(cx),
            false => reading.poll_first(cx),
        };
        match deadlines.wait(&mut reading, poll, |_| 0).await {
            Waited::Ready(Ok(HeadProgress::Begun)) => {
                begun = true;
                deadlines.restart(limits.bounds().header);
            }
            Waited::Ready(Ok(HeadProgress::Ended)) => return Ok(false),
            Waited::Ready(Ok(HeadProgress::Head(end))) => {
                return take_head(reading.inbox, end, head, limits).map(|()| true);
            }
            Waited::Ready(Err(refusal)) => return Err(refusal),
            Waited::Idle(limit) | Waited::Overtime(limit) if begun => {
                return Err(Refusal::OpeningTimeout { limit });
            }
            Waited::Idle(waited) if !shrunk => {
                shrunk = true;
                buffers.shrink();
                reading.inbox.shrink();
                deadlines.restart(limits.bounds().idle.saturating_sub(waited));
            }
            Waited::Idle(_) | Waited::Overtime(_) => return Ok(false),
            Waited::Signal if !source.may_stay_idle() => return Ok(false),
            Waited::Signal if deadlines.signals().draining() && !begun => return Ok(false),
            Waited::Signal => {}
        }
    }
}

/// A connection that is silent for this long gives back the memory it can.
const SHRINK_AFTER: Duration = Duration::from_secs(2);

/// Takes a head that is there off the inbox.
pub(crate) fn take_head(
    inbox: &mut Inbox,
    end: usize,
    head: &mut RequestHead,
    limits: &GatewayLimits,
) -> Result<(), Refusal> {
    let bytes = inbox.filled().get(..end).unwrap_or_default();
    head.read(bytes, limits.bounds().headers)?;
    inbox.consume(end);
    Ok(())
}

struct HeadWait<'a, C> {
    io: &'a mut C,
    inbox: &'a mut Inbox,
    search: HeadSearch,
}

enum HeadProgress {
    Begun,
    Ended,
    Head(usize),
}

impl<C: AsyncRead + Unpin> HeadWait<'_, C> {
    /// Waits for the first byte, and looks at once for the rest.
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<Result<HeadProgress, Refusal>> {
        match ready!(self.inbox.poll_fill(cx, self.io)) {
            Ok(0) => Poll::Ready(Ok(HeadProgress::Ended)),
            // It broke between two requests, so there is nothing to answer.
            Err(_) => Poll::Ready(Ok(HeadProgress::Ended)),
            Ok(_) => match self.poll_head(cx) {
                Poll::Pending => Poll::Ready(Ok(HeadProgress::Begun)),
                ready => ready,
            },
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<HeadProgress, Refusal>> {
        let Self { io, inbox, search } = self;
        let read = ready!(inbox.poll_head(cx, *io, search));
        Poll::Ready(read.map(HeadProgress::Head).map_err(|err| match err {
            HeadError::Closed => Refusal::Malformed(err.to_string()),
            HeadError::Fault(fault) => fault.into(),
            HeadError::Io(err) => Refusal::ClientGone(err.to_string()),
        }))
    }
}

/// How a refusal is to be written for the request it answers.
#[derive(Clone, Copy, Debug)]
struct RefusalFraming {
    grpc: bool,
    bodiless: bool,
    /// Whether the connection can go on: nothing of a body is in the way.
    keep_alive: bool,
    version: HttpVersion,
}

impl RefusalFraming {
    fn of(head: Option<&RequestHead>) -> Self {
        let Some(head) = head else {
            let version = HttpVersion::Http11;
            return Self { grpc: false, bodiless: false, keep_alive: false, version };
        };
        let empty = framing::of_request(&head.fields, head.version) == Ok(Framing::Empty);
        Self {
            grpc: crate::request::is_grpc(&head.fields),
            bodiless: head.method() == b"HEAD",
            keep_alive: empty && forward::client_stays(head),
            version: head.version,
        }
    }
}

/// Sends a refusal once it is recorded. Says whether the connection can go on.
async fn refuse<C: AsyncRead + AsyncWrite + Unpin>(
    io: &mut C,
    reply: Reply,
    framing: RefusalFraming,
    gateway: &Gateway,
) -> bool {
    let limit = gateway.limits.bounds().idle;
    // Writing the record has a limit, too.
    let Ok(reply) = time::timeout(limit, reply.once_recorded(&gateway.log)).await else {
        return false;
    };
    let RefusalFraming { grpc, bodiless, keep_alive, version } = framing;
    let option =
        if keep_alive { ConnectionOption::KeepAlive(version) } else { ConnectionOption::Close };
    let mut out = Vec::with_capacity(1024);
    forward::refusal(&reply.wire(grpc), &reply.reason_phrase(), bodiless, option, &mut out);
    let send = async {
        io.write_all(&out).await?;
        io.flush().await
    };
    if keep_alive {
        // A client that does not read what it is told is not told more.
        return matches!(time::timeout(limit, send).await, Ok(Ok(())));
    }
    if send.await.is_ok() {
        linger(io).await;
    }
    false
}

/// Closes after an answer that came before the whole request did.
///
/// A socket that is closed with bytes unread resets the connection, and the
/// answer is lost on the way. So what the client still sends is read and thrown
/// away, for a while.
pub(crate) async fn linger<C: AsyncRead + AsyncWrite + Unpin>(io: &mut C) {
    let drained = async {
        io.shutdown().await?;
        let (mut waste, mut read) = (Inbox::new(), 0);
        while read < MAX_LINGER_BYTES {
            match waste.fill(io).await? {
                0 => break,
                count => read += count,
            }
            waste.clear();
        }
        io::Result::Ok(())
    };
    // Whatever came of it, nothing depends on it any more.
    drop(time::timeout(CLOSE_TIMEOUT, drained).await);
}

/// Closes a connection that has ended well.
async fn close<C: AsyncWrite + Unpin>(io: &mut C) {
    drop(time::timeout(CLOSE_TIMEOUT, io.shutdown()).await);
}

/// How long closing a connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How much is read of what a client still sends after its answer.
const MAX_LINGER_BYTES: usize = 8 * 1024 * 1024;

/// `Upgrade: websocket`, and that alone. Any other upgrade is not passed on, so
/// the request is what it would be without.
fn asks_for_websocket(head: &RequestHead) -> bool {
    let mut upgrades = head.fields.of(KnownField::Upgrade);
    let websocket = upgrades.next().is_some_and(|to| to.eq_ignore_ascii_case(b"websocket"));
    websocket
        && upgrades.next().is_none()
        && head.version == HttpVersion::Http11
        && head.method() == b"GET"
        && head.fields.connection_lists(b"upgrade")
}

#[cfg(test)]
mod tests;
