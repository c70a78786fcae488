//! A sandbox that is kept: for several commands, until it is stopped or its time
//! is over, whoever lives meanwhile.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use serde_json::Value;
use tests::boxes::{Person, Ran, wait_for};
use tests::{ChildDeadline as _, JoinDeadline as _};

use crate::{answering_once, people};

/// A session of one person, stopped with the test.
struct Session<'p> {
    person: &'p Person,
    name: String,
    run: String,
}

impl<'p> Session<'p> {
    /// Without a project.
    fn bare(person: &'p Person, flags: &[&str]) -> Self {
        Self::start(person, &[&["--mode", "none"], flags].concat())
    }

    fn start(person: &'p Person, flags: &[&str]) -> Self {
        let name = unique();
        let words = ["session", "start", "-o", "json", "--name", &name];
        let ran = person.sluice(&[&words, flags].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let begun: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(begun["name"], name.as_str());
        let run = begun["run"].as_str().unwrap().to_owned();
        Self { person, name, run }
    }

    fn exec(&self, flags: &[&str], command: &[&str]) -> Ran {
        let words = [&["session", "exec"], flags, &[&self.name, "--"], command].concat();
        self.person.sluice(&words)
    }

    fn shell(&self, script: &str) -> Ran {
        self.exec(&[], &["sh", "-c", script])
    }

    fn cp(&self, from: &str, to: &str) -> Ran {
        self.person.sluice(&["session", "cp", from, to])
    }

    /// What is at `path` inside, as `cp` is told it.
    fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.name)
    }

    fn stop(&self) -> Ran {
        self.person.sluice(&["session", "stop", &self.name])
    }

    fn listed(&self) -> Option<Value> {
        let listed = self.person.sluice(&["session", "ls", "-o", "json"]);
        let rows: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
        rows.into_iter().find(|row| row["run"] == self.run.as_str())
    }

    fn evidence(&self) -> PathBuf {
        self.person.runs().join(&self.run)
    }

    fn record(&self) -> Value {
        let bytes = fs::read(self.evidence().join("run.json")).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    fn verified(&self) -> Ran {
        self.person.sluice(&["audit", "verify", self.evidence().to_str().unwrap()])
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if self.listed().is_some() {
            self.stop();
        }
    }
}

fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("t{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn state_persists_between_commands_and_stopping_closes_the_evidence() {
    for person in people() {
        person.own_project();
        let session = Session::start(&person, &[]);
        assert_eq!(session.shell("echo one >a; echo two >/tmp/b; (sleep 77 &) ").code, 0);
        let second = session.shell("cat a /tmp/b; ps | grep -c '[s]leep 77'");
        assert_eq!(
            (second.code, second.stdout.as_str()),
            (0, "one\ntwo\n1\n"),
            "{}",
            second.stderr
        );
        assert!(!person.project().join("a").exists(), "the host's tree is untouched");
        assert_eq!(session.listed().unwrap()["state"], "alive");
        // What it has changed so far.
        let diff = person.sluice(&["diff", &session.run]);
        assert!(diff.stdout.contains("+one"), "{}{}", diff.stdout, diff.stderr);
        let early = person.sluice(&["apply", &session.run]);
        assert_ne!(early.code, 0, "it is still running: {}", early.stdout);
        assert_eq!(person.sluice(&["rm", &session.run]).code, 1, "it is running");

        let stopped = session.stop();
        assert_eq!(stopped.code, 0, "{}", stopped.stderr);
        assert_eq!(session.listed(), None);
        assert_eq!(person.left_of(&session.run), "", "{}", stopped.stderr);
        assert_eq!(session.verified().code, 0, "{}", session.verified().stdout);
        let record = session.record();
        assert_eq!(record["outcome"]["kind"], "stopped", "{record}");
        let codes: Vec<_> =
            record["commands"].as_array().unwrap().iter().map(|one| &one["exit_code"]).collect();
        assert_eq!(codes, [0, 0]);
        if person.limits_memory() {
            let peak = record["usage"]["memory_peak"].as_u64();
            assert!(peak.is_some_and(|peak| peak > 0), "{record}");
        }

        let logs = person.sluice(&["logs", &session.run]);
        assert_eq!(logs.stdout, "one\ntwo\n1\n", "{}", logs.stderr);
        let shown = person.sluice(&["transcript", &session.run, "--command", "2"]);
        assert_eq!(shown.stdout, "one\ntwo\n1\n", "{}", shown.stderr);
        assert_eq!(person.sluice(&["apply", &session.run]).code, 0);
        assert_eq!(fs::read_to_string(person.project().join("a")).unwrap(), "one\n");
        let again = session.exec(&[], &["true"]);
        assert_eq!(again.code, 1);
        assert!(again.stderr.contains("there is no session"), "{}", again.stderr);
    }
}

