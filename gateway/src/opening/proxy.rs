//! The explicit proxy: a tunnel is asked for with CONNECT, anything else is a
//! request in the clear.

use std::future::poll_fn;

use policies::{Authority, Destination};
use tokio::net::TcpStream;

use super::{OpenedBy, Opening, OpeningError, OpeningReply, TunnelOpening};
use crate::gateway::Gateway;
use crate::http1::{ClearDoor, take_head};
use crate::http1_codec::fields::KnownField;
use crate::http1_codec::framing::{self, Framing};
use crate::http1_codec::head::{HeadSearch, RequestHead};
use crate::inbox::{HeadError, Inbox};
use crate::refuse::Refusal;

pub(super) async fn read(
    stream: &mut TcpStream,
    gateway: &Gateway,
) -> Result<Opening, OpeningError> {
    let mut inbox = Inbox::up_to(gateway.limits.bounds().header_bytes);
    let failed = |refusal| OpeningError { refusal, reply: OpeningReply::Http };
    let max_bytes = gateway.limits.bounds().header_bytes;
    let end = read_head(stream, &mut inbox, max_bytes).await.map_err(failed)?;
    if !inbox.filled().starts_with(b"CONNECT ") {
        // Left where it is: the loop that serves requests reads the first of
        // them like all the others.
        return Ok(Opening::Requests { door: ClearDoor::Proxy, inbox });
    }
    let mut head = RequestHead::default();
    let to = take_head(&mut inbox, end, &mut head, &gateway.limits)
        .and_then(|()| destination(&head))
        .map_err(failed)?;
    Ok(Opening::Tunnel(TunnelOpening { to, by: OpenedBy::Connect, inbox, hello: None }))
}

async fn read_head(
    stream: &mut TcpStream,
    inbox: &mut Inbox,
    max_bytes: usize,
) -> Result<usize, Refusal> {
    let mut search = HeadSearch::new(max_bytes);
    let read = poll_fn(|cx| inbox.poll_head(cx, stream, &mut search)).await;
    read.map_err(|err| match err {
        HeadError::Closed => Refusal::ClientGone("it asked for nothing".to_owned()),
        HeadError::Fault(fault) => fault.into(),
        HeadError::Io(err) => Refusal::ClientGone(err.to_string()),
    })
}

/// The destination of a CONNECT: its target, and no other name beside it.
fn destination(head: &RequestHead) -> Result<Destination, Refusal> {
    let to = Destination::parse_bytes(head.target())?;
    let mut hosts = head.fields.of(KnownField::Host);
    if let Some(host) = hosts.next() {
        let named = Authority::parse_bytes(host)?.destination(to.port);
        if named != to {
            return Err(Refusal::Ambiguous(format!("it names two hosts: `{to}` and `{named}`")));
        }
    }
    if hosts.next().is_some() {
        return Err(Refusal::Ambiguous("there are two Host headers".to_owned()));
    }
    match framing::of_request(&head.fields, head.version) {
        Ok(Framing::Empty) => Ok(to),
        Ok(_) => Err(Refusal::Malformed("CONNECT has no body".to_owned())),
        Err(fault) => Err(Refusal::Malformed(fault.to_string())),
    }
}

#[cfg(test)]
mod tests;
