//! A user of its own for each sandbox, where whoever starts it may give one.
//!
//! The kernel counts much per user: instances of inotify, pages of pipes, watches
//! of epoll, descriptors on their way through sockets, queued signals. A sandbox
//! that shares a user with anybody can use up what the other needs. Root may be
//! anybody, so root's sandboxes get a number that nobody has.
//!
//! Which one follows from the run's name, so nothing has to be kept, locked or
//! given back, and a crash leaves nothing. There are 134 million: that two of a
//! hundred sandboxes at the same time have the same happens once in 27,000 times,
//! and then they share counts, and no files.

use std::fs;
use std::ops::Range;

use audit::Digest;
use protocol::UserIds;

use crate::run_id::RunId;

/// The numbers that can be had.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnUsers {
    /// Those in the range that somebody has after all.
    taken: Vec<Range<u64>>,
}

/// Above what `useradd`, directory services (SSSD: up to 2,000,200,000) and
/// container managers (systemd: up to 1,879,048,191) give away; below what systemd
/// sets aside for images of others, and below what old programs take for negative.
pub const OWN_USERS: Range<u32> = 0x7800_0000..0x7ffe_0000;

impl OwnUsers {
    /// Those of this machine; nothing unless we are root and these numbers mean
    /// something where we are.
    pub fn here() -> Option<Self> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let known = covers(&read("/proc/self/uid_map"), &OWN_USERS);
        if !rustix::process::geteuid().is_root() || !known {
            return None;
        }
        Some(Self::beside(&read("/etc/passwd"), &read("/etc/subuid")))
    }

    fn beside(passwd: &str, subuid: &str) -> Self {
        let users = passwd.lines().filter_map(|line| line.split(':').nth(2)?.parse::<u64>().ok());
        let ranges = subuid.lines().filter_map(|line| {
            let mut fields = line.split(':').skip(1);
            let first = fields.next()?.parse::<u64>().ok()?;
            Some(first..first.saturating_add(fields.next()?.trim().parse::<u64>().ok()?))
        });
        Self { taken: users.map(|user| user..user.saturating_add(1)).chain(ranges).collect() }
    }

    /// The one of `run`; nothing where nearly all are taken.
    pub fn of(&self, run: &RunId) -> Option<u32> {
        let count = OWN_USERS.end - OWN_USERS.start;
        (0..TRIES).find_map(|again| {
            let digest = Digest::of(format!("{run} {again}").as_bytes()).to_string();
            let chance = u32::from_str_radix(digest.get(..8)?, 16).ok()?;
            let user = OWN_USERS.start + chance % count;
            let is_taken = self.taken.iter().any(|range| range.contains(&u64::from(user)));
            (!is_taken).then_some(user)
        })
    }
}

const TRIES: u32 = 64;

/// Whether every number of `wanted` is one in the user namespace with this map.
fn covers(map: &str, wanted: &Range<u32>) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().ok());
        let mut next = || fields.next().flatten();
        let (Some(first), Some(_), Some(count)) = (next(), next(), next()) else { return false };
        first <= u64::from(wanted.start) && u64::from(wanted.end) <= first.saturating_add(count)
    })
}

/// Who a gateway is: the caller, unless that is root.
pub fn gateway_user() -> UserIds {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if uid == 0 { UserIds { uid: GATEWAY_UID, gid: GATEWAY_UID } } else { UserIds { uid, gid } }
}

/// A user that no distribution gives away.
const GATEWAY_UID: u32 = 65532;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(chance: &str) -> RunId {
        RunId::parse(&format!("20261116-031045-{chance}")).unwrap()
    }

    #[test]
    fn each_run_has_a_user_of_its_own_and_keeps_it() {
        let users = OwnUsers::beside("", "");
        let (one, other) = (users.of(&run("000001")).unwrap(), users.of(&run("000002")).unwrap());
        assert_ne!(one, other);
        assert_eq!(users.of(&run("000001")), Some(one));
        assert!(OWN_USERS.contains(&one) && OWN_USERS.contains(&other));
    }

    #[test]
    fn a_number_that_somebody_has_is_passed_by() {
        let first = OwnUsers::beside("", "").of(&run("000001")).unwrap();
        let known = format!("root:x:0:0::/:/bin/sh\nsomebody:x:{first}:1::/:/bin/sh\nodd\n");
        let second = OwnUsers::beside(&known, "").of(&run("000001")).unwrap();
        assert_ne!(second, first);
        let lent = format!("somebody:{}:1000\n", first - 500);
        assert_eq!(OwnUsers::beside("", &lent).of(&run("000001")), Some(second));
        let all = format!("somebody:{}:{}\n", OWN_USERS.start, u32::MAX);
        assert_eq!(OwnUsers::beside("", &all).of(&run("000001")), None);
    }

    #[test]
    fn where_these_numbers_mean_nothing_there_are_none() {
        assert!(covers("         0          0 4294967295\n", &OWN_USERS));
        assert!(!covers("0 100000 65536\n", &OWN_USERS));
        assert!(!covers("", &OWN_USERS));
    }
}
