//! One direction of one stream: data, then perhaps trailers.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use http::HeaderMap;

use crate::refuse::Refusal;

/// Carries the frames of one side to the other, one at a time.
pub(super) struct Flow {
    from: RecvStream,
    to: SendStream<Bytes>,
    /// What was read and does not fit into the other side's window yet.
    held: Bytes,
    state: State,
    /// Counts what was carried, so that a stall can be told from slowness.
    moved: u64,
}

enum State {
    Body,
    Done,
    Trailers,
}

/// Why a flow ended before its end.
#[derive(Debug)]
pub(super) enum Cut {
    /// The side that sends broke off.
    From(h2::Error),
    /// We said enough.
    Refused(Refusal),
    /// The side that receives wants no more.
    To,
}

/// Whatever is carried is counted first.
pub(super) trait Count {
    fn data(&mut self, bytes: usize) -> Result<(), Refusal>;
    /// Looks at data that was read, before any of it is handed on.
    fn check(&mut self, data: &[u8]) -> Result<(), Refusal>;
    /// May take some of them out.
    fn trailers(&mut self, trailers: &mut HeaderMap) -> Result<(), Refusal>;
}

impl Flow {
    pub(super) fn new(from: RecvStream, to: SendStream<Bytes>) -> Self {
        Self { from, to, held: Bytes::new(), state: State::Body, moved: 0 }
    }

    /// Carries what can be carried now. Ready when the end was carried, too.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        count: &mut impl Count,
    ) -> Poll<Result<(), Cut>> {
        loop {
            match self.state {
                State::Body if self.held.is_empty() => match ready!(self.from.poll_data(cx)) {
                    Some(Ok(data)) => {
                        count.check(&data).map_err(Cut::Refused)?;
                        self.held = data;
                    }
                    Some(Err(err)) => return Poll::Ready(Err(Cut::From(err))),
                    None => self.state = State::Trailers,
                },
                State::Body => {
                    let room = ready!(self.poll_room(cx))?;
                    self.hand_on(room, count)?;
                }
                State::Trailers => {
                    match ready!(self.from.poll_trailers(cx)).map_err(Cut::From)? {
                        Some(mut trailers) => {
                            count.trailers(&mut trailers).map_err(Cut::Refused)?;
                            self.to.send_trailers(trailers).map_err(|_| Cut::To)?;
                        }
                        None => self.to.send_data(Bytes::new(), true).map_err(|_| Cut::To)?,
                    }
                    self.end();
                }
                State::Done => return Poll::Ready(Ok(())),
            }
        }
    }

    /// How much of what is held the other side takes now.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Cut>> {
        self.to.reserve_capacity(self.held.len());
        loop {
            // Asked first: `poll_capacity` tells of increases only.
            match self.to.capacity() {
                0 => match ready!(self.to.poll_capacity(cx)) {
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Poll::Ready(Err(Cut::To)),
                },
                room => return Poll::Ready(Ok(room)),
            }
        }
    }

    fn hand_on(&mut self, room: usize, count: &mut impl Count) -> Result<(), Cut> {
        let part = self.held.split_to(room.min(self.held.len()));
        let bytes = part.len();
        count.data(bytes).map_err(Cut::Refused)?;
        // The end travels with the last of the data where it can: that is one
        // frame less for nearly every message.
        let last = self.held.is_empty() && self.from.is_end_stream();
        self.to.send_data(part, last).map_err(|_| Cut::To)?;
        // Fails only if the sender is gone, which the next read tells better.
        self.from.flow_control().release_capacity(bytes).ok();
        self.moved += 1;
        if last {
            self.end();
        }
        Ok(())
    }

    fn end(&mut self) {
        self.state = State::Done;
        self.moved += 1;
    }

    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    /// The side that receives.
    pub(super) fn to(&mut self) -> &mut SendStream<Bytes> {
        &mut self.to
    }

    /// Whether everything that was read was handed on.
    pub(super) fn is_drained(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether nothing was read yet: the sender's data is still all there.
    pub(super) fn is_untouched(&self) -> bool {
        self.moved == 0 && self.held.is_empty() && matches!(self.state, State::Body)
    }

    /// The side that sends, for another try.
    pub(super) fn into_from(self) -> RecvStream {
        self.from
    }

    /// The side that receives, to be told why there is no more.
    pub(super) fn into_to(self) -> SendStream<Bytes> {
        self.to
    }
}
