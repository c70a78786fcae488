//! Who carries out a run: a lock in its folder, held for as long as its process
//! lives.
//!
//! A folder gets a run's name only once it is held, so whatever has such a name and
//! is not held was left behind.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Proof that a run is being carried out, for as long as its process lives.
#[derive(Debug)]
#[must_use]
pub struct RunLock {
    _lock: File,
}

/// Holds the run whose folder this is. The kernel lets go when we die, however
/// we die.
pub fn lock(folder: &Path) -> io::Result<RunLock> {
    let lock = File::create(lock_of(folder))?;
    lock.lock()?;
    Ok(RunLock { _lock: lock })
}

/// Holds it, unless somebody does. Whoever asks [`is_locked`] has it for an instant
/// too, so it is tried more than once.
pub fn try_lock(folder: &Path) -> io::Result<RunLock> {
    let lock = File::open(lock_of(folder))?;
    for _ in 1..HOLDING_TRIES {
        match lock.try_lock() {
            Ok(()) => return Ok(RunLock { _lock: lock }),
            Err(TryLockError::WouldBlock) => thread::sleep(BETWEEN_TRIES),
            Err(TryLockError::Error(err)) => return Err(err),
        }
    }
    lock.try_lock()?;
    Ok(RunLock { _lock: lock })
}

const HOLDING_TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// Whether somebody carries out the run whose folder this is. Any number may ask
/// at once: they share what they try to take.
pub fn is_locked(folder: &Path) -> bool {
    match File::open(lock_of(folder)).map(|lock| lock.try_lock_shared()) {
        Ok(Err(TryLockError::WouldBlock)) => true,
        Ok(Ok(()) | Err(TryLockError::Error(_))) | Err(_) => false,
    }
}

fn lock_of(folder: &Path) -> PathBuf {
    folder.join("lock")
}

/// Writes down which backend a run has, for sweeps of the others.
pub fn name_backend(folder: &Path, backend: &str) -> io::Result<()> {
    fs::write(folder.join(BACKEND), backend)
}

/// Whether a run's folder may be of this backend: it says so, or says nothing.
pub fn may_be_of(folder: &Path, backend: &str) -> bool {
    fs::read_to_string(folder.join(BACKEND)).map_or(true, |named| named == backend)
}

const BACKEND: &str = "backend";

/// Where a run's folder is made, before it is held and gets its name.
pub fn beginning_of(folder: &Path) -> PathBuf {
    let run = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!("{BEGINNING}{run}"))
}

pub const BEGINNING: &str = ".new-";

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn who_asks_whether_a_run_is_held_is_not_taken_for_who_holds_it() {
        let home = tempfile::tempdir().unwrap();
        drop(lock(home.path()).unwrap());
        let asking = File::open(lock_of(home.path())).unwrap();
        asking.try_lock_shared().unwrap();
        assert!(!is_locked(home.path()), "somebody else is only asking");
        drop(asking);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    is_locked(home.path());
                }
            });
            for _ in 0..20 {
                drop(try_lock(home.path()).expect("they only ask"));
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_folder_is_left_to_the_sweep_of_its_own_backend() {
        let home = tempfile::tempdir().unwrap();
        assert!(may_be_of(home.path(), "docker"), "nobody knows");
        name_backend(home.path(), "namespaces").unwrap();
        assert!(may_be_of(home.path(), "namespaces"));
        assert!(!may_be_of(home.path(), "docker"));
    }

    #[test]
    fn a_run_is_held_for_as_long_as_somebody_carries_it_out() {
        let home = tempfile::tempdir().unwrap();
        assert!(!is_locked(home.path()), "nobody ever held it");
        let held = lock(home.path()).unwrap();
        assert!(is_locked(home.path()));
        drop(held);
        assert!(!is_locked(home.path()));
    }
}