#[test]
fn codes_streams_variables_and_ends_are_each_commands_own() {
    for person in people() {
        let session = Session::bare(&person, &["--output-limit", "64KiB", "--timeout", "60s"]);
        let ran = session.shell("echo out; echo err >&2; exit 7");
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (7, "out\n", "err\n"));
        let input = "line\n".repeat(20_000);
        let words = ["session", "exec", &session.name, "--", "wc", "-l"];
        let ran = person.sluice_reading(&words, input.as_bytes());
        assert_eq!((ran.code, ran.stdout.trim()), (0, "20000"), "{}", ran.stderr);
        let ran = session.exec(&["-e", "A=b c", "-w", "/tmp"], &["sh", "-c", "echo $A; pwd"]);
        assert_eq!(ran.stdout, "b c\n/tmp\n", "{}", ran.stderr);
        // A pipe of ours, opened again by its name.
        let ran = session.shell("echo again >/dev/stdout");
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "again\n"), "{}", ran.stderr);

        assert_eq!(session.exec(&[], &["no-such-program"]).code, 127);
        assert_eq!(session.exec(&[], &["/etc"]).code, 126);
        assert_eq!(session.exec(&["-w", "/nowhere"], &["true"]).code, 126);
        assert_eq!(session.shell("kill -9 $$").code, 137);
        let kind = |ran: &Ran| {
            let number = fs::read_dir(session.evidence().join("commands")).unwrap().count();
            let path = session.evidence().join(format!("commands/{number}/command.json"));
            let record: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            (ran.code, record["outcome"]["kind"].as_str().unwrap_or_default().to_owned())
        };
        let late = session.exec(&["--timeout", "1s"], &["sh", "-c", "trap '' TERM; sleep 60"]);
        assert_eq!(kind(&late), (124, "timeout".to_owned()), "{}", late.stderr);
        let loud = session.exec(&[], &["yes"]);
        assert_eq!(kind(&loud), (137, "output".to_owned()), "{}", loud.stderr);
        assert!(loud.stdout.len() <= 64 << 10, "{}", loud.stdout.len());
        let long = session.exec(&["--timeout", "2h"], &["true"]);
        assert_eq!(long.code, 2, "more than the session permits: {}", long.stderr);
    }
}

#[test]
fn the_limits_hold_for_all_commands_together() {
    for person in people().into_iter().filter(Person::limits_memory) {
        let session = Session::bare(&person, &["--memory", "48MiB", "--pids", "40"]);
        let hog = session.exec(&[], &["tail", "/dev/zero"]);
        assert_eq!(hog.code, 137, "{}", hog.stderr);
        assert!(hog.stderr.contains("oom:"), "{}", hog.stderr);
        let bomb = session.shell("bomb() { bomb | bomb; }; bomb; exit 1");
        assert!(bomb.stderr.contains("pids:"), "{} {}", bomb.code, bomb.stderr);
        // What the bomb left behind may still fill the sandbox: it ends all the same.
        assert_eq!(session.stop().code, 0);
        assert_eq!(person.left_of(&session.run), "");
    }
}

#[test]
fn nobody_waits_for_what_runs_on_in_the_background() {
    for person in people() {
        let session = Session::bare(&person, &[]);
        let ran = session.shell("echo first; sleep 600 & echo $! >/tmp/sleeping; exit 3");
        assert_eq!((ran.code, ran.stdout.as_str()), (3, "first\n"), "{}", ran.stderr);
        // Whoever had waited for it would find it ended.
        let ran = session.shell("kill -0 $(cat /tmp/sleeping)");
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        // Nobody can wait for this one.
        let ran = session.shell("(while :; do echo noise; done) & exit 4");
        assert_eq!(ran.code, 4, "{}", ran.stderr);
    }
}

#[test]
fn twenty_commands_at_once_do_not_meet() {
    for person in people() {
        let session = Session::bare(&person, &[]);
        thread::scope(|scope| {
            let running: Vec<_> = (0..20)
                .map(|number| {
                    let session = &session;
                    scope.spawn(move || {
                        session.shell(&format!("sleep 0.2; echo {number}; exit {number}"))
                    })
                })
                .collect();
            for (number, one) in running.into_iter().enumerate() {
                let ran = one.join().unwrap();
                let code = i32::try_from(number).unwrap();
                assert_eq!((ran.code, ran.stdout), (code, format!("{number}\n")), "{}", ran.stderr);
            }
        });
        session.stop();
        assert_eq!(session.record()["commands"].as_array().unwrap().len(), 20);
        assert_eq!(session.verified().code, 0);
    }
}

