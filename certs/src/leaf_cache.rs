//! Leaves, minted once per host.
//!
//! A sandbox opens many connections to few hosts, and sometimes tries many
//! hosts: so the number kept is bounded, a host is minted by one connection
//! while the others wait for it, and a leaf near its end is replaced.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use quick_cache::sync::{Cache, EntryAction, EntryResult};
use rustls::sign::CertifiedKey;

use crate::mint::{Leaf, Mint, MintError};
use crate::subject::Subject;

/// The leaves of one authority.
pub struct LeafCache {
    mint: Mint,
    kept: Cache<Subject, Leaf>,
}

impl LeafCache {
    /// Keeps `mint`'s leaves, [`LeafCache::CAPACITY`] at most.
    pub fn new(mint: Mint) -> Self {
        Self::with_capacity(mint, Self::CAPACITY)
    }

    /// A leaf is under a kilobyte, so this is at most two megabytes. Few sandboxes
    /// speak to that many hosts.
    pub const CAPACITY: usize = 2048;

    pub fn mint(&self) -> &Mint {
        &self.mint
    }

    /// How many leaves are kept.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// The leaf for `subject`, minted now if there is none.
    pub fn leaf(&self, subject: &Subject) -> Result<Arc<CertifiedKey>, MintError> {
        self.leaf_at(subject, SystemTime::now())
    }

    fn with_capacity(mint: Mint, capacity: usize) -> Self {
        Self { mint, kept: Cache::new(capacity) }
    }

    fn leaf_at(&self, subject: &Subject, now: SystemTime) -> Result<Arc<CertifiedKey>, MintError> {
        // The usual way: a read lock, a comparison, a counted pointer.
        if let Some(leaf) = self.kept.get(subject)
            && !leaf.is_stale(now)
        {
            return Ok(Arc::clone(leaf.certified()));
        }

        // Whoever gets the guard mints; the others wait inside `entry` and find
        // the result. If minting fails the guard is dropped and the next of them
        // tries for itself.
        let entry = self.kept.entry(subject, None, |_, leaf| {
            if leaf.is_stale(now) {
                EntryAction::ReplaceWithGuard
            } else {
                EntryAction::Retain(leaf.clone())
            }
        });
        let guard = match entry {
            EntryResult::Retained(leaf) => return Ok(Arc::clone(leaf.certified())),
            EntryResult::Replaced(guard, _) | EntryResult::Vacant(guard) => guard,
            EntryResult::Removed(..) | EntryResult::Timeout => {
                unreachable!("we never ask to remove, and we wait without a limit")
            }
        };
        let leaf = self.mint.mint(subject, now)?;
        let certified = Arc::clone(leaf.certified());
        // Refused only if somebody removed the placeholder: then the leaf is good
        // for this connection and merely not kept.
        drop(guard.insert(leaf));
        Ok(certified)
    }
}

impl fmt::Debug for LeafCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaves").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::certificate_authority::{CertificateAuthority, Lifetime};

    fn leaves(capacity: usize) -> LeafCache {
        let authority = CertificateAuthority::in_memory("test", Lifetime::default()).unwrap();
        LeafCache::with_capacity(Mint::new(Arc::new(authority)).unwrap(), capacity)
    }

    fn subject(host: &str) -> Subject {
        Subject::parse(host).unwrap()
    }

    #[test]
    fn a_host_is_minted_once() {
        let leaves = leaves(16);
        let first = leaves.leaf(&subject("a.test")).unwrap();
        let again = leaves.leaf(&subject("A.test.")).unwrap();
        let other = leaves.leaf(&subject("b.test")).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert!(!Arc::ptr_eq(&first, &other));
    }

    #[test]
    fn connections_that_come_together_share_one_leaf() {
        let leaves = leaves(16);
        let all: Vec<_> = std::thread::scope(|scope| {
            let asked: Vec<_> =
                (0..16).map(|_| scope.spawn(|| leaves.leaf(&subject("a.test")).unwrap())).collect();
            asked.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(all.iter().all(|one| Arc::ptr_eq(one, &all[0])));
    }

    #[test]
    fn a_leaf_near_its_end_is_minted_anew_and_one_before_that_is_kept() {
        let leaves = leaves(16);
        let now = SystemTime::now();
        let hours = |n: u64| now + Duration::from_secs(n * 3600);
        let first = leaves.leaf_at(&subject("a.test"), now).unwrap();
        let kept = leaves.leaf_at(&subject("a.test"), hours(22)).unwrap();
        let renewed = leaves.leaf_at(&subject("a.test"), hours(23)).unwrap();
        assert!(Arc::ptr_eq(&first, &kept));
        assert!(!Arc::ptr_eq(&first, &renewed));
        assert!(Arc::ptr_eq(&renewed, &leaves.leaf_at(&subject("a.test"), hours(23)).unwrap()));
    }

    #[test]
    fn a_leaf_that_ends_with_its_authority_is_not_minted_over_and_over() {
        let leaves = leaves(16);
        let almost = leaves.mint().authority().not_after() - Duration::from_secs(10);
        let first = leaves.leaf_at(&subject("a.test"), almost).unwrap();
        let second = leaves.leaf_at(&subject("a.test"), almost + Duration::from_secs(5)).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn an_expired_authority_gives_no_leaf_even_a_kept_one() {
        let leaves = leaves(16);
        let end = leaves.mint().authority().not_after();
        leaves.leaf_at(&subject("a.test"), end - Duration::from_secs(10)).unwrap();
        let err = leaves.leaf_at(&subject("a.test"), end).unwrap_err();
        assert!(matches!(err, MintError::AuthorityExpired { .. }), "{err}");
    }

    #[test]
    fn the_number_kept_is_bounded_however_many_hosts_are_tried() {
        let leaves = leaves(8);
        for n in 0..64 {
            leaves.leaf(&subject(&format!("h{n}.test"))).unwrap();
        }
        assert!(leaves.kept.len() <= 8, "{}", leaves.kept.len());
    }
}
