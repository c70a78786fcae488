//! What `fs.deny` names cannot be read, by whatever way.

use tests::ChildDeadline as _;

use super::*;

const SECRET: &str = "hunter2-canary";

const DENY: &str = ", deny: ['**/.env*', '**/.ssh', 'keys/*.pem', 'config/token']";

/// A project with secrets, and ways that lead to them.
fn project() -> Option<Person> {
    let person = person()?;
    let project = person.project();
    make(
        &project,
        &[
            (".env", SECRET),
            ("sub/.env.local", SECRET),
            (".ssh/id", SECRET),
            ("keys/a.pem", SECRET),
            ("config/token", SECRET),
            ("keys/a.pub", "public\n"),
            ("sub/plain", "plain\n"),
        ],
    );
    symlink(".env", project.join("way")).unwrap();
    symlink("../config", project.join("sub/up")).unwrap();
    symlink(project.join(".env"), project.join("whole")).unwrap();
    Some(person)
}

/// Every way to a secret that a command can try, and two that may succeed.
const WAYS: &str = "
    for f in .env ./sub/../.env sub/.env.local .ssh/id keys/a.pem keys/../keys/a.pem config/token \
             way whole sub/up/token /proc/self/root/workspace/.env /proc/1/root/workspace/.env \
             /proc/self/cwd/.env /proc/1/cwd/keys/a.pem /proc/self/fd/9/.env; do
        cat $f
    done 9</workspace
    mkdir mine; ln -s ../.env mine/a; cat mine/a; ln .env mine/b; cat mine/b
    ln /workspace/keys/a.pem mine/c; cat mine/c
    cp -r keys mine/keys; cat mine/keys/a.pem; mv keys mine/moved; cat mine/moved/a.pem keys/a.pem
    mv .env mine/env; cat mine/env; mv .ssh mine/ssh; cat mine/ssh/id
    chmod -R 777 .; cat .env keys/a.pem .ssh/id; tar c . | cat
    grep -r hunter2 /workspace /tmp /run /etc /home
    cat sub/plain; echo done";

#[test]
fn no_way_leads_to_a_hidden_file() {
    let Some(person) = project() else { return };
    let policy = any_mode(&person, DENY);
    for mode in ["overlay", "readonly", "direct"] {
        let ran = run(&person, &policy, mode, WAYS);
        assert!(!ran.stdout.contains("hunter2"), "{mode}: {}", ran.stdout);
        assert!(ran.stdout.contains("plain\n") && ran.stdout.ends_with("done\n"), "{}", ran.stderr);
    }
    // Without the policy the same ways lead there: they are ways.
    let open = any_mode(&person, ", show: ['**']");
    let ran = run(&person, &open, "overlay", WAYS);
    assert!(ran.stdout.matches("hunter2").count() > 10, "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn a_secret_that_the_host_adds_later_under_its_plain_name_stays_hidden() {
    let Some(person) = person() else { return };
    make(&person.project(), &[("config/", ""), ("a", "a\n")]);
    let policy = any_mode(&person, DENY);
    let script = "echo started; read go; cat .env config/token .ssh/id a; echo mine >.env; cat .env; echo done";
    let arguments = ["run", "--policy", &policy, "--mode", "overlay", "--", "sh", "-c", script];
    let mut running = person.start(&arguments);
    running.printed("started");
    make(&person.project(), &[(".env", SECRET), ("config/token", SECRET), (".ssh/id", SECRET)]);
    running.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    running.printed("done");
    let transcript =
        fs::read_to_string(person.evidence().unwrap().join("transcript.cast")).unwrap();
    assert!(!transcript.contains("hunter2"), "{transcript}");
    assert!(transcript.contains("mine"), "what it makes itself is its own: {transcript}");
    running.child.wait_in_time().unwrap();
    // And never goes over the host's.
    let run = running.run();
    assert_eq!(person.sluice(&["apply", &run]).code, 1);
    assert_eq!(fs::read_to_string(person.project().join(".env")).unwrap(), SECRET);
}

#[test]
fn the_callers_own_secrets_are_not_in_the_sandbox() {
    let Some(person) = person() else { return };
    let home: PathBuf = person.project().parent().unwrap().to_owned();
    let secrets = [(".ssh/id_rsa", SECRET), (".aws/credentials", SECRET), (".netrc", SECRET)];
    make(&home, &secrets);
    make(&person.project(), &[("a", "a\n")]);
    for (name, _) in secrets {
        symlink(home.join(name), person.project().join(name.replace('/', "-"))).unwrap();
    }
    let policy = any_mode(&person, "");
    let script = format!(
        "cat {0}/.ssh/id_rsa {0}/.netrc ../.netrc ../../.netrc /proc/self/root/../.netrc; cat .ssh-id_rsa \
         .aws-credentials .netrc; ls -a {0} ~/.ssh ~/.aws; cd /proc/1/root && cd ../../.. && ls -a; \
         grep -rs hunter2 /workspace /home /root /tmp /run /etc /mnt /var; cat a; echo done",
        home.display()
    );
    for mode in MODES {
        // The working directory is the caller's project, nothing above it.
        let ran = run(&person, &policy, mode, &script);
        assert!(!ran.stdout.contains("hunter2"), "{mode}: {}", ran.stdout);
    }
}

#[test]
fn a_mount_of_the_policy_does_not_follow_a_link_that_a_run_may_have_made() {
    let Some(person) = person() else { return };
    let home: PathBuf = person.project().parent().unwrap().to_owned();
    make(&home, &[("outside/key", SECRET)]);
    make(&person.project(), &[("deps/lib", "lib\n")]);
    let text = "version: 1\nfs: {workspace: direct, mounts: [{source: ./deps, target: /deps}]}\n";
    let policy = person.project().join("sandbox.policy.yaml");
    fs::write(&policy, text).unwrap();
    let policy = policy.to_str().unwrap();
    let read = "cat /deps/lib /deps/key";
    let ran = run(&person, policy, "readonly", read);
    assert_eq!(ran.stdout, "lib\n", "{}", ran.stderr);
    fs::rename(person.project().join("deps"), person.project().join("moved")).unwrap();
    symlink("../outside", person.project().join("deps")).unwrap();
    let ran = run(&person, policy, "readonly", read);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("a link in the project"), "{}", ran.stderr);
    // A policy of the person's own may mount anything, and not by such a link.
    let deps = person.project().join("deps");
    let own =
        format!("version: 1\nfs: {{mounts: [{{source: {}, target: /deps}}]}}\n", deps.display());
    let ran = run(&person, &person.policy(&own), "readonly", read);
    assert_eq!((ran.code, ran.stdout.as_str()), (125, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("a link in the project"), "{}", ran.stderr);
}
