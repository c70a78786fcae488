//! How long each part of a run took.
//!
//! Measured where it happens, and kept in `run.json`: a slow start is asked
//! about later. Parts overlap, since what does not wait for each other is done
//! at once.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;

/// A run's parts so far.
#[derive(Debug)]
pub struct Phases {
    begun: Instant,
    taken: Mutex<Vec<Phase>>,
}

/// One part, in thousandths of a second since the run was asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    pub name: &'static str,
    pub from_ms: f64,
    pub took_ms: f64,
}

impl Default for Phases {
    fn default() -> Self {
        Self { begun: Instant::now(), taken: Mutex::default() }
    }
}

impl Phases {
    /// Waits for `part`, and remembers how long that took.
    pub async fn of<T>(&self, name: &'static str, part: impl Future<Output = T>) -> T {
        let from = Instant::now();
        let done = part.await;
        self.add(name, from);
        done
    }

    /// Does `part`, and remembers how long that took.
    pub fn now<T>(&self, name: &'static str, part: impl FnOnce() -> T) -> T {
        let from = Instant::now();
        let done = part();
        self.add(name, from);
        done
    }

    /// Everything that took time, in the order it began.
    pub fn taken(&self) -> Vec<Phase> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone();
        taken.sort_by(|one, other| one.from_ms.total_cmp(&other.from_ms));
        taken
    }

    fn add(&self, name: &'static str, from: Instant) {
        let phase = Phase {
            name,
            from_ms: thousandths(from - self.begun),
            took_ms: thousandths(from.elapsed()),
        };
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).push(phase);
    }
}

fn thousandths(span: std::time::Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stand_in_the_order_in_which_they_began() {
        let phases = Phases::default();
        phases.now("outer", || phases.now("inner", || ()));
        let names: Vec<_> = phases.taken().iter().map(|phase| phase.name).collect();
        assert_eq!(names, ["outer", "inner"]);
    }
}
