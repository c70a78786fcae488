//! Runs that start together do not disturb each other, and a sweep takes nothing
//! for a leftover that somebody is about to use.
//!
//! With `SLUICE_TEST_FULL=1`, as `scripts/full/starts-at-once` runs them: a hundred at
//! once, ten times, without an engine, and with one thirty at once, three times, and
//! a hundred once. Each batch says in a line how it went.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::Instant;

use tests::boxes::{BackendKind, Person, wait_for};

use crate::{people, programs};

/// Everything that a run has: a project that is overlaid, and a network.
const NETWORK: &str = "version: 1\nnet: {enabled: true}\n";

fn is_full() -> bool {
    std::env::var_os("SLUICE_TEST_FULL").is_some()
}

/// Starts `count` runs at once; what went wrong with those that did not succeed.
fn at_once(person: &Person, count: usize, flags: &[&str]) -> Vec<String> {
    let begun = Instant::now();
    let failed: Vec<String> = thread::scope(|scope| {
        let runs: Vec<_> = (0..count)
            .map(|number| {
                let said = format!("echo run {number}");
                let mut arguments = vec!["run".to_owned()];
                arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
                arguments.extend(["--", "sh", "-c", &said].map(str::to_owned));
                scope.spawn(move || {
                    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                    let ran = person.sluice(&arguments);
                    let is_right = ran.code == 0 && ran.stdout == format!("run {number}\n");
                    (!is_right).then(|| format!("{}: {}{}", ran.code, ran.stdout, ran.stderr))
                })
            })
            .collect();
        runs.into_iter().filter_map(|run| run.join().unwrap()).collect()
    });
    let (place, right) = (person.backend(), count - failed.len());
    let line =
        format!("STARTS: {place:?}: {right} of {count} in {} s\n", begun.elapsed().as_secs());
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    failed
}

#[test]
fn starts_at_once_do_not_disturb_each_other() {
    let people = [Person::with_namespaces(programs()), Person::unprivileged(programs())];
    let (count, times) = if is_full() { (100, 10) } else { (40, 1) };
    for person in people.into_iter().flatten() {
        person.own_project();
        for _ in 0..times {
            assert_eq!(at_once(&person, count, &[]), [""; 0]);
        }
        let policy = person.policy(NETWORK);
        assert_eq!(at_once(&person, 20, &["--policy", &policy]), [""; 0]);
    }
}

#[test]
fn starts_at_once_on_an_engine_do_not_disturb_each_other() {
    // Ten at once are in `leftovers`, always.
    if !is_full() {
        return;
    }
    for person in people() {
        if !matches!(person.backend(), BackendKind::Docker | BackendKind::Podman) {
            continue;
        }
        person.own_project();
        let policy = person.policy(NETWORK);
        for count in [30, 30, 30, 100] {
            assert_eq!(at_once(&person, count, &["--policy", &policy]), [""; 0]);
        }
    }
}

/// The same person in another login, whose runs are elsewhere.
#[test]
fn a_sweep_from_another_login_leaves_alone_what_is_running() {
    let people = [Person::with_docker(programs()), Person::with_namespaces(programs())];
    let others = [Person::with_docker(programs()), Person::with_namespaces(programs())];
    for (mut person, mut other) in people.into_iter().flatten().zip(others.into_iter().flatten()) {
        for (somebody, login) in [(&mut person, "one"), (&mut other, "two")] {
            let place = somebody.project().with_file_name(login);
            fs::create_dir(&place).unwrap();
            fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
            somebody.set("XDG_RUNTIME_DIR", place.to_str().unwrap());
        }
        let mut running = person.start_shell(&[], "echo started; cat >/dev/null; echo went on");
        running.printed("started");
        let swept = other.sluice(&["sweep"]);
        assert!(!swept.stdout.contains(&running.run()), "{}{}", swept.stdout, swept.stderr);
        drop(running.child.stdin.take());
        let code = wait_for("its end", || running.child.try_wait().unwrap()).code();
        assert_eq!(code, Some(0), "{}{}", swept.stdout, swept.stderr);
        running.printed("went on");
    }
}
