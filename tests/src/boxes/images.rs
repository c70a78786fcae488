//! What the sandboxes of tests are made of: busybox, put together here; nothing
//! is pulled.

use std::process::Command;
use std::sync::OnceLock;

use super::docker;
use crate::available::is_installed;
use crate::deadline::CommandDeadline as _;

/// As an image of Docker's.
pub fn image() -> Option<&'static str> {
    static IMAGE: OnceLock<Option<String>> = OnceLock::new();
    IMAGE.get_or_init(make_image).as_deref()
}

fn make_image() -> Option<String> {
    let name = "sluice-test/busybox:3";
    if !docker(&["images", "-q", name]).is_empty() {
        return Some(name.to_owned());
    }
    follow(&format!(
        "set -eu; cd \"$(mktemp -d)\"; {FILL}
         tar c . | docker import - {name}; rm -rf \"$PWD\""
    ))?;
    Some(name.to_owned())
}

/// As a directory, for sandboxes without an engine.
pub fn unpacked() -> Option<&'static str> {
    static IMAGE: OnceLock<Option<String>> = OnceLock::new();
    IMAGE.get_or_init(unpack).as_deref()
}

fn unpack() -> Option<String> {
    let path = std::env::temp_dir().join("sluice-test-busybox-2").display().to_string();
    follow(&format!(
        "set -eu; umask 022; [ ! -d {path} ] || exit 0
         new=$(mktemp -d {path}.XXXXXX); chmod 755 \"$new\"; cd \"$new\"; {FILL}
         mv -T \"$new\" {path} 2>/dev/null || rm -rf \"$new\""
    ))?;
    Some(path)
}

/// Fills the directory one is in: busybox, and PostgreSQL's own client with its libraries.
pub(super) const FILL: &str = "mkdir bin etc tmp home
    cp \"$(command -v busybox)\" bin/busybox
    for name in $(bin/busybox --list); do [ $name = busybox ] || ln -s busybox bin/$name; done
    for psql in /usr/lib/postgresql/*/bin/psql; do
        [ -x \"$psql\" ] || continue
        cp \"$psql\" bin/psql
        for library in $(ldd bin/psql | grep -o '/[^ ]*'); do
            mkdir -p \".${library%/*}\"; cp -L \"$library\" \".$library\"
        done
    done";

fn follow(recipe: &str) -> Option<()> {
    if !is_installed("busybox") {
        return None;
    }
    let made = Command::new("sh").args(["-c", recipe]).output_in_time().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(())
}
