//! The next run is not the agent's to configure: H13.

use std::os::unix::fs::MetadataExt as _;

use tests::boxes::BackendKind;
use tests::control::Control;
use tokio::runtime::Runtime;

use super::*;

const POLICY: &str = "sandbox.policy.yaml";

/// Somebody without an engine, and somebody with one, each with a key to lose.
fn people_with_a_key() -> impl Iterator<Item = (Person, PathBuf)> {
    let people = [Person::with_namespaces(PROGRAMS), Person::with_docker(PROGRAMS)];
    people.into_iter().flatten().map(|person| {
        let keys = person.project().parent().unwrap().join(".ssh");
        make(&keys, &[("id", "hunter2\n")]);
        person.own_project();
        // Whoever works in a sandbox could read and write it, if it were there.
        let (uid, gid) = person.owner();
        for path in [&keys, &keys.join("id")] {
            chown(path, Some(uid), Some(gid)).unwrap();
        }
        (person, keys)
    })
}

/// What a run leaves for the next one to obey.
fn poison(mount: &str) -> String {
    format!(
        "printf 'version: 1\\nfs: {{mounts: [{{source: {mount}, target: /keys, mode: rw}}]}}\\n\
         overrides: {{no_sandbox: true}}\\n' >sandbox.policy.yaml && echo written"
    )
}

const STEAL: [&str; 5] =
    ["--", "sh", "-c", "cat /keys/id; echo owned >/keys/authorized_keys; echo ran", "--"];

#[test]
fn a_policy_that_a_run_wrote_is_not_obeyed_by_the_next_one() {
    for (person, keys) in people_with_a_key() {
        let direct = any_mode(&person, "");
        for mount in [keys.to_str().unwrap(), "../.ssh"] {
            let wrote = run(&person, &direct, "direct", &poison(mount));
            assert_eq!(wrote.stdout, "written\n", "{}", wrote.stderr);
            assert!(person.project().join(POLICY).exists());
            let before = person.every_run().len();

            let start = ["session", "start", "--name", "stolen", "--ttl", "1m"];
            for words in [&["run"][..], &start] {
                let next = person.sluice(&[words, &STEAL[..]].concat());
                assert_eq!((next.code, next.stdout.as_str()), (2, ""), "{}", next.stderr);
            }
            let bare = person.sluice(&[&["run", "--no-sandbox"], &STEAL[..]].concat());
            assert_eq!((bare.code, bare.stdout.as_str()), (2, ""), "{}", bare.stderr);
            // A person who types its name means its rules, and still not this.
            let named = person.sluice(&[&["run", "--policy", POLICY], &STEAL[..]].concat());
            assert_eq!((named.code, named.stdout.as_str()), (2, ""), "{}", named.stderr);
            assert!(named.stderr.contains("fs.mounts[0]: "), "{}", named.stderr);
            assert!(named.stderr.contains("overrides.no_sandbox: "), "{}", named.stderr);

            assert!(!keys.join("authorized_keys").exists());
            assert_eq!(person.every_run().len(), before, "nothing was run");
            fs::remove_file(person.project().join(POLICY)).unwrap();
        }
    }
}

#[test]
fn no_policy_of_a_project_is_a_runs_to_write() {
    for (person, _) in people_with_a_key() {
        let names = [POLICY, "ci.policy.yaml", "team.yaml"];
        make(
            &person.project(),
            &[
                (names[0], "version: 1\nextends: [./team.yaml]\n"),
                (names[1], "version: 1\n"),
                (names[2], "version: 1\nfs: {workspace: direct}\n"),
                ("a", ""),
            ],
        );
        let (uid, gid) = person.owner();
        for name in names.iter().chain(&["a"]) {
            chown(person.project().join(name), Some(uid), Some(gid)).unwrap();
        }
        assert_eq!(person.sluice(&["policy", "trust"]).code, 0);
        let before: Vec<_> =
            names.map(|name| fs::read(person.project().join(name)).unwrap()).into();
        let script = "for f in sandbox.policy.yaml ci.policy.yaml team.yaml a; do \
                      (echo '# evil' >>$f) 2>/dev/null && echo wrote $f; \
                      [ $f = a ] || { mv a $f; rm -f $f; ln -sf /tmp/x $f; } 2>/dev/null; done; echo done";
        for mode in MODES {
            // Obeyed as it was approved, in every mode.
            let ran = person.sluice(&["run", "--mode", mode, "--", "sh", "-c", script]);
            let expected = if mode == "readonly" { "done\n" } else { "wrote a\ndone\n" };
            assert_eq!(ran.stdout, expected, "{mode}: {}", ran.stderr);
            let after: Vec<_> =
                names.map(|name| fs::read(person.project().join(name)).unwrap()).into();
            assert_eq!(after, before, "{mode}");
        }
        // Under another policy they are no more its own.
        let direct = any_mode(&person, "");
        let ran = run(&person, &direct, "direct", script);
        assert_eq!(ran.stdout, "wrote team.yaml\nwrote a\ndone\n", "{}", ran.stderr);
        for (name, before) in names.iter().zip(&before).take(2) {
            assert_eq!(&fs::read(person.project().join(name)).unwrap(), before, "{name}");
        }
        // What could be written is not what was approved.
        let next = person.sluice(&["run", "--", "true"]);
        assert_eq!(next.code, 2, "{}", next.stderr);
    }
}

