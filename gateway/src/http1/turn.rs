//! What happens on both sockets while one exchange is under way.
//!
//! Everything here is polled from the connection's own task: sending the request
//! and receiving its answer go on at the same time, because an upstream may
//! answer before it has heard everything, and neither may wait for the other.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::dial::UpstreamStream;
use crate::http1::fields::Fields;
use crate::http1::head;
use crate::inspect::Meter;
use crate::record::Exchange;
use crate::refuse::Refusal;
use crate::relay::{Broken, Inbox, Pump, Watch};
use crate::trailers;
use crate::workers;

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
    pub(crate) exchange: &'a mut Exchange,
    /// A record of the exchange was handed over for this answer.
    pub(crate) handed_over: bool,
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
            let Poll::Ready(filled) = self.upstream_in.poll_fill(cx, self.upstream) else {
                self.record_while_waiting(cx);
                return Poll::Pending;
            };
            match filled {
                Ok(0) => return Poll::Ready(Err(self.upstream_gone("it gave no answer"))),
                Ok(_) => self.up.moved += 1,
                Err(err) => return Poll::Ready(Err(self.upstream_gone(&err.to_string()))),
            }
        }
    }

    /// Writes the `opened` line while the upstream works: its answer then waits for
    /// no line. With many requests under way that costs more than it saves, since
    /// their closing lines share a write.
    fn record_while_waiting(&mut self, cx: &mut Context<'_>) {
        if self.sending == Sending::Done
            && !self.exchange.is_opened()
            && !self.exchange.is_one_of_many()
        {
            self.exchange.open();
            // Whether it is written is looked at when there is an answer.
            drop(self.exchange.poll_recorded(cx));
        }
    }

    /// Relays the answer's body, and the rest of the request beside it.
    pub(crate) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        self.poll_sending(cx)?;
        let Self { client, upstream, upstream_in, down, exchange, .. } = self;
        let watch = &mut Downloaded(exchange.meter());
        let moved = ready!(down.poll(cx, *upstream, upstream_in, *client, watch));
        Poll::Ready(moved.map_err(answer_broken))
    }

    /// Ready once a record of the exchange is written: from then on its answer may
    /// be sent. One that is not recorded yet is recorded with its end if the answer
    /// is all there, else that it began.
    pub(crate) fn poll_recorded(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        self.poll_sending(cx)?;
        if !self.handed_over {
            let Self { upstream_in, down, exchange, .. } = self;
            let watch = &mut Downloaded(exchange.meter());
            down.gather(upstream_in, watch).map_err(answer_broken)?;
            self.handed_over = true;
            let was_opened = self.exchange.is_opened();
            if !was_opened && self.down.is_whole() && self.sending == Sending::Done {
                self.exchange.relayed_whole();
            } else {
                self.exchange.open();
            }
            if !was_opened && self.exchange.is_one_of_many() {
                // Answers that came at the same time are recorded with one write,
                // by the first of us that goes on.
                workers::let_others_go_first(cx);
                return Poll::Pending;
            }
        }
        let recorded = ready!(self.exchange.poll_recorded(cx));
        Poll::Ready(recorded.map_err(|why| Refusal::from(why).into()))
    }

    /// Writes what is in `down` and nothing more.
    pub(crate) fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        if self.down.is_drained() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.exchange.poll_recorded(cx)).map_err(Refusal::from)?;
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
        let Self { client, client_in, upstream, up, exchange, .. } = self;
        let watch = &mut Uploaded(exchange.meter());
        match up.poll(cx, *client, client_in, *upstream, watch) {
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

/// The body of a request, as it goes by.
struct Uploaded<'m>(&'m Meter);

impl Watch for Uploaded<'_> {
    fn data(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.0.body(bytes)
    }

    fn trailers(&mut self, fields: &mut Fields) -> Result<(), Refusal> {
        trailers::check_request(self.0.gateway(), fields.iter().map(|(_, name, _)| name))?;
        self.0.body(fields.written())
    }

    fn framing(&mut self, _: usize, written: usize) -> Result<(), Refusal> {
        self.0.sent(written)
    }
}

/// The body of an answer, as it goes by.
struct Downloaded<'m>(&'m Meter);

impl Watch for Downloaded<'_> {
    fn data(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.0.received(bytes)
    }

    fn trailers(&mut self, fields: &mut Fields) -> Result<(), Refusal> {
        fields.retain(trailers::may_follow_an_answer);
        Ok(())
    }

    fn framing(&mut self, read: usize, _: usize) -> Result<(), Refusal> {
        self.0.received(read)
    }
}

/// What became of an answer that broke.
fn answer_broken(broken: Broken) -> Stop {
    let refusal = match broken {
        Broken::Malformed(fault) => Refusal::UpstreamMalformed(fault.to_string()),
        Broken::Read(err) => Refusal::UpstreamClosed(err.to_string()),
        Broken::Refused(refusal) => refusal,
        Broken::Truncated => Refusal::UpstreamClosed("its answer ended too early".to_owned()),
        Broken::Write(err) => Refusal::ClientGone(err.to_string()),
    };
    refusal.into()
}

fn stop<T>(refusal: Refusal) -> Poll<Result<T, Stop>> {
    Poll::Ready(Err(Stop::Refused(refusal)))
}

#[cfg(test)]
mod tests;
