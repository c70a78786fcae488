//! A connection that speaks HTTP/1.1: one request after the other.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time;

use crate::gateway::Gateway;
use crate::http1::exchange::{After, Buffers, Client, carry};
use crate::http1::fields::Known;
use crate::http1::forward::{self, Afterwards};
use crate::http1::framing::{self, Framing};
use crate::http1::head::{self, RequestHead};
use crate::http1::origin::Origin;
use crate::limits::Limits;
use crate::refuse::{Refusal, Reply};
use crate::relay::{First, Inbox, Patience};
use crate::request::{Asked, Version};

/// Serves requests until one side has had enough. `inbox` holds what was read
/// while the connection was opened.
pub(crate) async fn serve<C: AsyncRead + AsyncWrite + Unpin>(
    io: &mut C,
    inbox: &mut Inbox,
    origin: &mut Origin<'_>,
) -> Ended {
    let gateway = std::sync::Arc::clone(origin.gateway());
    let mut patience = Patience::new(&gateway);
    let mut buffers = Buffers::new(gateway.limits.header_bytes());
    let mut head = RequestHead::default();
    loop {
        match next_head(io, inbox, &mut head, &mut patience, origin, &mut buffers).await {
            Ok(true) => {}
            Ok(false) => {
                end(io).await;
                return Ended::AsItShould;
            }
            Err(refusal) => {
                let reply = origin.refuse(&refusal);
                let Some(reply) = once_recorded(reply, &gateway).await else {
                    return Ended::AsItShould;
                };
                refuse_and_end(io, &reply, Told::default()).await;
                return Ended::AsItShould;
            }
        }
        let client = &mut Client { io, inbox, patience: &mut patience };
        match one(client, &head, origin, &mut buffers).await {
            After::KeepAlive => {}
            After::Close => {
                end(io).await;
                return Ended::AsItShould;
            }
            After::CloseUnread => {
                linger(io).await;
                return Ended::AsItShould;
            }
            After::Drop => return Ended::AsItShould,
            After::Reset => return Ended::InMidAnswer,
            After::Refused(reply) => {
                let Some(reply) = once_recorded(reply, &gateway).await else {
                    return Ended::AsItShould;
                };
                let told = Told::by(&head);
                if !told.stays {
                    refuse_and_end(io, &reply, told).await;
                    return Ended::AsItShould;
                }
                let sent = send_refusal(io, &reply, told);
                // A client that does not read what it is told is not told more.
                if !matches!(time::timeout(gateway.limits.idle(), sent).await, Ok(Ok(()))) {
                    return Ended::AsItShould;
                }
            }
        }
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Ended {
    AsItShould,
    /// Its end would be taken for the end of the answer. Only a reset says that
    /// it is not.
    InMidAnswer,
}

/// Steps 5 to 10 for one request.
async fn one<C: AsyncRead + AsyncWrite + Unpin>(
    client: &mut Client<'_, C>,
    head: &RequestHead,
    origin: &mut Origin<'_>,
    buffers: &mut Buffers,
) -> After {
    let websocket = asks_for_websocket(head);
    let asked = Asked {
        method: head.method(),
        target: head.target(),
        authority: None,
        headers: &head.fields,
        version: head.version,
        websocket,
    };
    let framing = match framing::of_request(&head.fields, head.version) {
        Ok(framing) if websocket && framing != Framing::Empty => {
            let why = "a request that asks for a WebSocket cannot have a body".to_owned();
            return After::Refused(origin.refuse(&Refusal::Malformed(why)));
        }
        Ok(framing) => framing,
        Err(fault) => {
            return After::Refused(origin.refuse(&Refusal::Malformed(fault.to_string())));
        }
    };
    let context = match origin.context(&asked) {
        Ok(context) => context,
        Err(refusal) => return After::Refused(origin.refuse(&refusal)),
    };
    match context.authorize(asked).await {
        Ok(authorized) => carry(authorized, head, framing, client, buffers, &context).await,
        Err(reply) => After::Refused(reply),
    }
}

/// Waits for the next head. `false` means that there will be none: the client is
/// done, or it was silent for too long, or we are closing.
async fn next_head<C: AsyncRead + Unpin>(
    io: &mut C,
    inbox: &mut Inbox,
    head: &mut RequestHead,
    patience: &mut Patience,
    origin: &Origin<'_>,
    buffers: &mut Buffers,
) -> Result<bool, Refusal> {
    let limits = &origin.gateway().limits;
    patience.wait(REST.min(limits.idle()));
    let mut rested = REST >= limits.idle();
    let mut reading = Reading { io, inbox, searched: 0, longest: limits.header_bytes() };
    let mut begun = !reading.inbox.is_empty();
    if begun {
        patience.wait(limits.header());
    } else if patience.signals().draining() {
        // The order to stop came while the request before was under way, and was
        // heard there.
        return Ok(false);
    }
    loop {
        let poll = |reading: &mut Reading<'_, C>, cx: &mut Context<'_>| match begun {
            true => reading.poll_head(cx),
            false => reading.poll_first(cx),
        };
        match patience.first(&mut reading, poll, |_| 0).await {
            First::It(Ok(Progress::Begun)) => {
                begun = true;
                patience.wait(limits.header());
            }
            First::It(Ok(Progress::Ended)) => return Ok(false),
            First::It(Ok(Progress::Head(end))) => {
                return take_head(reading.inbox, end, head, limits).map(|()| true);
            }
            First::It(Err(refusal)) => return Err(refusal),
            First::Idle(limit) | First::Total(limit) if begun => {
                return Err(Refusal::OpeningTimeout { limit });
            }
            First::Idle(rest) if !rested => {
                rested = true;
                buffers.shrink();
                reading.inbox.shrink();
                patience.wait(limits.idle().saturating_sub(rest));
            }
            First::Idle(_) | First::Total(_) => return Ok(false),
            First::Signal if !origin.may_stay() => return Ok(false),
            First::Signal if patience.signals().draining() && !begun => return Ok(false),
            First::Signal => {}
        }
    }
}

/// A connection that is silent for this long gives back what it can.
const REST: Duration = Duration::from_secs(2);

/// Takes a head that is there off the inbox.
pub(crate) fn take_head(
    inbox: &mut Inbox,
    end: usize,
    head: &mut RequestHead,
    limits: &Limits,
) -> Result<(), Refusal> {
    let bytes = inbox.filled().get(..end).unwrap_or_default();
    head.read(bytes, limits.headers()).map_err(|fault| Refusal::Malformed(fault.to_string()))?;
    inbox.consume(end);
    Ok(())
}

struct Reading<'a, C> {
    io: &'a mut C,
    inbox: &'a mut Inbox,
    searched: usize,
    longest: usize,
}

enum Progress {
    Begun,
    Ended,
    Head(usize),
}

impl<C: AsyncRead + Unpin> Reading<'_, C> {
    /// Waits for the first byte, and looks at once for the rest.
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<Result<Progress, Refusal>> {
        match ready!(self.inbox.poll_fill(cx, self.io)) {
            Ok(0) => Poll::Ready(Ok(Progress::Ended)),
            // It broke between two requests: there is nothing to tell, nobody to.
            Err(_) => Poll::Ready(Ok(Progress::Ended)),
            Ok(_) => match self.poll_head(cx) {
                Poll::Pending => Poll::Ready(Ok(Progress::Begun)),
                ready => ready,
            },
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Progress, Refusal>> {
        loop {
            let bytes = self.inbox.filled();
            match head::end(bytes, self.searched) {
                Ok(Some(end)) if end <= self.longest => {
                    return Poll::Ready(Ok(Progress::Head(end)));
                }
                Ok(None) if bytes.len() < self.longest => self.searched = bytes.len(),
                Ok(_) => return Poll::Ready(Err(Refusal::HeadTooLarge { limit: self.longest })),
                Err(fault) => return Poll::Ready(Err(Refusal::Malformed(fault.to_string()))),
            }
            match ready!(self.inbox.poll_fill(cx, self.io)) {
                Ok(0) => {
                    let why = "the head ended too early".to_owned();
                    return Poll::Ready(Err(Refusal::Malformed(why)));
                }
                Ok(_) => {}
                Err(err) => return Poll::Ready(Err(Refusal::ClientGone(err.to_string()))),
            }
        }
    }
}

/// What a refusal has to know about the request it answers.
#[derive(Clone, Copy, Debug)]
struct Told {
    grpc: bool,
    bodiless: bool,
    /// Whether the connection can go on: nothing of a body is in the way.
    stays: bool,
    version: Version,
}

impl Default for Told {
    /// A request that could not be read.
    fn default() -> Self {
        Self { grpc: false, bodiless: false, stays: false, version: Version::Http11 }
    }
}

impl Told {
    fn by(head: &RequestHead) -> Self {
        let empty = framing::of_request(&head.fields, head.version) == Ok(Framing::Empty);
        Self {
            grpc: crate::request::is_grpc(&head.fields),
            bodiless: head.method() == b"HEAD",
            stays: empty && forward::client_stays(head),
            version: head.version,
        }
    }
}

/// The reply once its record is written; nothing if that takes too long.
async fn once_recorded(reply: Reply, gateway: &Gateway) -> Option<Reply> {
    time::timeout(gateway.limits.idle(), reply.once_recorded(&gateway.log)).await.ok()
}

async fn send_refusal<C: AsyncWrite + Unpin>(
    io: &mut C,
    reply: &Reply,
    told: Told,
) -> io::Result<()> {
    let afterwards =
        if told.stays { Afterwards::KeepAlive(told.version) } else { Afterwards::Close };
    let mut out = Vec::with_capacity(1024);
    let reason = reply.reason_phrase();
    forward::refusal(&reply.wire(told.grpc), &reason, told.bodiless, afterwards, &mut out);
    io.write_all(&out).await?;
    io.flush().await
}

async fn refuse_and_end<C: AsyncRead + AsyncWrite + Unpin>(io: &mut C, reply: &Reply, told: Told) {
    let told = Told { stays: false, ..told };
    if send_refusal(io, reply, told).await.is_ok() {
        linger(io).await;
    }
}

/// Closes after an answer that came before the whole request did.
///
/// A socket that is closed with bytes unread resets the connection, and the
/// answer is lost on the way. So what the client still sends is read and thrown
/// away, for a while.
pub(crate) async fn linger<C: AsyncRead + AsyncWrite + Unpin>(io: &mut C) {
    const LONGEST: Duration = Duration::from_secs(5);
    const MOST: usize = 8 * 1024 * 1024;
    let drained = async {
        io.shutdown().await?;
        let (mut waste, mut read) = (Inbox::new(), 0);
        while read < MOST {
            match waste.fill(io).await? {
                0 => break,
                count => read += count,
            }
            waste.clear();
        }
        io::Result::Ok(())
    };
    // Whatever came of it, nothing depends on it any more.
    drop(time::timeout(LONGEST, drained).await);
}

/// Closes a connection that has ended well.
async fn end<C: AsyncWrite + Unpin>(io: &mut C) {
    const LONGEST: Duration = Duration::from_secs(5);
    drop(time::timeout(LONGEST, io.shutdown()).await);
}

/// `Upgrade: websocket`, and that alone. Any other upgrade is not passed on, so
/// the request is what it would be without.
fn asks_for_websocket(head: &RequestHead) -> bool {
    let mut upgrades = head.fields.of(Known::Upgrade);
    let websocket = upgrades.next().is_some_and(|to| to.eq_ignore_ascii_case(b"websocket"));
    websocket
        && upgrades.next().is_none()
        && head.version == Version::Http11
        && head.method() == b"GET"
        && head.fields.connection_lists(b"upgrade")
}

#[cfg(test)]
mod tests;
