//! What sandbox and gateway have in common, in Podman's words.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::Podman;
use crate::backend::engine::container_env::Bind;
use crate::backend::engine::labels::labels;
use crate::backend::{BackendError, BackendStep};
use crate::plan::{RunId, UserIds};

/// A container as nobody should be without asking: no capability, no way to gain
/// one, nothing to write to, nothing kept of what it prints.
pub(super) fn closed(podman: &Podman, name: &str, run: &RunId, user: UserIds) -> Value {
    json!({
        "name": name,
        "labels": labels(run, &podman.engine.environment),
        "user": format!("{}:{}", user.uid, user.gid),
        // The caller inside is the caller outside: files are whose they are.
        "userns": {"nsmode": "keep-id"},
        "cgroupns": {"nsmode": "private"},
        "ipcns": {"nsmode": "private"},
        "pidns": {"nsmode": "private"},
        "utsns": {"nsmode": "private"},
        "cap_drop": ["all"],
        "no_new_privileges": true,
        "privileged": false,
        "read_only_filesystem": true,
        "systemd": "false",
        "image_volume_mode": "ignore",
        "stdin": true,
        // Ours, not the host's: those would tell its name and its addresses.
        "use_image_hosts": true,
        // An image's own check would run beside the command, unasked.
        "healthconfig": {"Test": ["NONE"]},
        // Podman would keep everything that is printed, without end.
        "log_configuration": {"driver": "none"},
        "remove": false,
    })
}

/// Adds to a container's words, one by one.
pub(super) fn set<const N: usize>(container: &mut Value, words: [(&str, Value); N]) {
    for (word, value) in words {
        if let Some(place) = container.as_object_mut() {
            place.insert(word.to_owned(), value);
        }
    }
}

pub(super) fn bind(wanted: &Bind) -> Value {
    let write = if wanted.read_only { "ro" } else { "rw" };
    json!({
        "destination": wanted.target,
        "type": "bind",
        "source": wanted.source,
        // What the host mounts there later is not for a container.
        "options": ["rbind", write, "rprivate", "nosuid", "nodev"],
    })
}

/// IPv6 reaches the host over every bridge, whatever its addresses.
pub(super) const NO_IPV6: [(&str, &str); 2] =
    [("net.ipv6.conf.all.disable_ipv6", "1"), ("net.ipv6.conf.default.disable_ipv6", "1")];

pub(super) fn sysctls(further: &[(&str, &str)]) -> Value {
    json!(NO_IPV6.iter().chain(further).copied().collect::<BTreeMap<_, _>>())
}

pub(super) fn ulimits(limits: &[(&str, u64)]) -> Value {
    let limit = |(name, most): &(&str, u64)| json!({"type": name, "soft": most, "hard": most});
    json!(limits.iter().map(limit).collect::<Vec<_>>())
}

/// Writes a file that a container reads, beside the run's other files.
pub(super) fn write(podman: &Podman, path: &Path, text: &str) -> Result<(), BackendError> {
    crate::public_file::write(path, text.as_bytes())
        .map_err(|err| podman.broken(BackendStep::Create, err))
}
