//! Ids of records: UUIDs of version 7, which sort by the millisecond they were
//! made in.
//!
//! Their random part comes from the crypto library's generator, which lives in
//! this process; the `uuid` crate would ask the kernel twice for each.

use std::time::{SystemTime, UNIX_EPOCH};

use uuid::{Builder, Uuid};

/// An id that nothing else has.
pub(crate) fn new() -> Uuid {
    let mut random = [0; 10];
    if aws_lc_rs::rand::fill(&mut random).is_err() {
        return Uuid::now_v7();
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or_default();
    Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_differ_and_tell_their_time() {
        let ids: HashSet<Uuid> = (0..10_000).map(|_| new()).collect();
        assert_eq!(ids.len(), 10_000);
        let (one, library) = (new(), Uuid::now_v7());
        assert_eq!(one.get_version(), library.get_version());
        let seconds = |id: Uuid| id.get_timestamp().map(|time| time.to_unix().0);
        assert!(seconds(library).unwrap().abs_diff(seconds(one).unwrap()) <= 1);
    }
}
