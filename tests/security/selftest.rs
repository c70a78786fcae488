//! `sluice selftest` as people type it: as root, and as somebody who is not, on
//! every backend that is here.
//!
//! The scorecard has to say what is true of this machine. Nothing is broken; what
//! was not tried is exactly what is expected here, by name; and what was refused
//! to start, because no limit could be kept, is not counted as held.

use std::collections::BTreeSet;

use serde_json::Value;
use tests::boxes::{BackendKind, Person};

use crate::programs;

/// D1 to D11, G1, H1 to H4, H6, H15: everything that is tried from inside, with the
/// host watching.
#[test]
fn every_attack_from_inside_is_held_on_docker() {
    every_attack_is_held(Person::with_docker(programs()));
}

#[test]
fn every_attack_from_inside_is_held_for_a_member_of_dockers_group() {
    every_attack_is_held(Person::in_dockers_group(programs()));
}

#[test]
fn every_attack_from_inside_is_held_on_podman_without_root() {
    every_attack_is_held(Person::with_podman(programs()));
}

#[test]
fn every_attack_from_inside_is_held_on_namespaces() {
    every_attack_is_held(Person::with_namespaces(programs()));
}

#[test]
fn every_attack_from_inside_is_held_on_namespaces_without_root() {
    every_attack_is_held(Person::unprivileged(programs()));
}

fn every_attack_is_held(person: Option<Person>) {
    let Some(person) = person else { return };
    let ran = person.sluice(&["selftest", "-o", "json"]);
    let card: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    let place = person.backend();
    let said = |result: &str| -> BTreeSet<String> {
        let attempts = card["attempts"].as_array().into_iter().flatten();
        let such = attempts.filter(|attempt| attempt["result"] == result);
        such.map(|attempt| attempt["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let broken = said("BROKEN");
    assert!(broken.is_empty(), "{place:?}: {broken:?} {card:#}");
    assert_eq!((ran.code, &card["broken"]), (0, &Value::from(0)), "{place:?}: {}", ran.stderr);

    // A limit that cannot be kept is refused, and that is not said to hold.
    let expected = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let refused: BTreeSet<String> = match person.limits_memory() {
        true => BTreeSet::new(),
        false => expected(&["bomb-disk", "bomb-disk-dev-shm", "bomb-inodes", "bomb-memory"]),
    };
    assert_eq!(said("refused to start"), refused, "{place:?}: {card:#}");

    // Whether somebody else missed in that moment what is shared is chance; so is
    // whether a user of this machine has any left, whoever took them.
    let chance = |name: &String| {
        if matches!(name.as_str(), "inotify-outside" | "pipes-outside") {
            return true;
        }
        let pool = name.strip_suffix("-outside").or(name.strip_suffix("-beside"));
        pool.is_some_and(|pool| shared_here(place).contains(&pool))
    };
    let untried: BTreeSet<_> =
        said("could not be tried").into_iter().filter(|name| !chance(name)).collect();
    let wanted: BTreeSet<String> = expected(untried_here(place));
    assert_eq!(untried, wanted, "{place:?}: {card:#}");

    // Each is counted once, and where it belongs.
    let counted = |field: &str| card[field].as_u64().unwrap();
    let all = card["attempts"].as_array().unwrap().len() as u64;
    assert_eq!(counted("refused"), refused.len() as u64, "{place:?}");
    assert_eq!(counted("untried"), said("could not be tried").len() as u64, "{place:?}");
    assert_eq!(counted("held") + counted("refused") + counted("untried"), all, "{place:?}");
    assert!(counted("held") > 100, "{place:?}: {card:#}");
}

/// What this backend cannot promise, and says so.
fn untried_here(place: BackendKind) -> &'static [&'static str] {
    match place {
        BackendKind::Docker => &["terminals"],
        BackendKind::DockerGroup => &["inotify-instances", "pipe-pages", "terminals"],
        BackendKind::Namespaces => &[],
        BackendKind::Podman | BackendKind::Unprivileged => &["pipe-pages"],
    }
}

/// What a sandbox shares with its user there.
fn shared_here(place: BackendKind) -> &'static [&'static str] {
    match place {
        BackendKind::Docker | BackendKind::Namespaces => &[],
        BackendKind::DockerGroup => &["inotify", "pipes"],
        BackendKind::Podman | BackendKind::Unprivileged => &["pipes"],
    }
}
