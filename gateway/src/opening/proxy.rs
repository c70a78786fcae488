//! The explicit proxy: a tunnel is asked for with CONNECT, anything else is a
//! request in the clear.

use policies::{Authority, Destination};
use tokio::net::TcpStream;

use super::{Answer, By, Opened, Opening, Unopened};
use crate::gateway::Gateway;
use crate::http1::framing::{self, Framing};
use crate::http1::head::{self, RequestHead};
use crate::http1::{Known, take_head};
use crate::refuse::Refusal;
use crate::relay::Inbox;

pub(super) async fn read(stream: &mut TcpStream, gateway: &Gateway) -> Result<Opening, Unopened> {
    let mut inbox = Inbox::up_to(gateway.limits.header_bytes());
    let unopened = |refusal| Unopened { refusal, answer: Answer::Http };
    let end = match read_head(stream, &mut inbox, gateway.limits.header_bytes()).await {
        Ok(end) => end,
        Err(refusal) => return Err(unopened(refusal)),
    };
    if !inbox.filled().starts_with(b"CONNECT ") {
        // Left where it is: the loop that serves requests reads the first of
        // them like all the others.
        return Ok(Opening::Requests { proxy: true, inbox });
    }
    let mut head = RequestHead::default();
    let to = take_head(&mut inbox, end, &mut head, &gateway.limits)
        .and_then(|()| destination(&head))
        .map_err(unopened)?;
    Ok(Opening::Tunnel(Opened { to, by: By::Connect, inbox, hello: None }))
}

async fn read_head(
    stream: &mut TcpStream,
    inbox: &mut Inbox,
    longest: usize,
) -> Result<usize, Refusal> {
    let mut searched = 0;
    loop {
        match head::end(inbox.filled(), searched) {
            Ok(Some(end)) if end <= longest => return Ok(end),
            Ok(None) if inbox.filled().len() < longest => searched = inbox.filled().len(),
            Ok(_) => return Err(Refusal::HeadTooLarge { limit: longest }),
            Err(fault) => return Err(Refusal::Malformed(fault.to_string())),
        }
        match inbox.fill(stream).await {
            Ok(0) => return Err(Refusal::ClientGone("it asked for nothing".to_owned())),
            Ok(_) => {}
            Err(err) => return Err(Refusal::ClientGone(err.to_string())),
        }
    }
}

/// Whom a CONNECT is for: its target, and no other name beside it.
fn destination(head: &RequestHead) -> Result<Destination, Refusal> {
    let to = Destination::parse_bytes(head.target())?;
    let mut hosts = head.fields.of(Known::Host);
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
