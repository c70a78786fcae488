//! A connection that stops speaking HTTP: WebSockets, and nothing else.
//!
//! Comes after a 101. What makes one a WebSocket, and what may pass over it, is
//! decided in [`crate::websocket`].

use std::task::Context;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time;

use crate::dial::Http1Upstream;
use crate::http1::exchange::{After, Buffers, Client, Sent, Stopped};
use crate::http1::forward::{self, Afterwards};
use crate::http1::head::{RequestHead, ResponseHead};
use crate::http1::turn::{Stop, Turn};
use crate::record::Exchange;
use crate::refuse::Refusal;
use crate::relay::{First, Patience, Tunnel};
use crate::request::{Request, Version};
use crate::websocket::{Agreed, Checked, Frames, Offer, PROTOCOL_ERROR_CLOSE};

/// What a request for a WebSocket offers, if it is one.
pub(super) fn offer(request: &Request<'_>, head: &RequestHead) -> Result<Option<Offer>, Refusal> {
    if !request.websocket {
        return Ok(None);
    }
    let offer = Offer::read(&head.fields, head.version);
    offer.map(Some).map_err(|fault| Refusal::Malformed(fault.to_string()))
}

impl Sent<'_> {
    /// Whether a 101 is the one that was asked for.
    pub(super) fn check_upgrade<C>(
        &self,
        turn: &Turn<'_, C>,
        response: &ResponseHead,
    ) -> Result<Agreed, Refusal> {
        let malformed = |why: String| Err(Refusal::UpstreamMalformed(why));
        let Some(offer) = &self.websocket else {
            return malformed("it changes to a protocol nobody asked for".to_owned());
        };
        if response.version != Version::Http11 {
            return malformed("it changes protocols in HTTP/1.0, which cannot".to_owned());
        }
        match offer.check(&response.fields) {
            Err(fault) => malformed(fault.to_string()),
            // It cannot know yet that what it sends is for a WebSocket.
            Ok(_) if !turn.client_in.is_empty() => {
                let why = "something was sent before the WebSocket was agreed on; wait for the 101";
                Err(Refusal::Malformed(why.to_owned()))
            }
            Ok(agreed) => Ok(agreed),
        }
    }

    /// Passes on a 101.
    pub(super) async fn upgrade<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        turn: &mut Turn<'_, C>,
        response: &ResponseHead,
        patience: &mut Patience,
    ) -> Result<(), Refusal> {
        forward::response(response, false, Afterwards::Upgraded, &mut turn.down.out);
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
        agreed: Agreed,
        upstream: Http1Upstream,
        client: &mut Client<'_, C>,
        buffers: &mut Buffers,
        exchange: &Exchange,
    ) -> Result<After, Stopped> {
        let Client { io, inbox, patience } = client;
        let (frames, upstream_in) = (Frames::new(agreed), &mut buffers.upstream_in);
        let mut upstream = upstream.into_io();
        let mut client_side = Checked::new(&mut **io, frames.from_client, inbox);
        let mut upstream_side = Checked::new(&mut upstream, frames.from_upstream, upstream_in);
        let tunnel = Tunnel::between(
            (&mut client_side, inbox),
            (&mut upstream_side, &mut *upstream_in),
            exchange.meter(),
        );
        patience.begin(&self.context.gateway);
        let allowed = || self.context.reconsider(self.request);
        let Err(refusal) = tunnel.relay(patience, allowed).await else { return Ok(After::Close) };
        let refusal = match (client_side.fault(), upstream_side.fault()) {
            (Some(fault), _) => Refusal::WebSocket(fault),
            (None, Some(fault)) => Refusal::UpstreamWebSocket(fault),
            (None, None) => return Err(Stopped::Answered(refusal)),
        };
        // Only where it is a frame of its own: after all that was relayed, and
        // not inside of it.
        if upstream_side.can_close() && upstream_in.is_empty() {
            let told = async {
                client_side.write_all(&PROTOCOL_ERROR_CLOSE).await?;
                client_side.flush().await
            };
            // A client that does not take four bytes goes without.
            drop(time::timeout(CLOSE_FRAME_TIMEOUT, told).await);
        }
        Err(Stopped::Answered(refusal))
    }
}

const CLOSE_FRAME_TIMEOUT: Duration = Duration::from_secs(1);
