//! What is started is torn down, whatever happens to the one who started it.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tests::boxes::{Person, wait_for};
use tests::{ChildDeadline as _, CommandDeadline as _};

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

/// Everything that can be asked about a run works on one that was killed, before
/// and after a sweep has sealed it.
#[test]
fn a_run_that_is_killed_keeps_its_record_and_a_sweep_seals_it_as_lost() {
    for person in people() {
        person.own_project();
        let policy = person.policy(NETWORK);
        let script = "wget -q http://evil.test/; echo two >a; echo st''arted; exec sleep 300";
        let running = person.start(&["run", "--policy", &policy, "--", "sh", "-c", script]);
        running.printed("started");
        let run = running.run();
        let folder = person.evidence().unwrap();
        let record = || -> Value {
            serde_json::from_slice(&fs::read(folder.join("run.json")).unwrap()).unwrap()
        };
        assert_eq!(record()["state"], "running", "{}", record());
        assert_eq!(record()["plan"]["command"][0], "sh", "{}", record());
        assert!(fs::read_to_string(folder.join("policy.yaml")).unwrap().contains("enabled: true"));

        running.signal("KILL");
        wait_for("both to end by themselves", || (person.alive(&run) == 0).then_some(()));
        assert_eq!(listed(&person, &run)["state"], "lost");

        let swept = person.sluice(&["sweep"]);
        assert_eq!(swept.code, 0, "{}", swept.stderr);
        assert!(swept.stdout.contains(&format!("sealed {run} as lost")), "{}", swept.stdout);
        let row = listed(&person, &run);
        assert_eq!((&row["state"], &row["exit_code"]), (&"lost".into(), &125.into()), "{row}");
        assert!(row["command"].as_str().unwrap().contains("exec sleep 300"), "{row}");
        assert_eq!(record()["outcome"]["kind"], "lost", "{}", record());
        assert_eq!(record()["sealed_by"], "sweep", "{}", record());
        for (words, found) in [
            (vec!["audit", "show", &run], "evil.test"),
            (vec!["audit", "search", "--run", &run], "evil.test"),
            (vec!["diff", &run], "+two"),
            (vec!["transcript", &run], "started"),
            (vec!["logs", &run], "started"),
        ] {
            let ran = person.sluice(&words);
            assert!(ran.stdout.contains(found), "{words:?}: {}{}", ran.stdout, ran.stderr);
            assert_eq!(ran.code, 0, "{words:?}: {}", ran.stderr);
        }
        let verified = person.sluice(&["audit", "verify", "--sealed", folder.to_str().unwrap()]);
        assert_eq!(verified.code, 1, "{}", verified.stdout);
        assert!(verified.stdout.contains("NOT COMPLETE"), "{}", verified.stdout);
        // What it changed can still be brought home, and a second sweep finds nothing.
        assert_eq!(person.sluice(&["apply", &run]).code, 0);
        assert_eq!(fs::read_to_string(person.project().join("a")).unwrap(), "two\n");
        let again = person.sluice(&["sweep"]);
        assert!(!again.stdout.contains(&run), "{}", again.stdout);
    }
}

/// A restart empties the folder that goes with a run, so its evidence is all there
/// is.
#[test]
fn what_a_restart_of_the_machine_cut_short_is_sealed_as_lost() {
    for person in people() {
        let running = person.start_shell(&[], "echo st''arted; exec sleep 300");
        running.printed("started");
        let run = running.run();
        running.signal("KILL");
        wait_for("its end", || (person.alive(&run) == 0).then_some(()));
        let folder = person.runtime().join(&run);
        let removed = std::process::Command::new("rm").arg("-rf").arg(&folder).status_in_time();
        assert!(removed.unwrap().success());
        // The sweep that every start begins with.
        let next = person.shell(&[], "true");
        assert_eq!(next.code, 0, "{}", next.stderr);
        let evidence = person.runs().join(&run);
        let record = fs::read(evidence.join("run.json")).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        assert_eq!(record["outcome"]["kind"], "lost", "{record}");
        assert!(evidence.join("seal.json").exists());
        // Others of the same user sweep too, and may be removing it at this moment.
        wait_for("nothing to be left", || person.left_of(&run).is_empty().then_some(()));
    }
}

#[test]
fn a_gateway_that_dies_ends_the_run_as_failed_and_its_evidence_is_not_complete() {
    for person in people() {
        let policy = person.policy(NETWORK);
        let mut running =
            person.start_shell(&["--policy", &policy], "echo st''arted; exec sleep 300");
        running.printed("started");
        let run = running.run();
        person.kill_gateway(&run);
        assert_eq!(
            running.child.wait_in_time().unwrap().code(),
            Some(125),
            "{:?}",
            person.backend()
        );
        let folder = person.evidence().unwrap();
        let record = fs::read(folder.join("run.json")).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        assert_eq!(record["outcome"]["kind"], "failed", "{record}");
        let why = record["outcome"]["why"].as_str().unwrap();
        assert!(why.contains("its gateway died"), "{why}");
        assert_eq!(listed(&person, &run)["state"], "failed");
        let verified = person.sluice(&["audit", "verify", folder.to_str().unwrap()]);
        assert_eq!(verified.code, 1, "{}", verified.stdout);
        assert!(verified.stdout.contains("its gateway died"), "{}", verified.stdout);
        assert_eq!(person.left_of(&run), "");
    }
}

#[test]
fn a_sandbox_that_is_killed_from_outside_is_not_blamed_on_its_gateway() {
    for person in people() {
        let policy = person.policy(NETWORK);
        let mut running =
            person.start_shell(&["--policy", &policy], "echo st''arted; exec sleep 300");
        running.printed("started");
        let run = running.run();
        person.kill_sandbox(&run);
        running.child.wait_in_time().unwrap();
        let record = fs::read(person.evidence().unwrap().join("run.json")).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        assert_eq!(record["outcome"]["kind"], "lost", "{:?}: {record}", person.backend());
        assert_eq!(person.left_of(&run), "");
    }
}

fn listed(person: &Person, run: &str) -> Value {
    let listed = person.sluice(&["ls", "-o", "json"]);
    let rows: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    rows.into_iter().find(|row| row["run"] == run).unwrap()
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
        assert_eq!(running.child.wait_in_time().unwrap().code(), Some(143));
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
            let ended = running.child.wait_in_time().unwrap();
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
