//! Waiting for one's turn to start.
//!
//! An engine that is asked for a hundred sandboxes at once makes all of them at the
//! same time, and on a busy machine so slowly that some miss every deadline. So the
//! runs of one user start a few at a time; who waits can be stopped. The kernel
//! gives up a turn when its holder dies, however it dies.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;

use tokio::sync::oneshot;

/// Held while a sandbox is made.
#[derive(Debug)]
pub struct StartTurn {
    _lock: Option<File>,
}

/// Waits until fewer than `most` runs start whose folders are in `runtime`. Where
/// nobody can be asked to wait, nobody does.
pub async fn turn(runtime: &Path, most: Option<usize>) -> StartTurn {
    let nobody_waits = StartTurn { _lock: None };
    let Some(most) = most else { return nobody_waits };
    let places = (0..most).map(|number| File::create(runtime.join(format!("starting-{number}"))));
    let Ok(mut places) = places.collect::<Result<Vec<_>, _>>() else { return nobody_waits };
    for (index, place) in places.iter().enumerate() {
        match place.try_lock() {
            Ok(()) => return StartTurn { _lock: Some(places.swap_remove(index)) },
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(_)) => return nobody_waits,
        }
    }
    // All are taken. To wait for one of them costs nothing, and the kernel wakes the next
    // at once; whoever came by chance to a slower one waits a little longer.
    let place = places.swap_remove(std::process::id() as usize % most);
    StartTurn { _lock: locked(place).await }
}

/// Waits for the lock in a thread that nobody waits for: who is stopped meanwhile leaves
/// it, and the lock goes with what it is sent through.
async fn locked(place: File) -> Option<File> {
    let (tell, told) = oneshot::channel();
    let waiting = thread::Builder::new().spawn(move || {
        if place.lock().is_ok() {
            drop(tell.send(place));
        }
    });
    waiting.ok()?;
    told.await.ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time;

    use super::*;

    #[tokio::test]
    async fn only_so_many_start_at_once_and_the_next_follows_at_once() {
        let home = tempfile::tempdir().unwrap();
        let (one, other) = (turn(home.path(), Some(2)).await, turn(home.path(), Some(2)).await);
        let mut third = std::pin::pin!(turn(home.path(), Some(2)));
        let early = time::timeout(Duration::from_millis(60), &mut third).await;
        assert!(early.is_err(), "two are starting");
        // Whichever of them it waits for.
        drop((one, other));
        third.await;
        // Without a number nobody waits.
        turn(home.path(), None).await;
    }
}