#[test]
fn a_client_that_vanishes_ends_its_command_and_a_signal_reaches_it() {
    for person in people() {
        let session = Session::bare(&person, &[]);
        let exec = |script: &str| {
            let words = ["session", "exec", &session.name, "--", "sh", "-c", script];
            person.start(&words)
        };
        let count = || session.shell("ps | grep -c '[s]leep 555'").stdout.trim().to_owned();
        let mut running = exec("sleep 555 & sleep 555");
        wait_for("both", || (count() == "2").then_some(()));
        running.child.kill().unwrap();
        running.child.wait_in_time().unwrap();
        wait_for("their end", || (count() == "0").then_some(()));

        let mut running = exec("exec sleep 555");
        wait_for("it", || (count() == "1").then_some(()));
        running.signal("INT");
        assert_eq!(running.child.wait_in_time().unwrap().code(), Some(130));
    }
}

#[test]
fn a_command_with_a_terminal_has_one_of_its_own() {
    for person in people() {
        let session = Session::bare(&person, &[]);
        let ran = session.exec(&["-t"], &["sh", "-c", "tty; stty size; echo $TERM; exit 5"]);
        assert_eq!(ran.code, 5, "{}{}", ran.stdout, ran.stderr);
        let lines: Vec<&str> = ran.stdout.lines().map(str::trim_end).collect();
        assert!(lines[0].starts_with("/dev/pts/"), "{lines:?}");
        assert_eq!(&lines[1..], ["24 80", "xterm"]);
        // A person types; the end of the input is control and D.
        let words = ["session", "exec", "-t", &session.name, "--", "sh"];
        let ran = person.sluice_reading(&words, b"echo $((6 * 7))\nps -o pid,tty | head -3\n");
        let said = ran.stdout.lines().any(|line| line.trim_end() == "42");
        assert!(said, "{}{}", ran.stdout, ran.stderr);
        // Control and C reach the job in the foreground.
        let words = ["session", "exec", "-t", &session.name, "--", "sh", "-c", "sleep 60"];
        let ran = person.sluice_reading(&words, b"\x03");
        assert_eq!(ran.code, 130, "{}{}", ran.stdout, ran.stderr);
        assert_eq!(session.exec(&["-t"], &["no-such-program"]).code, 127);
    }
}

#[test]
fn files_go_in_and_come_out() {
    for person in people() {
        person.own_project();
        let session = Session::start(&person, &[]);
        let here = person.project().parent().unwrap().join("here");
        fs::create_dir_all(here.join("dir/sub")).unwrap();
        person.give(&here);
        fs::write(here.join("dir/sub/file"), "words").unwrap();
        fs::write(here.join("one"), vec![7; 300_000]).unwrap();
        let path = |name: &str| here.join(name).to_str().unwrap().to_owned();

        let copied = session.cp(&path("dir"), &session.at("/workspace/"));
        assert_eq!(copied.code, 0, "{}", copied.stderr);
        assert_eq!(session.cp(&path("one"), &session.at("/tmp/two")).code, 0);
        let seen = session
            .shell("cat /workspace/dir/sub/file; wc -c </tmp/two; id -u; stat -c %u /tmp/two");
        let lines: Vec<&str> = seen.stdout.lines().collect();
        assert_eq!(lines[0], "words300000", "{}{}", seen.stdout, seen.stderr);
        assert_eq!(lines[1], lines[2], "it belongs to who works there");

        assert_eq!(session.cp(&session.at("/tmp/two"), &path("back")).code, 0);
        assert_eq!(fs::read(here.join("back")).unwrap(), vec![7; 300_000]);
        assert_eq!(session.cp(&session.at("/workspace/dir"), &path("again")).code, 0);
        assert_eq!(fs::read_to_string(here.join("again/sub/file")).unwrap(), "words");

        let missing = session.cp(&session.at("/nowhere/x"), &path("x"));
        assert_eq!(missing.code, 1);
        assert!(missing.stderr.contains("in the session:"), "{}", missing.stderr);
        let refused = session.cp(&path("one"), &session.at("/etc/one"));
        assert_eq!(refused.code, 1, "its root cannot be written to");
        let large = person.sluice(&[
            "session",
            "cp",
            "--limit",
            "1KiB",
            &session.at("/tmp/two"),
            &path("large"),
        ]);
        assert_eq!(large.code, 1, "{}", large.stderr);
        assert!(!here.join("large").exists());
    }
}

