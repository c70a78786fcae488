//! What the machine has one number of is not a sandbox's to use up (H15), and no
//! limit is said to hold that does not (H16).

use std::fs;
use std::os::unix::fs::chown;

use tests::available::{is_installed, skip};
use tests::boxes::{Person, Ran, docker, wait_for};

use crate::{people, programs};

/// The attack program's verdict on one pool: `held`, `BROKEN`, and what it said.
fn attacked(person: &Person, name: &str) -> (String, String) {
    let words =
        ["run", "--probe", "--mode", "none", "--", "/run/sluice/probe", "attack", "--one", name];
    let ran = person.sluice(&words);
    let said: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    let text = |field: &str| said[field].as_str().unwrap_or_default().to_owned();
    (text("result"), format!("{} {}", text("detail"), ran.stderr))
}

#[test]
fn a_sandbox_takes_no_contexts_of_the_machines_asynchronous_input() {
    for person in people().into_iter().chain(Person::unprivileged(programs())) {
        let (result, said) = attacked(&person, "aio-contexts");
        assert_eq!(result, "held", "{:?}: {said}", person.backend());
        assert!(said.contains("not implemented"), "as if the kernel had none: {said}");
    }
}

#[test]
fn a_sandbox_leaves_its_owner_inotify_and_terminals() {
    let people = [
        Person::with_namespaces(programs()),
        Person::unprivileged(programs()),
        Person::with_podman(programs()),
    ];
    for person in people.into_iter().flatten() {
        for pool in ["inotify-instances", "terminals"] {
            let (result, said) = attacked(&person, pool);
            assert_eq!(result, "held", "{:?}, {pool}: {said}", person.backend());
        }
    }
}

#[test]
fn signals_and_messages_that_wait_are_bounded_for_every_sandbox() {
    for person in people().into_iter().chain(Person::unprivileged(programs())) {
        for pool in ["queued-signals", "message-queues"] {
            let (result, said) = attacked(&person, pool);
            assert_eq!(result, "held", "{:?}, {pool}: {said}", person.backend());
        }
    }
}

/// Who a process of the sandbox is to the host: the one that sleeps for so long.
fn on_the_host(sleeps: &str) -> u32 {
    wait_for("its process", || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let such = processes.filter(|process| {
            let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
            command == format!("sleep\0{sleeps}\0").as_bytes()
        });
        let status = such.map(|process| fs::read_to_string(process.path().join("status")));
        let status = status.flatten().next()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        line.split_whitespace().next()?.parse().ok()
    })
}

/// What the kernel counts for a user is nobody's but this sandbox's: no user of
/// the host's is the same, and neither is a neighbour.
#[test]
fn a_sandbox_of_roots_is_a_user_that_nobody_else_is() {
    let people = [Person::with_namespaces(programs()), Person::with_docker(programs())];
    for person in people.into_iter().flatten() {
        let known = fs::read_to_string("/etc/passwd").unwrap();
        let known: Vec<_> = known.lines().filter_map(|line| line.split(':').nth(2)).collect();
        let project = person.project();
        let mut users = Vec::new();
        let mut running = Vec::new();
        // Without a project, with root's own, and with somebody else's.
        for (number, (mode, owner)) in
            [("none", 0), ("overlay", 0), ("overlay", 1000)].iter().enumerate()
        {
            chown(&project, Some(*owner), Some(*owner)).unwrap();
            // No other test sleeps for as long.
            let long = format!("{}.{number}", 40_000_000 + std::process::id());
            let words = ["run", "--mode", mode, "--", "sh", "-c"];
            let script = format!("touch here 2>/dev/null; sleep {long}");
            running.push(person.start(&[&words[..], &[script.as_str()]].concat()));
            users.push(on_the_host(&long));
        }
        for (number, user) in users.iter().enumerate() {
            let name = user.to_string();
            assert!(!known.contains(&name.as_str()), "{users:?}: somebody is {user}");
            assert!(!users[..number].contains(user), "{users:?}: two are the same");
        }
    }
}

/// A user that no image knows is known in it all the same: the sandbox's own, and
/// the person's.
#[test]
fn programs_of_an_image_are_told_who_they_are() {
    let Some(person) = Person::with_docker(programs()) else { return };
    let known = "root:x:0:0:root:/:/bin/sh\nagent:x:1000:1000::/home/a:/bin/sh\nnode:x:7:7::/:/n\n";
    let table = person.project().join("passwd");
    fs::write(&table, known).unwrap();
    let (made, image) = (format!("sluice-test-users-{}", std::process::id()), "sluice-test/users");
    docker(&["create", "--name", &made, tests::boxes::image().unwrap(), "sh"]);
    docker(&["cp", table.to_str().unwrap(), &format!("{made}:/etc/passwd")]);
    docker(&["commit", &made, image]);
    docker(&["rm", &made]);
    for mut person in [Some(person), Person::in_dockers_group(programs())].into_iter().flatten() {
        person.set("SLUICE_IMAGE", image);
        // The second time it is known already.
        for _ in 0..2 {
            let ran =
                person.shell(&[], "whoami; echo ~node; grep -c . /etc/passwd; echo >>/etc/passwd");
            assert_eq!(ran.stdout, "agent\n/\n3\n", "{}", ran.stderr);
            assert!(ran.code != 0 && ran.stderr.contains("/etc/passwd"), "{}", ran.stderr);
            assert_eq!(person.left_of(ran.run()), "");
        }
    }
}

/// With a configuration that gives every run 64 MiB.
fn with_little_memory() -> Option<Person> {
    let mut person = Person::unprivileged(programs())?;
    let settings = person.project().with_file_name("settings");
    fs::create_dir_all(settings.join("sluice")).unwrap();
    fs::write(settings.join("sluice/config.yaml"), "limits: {memory: 64MiB}\n").unwrap();
    person.set("XDG_CONFIG_HOME", settings.to_str().unwrap());
    Some(person)
}

fn ended(ran: &Ran) -> (i32, &str) {
    (ran.code, ran.outcome())
}

#[test]
fn memory_that_nobody_limits_is_looked_after_and_said_to_be_no_limit() {
    let Some(person) = with_little_memory() else { return };
    let fine = person.shell(&[], "echo fine");
    assert_eq!((fine.code, fine.stdout.as_str()), (0, "fine\n"), "{}", fine.stderr);
    assert!(fine.stderr.contains("only looks after"), "{}", fine.stderr);
    // It keeps 100 MiB until somebody ends it.
    let hog = person.shell(&["--timeout", "60s"], "dd if=/dev/zero of=/dev/null bs=100M");
    assert_eq!(ended(&hog), (137, "oom"), "{} {}", hog.record["outcome"], hog.stderr);
    let asked = person.shell(&["--memory", "32MiB"], "echo the command ran");
    assert_eq!((asked.code, asked.stdout.as_str()), (2, ""), "{}", asked.stderr);
}

/// Ten processes that share what they have do not have it ten times.
#[test]
fn what_processes_share_is_counted_once() {
    let Some(mut person) = with_little_memory() else { return };
    if !is_installed("python3") {
        skip("python3");
        return;
    }
    person.set("SLUICE_IMAGE", "host");
    let script = "python3 -c '
import os, time
kept = bytearray(20 << 20)
for i in range(8):
    if os.fork() == 0:
        time.sleep(2)
        os._exit(0)
while True:
    try: os.wait()
    except ChildProcessError: break
print(\"shared\")'";
    let ran = person.shell(&["--timeout", "60s"], script);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "shared\n"), "{}", ran.stderr);
}
