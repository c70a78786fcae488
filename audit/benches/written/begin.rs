//! The beginning of an entry, for whoever writes as fast as it can.

use audit::{Entry, Log, RequestFacts, Unavailable};

/// As a gateway under load does: it waits for a place.
pub(crate) fn begin(log: &Log) -> Entry<RequestFacts> {
    loop {
        match log.begin(RequestFacts::default()) {
            Ok(entry) => return entry,
            Err(Unavailable::Full { .. }) => std::thread::yield_now(),
            Err(why) => panic!("{why}"),
        }
    }
}
