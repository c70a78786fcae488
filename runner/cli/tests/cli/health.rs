//! `doctor`, `selftest` and `demo` where there is nothing to look at, and the
//! forms they answer in. What they find is tested where there are sandboxes.

use serde_json::Value;

use crate::world::World;

/// A machine whose Docker engine does not answer.
fn without_docker() -> World {
    let mut world = World::new();
    world.set("DOCKER_HOST", "unix:///nonexistent/docker.sock");
    world
}

#[test]
fn a_backend_that_was_asked_for_and_is_not_here_is_a_failure_with_advice() {
    let ran = without_docker().sluice(&["doctor", "--backend", "docker", "-o", "json"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["healthy"], false);
    let docker = &report["backends"][0];
    assert_eq!((&docker["backend"], &docker["present"]), (&"docker".into(), &false.into()));
    assert!(docker["why"].as_str().unwrap().contains("cannot reach the engine"), "{docker:#}");
    let why = docker["why"].as_str().unwrap();
    assert!(why.contains("there is no socket /nonexistent/docker.sock"), "{docker:#}");
    let machine = report["machine"].as_array().unwrap();
    assert!(machine.iter().any(|fact| fact["what"] == "user namespaces"), "{machine:#?}");
}

#[test]
fn an_engine_on_another_machine_is_refused_in_words() {
    for backend in [&["--backend", "docker"][..], &[]] {
        let mut world = World::new();
        world.set("DOCKER_HOST", "tcp://192.0.2.1:2375");
        let ran = world.sluice(&[&["run"][..], backend, &["--", "true"]].concat());
        assert_eq!(ran.code, 125, "{}", ran.stderr);
        assert!(ran.stderr.contains("DOCKER_HOST is `tcp://192.0.2.1:2375`"), "{}", ran.stderr);
    }
}

#[test]
fn the_doctor_tells_people_the_same() {
    let ran = without_docker().sluice(&["doctor", "--backend", "docker"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("docker: not here"), "{}", ran.stdout);
    assert!(ran.stdout.contains("start the engine, or set DOCKER_HOST"), "{}", ran.stdout);
}

#[test]
fn nothing_is_attacked_or_shown_where_there_is_no_sandbox() {
    for verb in ["selftest", "demo"] {
        let ran = without_docker().sluice(&[verb, "--backend", "docker"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{verb}");
        assert!(ran.stderr.contains("cannot reach the engine"), "{verb}: {}", ran.stderr);
    }
}

#[test]
fn a_report_for_ci_is_of_the_selftest_alone() {
    let world = World::new();
    let ran = world.sluice(&["ls", "-o", "junit"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("`sluice selftest` alone"), "{}", ran.stderr);
}

#[test]
fn a_backend_that_nobody_knows_is_wrong_usage() {
    for verb in ["doctor", "selftest", "demo"] {
        let ran = World::new().sluice(&[verb, "--backend", "vmware"]);
        assert_eq!(ran.code, 2, "{verb}");
    }
}
