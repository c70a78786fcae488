//! What happens on both sockets while one exchange is under way.
//!
//! Everything here is polled from the connection's own task: sending the request
//! and receiving its answer go on at the same time, because an upstream may
//! answer before it has heard everything, and neither may wait for the other.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::dial::UpstreamStream;
use crate::http1::head;
use crate::inspect::Meter;
use crate::refuse::Refusal;
use crate::relay::{Broken, Inbox, Pump};

/// The two sides of one exchange.
pub(crate) struct Turn<'a, C> {
    pub(crate) client: &'a mut C,
    pub(crate) client_in: &'a mut Inbox,
    pub(crate) upstream: &'a mut UpstreamStream,
    pub(crate) upstream_in: &'a mut Inbox,
    /// The request, on its way out.
    pub(crate) up: Pump,
    pub(crate) sending: Sending,
    /// The answer, on its way back. Until its head is there: interim heads.
    pub(crate) down: Pump,
    /// The client has closed its half. It may still be listening.
    pub(crate) client_ended: bool,
    pub(crate) meter: &'a Meter,
    /// How much of the upstream's bytes was searched for the end of a head.
    pub(crate) searched: usize,
    pub(crate) longest_head: usize,
}

/// How far the request has got.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sending {
    /// The upstream wants no more of it. It may have said why.
    Abandoned,
    Done,
    Running,
}

/// Why an exchange cannot go on.
#[derive(Debug)]
pub(crate) enum Stop {
    Refused(Refusal),
    /// The upstream closed before it said anything.
    Stale(String),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl<C: AsyncRead + AsyncWrite + Unpin> Turn<'_, C> {
    /// Counts up whenever something moves on either socket.
    pub(crate) fn moved(&self) -> u64 {
        self.up.moved + self.down.moved
    }

    /// Sends, until the head of an answer is there; gives its length.
    pub(crate) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Stop>> {
        self.poll_sending(cx)?;
        // A client that does not read them does not keep the answer from coming.
        if let Poll::Ready(Err(stop)) = self.poll_interim(cx) {
            return Poll::Ready(Err(stop));
        }
        loop {
            let bytes = self.upstream_in.filled();
            match head::end(bytes, self.searched) {
                Ok(Some(end)) if end <= self.longest_head => {
                    self.searched = 0;
                    return Poll::Ready(Ok(end));
                }
                Ok(None) if bytes.len() < self.longest_head => self.searched = bytes.len(),
                Ok(_) => {
                    return stop(Refusal::UpstreamMalformed("its head is too long".to_owned()));
                }
                Err(fault) => return stop(Refusal::UpstreamMalformed(fault.to_string())),
            }
            match ready!(self.upstream_in.poll_fill(cx, self.upstream)) {
                Ok(0) => return Poll::Ready(Err(self.upstream_gone("it gave no answer"))),
                Ok(_) => self.up.moved += 1,
                Err(err) => return Poll::Ready(Err(self.upstream_gone(&err.to_string()))),
            }
        }
    }

    /// Relays the answer's body, and the rest of the request beside it.
    pub(crate) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        self.poll_sending(cx)?;
        let Self { client, upstream, upstream_in, down, meter, .. } = self;
        let count = &mut |bytes| meter.received(bytes);
        match ready!(down.poll(cx, *upstream, upstream_in, *client, count)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(Broken::Refused(refusal)) => stop(refusal),
            Err(Broken::Malformed(fault)) => stop(Refusal::UpstreamMalformed(fault.to_string())),
            Err(Broken::Truncated) => {
                stop(Refusal::UpstreamClosed("its answer ended too early".to_owned()))
            }
            Err(Broken::Read(err)) => stop(Refusal::UpstreamClosed(err.to_string())),
            Err(Broken::Write(err)) => stop(Refusal::ClientGone(err.to_string())),
        }
    }

    /// Writes what is in `down` and nothing more.
    pub(crate) fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        if self.down.is_drained() {
            return Poll::Ready(Ok(()));
        }
        let gone = |broken| match broken {
            Broken::Write(err) | Broken::Read(err) => Refusal::ClientGone(err.to_string()),
            Broken::Refused(refusal) => refusal,
            Broken::Malformed(_) | Broken::Truncated => Refusal::ClientGone(String::new()),
        };
        ready!(self.down.poll_drain(cx, self.client)).map_err(gone)?;
        let flushed = ready!(Pin::new(&mut *self.client).poll_flush(cx));
        Poll::Ready(flushed.map_err(|err| Refusal::ClientGone(err.to_string()).into()))
    }

    /// Sends what can be sent; never ready, but may fail.
    fn poll_sending(&mut self, cx: &mut Context<'_>) -> Result<(), Stop> {
        match self.sending {
            Sending::Abandoned => return Ok(()),
            Sending::Done => return self.watch_client(cx),
            Sending::Running => {}
        }
        let Self { client, client_in, upstream, up, meter, .. } = self;
        let count = &mut |bytes| meter.body(bytes);
        match up.poll(cx, *client, client_in, *upstream, count) {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(())) => {
                self.sending = Sending::Done;
                self.watch_client(cx)
            }
            // An upstream may refuse a long body by answering and closing. What
            // it said, if it said something, is still to be read.
            Poll::Ready(Err(Broken::Write(_))) => {
                self.sending = Sending::Abandoned;
                Ok(())
            }
            Poll::Ready(Err(broken)) => Err(match broken {
                Broken::Malformed(fault) => Refusal::Malformed(fault.to_string()),
                Broken::Refused(refusal) => refusal,
                Broken::Truncated => Refusal::ClientGone("the body ended too early".to_owned()),
                Broken::Read(err) | Broken::Write(err) => Refusal::ClientGone(err.to_string()),
            }
            .into()),
        }
    }

    /// Notices a client that is gone, so that nothing is fetched for nobody. What
    /// it sends meanwhile is its next request, and waits.
    fn watch_client(&mut self, cx: &mut Context<'_>) -> Result<(), Stop> {
        while !self.client_ended && !self.client_in.is_full() {
            match self.client_in.poll_fill(cx, self.client) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => self.client_ended = true,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(err)) => return Err(Refusal::ClientGone(err.to_string()).into()),
            }
        }
        Ok(())
    }

    fn upstream_gone(&self, why: &str) -> Stop {
        if self.upstream_in.is_empty() {
            Stop::Stale(why.to_owned())
        } else {
            Stop::Refused(Refusal::UpstreamClosed("its head ended too early".to_owned()))
        }
    }
}

fn stop<T>(refusal: Refusal) -> Poll<Result<T, Stop>> {
    Poll::Ready(Err(Stop::Refused(refusal)))
}
