//! Which backend a run gets where nobody names one.

use tests::boxes::BackendKind;

use crate::people;

#[test]
fn without_docker_a_working_podman_makes_the_sandbox() {
    for person in people().into_iter().filter(|person| person.backend() == BackendKind::Podman) {
        let ran = person.shell(&["--backend", "auto"], "echo here");
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "here\n"), "{}", ran.stderr);
        assert_eq!(ran.record["backend"], "podman", "{}", ran.stderr);
        assert!(ran.stderr.contains("so Podman makes the sandbox"), "{}", ran.stderr);
    }
}
