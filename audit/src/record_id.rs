//! Ids of records: UUIDs of version 7, which sort by the millisecond they were
//! made in.
//!
//! Their random part comes from the crypto library's generator, which lives in
//! this process; the `uuid` crate would ask the kernel twice for each. To ask it
//! costs as much for ten bytes as for hundreds, so each thread asks for many at
//! once.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use uuid::{Builder, Uuid};

/// The random part of an id: 74 bits of it are used.
type RandomPart = [u8; 10];

/// How many are asked for at once.
const PARTS_AT_ONCE: usize = 64;

thread_local! {
    /// Each is used once.
    static RANDOM_PARTS: RefCell<Vec<RandomPart>> = const { RefCell::new(Vec::new()) };
}

/// An id that nothing else has.
pub(crate) fn new() -> Uuid {
    let Some(random) = RANDOM_PARTS.with_borrow_mut(next_random_part) else {
        return Uuid::now_v7();
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or_default();
    Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

/// `None` if the generator fails.
fn next_random_part(parts: &mut Vec<RandomPart>) -> Option<RandomPart> {
    if parts.is_empty() {
        let mut random = [[0; 10]; PARTS_AT_ONCE];
        aws_lc_rs::rand::fill(random.as_flattened_mut()).ok()?;
        parts.extend(random);
    }
    parts.pop()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_differ_and_tell_their_time() {
        let mut ids: HashSet<Uuid> = (0..10_000).map(|_| new()).collect();
        let elsewhere = std::thread::spawn(|| (0..1_000).map(|_| new()).collect::<Vec<_>>());
        ids.extend(elsewhere.join().unwrap());
        assert_eq!(ids.len(), 11_000);
        let (one, library) = (new(), Uuid::now_v7());
        assert_eq!(one.get_version(), library.get_version());
        let seconds = |id: Uuid| id.get_timestamp().map(|time| time.to_unix().0);
        assert!(seconds(library).unwrap().abs_diff(seconds(one).unwrap()) <= 1);
    }
}
