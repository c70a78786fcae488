//! The record of one request or connection, filled in as facts become known.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::queue::Ticket;
use super::unavailable::Unavailable;
use super::writer_message::{SyncReply, WriterMessage};
use super::{Log, PLACES_PER_ENTRY};
use crate::event::{EntryFacts, EntryOutcome, EventBody};
use crate::record_id;

/// An entry of the log that has begun and must end.
///
/// It derefs to its facts. [`Entry::close`] writes them; dropping it writes
/// them too, as `abandoned`: a panic or a cancelled task must not erase what
/// happened. Either way there is exactly one closing record, and its place in
/// the queue was taken when the entry began.
///
/// There is no way to close twice:
///
/// ```compile_fail
/// # fn twice(entry: audit::Entry<audit::RequestFacts>) {
/// entry.close(audit::EntryOutcome::Relayed);
/// entry.close(audit::EntryOutcome::Refused);
/// # }
/// ```
#[derive(Debug)]
#[must_use = "an entry that is dropped is recorded as abandoned"]
pub struct Entry<F: EntryFacts> {
    log: Log,
    id: Uuid,
    begun: Instant,
    opening: OpenedLine,
    /// Gone once the closing record is handed over.
    facts: Option<Box<F>>,
}

/// What has become of the place for the `opened` line.
#[derive(Debug)]
enum OpenedLine {
    Answered(Ticket, Result<(), Unavailable>),
    /// Handed over, and nobody waits for it to be safe.
    HandedOver(Ticket),
    Reserved,
    Waiting(Ticket, oneshot::Receiver<Result<(), Unavailable>>),
}

impl<F: EntryFacts> Entry<F> {
    /// The caller has taken the entry's places.
    pub(super) fn new(log: Log, facts: F) -> Self {
        Self {
            log,
            id: record_id::new(),
            begun: Instant::now(),
            opening: OpenedLine::Reserved,
            facts: Some(Box::new(facts)),
        }
    }

    /// The id both of its lines bear.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// When it began.
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Hands over the `opened` line with the facts known so far, if that was not
    /// done yet. [`Log::written`] waits for it.
    pub fn open(&mut self) -> Ticket {
        match &self.opening {
            OpenedLine::Answered(ticket, _)
            | OpenedLine::HandedOver(ticket)
            | OpenedLine::Waiting(ticket, _) => *ticket,
            OpenedLine::Reserved => self.hand_over(None),
        }
    }

    /// Writes the `opened` line with the facts known so far, and resolves when it
    /// is as safe as the log's [`SyncPolicy`](super::SyncPolicy) makes it. Only then
    /// may the first byte leave.
    ///
    /// The line is written once, however often this is called. Dropping the
    /// future is fine: the next call waits for the same line.
    pub async fn opened(&mut self) -> Result<(), Unavailable> {
        match self.opening {
            OpenedLine::Reserved => {
                let (written, answer) = oneshot::channel();
                let ticket = self.hand_over(Some(written));
                self.opening = OpenedLine::Waiting(ticket, answer);
            }
            OpenedLine::HandedOver(ticket) => {
                let (safe, answer) = oneshot::channel();
                self.log.hand_over(WriterMessage::Settle(safe), &[]);
                self.log.inner.hurry();
                self.opening = OpenedLine::Waiting(ticket, answer);
            }
            OpenedLine::Answered(..) | OpenedLine::Waiting(..) => {}
        }
        if let OpenedLine::Waiting(ticket, answer) = &mut self.opening {
            let (ticket, answer) = (*ticket, answer.await);
            self.opening = OpenedLine::Answered(ticket, self.log.answered(answer));
        }
        match &self.opening {
            OpenedLine::Answered(_, answer) => answer.clone(),
            OpenedLine::HandedOver(_) | OpenedLine::Reserved | OpenedLine::Waiting(..) => {
                Err(self.log.inner.shared.why())
            }
        }
    }

    fn hand_over(&mut self, written: Option<SyncReply>) -> Ticket {
        let line = EventBody::Opened(Box::new(self.opening()));
        let ticket = self.log.submit(self.id, line, 1, written);
        self.opening = OpenedLine::HandedOver(ticket);
        ticket
    }

    /// Ends the entry. Never waits and never fails: should the log have become
    /// unavailable meanwhile, [`Log::health`] counts the record as unwritten.
    ///
    /// [`Log::written`] waits for the record.
    pub fn close(mut self, outcome: EntryOutcome) -> Ticket {
        self.end(outcome)
    }

    fn end(&mut self, outcome: EntryOutcome) -> Ticket {
        let Some(facts) = self.facts.take() else { return Ticket::default() };
        let what = facts.closing(outcome, self.begun.elapsed().into());
        // A place that was not needed goes back with the record, not before it:
        // the writer takes "all places are free" to mean that nothing is under way.
        let places = match self.opening {
            OpenedLine::Reserved => PLACES_PER_ENTRY,
            OpenedLine::Answered(..) | OpenedLine::HandedOver(_) | OpenedLine::Waiting(..) => {
                PLACES_PER_ENTRY - 1
            }
        };
        self.log.submit(self.id, what, places, None)
    }
}

impl<F: EntryFacts> Drop for Entry<F> {
    fn drop(&mut self) {
        self.end(EntryOutcome::Abandoned);
    }
}

const FACTS_ARE_KEPT: &str = "an entry keeps its facts until it is closed, and closing consumes it";

impl<F: EntryFacts> Deref for Entry<F> {
    type Target = F;

    fn deref(&self) -> &F {
        self.facts.as_deref().expect(FACTS_ARE_KEPT)
    }
}

impl<F: EntryFacts> DerefMut for Entry<F> {
    fn deref_mut(&mut self) -> &mut F {
        self.facts.as_deref_mut().expect(FACTS_ARE_KEPT)
    }
}
