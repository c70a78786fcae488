//! Credentials that a person has at hand: what a run gets of them, and what its
//! evidence does not.

use tests::CommandDeadline as _;

use super::*;

/// One for each way of making a sandbox that this machine has.
fn people() -> impl Iterator<Item = Person> {
    [Person::with_docker(PROGRAMS), Person::with_namespaces(PROGRAMS)].into_iter().flatten()
}

#[test]
fn no_value_of_a_variable_is_in_the_evidence() {
    for person in people() {
        let variable = "MY_TOKEN=hunter2-canary";
        let length = "echo ${#MY_TOKEN}";
        let ran = person.sluice(&["run", "-e", variable, "--", "sh", "-c", length]);
        assert_eq!(ran.stdout, "14\n", "{}", ran.stderr);
        let folder = person.evidence().unwrap();
        let found =
            Command::new("grep").args(["-r", "hunter2"]).arg(&folder).output_in_time().unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout), "");
        let record = fs::read_to_string(folder.join("run.json")).unwrap();
        assert!(record.contains("hmac_sha256"), "{record}");
        assert!(ran.stderr.contains("MY_TOKEN may be a credential"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("hunter2"), "{}", ran.stderr);
    }
}

#[test]
fn the_projects_own_secrets_are_hidden_without_a_policy() {
    for person in people() {
        let key = "-----BEGIN PRIVATE KEY-----\nhunter2-canary\n";
        make(
            &person.project(),
            &[
                (".env", "TOKEN=hunter2-canary\n"),
                ("sub/.env.production", "TOKEN=hunter2-canary\n"),
                ("tls/server.pem", key),
                ("tls/ca.pem", "-----BEGIN CERTIFICATE-----\npublic\n"),
                (".npmrc", "//registry.example/:_authToken=hunter2-canary\n"),
                (".env.example", "TOKEN=\n"),
                ("keep/.ssh/id_ed25519", key),
            ],
        );
        let script = "grep -rs hunter2 . ; cat .env sub/.env.production .npmrc; cat tls/ca.pem .env.example; echo done";
        let ran = person.sluice(&["run", "--", "sh", "-c", script]);
        assert!(!ran.stdout.contains("hunter2"), "{}", ran.stdout);
        assert!(ran.stdout.ends_with("public\nTOKEN=\ndone\n"), "{}{}", ran.stdout, ran.stderr);
        let told: Vec<&str> =
            ran.stderr.lines().filter(|line| line.contains("hidden from the sandbox")).collect();
        assert_eq!(told.len(), 1, "{}", ran.stderr);
        assert!(told[0].contains(".env") && told[0].contains("--show"), "{}", told[0]);

        let shown = person.sluice(&["run", "--show", ".env", "--", "sh", "-c", script]);
        assert!(
            shown.stdout.contains("hunter2") && !shown.stdout.contains("PRIVATE"),
            "{}",
            shown.stdout
        );
        let policy = any_mode(&person, ", show: [sub/.env.production]");
        for mode in MODES {
            let shown = run(&person, &policy, mode, "cat sub/.env.production .env; true");
            assert_eq!(shown.stdout, "TOKEN=hunter2-canary\n", "{mode}: {}", shown.stderr);
        }
    }
}

#[test]
fn a_mount_of_the_project_shows_nothing_that_is_hidden_in_it() {
    for person in people() {
        let key = "-----BEGIN PRIVATE KEY-----\nhunter2-canary\n";
        make(
            &person.project(),
            &[
                ("tls/server.pem", key),
                ("tls/ca.pem", "-----BEGIN CERTIFICATE-----\npublic\n"),
                ("keep/.ssh/id_ed25519", key),
            ],
        );
        let tls = "{source: ./tls, target: /tls}";
        let keep = "{source: ./keep, target: /keep}";
        let policy = person.project().join("mounts.yaml");
        fs::write(&policy, format!("version: 1\nfs: {{mounts: [{tls}, {keep}]}}\n")).unwrap();
        let script = "cat /tls/ca.pem; grep -rs hunter2 /tls /keep; echo done";
        for mode in ["overlay", "readonly"] {
            let ran = run(&person, policy.to_str().unwrap(), mode, script);
            let expected = "-----BEGIN CERTIFICATE-----\npublic\ndone\n";
            assert_eq!(ran.stdout, expected, "{mode}: {}", ran.stderr);
        }
    }
}

#[test]
fn what_a_run_made_in_the_place_of_a_hidden_file_does_not_go_over_it() {
    for person in people() {
        // The second is a name that no pattern can say.
        for path in [".env", "[id]/.env"] {
            make(&person.project(), &[(path, "TOKEN=hunter2-canary\n")]);
            let script = format!("echo mine >'{path}'; cat '{path}'");
            let ran = person.sluice(&["run", "--", "sh", "-c", &script]);
            assert_eq!(ran.stdout, "mine\n", "{}", ran.stderr);
            let diff = person.sluice(&["diff", ran.run()]);
            assert!(!diff.stdout.contains("hunter2"), "{}", diff.stdout);
            assert_eq!(person.sluice(&["apply", ran.run()]).code, 1);
            let kept = fs::read_to_string(person.project().join(path)).unwrap();
            assert_eq!(kept, "TOKEN=hunter2-canary\n");
            let folder = person.evidence().unwrap();
            let found =
                Command::new("grep").args(["-r", "hunter2"]).arg(&folder).output_in_time().unwrap();
            assert_eq!(String::from_utf8_lossy(&found.stdout), "");
        }
    }
}
