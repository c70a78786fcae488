//! How long each part of a run took.
//!
//! Measured where it happens, and kept in `run.json`: a slow start is asked
//! about later. Parts overlap, since what does not wait for each other is done
//! at once.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// A run's parts so far.
#[derive(Debug)]
pub struct Phases {
    begun: Instant,
    /// Name, beginning, end.
    taken: Mutex<Vec<(&'static str, Instant, Instant)>>,
}

/// One part, in thousandths of a second since the run was asked for.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Phase {
    pub name: Cow<'static, str>,
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
        taken.sort_by_key(|(_, from, _)| *from);
        let phase = |(name, from, to): (&'static str, Instant, Instant)| Phase {
            name: name.into(),
            from_ms: thousandths(from - self.begun),
            took_ms: thousandths(to - from),
        };
        taken.into_iter().map(phase).collect()
    }

    fn add(&self, name: &'static str, from: Instant) {
        let part = (name, from, Instant::now());
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).push(part);
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
        let names: Vec<_> = phases.taken().iter().map(|phase| phase.name.clone()).collect();
        assert_eq!(names, ["outer", "inner"]);
    }
}
