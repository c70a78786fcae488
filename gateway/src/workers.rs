//! The threads that serve connections, each with a runtime of its own.
//!
//! A connection is served by the thread that accepted it, and so are the upstream
//! connections it uses: they are kept [per worker](crate::per_worker). So a request
//! wakes no other thread and waits for none, and its data stays in one processor's
//! cache.
//!
//! The caller's runtime is the first worker; the others accept from the same
//! sockets. A free worker accepts the next connection.

use std::io;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::thread;

use socket2::SockRef;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::select;
use tokio::sync::watch;

use crate::gateway::Gateway;
use crate::lifecycle;
use crate::listen::{self, ListenerKind};
use crate::per_worker::{MAX_WORKERS, name_worker};
use crate::phase::Phases;

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
    gateway.runtimes.add(&Handle::current());
    for number in 1..count.min(MAX_WORKERS) {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        gateway.runtimes.add(runtime.handle());
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
            name_worker(number);
            runtime.block_on(work);
            // What is still under way, such as a lookup, is not waited for.
            runtime.shutdown_background();
        })?;
    }
    Ok(Workers { _alive })
}

/// The same sockets once more, for the runtime of this moment. What they accept
/// inherits that small writes leave at once.
pub(crate) fn clone_listeners(
    listeners: &[(ListenerKind, StdListener)],
) -> io::Result<Vec<(ListenerKind, TcpListener)>> {
    let cloned = listeners.iter().map(|(kind, listener)| {
        SockRef::from(listener).set_tcp_nodelay(true)?;
        Ok((kind.clone(), TcpListener::from_std(listener.try_clone()?)?))
    });
    cloned.collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "the client's side, not the gateway's")]
    async fn small_writes_of_what_is_accepted_leave_at_once() {
        let listener = StdListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("it is ours");
        let at = listener.local_addr().expect("it is bound");
        let cloned = clone_listeners(&[(ListenerKind::Proxy, listener)]).expect("it can be cloned");
        let _client = TcpStream::connect(at).expect("it listens");
        let (kind, listener) = cloned.first().expect("there is one");
        let (accepted, _) = listener.accept().await.expect("a client has connected");
        assert_eq!(kind, &ListenerKind::Proxy);
        assert!(accepted.nodelay().expect("it can be asked"));
    }
}
