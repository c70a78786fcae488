//! A connection that stops speaking HTTP: WebSockets, and nothing else.
//!
//! Comes after a 101. What makes one a WebSocket, and what may pass over it, is
//! decided in [`crate::websocket`].

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time;

use crate::dial::Http1Upstream;
use crate::http_version::HttpVersion;
use crate::http1::exchange::{
    ClientIo, ExchangeBuffers, ExchangeEnd, ExchangeError, OutgoingRequest,
};
use crate::http1::exchange_io::ExchangeIo;
use crate::http1::forward::{self, ConnectionOption};
use crate::http1_codec::head::{RequestHead, ResponseHead};
use crate::record::RequestRecord;
use crate::refuse::Refusal;
use crate::relay::{ExchangeDeadlines, Tunnel};
use crate::request::ParsedRequest;
use crate::websocket::{
    AgreedExtensions, FrameCheckedIo, FrameCheckers, PROTOCOL_ERROR_CLOSE, WebSocketOffer,
};

/// What a request for a WebSocket offers, if it is one.
pub(super) fn offer(
    request: &ParsedRequest<'_>,
    head: &RequestHead,
) -> Result<Option<WebSocketOffer>, Refusal> {
    if !request.websocket {
        return Ok(None);
    }
    let offer = WebSocketOffer::read(&head.fields, head.version);
    offer.map(Some).map_err(|fault| Refusal::Malformed(fault.to_string()))
}

impl OutgoingRequest<'_> {
    /// Whether a 101 is the one that was asked for.
    pub(super) fn check_upgrade<C>(
        &self,
        io: &ExchangeIo<'_, C>,
        response: &ResponseHead,
    ) -> Result<AgreedExtensions, Refusal> {
        let malformed = |why: String| Err(Refusal::UpstreamMalformed(why));
        let Some(offer) = &self.websocket else {
            return malformed("it changes to a protocol nobody asked for".to_owned());
        };
        if response.version != HttpVersion::Http11 {
            return malformed("it changes protocols in HTTP/1.0, which cannot".to_owned());
        }
        match offer.check(&response.fields) {
            Err(fault) => malformed(fault.to_string()),
            // It cannot know yet that what it sends is for a WebSocket.
            Ok(_) if !io.client_in.is_empty() => {
                let why = "something was sent before the WebSocket was agreed on; wait for the 101";
                Err(Refusal::Malformed(why.to_owned()))
            }
            Ok(agreed) => Ok(agreed),
        }
    }

    /// Passes on a 101.
    pub(super) async fn upgrade<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: &mut ExchangeIo<'_, C>,
        response: &ResponseHead,
        deadlines: &mut ExchangeDeadlines,
    ) -> Result<(), Refusal> {
        forward::response(response, false, ConnectionOption::Upgrade, &mut io.down.out);
        self.drive(io, deadlines, ExchangeIo::poll_interim).await
    }

    /// The rest of a connection that became a WebSocket.
    pub(super) async fn tunnel<C: AsyncRead + AsyncWrite + Unpin>(
        &self,
        agreed: AgreedExtensions,
        mut upstream: Http1Upstream,
        client: &mut ClientIo<'_, C>,
        buffers: &mut ExchangeBuffers,
        record: &RequestRecord,
    ) -> Result<ExchangeEnd, ExchangeError> {
        let ClientIo { io, inbox, deadlines } = client;
        let (frames, upstream_in) = (FrameCheckers::new(agreed), &mut buffers.upstream_in);
        let mut client_side = FrameCheckedIo::new(&mut **io, frames.from_client, inbox);
        let mut upstream_side =
            FrameCheckedIo::new(upstream.io(), frames.from_upstream, upstream_in);
        let tunnel = Tunnel::between(
            (&mut client_side, inbox),
            (&mut upstream_side, &mut *upstream_in),
            record.meter(),
        );
        deadlines.begin(&self.context.gateway);
        let allowed = || self.context.reconsider(self.request);
        let Err(refusal) = tunnel.relay(deadlines, allowed).await else {
            return Ok(ExchangeEnd::Close);
        };
        let refusal = match (client_side.fault(), upstream_side.fault()) {
            (Some(fault), _) => Refusal::WebSocket(fault),
            (None, Some(fault)) => Refusal::UpstreamWebSocket(fault),
            (None, None) => return Err(ExchangeError::MidAnswer(refusal)),
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
        Err(ExchangeError::MidAnswer(refusal))
    }
}

const CLOSE_FRAME_TIMEOUT: Duration = Duration::from_secs(1);
