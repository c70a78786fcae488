//! Bytes of URLs that one sandbox has asked for, each URL counted once.
//!
//! A sandbox that puts eight bytes a minute into a query sends hardly anything, and
//! hours later has sent a key. What it asks for again is not counted again, so honest
//! traffic, which repeats itself, spends little.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use policies::Destination;

use super::destinations::within;
use super::{LimitKind, LimitReached};

#[derive(Debug, Default)]
pub(super) struct AskedUrls {
    /// Hashes, under a key that the sandbox cannot know.
    known: HashSet<u64>,
    keys: RandomState,
    bytes: u64,
}

/// URLs that are remembered. Beyond them each counts whenever it is asked for.
const MAX_KNOWN: usize = 64 * 1024;

impl AskedUrls {
    pub(super) fn ask(
        &mut self,
        to: &Destination,
        path: &str,
        query: &str,
        bound: u64,
    ) -> Result<(), LimitReached> {
        let hash = self.keys.hash_one((to, path, query));
        if self.known.contains(&hash) {
            return Ok(());
        }
        let bytes = path.len() as u64 + query.len() as u64;
        self.bytes = within(self.bytes, bytes, Some(bound), LimitKind::Urls)?;
        if self.known.len() < MAX_KNOWN {
            self.known.insert(hash);
        }
        Ok(())
    }
}
