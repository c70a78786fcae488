//! The threads that serve connections, each with a runtime of its own.
//!
//! A connection is served by the thread that accepted it, and so are the upstream
//! connections it uses: they are kept [per worker](PerWorker). So a request wakes
//! no other thread and waits for none, and its data stays in one processor's
//! cache.
//!
//! The caller's runtime is the first worker; the others accept from the same
//! sockets. A free worker accepts the next connection.

use std::cell::Cell;
use std::io;
use std::net::TcpListener as StdListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Context;
use std::thread;

use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::select;
use tokio::sync::watch;

use crate::gateway::Gateway;
use crate::lifecycle;
use crate::listen::{self, ListenerKind};
use crate::phase::Phases;

/// More would not be faster: the sandbox's own processors are few.
const MAX_WORKERS: usize = 8;

thread_local! {
    /// Which worker this thread is. The caller's threads are all the first one.
    static WORKER_NUMBER: Cell<usize> = const { Cell::new(0) };
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

/// Has the task of this moment polled again once the others of its worker that
/// are ready had their turn.
pub(crate) fn yield_to_others(cx: &mut Context<'_>) {
    // Its first poll registers the wake-up, which is all that is needed.
    let polled = pin!(tokio::task::yield_now()).poll(cx);
    debug_assert!(polled.is_pending(), "the runtime would not let others go first");
}

/// The workers beside the caller. Those whose connections have all ended after a
/// drain end by themselves; dropping this ends them in any case.
#[derive(Debug)]
pub(crate) struct Workers {
    _alive: watch::Sender<()>,
}

/// As many as there are processors for us.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Starts `count` of them, the caller included.
pub(crate) fn start(
    count: usize,
    listeners: &[(ListenerKind, StdListener)],
    gateway: &Arc<Gateway>,
    phases: &Phases,
) -> io::Result<Workers> {
    let (_alive, alive) = watch::channel(());
    for number in 1..count.min(MAX_WORKERS) {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listeners = {
            let _inside = runtime.enter();
            clone_listeners(listeners)?
        };
        let (gateway, phases, mut alive) = (Arc::clone(gateway), phases.clone(), alive.clone());
        let served = async move {
            listen::listen(listeners, Arc::clone(&gateway), lifecycle::serve, phases).await;
            gateway.limits.all_slots_free().await;
        };
        let work = async move {
            select! {
                () = served => {}
                // Nothing is ever sent: it is the end.
                _ = alive.changed() => {}
            }
        };
        thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
            WORKER_NUMBER.set(number);
            runtime.block_on(work);
            // What is still under way, such as a lookup, is not waited for.
            runtime.shutdown_background();
        })?;
    }
    Ok(Workers { _alive })
}

/// The same sockets once more, for the runtime of this moment.
pub(crate) fn clone_listeners(
    listeners: &[(ListenerKind, StdListener)],
) -> io::Result<Vec<(ListenerKind, TcpListener)>> {
    listeners
        .iter()
        .map(|(kind, listener)| Ok((*kind, TcpListener::from_std(listener.try_clone()?)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Poll;

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
                WORKER_NUMBER.set(1);
                each.here().fetch_add(10, Ordering::Relaxed);
            });
        });
        let all: Vec<usize> = each.iter().map(|one| one.load(Ordering::Relaxed)).collect();
        assert_eq!(all, [1, 10, 0, 0, 0, 0, 0, 0], "a policy that forgets forgets everywhere");
    }
}
