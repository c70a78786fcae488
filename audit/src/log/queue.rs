//! Queued records in order, and how many of them are written.
//!
//! Records are counted as they are handed over, and lines are written in that
//! order. So one number says what is in the file: every record up to it.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::writer_message::WriterMessage;

/// How much memory for fields is kept for the next ones.
const MAX_SPARE_BYTES: usize = 1024 * 1024;

/// How far a log has to be written to hold a certain record.
///
/// The default one is reached from the start: there is nothing to wait for.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Ticket(u64);

#[derive(Debug, Default)]
pub(super) struct Queue {
    handed_over: Mutex<HandedOver>,
    written: AtomicU64,
    /// Nothing will be written any more.
    is_over: AtomicBool,
    wakers: Mutex<Vec<(Ticket, Waker)>>,
}

#[derive(Debug, Default)]
struct HandedOver {
    messages: VecDeque<WriterMessage>,
    /// The fields of the records among them, one after the other. Whoever hands
    /// one over keeps the memory it made it in: memory that one thread takes and
    /// another gives back makes both wait for each other.
    fields: Vec<u8>,
    /// Records, from the beginning.
    records: u64,
}

/// What was taken from a queue and is not used yet.
#[derive(Debug, Default)]
pub(super) struct TakenRecords {
    messages: VecDeque<WriterMessage>,
    fields: Vec<u8>,
    /// How much of `fields` was used.
    used: usize,
}

impl TakenRecords {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The next message, and the fields if it is a record.
    pub(super) fn next(&mut self) -> Option<(WriterMessage, &[u8])> {
        let message = self.messages.pop_front()?;
        let from = self.used;
        if let WriterMessage::Record(record) = &message {
            self.used += record.length;
        }
        Some((message, self.fields.get(from..self.used).unwrap_or_default()))
    }
}

impl Queue {
    /// Hands a message over, with the fields of a record. Once the queue is shut
    /// it is dropped, and with it whatever it would have answered through; a
    /// record still counts.
    pub(super) fn push(&self, message: WriterMessage, fields: &[u8]) -> Ticket {
        let mut handed_over = lock(&self.handed_over);
        if matches!(message, WriterMessage::Record(_)) {
            handed_over.records += 1;
        }
        if !self.is_over() {
            handed_over.messages.push_back(message);
            handed_over.fields.extend_from_slice(fields);
        }
        Ticket(handed_over.records)
    }

    /// Takes everything, in exchange for memory to reuse.
    pub(super) fn take(&self, taken: &mut TakenRecords) {
        if taken.is_empty() {
            taken.fields.clear();
            taken.fields.shrink_to(MAX_SPARE_BYTES);
            taken.used = 0;
        }
        let mut handed_over = lock(&self.handed_over);
        let HandedOver { messages, fields, .. } = &mut *handed_over;
        if taken.is_empty() {
            mem::swap(messages, &mut taken.messages);
            mem::swap(fields, &mut taken.fields);
        } else {
            taken.messages.append(messages);
            taken.fields.append(fields);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.handed_over).messages.is_empty()
    }

    /// How many records were handed over.
    pub(super) fn records(&self) -> u64 {
        lock(&self.handed_over).records
    }

    /// How many of them are in the file.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub(super) fn is_written(&self, ticket: Ticket) -> bool {
        ticket.0 <= self.written()
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Counts records that are now in the file, and wakes those who waited for them.
    pub(super) fn wrote(&self, records: u64) {
        let written = Ticket(self.written.fetch_add(records, Ordering::AcqRel) + records);
        let mut wakers = lock(&self.wakers);
        if !wakers.is_empty() {
            let woken: Vec<_> = wakers.extract_if(.., |(until, _)| *until <= written).collect();
            drop(wakers);
            woken.into_iter().for_each(|(_, waker)| waker.wake());
        }
    }

    /// Somebody waits to be woken.
    ///
    /// **Invariant:** a task that has written calls this after it unlocked the writer,
    /// and writes again: those who wait found the writer locked.
    pub(super) fn is_waited_for(&self) -> bool {
        !lock(&self.wakers).is_empty()
    }

    /// Nothing more is taken or written. Wakes everybody.
    pub(super) fn shut(&self) {
        self.is_over.store(true, Ordering::Release);
        // Dropped outside of the lock: an answer that is dropped wakes somebody.
        let mut handed_over = lock(&self.handed_over);
        handed_over.fields = Vec::new();
        let left = mem::take(&mut handed_over.messages);
        drop(handed_over);
        drop(left);
        let woken = mem::take(&mut *lock(&self.wakers));
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Ready once the record is written, or never will be.
    pub(super) fn poll_written(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<()> {
        let mut wakers = lock(&self.wakers);
        // Looked at under the lock, which whoever writes takes afterwards.
        if self.is_written(ticket) || self.is_over() {
            return Poll::Ready(());
        }
        match wakers.iter_mut().find(|(_, waker)| waker.will_wake(cx.waker())) {
            Some((until, _)) => *until = ticket.min(*until),
            None => wakers.push((ticket, cx.waker().clone())),
        }
        Poll::Pending
    }
}

/// A panic while one of these is held leaves nothing half-done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_burst_is_given_back_and_the_usual_is_kept() {
        let queue = Queue::default();
        let mut taken = TakenRecords::default();
        taken.fields.reserve(4 << 20);
        queue.take(&mut taken);
        let kept = lock(&queue.handed_over).fields.capacity();
        assert!((1 << 20..2 << 20).contains(&kept), "{kept}");
    }
}
