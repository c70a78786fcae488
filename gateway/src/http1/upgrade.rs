//! A connection that stops speaking HTTP: WebSockets, and nothing else.

use std::task::Context;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::dial::Http1Upstream;
use crate::http1::exchange::{After, Buffers, Client, Sent, Stopped};
use crate::http1::fields::Known;
use crate::http1::forward::{self, Afterwards};
use crate::http1::head::ResponseHead;
use crate::http1::turn::{Stop, Turn};
use crate::record::Exchange;
use crate::refuse::Refusal;
use crate::relay::{First, Patience, Tunnel};

impl Sent<'_> {
    /// Whether a 101 is the one that was asked for.
    pub(super) fn check_upgrade(&self, response: &ResponseHead) -> Result<(), Refusal> {
        let mut to = response.fields.of(Known::Upgrade);
        let websocket = to.next().is_some_and(|to| to.eq_ignore_ascii_case(b"websocket"));
        if self.request.websocket && websocket && to.next().is_none() {
            return Ok(());
        }
        Err(Refusal::UpstreamMalformed("it changes to a protocol nobody asked for".to_owned()))
    }

    /// Passes on a 101.
    pub(super) async fn upgrade<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        turn: &mut Turn<'_, C>,
        response: &ResponseHead,
        patience: &mut Patience,
    ) -> Result<(), Refusal> {
        forward::response(response, false, Afterwards::Upgraded, &mut turn.down.out);
        turn.meter.received(turn.down.out.len())?;
        loop {
            let poll = |turn: &mut Turn<'_, C>, cx: &mut Context<'_>| turn.poll_interim(cx);
            match patience.first(turn, poll, Turn::moved).await {
                First::It(Ok(())) => return Ok(()),
                First::It(Err(Stop::Refused(refusal))) => return Err(refusal),
                First::It(Err(Stop::Stale(why))) => return Err(Refusal::ClientGone(why)),
                First::Idle(limit) => return Err(Refusal::Idle { limit }),
                First::Total(limit) => return Err(Refusal::CapReached { limit }),
                First::Signal => self.context.reconsider(self.request)?,
            }
        }
    }

    /// The rest of a connection that became a WebSocket.
    pub(super) async fn tunnel<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        upstream: Http1Upstream,
        client: &mut Client<'_, C>,
        buffers: &mut Buffers,
        exchange: &Exchange,
    ) -> Result<After, Stopped> {
        let mut upstream = upstream.into_io();
        let client_side = (&mut *client.io, &mut *client.inbox);
        let upstream_side = (&mut upstream, &mut buffers.upstream_in);
        let tunnel = Tunnel::between(client_side, upstream_side, exchange.meter());
        client.patience.begin(&self.context.gateway);
        let allowed = || self.context.reconsider(self.request);
        let relayed = tunnel.relay(client.patience, allowed).await;
        relayed.map(|()| After::Close).map_err(Stopped::Answered)
    }
}
