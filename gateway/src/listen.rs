//! Step 1 of 10: accept connections, never more than we can serve.
//!
//! Goes to [`crate::lifecycle::serve`], one task per connection. An error in a
//! connection ends that connection; only a drain ends this loop.
//!
//! One loop accepts for all ways in. Were there one per listener, each would
//! have to hold a room of its own while it waits, and a busy listener would find
//! the slots of the idle ones taken.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use audit::WayIn;
use policies::Destination;
use tokio::net::{TcpListener, TcpStream};
use tokio::{select, time};
use tracing::{debug, warn};

use crate::gateway::Gateway;
use crate::limits::ConnectionSlot;
use crate::phase::{DrainPhase, Phases, reached};

/// A connection that was accepted, and all that is known of it.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) kind: ListenerKind,
}

/// What is spoken on a listener, and so how a connection came in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ListenerKind {
    CapturedHttp,
    CapturedHttps,
    /// A further port, for TLS and HTTP alike.
    CapturedPort(u16),
    Proxy,
    Socks,
    /// Everything that comes in is for one destination, whatever is spoken.
    Tcp(Arc<Destination>),
}

impl From<&ListenerKind> for WayIn {
    fn from(kind: &ListenerKind) -> Self {
        match kind {
            ListenerKind::CapturedHttp => Self::CapturedHttp,
            ListenerKind::CapturedHttps => Self::CapturedHttps,
            ListenerKind::CapturedPort(_) => Self::CapturedPort,
            ListenerKind::Proxy => Self::Proxy,
            ListenerKind::Socks => Self::Socks5,
            ListenerKind::Tcp(_) => Self::Tcp,
        }
    }
}

/// Accepts until told to drain, and hands each connection to `serve`.
///
/// After it returns no connection is accepted any more. Open connections go on until
/// they are done or cut; they have ended when every slot is free again.
pub(crate) async fn listen<F>(
    listeners: Vec<(ListenerKind, TcpListener)>,
    gateway: Arc<Gateway>,
    serve: impl Fn(Accepted, Arc<Gateway>) -> F,
    mut phases: Phases,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut next_first = 0;
    loop {
        // Wait for room before accepting. A connection we cannot serve yet costs
        // nothing in the kernel's queue, and a file descriptor in ours.
        let next = async {
            let room = gateway.limits.connection_slot().await;
            (room, poll_fn(|context| accept_any(&listeners, next_first, context)).await)
        };
        let (room, accepted) = select! {
            next = next => next,
            () = reached(&mut phases, DrainPhase::Draining) => return,
        };
        next_first += 1;
        match accepted {
            Ok((kind, stream, peer)) => {
                debug!(%peer, ?kind, "accepted");
                gateway.metrics.accepted((&kind).into());
                let accepted = Accepted { stream, peer, kind };
                let serving = Box::pin(serve(accepted, Arc::clone(&gateway)));
                tokio::spawn(serve_until_cut(serving, room.occupied(), phases.clone()));
            }
            Err(err) => back_off("listen", &err).await,
        }
    }
}

/// The task of one connection. `serving` is boxed: a task is copied several times on
/// its way to the runtime, and what it captures and then moves has room in it twice.
pub(crate) async fn serve_until_cut<F: Future<Output = ()>>(
    serving: Pin<Box<F>>,
    slot: ConnectionSlot,
    mut phases: Phases,
) {
    select! {
        () = serving => {}
        // Dropping what serves it writes its records, as abandoned.
        () = reached(&mut phases, DrainPhase::Cut) => {}
    }
    drop(slot);
}

/// Polls every listener, beginning with another one each time: a flood at one
/// does not keep the others out.
fn accept_any(
    listeners: &[(ListenerKind, TcpListener)],
    first: usize,
    context: &mut Context<'_>,
) -> Poll<io::Result<(ListenerKind, TcpStream, SocketAddr)>> {
    let count = listeners.len();
    for (kind, listener) in listeners.iter().cycle().skip(first % count.max(1)).take(count) {
        if let Poll::Ready(accepted) = listener.poll_accept(context) {
            return Poll::Ready(accepted.map(|(stream, peer)| (kind.clone(), stream, peer)));
        }
    }
    Poll::Pending
}

/// Waits a moment before trying again.
///
/// What fails an accept is the connection itself, which is gone by now, or a
/// lack of file descriptors or memory, which does not get better by asking at
/// full speed.
pub(crate) async fn back_off(at: &'static str, err: &io::Error) {
    if matches!(err.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) {
        return;
    }
    warn!(at, %err, "cannot accept; waiting a moment");
    time::sleep(ACCEPT_RETRY_DELAY).await;
}

const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
