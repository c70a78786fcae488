//! Bytes that nobody looks into: plain TCP, sealed TLS, WebSockets.
//!
//! What cannot be inspected is at least counted, timed and ended when policy
//! changes its mind. Each half closes by itself: a side that has said all it has
//! to say can still listen.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};

use super::inbox::Inbox;
use super::patience::{First, Patience};
use super::pump::{Broken, Pump};
use crate::http1::framing::Framing;
use crate::inspect::Meter;
use crate::refuse::Refusal;

/// Two sides, and what was already read from each.
pub(crate) struct Tunnel<'a, C, U> {
    client: &'a mut C,
    upstream: &'a mut U,
    from_client: Half<'a>,
    from_upstream: Half<'a>,
    meter: &'a Meter,
}

struct Half<'a> {
    inbox: &'a mut Inbox,
    pump: Pump,
    state: HalfState,
}

#[derive(Clone, Copy, PartialEq)]
enum HalfState {
    Closed,
    Closing,
    Open,
}

impl<'a, C, U> Tunnel<'a, C, U>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    pub(crate) fn between(
        client: (&'a mut C, &'a mut Inbox),
        upstream: (&'a mut U, &'a mut Inbox),
        meter: &'a Meter,
    ) -> Self {
        Self {
            client: client.0,
            upstream: upstream.0,
            from_client: Half::of(client.1),
            from_upstream: Half::of(upstream.1),
            meter,
        }
    }

    /// Relays until both sides are done, or the tunnel may not go on. `allowed`
    /// is asked again whenever the policy changes. A gateway that drains lets it
    /// finish, as everything that is at work.
    pub(crate) async fn relay(
        mut self,
        patience: &mut Patience,
        allowed: impl Fn() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        loop {
            let turn = |tunnel: &mut Self, cx: &mut Context<'_>| tunnel.poll(cx);
            let moved = |t: &Self| t.from_client.pump.moved + t.from_upstream.pump.moved;
            match patience.first(&mut self, turn, moved).await {
                First::It(done) => return done,
                First::Idle(limit) => return Err(Refusal::Idle { limit }),
                First::Total(limit) => return Err(Refusal::CapReached { limit }),
                First::Signal => allowed()?,
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        let Self { client, upstream, from_client, from_upstream, meter } = self;
        let up = from_client.poll(cx, *client, *upstream, &mut |bytes| meter.sent(bytes));
        if let Poll::Ready(Err(broken)) = up {
            return Poll::Ready(Err(blame(broken, "client", "upstream")));
        }
        let down = from_upstream.poll(cx, *upstream, *client, &mut |bytes| meter.received(bytes));
        match (up, down) {
            (_, Poll::Ready(Err(broken))) => Poll::Ready(Err(blame(broken, "upstream", "client"))),
            (Poll::Ready(_), Poll::Ready(_)) => Poll::Ready(Ok(())),
            (Poll::Pending, _) | (_, Poll::Pending) => Poll::Pending,
        }
    }
}

impl<'a> Half<'a> {
    fn of(inbox: &'a mut Inbox) -> Self {
        let pump = Pump::new(Framing::UntilClose, false, Vec::new());
        Self { inbox, pump, state: HalfState::Open }
    }

    fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        count: &mut impl FnMut(usize) -> Result<(), Refusal>,
    ) -> Poll<Result<(), Broken>> {
        if self.state == HalfState::Open {
            ready!(self.pump.poll(cx, from, self.inbox, to, count))?;
            self.state = HalfState::Closing;
        }
        if self.state == HalfState::Closing {
            // The other side may be gone already; it has read all there was.
            drop(ready!(Pin::new(to).poll_shutdown(cx)));
            self.state = HalfState::Closed;
            self.pump.moved += 1;
        }
        Poll::Ready(Ok(()))
    }
}

/// Turns what broke into whose connection it was.
fn blame(broken: Broken, reader: &str, writer: &str) -> Refusal {
    let (side, why) = match broken {
        Broken::Refused(refusal) => return refusal,
        Broken::Malformed(fault) => (reader, fault.to_string()),
        Broken::Read(err) => (reader, err.to_string()),
        Broken::Truncated => (reader, "it ended too early".to_owned()),
        Broken::Write(err) => (writer, err.to_string()),
    };
    if side == "client" { Refusal::ClientGone(why) } else { Refusal::UpstreamClosed(why) }
}
