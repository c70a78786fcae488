//! What each worker has of its own, so that no other has to wait for it.

use std::cell::Cell;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Context;

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeMetrics};

/// More would not be faster: the sandbox's own processors are few.
pub(crate) const MAX_WORKERS: usize = 8;

thread_local! {
    /// Which worker this thread is. The caller's threads are all the first one.
    static WORKER_NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// Makes the calling thread the worker of this number.
pub(crate) fn name_worker(number: usize) {
    WORKER_NUMBER.set(number);
}

/// One of something for each worker.
#[derive(Debug)]
pub(crate) struct PerWorker<T>([T; MAX_WORKERS]);

impl<T> PerWorker<T> {
    pub(crate) fn new(make: impl Fn() -> T) -> Self {
        Self(std::array::from_fn(|_| make()))
    }

    /// The one of the thread that asks.
    pub(crate) fn here(&self) -> &T {
        let Self([first, ..]) = self;
        self.0.get(WORKER_NUMBER.get()).unwrap_or(first)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

/// How many there are of something on one worker. It has a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct WorkerCount(AtomicU32);

impl WorkerCount {
    pub(crate) fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The runtimes of one gateway's workers.
#[derive(Debug, Default)]
pub(crate) struct WorkerRuntimes(Mutex<Vec<RuntimeMetrics>>);

impl WorkerRuntimes {
    pub(crate) fn add(&self, runtime: &Handle) {
        self.0.lock().push(runtime.metrics());
    }

    /// Tasks that have not ended. A worker that has ended has none.
    pub(crate) fn alive_tasks(&self) -> usize {
        self.0.lock().iter().map(RuntimeMetrics::num_alive_tasks).sum()
    }
}

/// Has the task of this moment polled again once the others of its worker that
/// are ready had their turn.
pub(crate) fn yield_to_others(cx: &mut Context<'_>) {
    // Its first poll registers the wake-up, which is all that is needed.
    let polled = pin!(tokio::task::yield_now()).poll(cx);
    debug_assert!(polled.is_pending(), "the runtime would not let others go first");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Poll;
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn a_task_that_lets_others_go_first_goes_on_after_them() {
        let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let tasks: Vec<_> = ["polite", "second", "third"]
            .map(|name| {
                let order = Arc::clone(&order);
                let mut waits = name == "polite";
                tokio::spawn(std::future::poll_fn(move |cx| {
                    if std::mem::replace(&mut waits, false) {
                        yield_to_others(cx);
                        return Poll::Pending;
                    }
                    order.lock().push(name);
                    Poll::Ready(())
                }))
            })
            .into();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock(), ["second", "third", "polite"]);
    }

    #[test]
    fn every_worker_has_its_own_and_all_of_them_are_reached() {
        let each = PerWorker::new(|| AtomicUsize::new(0));
        each.here().fetch_add(1, Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                name_worker(1);
                each.here().fetch_add(10, Ordering::Relaxed);
            });
        });
        let all: Vec<usize> = each.iter().map(|one| one.load(Ordering::Relaxed)).collect();
        assert_eq!(all, [1, 10, 0, 0, 0, 0, 0, 0], "a policy that forgets forgets everywhere");
    }
}
