//! The record of one request or connection, filled in as facts become known.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::unavailable::Unavailable;
use super::{Log, PLACES_PER_ENTRY};
use crate::event::{Facts, Outcome, What};
use crate::id;

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
/// # fn twice(entry: audit::Entry<audit::Request>) {
/// entry.close(audit::Outcome::Relayed);
/// entry.close(audit::Outcome::Refused);
/// # }
/// ```
#[derive(Debug)]
#[must_use = "an entry that is dropped is recorded as abandoned"]
pub struct Entry<F: Facts> {
    log: Log,
    id: Uuid,
    begun: Instant,
    opening: Opening,
    /// Gone once the closing record is handed over.
    facts: Option<Box<F>>,
}

/// What has become of the place for the `opened` line.
#[derive(Debug)]
enum Opening {
    Answered(Result<(), Unavailable>),
    Reserved,
    Waiting(oneshot::Receiver<Result<(), Unavailable>>),
}

impl<F: Facts> Entry<F> {
    /// The caller has taken the entry's places.
    pub(super) fn new(log: Log, facts: F) -> Self {
        Self {
            log,
            id: id::new(),
            begun: Instant::now(),
            opening: Opening::Reserved,
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

    /// Writes the `opened` line with the facts known so far, and resolves when it
    /// is as safe as the log's [`Sync`](super::Sync) policy makes it. Only then
    /// may the first byte leave.
    ///
    /// The line is written once, however often this is called. Dropping the
    /// future is fine: the next call waits for the same line.
    pub async fn opened(&mut self) -> Result<(), Unavailable> {
        if let Opening::Reserved = self.opening {
            let (written, answer) = oneshot::channel();
            let line = What::Opened(Box::new(self.opening()));
            self.log.submit(self.id, line, 1, Some(written));
            self.opening = Opening::Waiting(answer);
        }
        if let Opening::Waiting(answer) = &mut self.opening {
            let answer = answer.await;
            self.opening = Opening::Answered(self.log.answered(answer));
        }
        match &self.opening {
            Opening::Answered(answer) => answer.clone(),
            Opening::Reserved | Opening::Waiting(_) => Err(self.log.inner.shared.why()),
        }
    }

    /// Ends the entry. Never waits and never fails: should the log have become
    /// unavailable meanwhile, [`Log::health`] counts the record as unwritten.
    pub fn close(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: Outcome) {
        let Some(facts) = self.facts.take() else { return };
        let what = facts.closing(outcome, self.begun.elapsed().into());
        // A place that was not needed goes back with the record, not before it:
        // the writer takes "all places are free" to mean that nothing is under way.
        let places = match self.opening {
            Opening::Reserved => PLACES_PER_ENTRY,
            Opening::Answered(_) | Opening::Waiting(_) => PLACES_PER_ENTRY - 1,
        };
        self.log.submit(self.id, what, places, None);
    }
}

impl<F: Facts> Drop for Entry<F> {
    fn drop(&mut self) {
        self.end(Outcome::Abandoned);
    }
}

const HELD: &str = "an entry keeps its facts until it is closed, and closing consumes it";

impl<F: Facts> Deref for Entry<F> {
    type Target = F;

    fn deref(&self) -> &F {
        self.facts.as_deref().expect(HELD)
    }
}

impl<F: Facts> DerefMut for Entry<F> {
    fn deref_mut(&mut self) -> &mut F {
        self.facts.as_deref_mut().expect(HELD)
    }
}
