//! `--pin` and `--trust`: what a person may send where, and what is recorded of it.

use std::fs;

use crate::world::{Ran, World};

/// What `sluice run` would do, with further flags.
fn plan(world: &World, flags: &[&str]) -> Ran {
    let mut words = vec!["run", "--dry-run", "--backend", "namespaces", "--image", "host"];
    words.extend(flags);
    words.extend(["--", "true"]);
    world.sluice(&words)
}

#[track_caller]
fn refused(ran: &Ran, why: &str) {
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
}

#[test]
fn a_pin_to_an_address_that_is_not_public_needs_the_users_word() {
    let mut world = World::new();
    let pin = ["--allow", "a.test", "--pin", "a.test=127.0.0.1:8443"];
    refused(&plan(&world, &pin), "upstreams: [\"127.0.0.1:8443\"]");
    refused(
        &plan(&world, &["--allow", "a.test", "--pin", "a.test=172.17.0.1"]),
        "a private address",
    );
    fs::create_dir_all(world.home().join(".config/sluice")).unwrap();
    let config = world.home().join(".config/sluice/config.yaml");
    fs::write(&config, "upstreams: [\"127.0.0.1:8443\"]\n").unwrap();
    let ran = plan(&world, &pin);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("a.test is pinned to 127.0.0.1:8443"), "{}", ran.stdout);
    fs::remove_file(config).unwrap();
    world.set("SLUICE_UPSTREAMS", "127.0.0.1:8443,10.0.0.1:1");
    assert_eq!(plan(&world, &pin).code, 0);
    refused(&plan(&world, &["--pin", "m.test=169.254.169.254:80"]), "which nothing permits");
}

#[test]
fn pins_and_trusted_authorities_are_in_the_record() {
    let world = World::new();
    world.write("authority.pem", "-----BEGIN CERTIFICATE-----\n");
    let ran = plan(
        &world,
        &["-o", "json", "--pin", "a.test=93.184.215.14:443", "--trust", "authority.pem"],
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let planned = ran.json();
    assert_eq!(planned["pins"][0]["name"], "a.test");
    assert_eq!(planned["pins"][0]["address"], "93.184.215.14:443");
    assert!(planned["trusted"][0]["file"].as_str().unwrap().ends_with("authority.pem"));
    assert!(planned["trusted"][0]["sha256"].is_string(), "{}", ran.stdout);
    let notes = planned["notes"].to_string();
    assert!(notes.contains("a.test is pinned to") && notes.contains("also believes"), "{notes}");
}

#[test]
fn an_authority_that_cannot_be_believed_is_told_at_once() {
    let world = World::new();
    world.write("notes.txt", "nothing\n");
    refused(&plan(&world, &["--trust", "/nope"]), "cannot trust /nope: No such file");
    refused(&plan(&world, &["--trust", "notes.txt"]), "it holds no PEM certificate");
    refused(&plan(&world, &["--trust", "/dev/zero"]), "it is not a file");
}
