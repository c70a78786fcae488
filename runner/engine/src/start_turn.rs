//! Waiting for one's turn to start.
//!
//! An engine that is asked for a hundred sandboxes at once makes all of them at the
//! same time, and on a busy machine so slowly that some miss every deadline. So the
//! runs of one user start a few at a time; who waits can be stopped. The kernel
//! gives up a turn when its holder dies, however it dies.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

use tokio::time;

/// Held while a sandbox is made.
#[derive(Debug)]
pub struct StartTurn {
    _lock: Option<File>,
}

/// Waits until fewer than `most` runs start whose folders are in `runtime`. Where
/// nobody can be asked to wait, nobody does.
pub async fn turn(runtime: &Path, most: Option<usize>) -> StartTurn {
    let Some(most) = most else { return StartTurn { _lock: None } };
    let places = (0..most).map(|number| File::create(runtime.join(format!("starting-{number}"))));
    let Ok(places) = places.collect::<Result<Vec<_>, _>>() else {
        return StartTurn { _lock: None };
    };
    loop {
        for place in &places {
            match place.try_lock() {
                Ok(()) => return StartTurn { _lock: place.try_clone().ok() },
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(_)) => return StartTurn { _lock: None },
            }
        }
        time::sleep(TURN_POLL_INTERVAL).await;
    }
}

const TURN_POLL_INTERVAL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_so_many_start_at_once_and_the_next_follows_at_once() {
        let home = tempfile::tempdir().unwrap();
        let (one, other) = (turn(home.path(), Some(2)).await, turn(home.path(), Some(2)).await);
        let mut third = std::pin::pin!(turn(home.path(), Some(2)));
        let early = time::timeout(TURN_POLL_INTERVAL * 3, &mut third).await;
        assert!(early.is_err(), "two are starting");
        drop(one);
        third.await;
        drop(other);
        // Without a number nobody waits.
        turn(home.path(), None).await;
    }
}
