//! What a person can do about what falls short.

use crate::place::has_program;
use crate::request::BackendKind;

/// How to get a backend that is not here; nothing where the reason says so itself.
pub(super) fn to_get(kind: BackendKind) -> Option<&'static str> {
    match kind {
        BackendKind::Auto => Some("install Docker or Podman, or permit user namespaces"),
        BackendKind::Docker if has_program("dockerd") || has_program("docker") => None,
        BackendKind::Docker => {
            Some("install Docker (on Debian: apt-get install docker.io) and start it")
        }
        BackendKind::Podman if has_program("podman") => None,
        BackendKind::Podman => {
            Some("install Podman 4 or newer (on Debian: apt-get install podman)")
        }
        BackendKind::Namespaces => {
            Some("permit user namespaces to users; what this machine says about them stands above")
        }
    }
}

/// On a prerequisite, by what it is called.
pub(super) fn on(what: &str) -> Option<&'static str> {
    Some(match what {
        "no new privileges" | "system calls are filtered" => {
            "the engine ignored a security option; look for a wrapper or an authorization plugin \
             that rewrites containers"
        }
        "no inheritable capabilities"
        | "no permitted capabilities"
        | "no effective capabilities"
        | "no capabilities to gain"
        | "no ambient capabilities" => {
            "the engine adds capabilities to every container; look at its default settings"
        }
        "memory is limited" | "processes are limited" | "processors are limited" => {
            "the engine cannot limit it here; rootless engines need control groups version 2 with \
             the controllers delegated to the user"
        }
        "own control group namespace" => {
            "the engine shares control groups; it needs `--default-cgroupns-mode private` or a \
             newer version"
        }
        "no IPv6" => "IPv6 could not be turned off in the sandbox's network",
        "one network" | "no network" => "the engine attached the sandbox to a further network",
        "nobody at the next hop" => {
            "the engine gave the sandbox's network an address of this machine; it must know \
             com.docker.network.bridge.inhibit_ipv4"
        }
        "names lead to the gateway" => {
            "the engine asks other name servers than the gateway; names would leave this machine"
        }
        "no engine socket" => "the image or the engine mounts an engine's socket",
        "the root is read-only" => "the engine made the image's file system writable",
        "open files are limited" => "the engine did not take the limit of open files",
        _ => return None,
    })
}
