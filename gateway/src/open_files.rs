//! How many files and sockets the kernel lets us have open.
//!
//! A connection needs a socket towards the sandbox and one towards its upstream.
//! The usual soft limit of 1,024 files is there for programs that use `select`;
//! we raise ours to what the machine permits, and say so when that is less than
//! what the settings promise. It is no reason not to start: who finds no socket
//! waits outside.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Raises the limit as far as `connections` need it.
pub(crate) fn make_room_for(connections: u32) {
    let wanted = wanted_for(connections);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // No limit at all is written as nothing.
    let Some(current) = current.filter(|current| *current < wanted) else { return };
    let raised = maximum.map_or(wanted, |most| most.min(wanted)).max(current);
    if let Err(err) = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }) {
        warn!(%err, limit = current, wanted, "cannot raise the limit of open files");
    } else if raised < wanted {
        warn!(
            limit = raised,
            wanted, connections, "fewer connections fit than `limits.connections`"
        );
    }
}

/// Two a connection, and some for the log, the listeners and kept upstreams.
fn wanted_for(connections: u32) -> u64 {
    u64::from(connections) * 2 + 512
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_and_never_lowered() {
        let before = getrlimit(Resource::Nofile);
        make_room_for(1);
        let after = getrlimit(Resource::Nofile);
        assert_eq!(before.maximum, after.maximum);
        assert!(after.current >= before.current || after.current.is_none());
        assert_eq!(wanted_for(1024), 2560);
    }
}
