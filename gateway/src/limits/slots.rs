//! How many connections may be open at once.
//!
//! A semaphore whose size may change while permits are out: when a policy makes
//! it smaller than what is taken, nothing is torn down, and nothing new gets in
//! until enough have left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::Notify;

/// How many slots there are and how many are taken.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    all: AtomicU32,
    taken: AtomicU32,
    /// Those of the taken that belong to an open connection.
    occupied: AtomicU32,
    changed: Notify,
}

/// The slot of one connection, until dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the room away"]
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    occupied: bool,
}

impl ConnectionSlots {
    pub(super) fn new(all: u32) -> Self {
        Self {
            all: AtomicU32::new(all),
            taken: AtomicU32::new(0),
            occupied: AtomicU32::new(0),
            changed: Notify::new(),
        }
    }

    pub(super) fn resize(&self, all: u32) {
        self.all.store(all, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(super) fn occupied(&self) -> u32 {
        self.occupied.load(Ordering::Acquire)
    }

    pub(super) async fn take(slots: &Arc<Self>) -> ConnectionSlot {
        slots.until(|| slots.try_take()).await;
        ConnectionSlot { slots: Arc::clone(slots), occupied: false }
    }

    pub(super) async fn all_free(&self) {
        self.until(|| self.taken.load(Ordering::Acquire) == 0).await;
    }

    fn try_take(&self) -> bool {
        let all = self.all.load(Ordering::Acquire);
        let one_more = |taken: u32| taken.checked_add(1).filter(|taken| *taken <= all);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok()
    }

    /// Tries again after every change. The future is made before the attempt, so
    /// a change between the two is not missed.
    async fn until(&self, attempt: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if attempt() {
                return;
            }
            changed.await;
        }
    }
}

impl ConnectionSlot {
    /// A connection takes the slot. Until then the accept loop holds it in advance.
    pub(crate) fn occupied(mut self) -> Self {
        self.slots.occupied.fetch_add(1, Ordering::AcqRel);
        self.occupied = true;
        self
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if self.occupied {
            self.slots.occupied.fetch_sub(1, Ordering::AcqRel);
        }
        self.slots.taken.fetch_sub(1, Ordering::AcqRel);
        self.slots.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn ready<F: Future>(future: F) -> Option<F::Output> {
        match poll(pin!(future)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn no_more_rooms_are_given_than_there_are() {
        let slots = Arc::new(ConnectionSlots::new(2));
        let first = ready(ConnectionSlots::take(&slots)).expect("two are free");
        let _second = ready(ConnectionSlots::take(&slots)).expect("one is free");
        let mut third = pin!(ConnectionSlots::take(&slots));
        assert!(poll(third.as_mut()).is_pending());
        drop(first);
        assert!(poll(third.as_mut()).is_ready());
    }

    #[test]
    fn a_smaller_house_empties_before_it_takes_anyone_in() {
        let slots = Arc::new(ConnectionSlots::new(3));
        let mut guests: Vec<ConnectionSlot> =
            (0..3).filter_map(|_| ready(ConnectionSlots::take(&slots))).collect();
        slots.resize(1);
        guests.truncate(1);
        assert!(ready(ConnectionSlots::take(&slots)).is_none());
        guests.clear();
        assert!(ready(ConnectionSlots::take(&slots)).is_some());
    }

    #[test]
    fn a_larger_house_takes_in_who_waits() {
        let slots = Arc::new(ConnectionSlots::new(1));
        let _guest = ready(ConnectionSlots::take(&slots)).expect("one is free");
        let mut waiting = pin!(ConnectionSlots::take(&slots));
        assert!(poll(waiting.as_mut()).is_pending());
        slots.resize(2);
        assert!(poll(waiting.as_mut()).is_ready());
    }

    #[test]
    fn a_room_that_is_held_for_the_next_is_not_a_connection() {
        let slots = Arc::new(ConnectionSlots::new(2));
        let held = ready(ConnectionSlots::take(&slots)).expect("two are free");
        assert_eq!(slots.occupied(), 0);
        let guest = held.occupied();
        assert_eq!(slots.occupied(), 1);
        drop(guest);
        assert_eq!(slots.occupied(), 0);
    }

    #[test]
    fn all_free_is_seen_by_whoever_waits_for_it() {
        let slots = Arc::new(ConnectionSlots::new(2));
        let guest = ready(ConnectionSlots::take(&slots)).expect("two are free");
        let mut free = pin!(slots.all_free());
        assert!(poll(free.as_mut()).is_pending());
        drop(guest);
        assert!(poll(free.as_mut()).is_ready());
    }
}