/// H7: what a sandbox says is an archive is not believed.
#[test]
fn what_comes_out_cannot_lead_elsewhere() {
    for person in people() {
        let session = Session::bare(&person, &[]);
        let here = person.project().parent().unwrap().join("here");
        fs::create_dir_all(&here).unwrap();
        let to = here.to_str().unwrap();
        let cases = [
            ("ln -s /etc/passwd /tmp/a", "leads out"),
            ("ln -s ../.. /tmp/a", "leads out"),
            ("mkdir /tmp/a; ln -s / /tmp/a/way", "leads out"),
            ("mkfifo /tmp/a", "pipe"),
        ];
        for (script, why) in cases {
            session.shell(&format!("rm -rf /tmp/a; {script}"));
            let refused = session.cp(&session.at("/tmp/a"), to);
            assert_eq!(refused.code, 1, "{script}: {}", refused.stderr);
            assert!(refused.stderr.contains(why), "{script}: {}", refused.stderr);
            assert_eq!(fs::read_dir(&here).unwrap().count(), 0, "{script}");
        }
    }
}

#[test]
fn a_name_is_one_sessions_and_a_session_is_found_by_run_too() {
    for person in people() {
        let session = Session::bare(&person, &[]);
        let clash = ["session", "start", "--mode", "none", "--name", &session.name];
        let clash = person.sluice(&clash);
        assert_eq!(clash.code, 125, "{}", clash.stdout);
        assert!(clash.stderr.contains("already"), "{}", clash.stderr);
        let words = ["session", "exec", &session.run, "--", "echo", "found"];
        assert_eq!(person.sluice(&words).stdout, "found\n");
        let command = ["session", "start", "--mode", "none", "--", "true"];
        assert_eq!(person.sluice(&command).code, 2, "a session begins without a command");
    }
}

#[test]
fn a_sweep_leaves_alone_what_lives() {
    for person in people() {
        let policy = person.policy("version: 1\nnet: {enabled: true}\n");
        let session = Session::bare(&person, &["--policy", &policy]);
        assert_eq!(person.sluice(&["sweep"]).code, 0);
        assert_eq!(person.alive(&session.run), 2, "a gateway and a sandbox");
        assert_eq!(session.shell("echo lives").stdout, "lives\n");
        let stats = person.sluice(&["stats", &session.run, "-o", "json"]);
        let stats: Value = serde_json::from_str(&stats.stdout).unwrap();
        assert_eq!(stats[0]["pids_limit"], 512, "{stats}");
        let listed = person.sluice(&["ls", "--running"]);
        assert!(listed.stdout.contains(&session.name), "{}", listed.stdout);
    }
}

#[test]
fn stats_count_what_passed_the_gateway() {
    for person in people() {
        let (port, serving) = answering_once("ok".to_owned());
        let pin = format!("up.test={}:{port}", person.host());
        let policy = person.policy(
            "version: 1\nnet: {enabled: true, allow: [{host: up.test, protocol: http, port: 80}]}\n",
        );
        let session = Session::bare(&person, &["--policy", &policy, "--pin", &pin]);
        let ran = session.shell("wget -q -O - http://up.test/a");
        assert_eq!(ran.stdout, "ok", "{}", ran.stderr);
        assert!(serving.join_in_time().starts_with("GET /a "));
        let stats = person.sluice(&["stats", &session.run, "-o", "json"]);
        let stats: Value = serde_json::from_str(&stats.stdout).unwrap();
        let moved = |name: &str| stats[0][name].as_u64().unwrap();
        assert!(moved("sent") > 0 && moved("received") > 0, "{stats}");
    }
}