#[test]
fn a_gateway_obeys_what_was_approved_whatever_the_project_says_meanwhile() {
    for (person, _) in people_with_a_key() {
        let narrow = "version: 1\nextends: [./base.yaml]\n";
        let wide = "version: 1\nnet: {enabled: true, allow: [{host: new.test, protocol: http, port: 80}]}\n";
        make(
            &person.project(),
            &[(POLICY, narrow), ("base.yaml", "version: 1\nnet: {enabled: true}\n")],
        );
        assert_eq!(person.sluice(&["policy", "trust"]).code, 0);
        let name = format!("obeyed-{}", std::process::id());
        let begun =
            person.sluice(&["session", "start", "-o", "json", "--ttl", "5m", "--name", &name]);
        assert_eq!(begun.code, 0, "{}", begun.stderr);
        let begun: serde_json::Value = serde_json::from_str(&begun.stdout).unwrap();
        let run = begun["run"].as_str().unwrap();

        fs::write(person.project().join(POLICY), wide).unwrap();
        fs::write(person.project().join("base.yaml"), wide).unwrap();
        let socket = person.runtime().join(run).join("control/control.sock");
        let control = Control { socket };
        let reloaded = Runtime::new().unwrap().block_on(control.post("/reload", ""));
        assert_eq!(reloaded.status, 200, "{reloaded:?}");
        let script = "wget -O - http://new.test/after; true";
        let asked = person.sluice(&["session", "exec", &name, "--", "sh", "-c", script]);
        let stopped = person.sluice(&["session", "stop", &name]);
        assert!(asked.stderr.contains("HTTP/1.1 403 "), "{}{}", asked.stdout, asked.stderr);
        assert_eq!(stopped.code, 0, "{}", stopped.stderr);
        let log = fs::read_to_string(person.runs().join(run).join("audit.jsonl")).unwrap();
        let asked = log.lines().find(|line| line.contains(r#""url.path":"/after""#)).unwrap();
        assert!(asked.contains("no_rule"), "{asked}");
        let kept = fs::read_to_string(person.runs().join(run).join("policy.yaml")).unwrap();
        assert!(!kept.contains("new.test"), "{kept}");
    }
}

#[test]
fn what_a_person_approved_is_out_of_a_sandboxs_reach() {
    for (person, _) in people_with_a_key() {
        make(&person.project(), &[(POLICY, "version: 1\nfs: {workspace: direct}\n")]);
        assert_eq!(person.sluice(&["policy", "trust"]).code, 0);
        let approved = person.runs().parent().unwrap().join("approved");
        assert_eq!(fs::metadata(&approved).unwrap().mode() & 0o777, 0o700);
        let script = format!(
            "ls {0} 2>/dev/null; ls ../state 2>/dev/null; find / -name approved -type d 2>/dev/null; echo done",
            approved.display()
        );
        let ran = person.sluice(&["run", "--", "sh", "-c", &script]);
        assert_eq!(ran.stdout, "done\n", "{}", ran.stderr);
        // A workspace that held it would not be writable.
        if person.backend() == BackendKind::Namespaces {
            let state = approved.parent().unwrap();
            let policy = any_mode(&person, "");
            let words = ["run", "--policy", &policy, "-w", state.to_str().unwrap(), "--", "true"];
            let ran = person.sluice(&words);
            assert_eq!(ran.code, 2, "{}", ran.stderr);
            assert!(ran.stderr.contains("holds what configures `sluice`"), "{}", ran.stderr);
        }
    }
}
