//! One stream, as one end of a relay sees it: credit, and how far each direction has come.
//!
//! **Invariant:** of what the other end sends, at most [`WINDOW_BYTES`] were received and
//! not passed on; and we send no more than it gave credit for.

use protocol::relay::{MAX_DATA_BYTES, WINDOW_BYTES};

use super::table::RelayViolation;

#[derive(Debug)]
pub(super) struct RelayStream {
    sending: Sending,
    receiving: Receiving,
    /// We have reset it, and the other end has not answered yet. Until it does it may
    /// have sent anything, none of which matters.
    is_reset: bool,
}

/// What goes to the other end.
#[derive(Debug)]
struct Sending {
    /// Bytes that we may send, of the other end's window.
    credit: u32,
    has_ended: bool,
    /// The other end has passed on everything.
    is_confirmed: bool,
}

/// What comes from the other end.
#[derive(Debug)]
struct Receiving {
    /// Bytes that the other end may send, of our window.
    credit: u32,
    /// Bytes that were passed on here, and for which no credit was given yet.
    passed_on: u32,
    has_ended: bool,
    /// We have passed on everything, and said so.
    is_confirmed: bool,
}

impl RelayStream {
    pub(super) fn new() -> Self {
        let credit = WINDOW_BYTES;
        Self {
            sending: Sending { credit, has_ended: false, is_confirmed: false },
            receiving: Receiving { credit, passed_on: 0, has_ended: false, is_confirmed: false },
            is_reset: false,
        }
    }

    /// Whether its socket is still needed. Where not, no word about it is ours to begin.
    pub(super) fn is_live(&self) -> bool {
        let is_done = self.sending.has_ended && self.receiving.is_confirmed;
        !(self.is_reset || is_done)
    }

    pub(super) fn is_reset(&self) -> bool {
        self.is_reset
    }

    /// Whether nothing about it can be on its way, in either direction.
    pub(super) fn is_over(&self) -> bool {
        !self.is_reset && self.sending.is_confirmed && self.receiving.is_confirmed
    }

    /// How many bytes may be sent in one frame.
    pub(super) fn room(&self) -> usize {
        let is_open = !self.is_reset && !self.sending.has_ended;
        if is_open { MAX_DATA_BYTES.min(self.sending.credit as usize) } else { 0 }
    }

    pub(super) fn send_data(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.room(), "more was read than there is room for");
        self.sending.credit = self.sending.credit.saturating_sub(number(bytes));
    }

    /// Whether the other end is to be told.
    pub(super) fn send_end(&mut self) -> bool {
        let is_news = !self.sending.has_ended && !self.is_reset;
        self.sending.has_ended |= is_news;
        is_news
    }

    /// Whether the other end is to be told.
    pub(super) fn send_done(&mut self) -> bool {
        let Receiving { credit, passed_on, has_ended, is_confirmed } = self.receiving;
        let is_news = has_ended && passed_on + credit == WINDOW_BYTES && !is_confirmed;
        let is_news = is_news && !self.is_reset;
        self.receiving.is_confirmed |= is_news;
        is_news
    }

    /// Whether the other end is to be told.
    pub(super) fn reset(&mut self) -> bool {
        let is_news = self.is_live();
        self.is_reset |= is_news;
        is_news
    }

    /// So many bytes went to the socket; the credit that is to be given, if any. It goes
    /// in large pieces: bytes that come one by one are not answered one by one.
    pub(super) fn pass_on(&mut self, bytes: usize) -> Option<u32> {
        if self.is_reset {
            return None;
        }
        let Receiving { credit, passed_on, .. } = &mut self.receiving;
        *passed_on = passed_on.saturating_add(number(bytes));
        debug_assert!(*passed_on + *credit <= WINDOW_BYTES, "passed on twice");
        if *passed_on < WINDOW_BYTES / 2 {
            return None;
        }
        let given = std::mem::take(passed_on);
        *credit += given;
        Some(given)
    }

    /// Whether it is to be passed on.
    pub(super) fn receive_data(&mut self, bytes: usize) -> Result<bool, RelayViolation> {
        if self.is_reset {
            return Ok(false);
        }
        if self.receiving.has_ended {
            return Err(RelayViolation::Order);
        }
        let left = self.receiving.credit.checked_sub(number(bytes));
        self.receiving.credit = left.ok_or(RelayViolation::Credit)?;
        Ok(true)
    }

    pub(super) fn receive_credit(&mut self, bytes: u32) -> Result<(), RelayViolation> {
        if self.is_reset {
            return Ok(());
        }
        if self.sending.is_confirmed {
            return Err(RelayViolation::Order);
        }
        // What was not sent can have been passed on by nobody.
        if bytes > WINDOW_BYTES - self.sending.credit {
            return Err(RelayViolation::Credit);
        }
        self.sending.credit += bytes;
        Ok(())
    }

    /// Whether it is to be passed on.
    pub(super) fn receive_end(&mut self) -> Result<bool, RelayViolation> {
        if self.is_reset {
            return Ok(false);
        }
        if std::mem::replace(&mut self.receiving.has_ended, true) {
            return Err(RelayViolation::Order);
        }
        Ok(true)
    }

    pub(super) fn receive_done(&mut self) -> Result<(), RelayViolation> {
        if self.is_reset {
            return Ok(());
        }
        if !self.sending.has_ended || std::mem::replace(&mut self.sending.is_confirmed, true) {
            return Err(RelayViolation::Order);
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn assert_bounded(&self) {
        assert!(self.sending.credit <= WINDOW_BYTES);
        assert!(self.receiving.passed_on + self.receiving.credit <= WINDOW_BYTES);
    }
}

fn number(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
