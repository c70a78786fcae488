//! What needs no root: a person without any privilege, and no engine.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::process::Command;
use std::thread;

use tests::CommandDeadline as _;
use tests::boxes::{Person, SOMEBODY, unpacked, wait_for};

use crate::programs;

fn person() -> Option<Person> {
    Person::unprivileged(programs())
}

/// The same, with a little project.
fn with_project() -> Option<Person> {
    let person = person()?;
    let project = person.project();
    for (name, text) in [("a.txt", "one\n"), ("secret.env", "hunter2\n"), (".git/config", "x\n")] {
        fs::create_dir_all(project.join(name).parent().unwrap()).unwrap();
        fs::write(project.join(name), text).unwrap();
    }
    for path in ["a.txt", "secret.env", ".git", ".git/config"] {
        chown(project.join(path), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    }
    Some(person)
}

#[test]
fn the_exit_code_and_the_streams_are_the_commands() {
    let Some(person) = person() else { return };
    let ran = person.shell(&["--quiet"], "id -u; echo err >&2; exit 7");
    assert_eq!((ran.code, ran.stdout.as_str()), (7, "1500\n"), "{}", ran.stderr);
    assert!(ran.stderr.ends_with("err\n"), "{}", ran.stderr);
    assert_eq!(person.left_of(ran.run()), "");
}

#[test]
fn a_project_is_changed_only_when_the_changes_are_applied() {
    let Some(person) = with_project() else { return };
    let policy = person.policy("version: 1\nfs: {workspace: overlay, deny: ['**/*.env']}\n");
    let script = "echo two >>a.txt; echo new >b.txt; mkdir d; mv b.txt d; echo y >.git/config; \
                  ls; cat secret.env";
    let ran = person.sluice(&["run", "--policy", &policy, "--", "sh", "-c", script]);
    assert_eq!(ran.stdout, "a.txt\nd\n", "{}", ran.stderr);
    assert!(ran.stderr.contains("Read-only file system"), "{}", ran.stderr);
    let a = person.project().join("a.txt");
    assert_eq!(fs::read_to_string(&a).unwrap(), "one\n");
    let applied = person.sluice(&["apply", ran.run()]);
    assert_eq!(applied.code, 0, "{}{}", applied.stdout, applied.stderr);
    assert_eq!(fs::read_to_string(&a).unwrap(), "one\ntwo\n");
    assert_eq!(fs::read_to_string(person.project().join("d/b.txt")).unwrap(), "new\n");
}

#[test]
fn the_only_way_out_is_the_gateway() {
    let Some(person) = person() else { return };
    let policy = person.policy(
        "version: 1\nnet: {enabled: true, allow: [{host: up.test, protocol: http, port: 80}]}\n",
    );
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = upstream.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in upstream.incoming().flatten() {
            let mut stream = stream;
            let mut head = [0; 1024];
            drop(stream.read(&mut head));
            let answer =
                "HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nupstream";
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    let pin = format!("up.test=127.0.0.1:{port}");
    let script = format!(
        "wget -q -O - http://up.test/a; unset http_proxy; wget -q -O - http://evil.test/b; \
         nc -w 2 127.0.0.1 {port} </dev/null && echo reached; true"
    );
    let ran = person.shell(&["--policy", &policy, "--pin", &pin], &script);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "upstream"), "{}", ran.stderr);
    let log = fs::read_to_string(person.evidence().unwrap().join("audit.jsonl")).unwrap();
    assert!(log.contains(r#""url.path":"/b""#), "{log}");
}

#[test]
fn a_limit_that_nobody_would_keep_is_refused_and_a_usual_one_is_a_note() {
    let Some(person) = person() else { return };
    if fs::metadata("/sys/fs/cgroup/cgroup.controllers").is_ok() {
        // There it depends on who delegated what.
        return tests::available::skip("control groups of the first version");
    }
    let ran = person.shell(&["--memory", "64MiB"], "echo ran");
    assert_eq!((ran.code != 0, ran.stdout.as_str()), (true, ""));
    assert!(ran.stderr.contains("cannot limit memory here"), "{}", ran.stderr);
    let ran = person.shell(&[], "echo ran");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "ran\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("does not limit, memory here"), "{}", ran.stderr);
}

#[test]
fn processes_are_bounded_without_any_control_group() {
    let Some(person) = person() else { return };
    let script = "n=0; while [ $n -lt 100 ]; do sleep 5 & n=$((n+1)); done 2>/dev/null; echo done";
    let ran = person.shell(&["--pids", "20", "--timeout", "60s"], script);
    assert!(!ran.stdout.contains("done") || ran.stderr.contains("fork"), "{ran:?}");
}

#[test]
fn killing_the_runner_leaves_nothing_running() {
    let Some(person) = person() else { return };
    let policy = person.policy("version: 1\nnet: {enabled: true}\n");
    let running = person.start_shell(&["--policy", &policy], "echo started; exec sleep 300");
    running.printed("started");
    let run = running.run();
    assert_eq!(person.alive(&run), 2, "a gateway and a launcher");
    running.signal("KILL");
    wait_for("both to end by themselves", || (person.alive(&run) == 0).then_some(()));
    let swept = person.sluice(&["sweep"]);
    assert_eq!(swept.code, 0, "{}", swept.stderr);
    assert_eq!(person.left_of(&run), "");
}

#[test]
fn where_user_namespaces_are_forbidden_the_error_names_what_to_change() {
    let Some(_) = person() else { return };
    let programs = programs();
    // The setting belongs to the user namespace one is in.
    let script = format!(
        "echo 0 >/proc/sys/user/max_user_namespaces; exec {} run --mode none -- true",
        programs.sluice
    );
    let output = Command::new("setpriv")
        .args(["--reuid", "1500", "--regid", "1500", "--clear-groups", "--", "unshare", "-U"])
        .args(["--map-user=1500", "--map-group=1500", "--keep-caps", "sh", "-c", &script])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        .env("XDG_STATE_HOME", "/tmp/sluice-1500-state")
        .env("SLUICE_BACKEND", "namespaces")
        .env("SLUICE_IMAGE", unpacked().unwrap_or_default())
        .env("SLUICE_INIT_PROGRAM", programs.init)
        .env("SLUICE_LAUNCH_PROGRAM", programs.launch)
        .output_in_time()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("sysctl user.max_user_namespaces="), "{said}");
}
