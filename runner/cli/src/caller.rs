//! The person, or the program, that typed `sluice`: their signals, their terminal's
//! size, their input, and the runtime that listens to them.

use anyhow::Context as _;
use engine::command::Input;
use engine::supervise::CallerEvent;
use tokio::runtime::Runtime;
use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::terminal;

/// Starts what asynchronous work of a verb runs on.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    Runtime::new().context("cannot start the runtime")
}

/// Our own input, for the command.
pub(crate) fn input() -> Input {
    Box::pin(tokio::io::stdin())
}

/// From now on signals that would end us are events, and so are new sizes of our
/// terminal. A signal that cannot be listened for is not.
pub(crate) fn listen() -> mpsc::Receiver<CallerEvent> {
    let stops = [
        SignalKind::hangup(),
        SignalKind::interrupt(),
        SignalKind::quit(),
        SignalKind::terminate(),
    ];
    let (tell, events) = mpsc::channel(EVENTS_AT_ONCE);
    for kind in stops {
        let Ok(number) = u8::try_from(kind.as_raw_value()) else { continue };
        let Ok(came) = signal(kind) else { continue };
        tokio::spawn(pass_on(came, tell.clone(), move || Some(CallerEvent::Stop(number))));
    }
    if let Ok(came) = signal(SignalKind::window_change()) {
        tokio::spawn(pass_on(came, tell, || terminal::size().map(CallerEvent::Resized)));
    }
    events
}

async fn pass_on(
    mut came: Signal,
    tell: mpsc::Sender<CallerEvent>,
    event: impl Fn() -> Option<CallerEvent>,
) {
    loop {
        select! {
            one = came.recv() => if one.is_none() { return },
            () = tell.closed() => return,
        }
        if let Some(event) = event()
            && tell.send(event).await.is_err()
        {
            return;
        }
    }
}

const EVENTS_AT_ONCE: usize = 16;
