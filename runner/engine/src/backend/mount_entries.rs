//! Entries of a root that more than one of our processes is shut into.

use protocol::launcher::MountEntry;

/// Those of the host's devices that belong to nobody.
pub(in crate::backend) fn devices(names: &[&str]) -> Vec<MountEntry> {
    let mut places = vec![tmpfs("/dev", 64 * 1024, 256, 0o755, false)];
    places.extend(names.iter().map(|name| MountEntry::Bind {
        at: format!("/dev/{name}"),
        source: format!("/dev/{name}").into(),
        read_only: false,
        device: true,
        optional: false,
    }));
    places
}

/// The host's own, if it has one.
pub(in crate::backend) fn optional(at: &str) -> MountEntry {
    MountEntry::Bind {
        at: at.to_owned(),
        source: at.into(),
        read_only: true,
        device: false,
        optional: true,
    }
}

pub(in crate::backend) fn tmpfs(
    at: &str,
    bytes: u64,
    inodes: u64,
    mode: u32,
    executable: bool,
) -> MountEntry {
    MountEntry::Tmpfs { at: at.to_owned(), bytes, inodes, mode, executable }
}