#[test]
fn its_time_ends_it_when_no_sluice_lives_and_a_sweep_seals_and_deletes() {
    for person in people() {
        person.own_project();
        let policy = person.policy("version: 1\nnet: {enabled: true}\nfs: {artifacts: ['a']}\n");
        let session = Session::start(&person, &["--policy", &policy, "--ttl", "10s"]);
        assert_eq!(session.shell("echo mine >a; (trap '' TERM; sleep 300) & exit 0").code, 0);
        let upper = person.runs().with_file_name("scratch").join(&session.run);
        assert!(upper.exists());
        // A sandbox that does not want to end has its grace, and the gateway a
        // little more.
        wait_for("both to end by themselves", || (person.alive(&session.run) == 0).then_some(()));
        assert_ne!(session.exec(&[], &["true"]).code, 0);

        let swept = person.sluice(&["sweep"]);
        assert_eq!(swept.code, 0, "{}", swept.stderr);
        // Somebody else's sweep may have been quicker, and not be done yet.
        wait_for("its end", || session.listed().is_none().then_some(()));
        assert_eq!(person.left_of(&session.run), "");
        assert!(!upper.exists(), "what it wrote is deleted");
        assert_eq!(session.record()["outcome"]["kind"], "expired");
        assert_eq!(session.verified().code, 0, "{}", session.verified().stdout);
        assert_eq!(fs::read_to_string(session.evidence().join("artifacts/a")).unwrap(), "mine\n");
        let diff = person.sluice(&["diff", &session.run]);
        assert!(diff.stdout.contains("+mine"), "{}{}", diff.stdout, diff.stderr);
    }
}

#[test]
fn a_sandbox_that_was_killed_is_finished_by_a_sweep() {
    for person in people() {
        let session = Session::bare(&person, &[]);
        person.kill_sandbox(&session.run);
        wait_for("its end", || {
            (session.listed().is_none_or(|row| row["state"] != "alive")).then_some(())
        });
        assert_eq!(person.sluice(&["sweep"]).code, 0);
        wait_for("its evidence", || session.listed().is_none().then_some(()));
        assert_eq!(session.record()["outcome"]["kind"], "lost");
        let verified = session.verified();
        assert!(verified.stdout.contains("NOT COMPLETE"), "{}", verified.stdout);
        assert!(verified.stdout.contains("sealed"), "{}", verified.stdout);
    }
}

#[test]
fn without_its_gateway_a_session_reaches_nothing() {
    for person in people() {
        let upstream = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = upstream.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in upstream.incoming() {
                let mut stream = stream.unwrap();
                drop(stream.read(&mut [0; 1024]));
                let answer =
                    "HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nupstream";
                drop(stream.write_all(answer.as_bytes()));
            }
        });
        let pin = format!("up.test={}:{port}", person.host());
        let policy = person.policy(
            "version: 1\nnet: {enabled: true, allow: [{host: up.test, protocol: http, port: 80}]}\n",
        );
        let session = Session::bare(&person, &["--probe", "--policy", &policy, "--pin", &pin]);
        let get = "/run/sluice/probe fetch http://up.test/";
        let ran = session.shell(get);
        assert_eq!(ran.stdout.trim(), "200 upstream", "{}", ran.stderr);
        person.kill_gateway(&session.run);
        let direct = get.replace("fetch", "fetch --direct");
        let ran = session.shell(&format!("{get}; {direct}"));
        let answered = ran.stdout.lines().any(|line| line.starts_with("200 "));
        assert!(!answered, "{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.code, 7, "there was no answer");
        session.stop();
        let log = fs::read_to_string(session.evidence().join("audit.jsonl")).unwrap();
        assert!(log.contains(r#""url.path":"/""#), "{log}");
        assert_eq!(session.record()["outcome"]["kind"], "failed", "{}", session.record());
        assert_eq!(session.verified().code, 1, "{}", session.verified().stdout);
    }
}

/// Nothing inside can reach the socket that a session is served on.
#[test]
fn the_sessions_socket_is_not_inside() {
    for person in people() {
        let session = Session::bare(&person, &[]);
        let script = "find / -name '*session*' -not -path '/proc/*' -not -path '/sys/*' 2>/dev/null; \
                      grep session.sock /proc/net/unix; ls /proc/1/fd; echo end";
        let ran = session.shell(script);
        assert_eq!(ran.stdout, "end\n", "{:?}: {}", person.backend(), ran.stderr);
        let kill = session.shell("kill -9 1; kill -STOP 1; echo still here");
        assert_eq!(kill.stdout, "still here\n", "{:?}: {}", person.backend(), kill.stderr);
        assert_eq!(session.listed().unwrap()["state"], "alive");
    }
}

#[test]
fn completions_know_sessions() {
    for person in people() {
        let script = person.sluice(&["completions", "bash"]);
        for word in ["session", "exec", "--ttl", "--workdir"] {
            assert!(script.stdout.contains(word), "{word}");
        }
        let checked = Command::new("bash")
            .args(["-n", "/dev/stdin"])
            .stdin(std::process::Stdio::piped())
            .spawn();
        let mut checked = checked.unwrap();
        checked.stdin.take().unwrap().write_all(script.stdout.as_bytes()).unwrap();
        assert!(checked.wait_in_time().unwrap().success());
    }
}
