//! One direction of one stream: data, then perhaps trailers.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use http::HeaderMap;

use crate::refuse::Refusal;

/// Carries the frames of one side to the other, one at a time.
pub(super) struct StreamFlow {
    from: RecvStream,
    to: SendStream<Bytes>,
    /// What was read and does not fit into the other side's window yet.
    held: Bytes,
    state: FlowState,
    /// Counts what was carried, so that a stall can be told from slowness.
    moved: u64,
}

enum FlowState {
    Body,
    Done,
    Trailers,
}

/// Why a flow ended before its end.
#[derive(Debug)]
pub(super) enum FlowError {
    /// The side that receives wants no more.
    Receiver,
    /// A limit or a check ended it.
    Refused(Refusal),
    /// The side that sends broke off.
    Sender(h2::Error),
}

impl From<Refusal> for FlowError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Step 7 for a flow: looks at whatever is carried before it is handed on.
pub(super) trait InspectFlow {
    fn data(&mut self, bytes: usize) -> Result<(), Refusal>;
    /// Looks at data that was read, before any of it is handed on.
    fn check(&mut self, data: &[u8]) -> Result<(), Refusal>;
    /// May take some of them out.
    fn trailers(&mut self, trailers: &mut HeaderMap) -> Result<(), Refusal>;
}

impl StreamFlow {
    pub(super) fn new(from: RecvStream, to: SendStream<Bytes>) -> Self {
        Self { from, to, held: Bytes::new(), state: FlowState::Body, moved: 0 }
    }

    /// Carries what can be carried now. Ready when the end was carried, too.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        inspect: &mut impl InspectFlow,
    ) -> Poll<Result<(), FlowError>> {
        loop {
            match self.state {
                FlowState::Body if self.held.is_empty() => match ready!(self.from.poll_data(cx)) {
                    Some(Ok(data)) => {
                        inspect.check(&data)?;
                        self.held = data;
                    }
                    Some(Err(err)) => return Poll::Ready(Err(FlowError::Sender(err))),
                    None => self.state = FlowState::Trailers,
                },
                FlowState::Body => {
                    let room = ready!(self.poll_room(cx))?;
                    self.hand_on(room, inspect)?;
                }
                FlowState::Trailers => {
                    match ready!(self.from.poll_trailers(cx)).map_err(FlowError::Sender)? {
                        Some(mut trailers) => {
                            inspect.trailers(&mut trailers)?;
                            self.to.send_trailers(trailers).map_err(|_| FlowError::Receiver)?;
                        }
                        None => self
                            .to
                            .send_data(Bytes::new(), true)
                            .map_err(|_| FlowError::Receiver)?,
                    }
                    self.end();
                }
                FlowState::Done => return Poll::Ready(Ok(())),
            }
        }
    }

    /// How much of what is held the other side takes now.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, FlowError>> {
        self.to.reserve_capacity(self.held.len());
        loop {
            // Asked first: `poll_capacity` tells of increases only.
            match self.to.capacity() {
                0 => match ready!(self.to.poll_capacity(cx)) {
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Poll::Ready(Err(FlowError::Receiver)),
                },
                room => return Poll::Ready(Ok(room)),
            }
        }
    }

    fn hand_on(&mut self, room: usize, inspect: &mut impl InspectFlow) -> Result<(), FlowError> {
        let part = self.held.split_to(room.min(self.held.len()));
        let bytes = part.len();
        inspect.data(bytes)?;
        // The end travels with the last of the data where it can: that is one
        // frame less for nearly every message.
        let last = self.held.is_empty() && self.from.is_end_stream();
        self.to.send_data(part, last).map_err(|_| FlowError::Receiver)?;
        // Fails only if the sender is gone, which the next read tells better.
        self.from.flow_control().release_capacity(bytes).ok();
        self.moved += 1;
        if last {
            self.end();
        }
        Ok(())
    }

    fn end(&mut self) {
        self.state = FlowState::Done;
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
        self.moved == 0 && self.held.is_empty() && matches!(self.state, FlowState::Body)
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
