//! Bytes that are relayed without a look into them: TCP, passthrough TLS, WebSockets.
//!
//! They are counted and timed, and the tunnel ends when a new policy does not allow
//! it. Each direction closes by itself: a side that has sent all can still receive.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};

use super::deadlines::ExchangeDeadlines;
use super::pump::{BodyPump, PumpError};
use crate::http1_codec::framing::Framing;
use crate::inbox::Inbox;
use crate::inspect::TrafficMeter;
use crate::refuse::Refusal;

/// Two sides, and what was already read from each.
pub(crate) struct Tunnel<'a, C, U> {
    client: &'a mut C,
    upstream: &'a mut U,
    from_client: TunnelHalf<'a>,
    from_upstream: TunnelHalf<'a>,
    meter: &'a TrafficMeter,
}

struct TunnelHalf<'a> {
    inbox: &'a mut Inbox,
    pump: BodyPump,
    state: TunnelHalfState,
}

#[derive(Clone, Copy, PartialEq)]
enum TunnelHalfState {
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
        meter: &'a TrafficMeter,
    ) -> Self {
        Self {
            client: client.0,
            upstream: upstream.0,
            from_client: TunnelHalf::of(client.1),
            from_upstream: TunnelHalf::of(upstream.1),
            meter,
        }
    }

    /// Relays until both sides are done, or the tunnel may not go on. `allowed`
    /// is asked again whenever the policy changes.
    pub(crate) async fn relay(
        mut self,
        deadlines: &mut ExchangeDeadlines,
        allowed: impl Fn() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let step = |tunnel: &mut Self, cx: &mut Context<'_>| tunnel.poll(cx);
        let moved = |t: &Self| t.from_client.pump.moved + t.from_upstream.pump.moved;
        deadlines.drive(&mut self, step, moved, allowed).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        let Self { client, upstream, from_client, from_upstream, meter } = self;
        let up = from_client.poll(cx, *client, *upstream, &mut |bytes| meter.sent(bytes));
        if let Poll::Ready(Err(broken)) = up {
            return Poll::Ready(Err(refusal_for(broken, "client", "upstream")));
        }
        let down = from_upstream.poll(cx, *upstream, *client, &mut |bytes| meter.received(bytes));
        match (up, down) {
            (_, Poll::Ready(Err(broken))) => {
                Poll::Ready(Err(refusal_for(broken, "upstream", "client")))
            }
            (Poll::Ready(_), Poll::Ready(_)) => Poll::Ready(Ok(())),
            (Poll::Pending, _) | (_, Poll::Pending) => Poll::Pending,
        }
    }
}

impl<'a> TunnelHalf<'a> {
    fn of(inbox: &'a mut Inbox) -> Self {
        let pump = BodyPump::new(Framing::UntilClose, false, Vec::new());
        Self { inbox, pump, state: TunnelHalfState::Open }
    }

    fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        count: &mut impl FnMut(usize) -> Result<(), Refusal>,
    ) -> Poll<Result<(), PumpError>> {
        if self.state == TunnelHalfState::Open {
            ready!(self.pump.poll(cx, from, self.inbox, to, count))?;
            self.state = TunnelHalfState::Closing;
        }
        if self.state == TunnelHalfState::Closing {
            // The other side may be gone already; it has read all there was.
            drop(ready!(Pin::new(to).poll_shutdown(cx)));
            self.state = TunnelHalfState::Closed;
            self.pump.moved += 1;
        }
        Poll::Ready(Ok(()))
    }
}

/// Turns what broke into whose connection it was.
fn refusal_for(broken: PumpError, reader: &str, writer: &str) -> Refusal {
    let (side, why) = match broken {
        PumpError::Refused(refusal) => return refusal,
        PumpError::Malformed(fault) => (reader, fault.to_string()),
        PumpError::Read(err) => (reader, err.to_string()),
        PumpError::Truncated => (reader, "it ended too early".to_owned()),
        PumpError::Write(err) => (writer, err.to_string()),
    };
    if side == "client" { Refusal::ClientGone(why) } else { Refusal::UpstreamClosed(why) }
}
