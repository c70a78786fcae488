//! What is started is torn down, whatever happens to the one who started it.

use std::thread;
use std::time::Duration;

use tests::boxes::wait_for;

use crate::people;

const NETWORK: &str = "version: 1\nnet: {enabled: true}\n";

#[test]
fn nothing_is_left_of_a_run_but_its_evidence() {
    for person in people() {
        let policy = person.policy(NETWORK);
        let ran = person.shell(&["--policy", &policy], "true");
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert_eq!(person.left_of(ran.run()), "");
        let verified =
            person.sluice(&["audit", "verify", person.evidence().unwrap().to_str().unwrap()]);
        assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    }
}

#[test]
fn killing_the_runner_ends_gateway_and_sandbox_and_a_sweep_removes_the_rest() {
    for person in people() {
        let policy = person.policy(NETWORK);
        let running = person.start_shell(&["--policy", &policy], "echo started; exec sleep 300");
        running.printed("started");
        let run = running.run();
        assert_eq!(person.alive(&run), 2, "a gateway and a sandbox");

        running.signal("KILL");
        wait_for("both to end by themselves", || (person.alive(&run) == 0).then_some(()));

        let swept = person.sluice(&["sweep"]);
        assert_eq!(swept.code, 0, "{}", swept.stderr);
        assert_eq!(person.left_of(&run), "");
    }
}

#[test]
fn a_sweep_leaves_alone_what_is_running() {
    for person in people() {
        let mut running = person.start_shell(&[], "echo started; exec sleep 300");
        running.printed("started");
        let run = running.run();
        assert_eq!(person.sluice(&["sweep"]).code, 0);
        let stats = person.sluice(&["stats", &run, "-o", "json"]);
        let stats: serde_json::Value = serde_json::from_str(&stats.stdout).unwrap();
        assert_eq!(stats[0]["pids_limit"], 512, "{stats}");
        assert_eq!(person.sluice(&["rm", &run]).code, 1, "it is running");
        running.signal("TERM");
        assert_eq!(running.child.wait().unwrap().code(), Some(143));
        let removed = person.sluice(&["rm", &run]);
        assert_eq!(removed.code, 0, "{}", removed.stderr);
    }
}

#[test]
fn several_runs_at_once_do_not_meet() {
    for person in people() {
        let policy = person.policy(NETWORK);
        thread::scope(|scope| {
            let runs: Vec<_> = (0..10)
                .map(|number| {
                    let (person, policy) = (&person, &policy);
                    scope.spawn(move || {
                        person.shell(&["--policy", policy], &format!("echo run {number}"))
                    })
                })
                .collect();
            for (number, run) in runs.into_iter().enumerate() {
                let ran = run.join().unwrap();
                assert_eq!(
                    (ran.code, ran.stdout),
                    (0, format!("run {number}\n")),
                    "{}",
                    ran.stderr
                );
            }
        });
    }
}

#[test]
fn told_to_stop_at_any_moment_of_its_start_it_leaves_nothing() {
    for person in people() {
        let policy = person.policy(NETWORK);
        for (number, after) in [0, 60, 150, 300, 500, 800].into_iter().enumerate() {
            let signal = ["INT", "TERM", "HUP"][number % 3];
            let mut running = person.start_shell(&["--policy", &policy], "exec sleep 300");
            thread::sleep(Duration::from_millis(after));
            running.signal(signal);
            let ended = running.child.wait().unwrap();
            let number = [("INT", 2), ("TERM", 15), ("HUP", 1)]
                .map(|(name, number)| (name == signal, number));
            let number = number.iter().find(|(it, _)| *it).unwrap().1;
            // Before it listens, the signal ends it; there is nothing to undo then.
            let code = ended.code().unwrap_or(128 + number);
            assert_eq!(code, 128 + number, "{signal} after {after} ms: {ended}");
            if let Some(folder) = person.evidence() {
                let run = folder.file_name().unwrap().to_str().unwrap().to_owned();
                assert_eq!(person.left_of(&run), "", "{signal} after {after} ms");
            }
        }
    }
}
