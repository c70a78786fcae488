//! A project's policy is obeyed once a person has approved its content, and never
//! beyond what that person's own configuration permits.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::terminal::Terminal;
use crate::world::{Ran, World};

const FILE: &str = "sandbox.policy.yaml";
const POLICY: &str = "version: 1\nnet: {enabled: true, allow: [docs.example.com]}\n";

/// `sluice run`, of which nothing is carried out that is not refused before.
fn run(world: &World, flags: &[&str]) -> Ran {
    let mut words = vec!["run", "--backend", "namespaces", "--image", "/nonexistent"];
    words.extend(flags);
    words.extend(["--", "true"]);
    world.sluice(&words)
}

/// It went as far as making a sandbox, of an image that is not there.
#[track_caller]
fn obeyed(ran: &Ran) {
    assert!(ran.code == 125, "{}", ran.whole());
    assert!(!ran.stderr.contains("policy trust"), "{}", ran.stderr);
}

#[track_caller]
fn refused(ran: &Ran, why: &str) {
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.whole());
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
    ran.assert_harmless();
}

/// What stands in the person's own configuration.
fn configure(world: &World, text: &str) {
    let folder = world.home().join(".config/sluice");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.yaml"), text).unwrap();
}

#[test]
fn a_policy_that_nobody_approved_is_refused_where_nobody_can_be_asked() {
    let world = World::with_unapproved(POLICY);
    refused(&run(&world, &[]), "type `sluice policy trust`");
    let session = ["session", "start", "--backend", "namespaces", "--image", "/nonexistent"];
    refused(&world.sluice(&session), "type `sluice policy trust`");
    assert!(!world.state().join("runs").exists(), "nothing was made");

    let trusted = world.sluice(&["policy", "trust"]);
    assert_eq!(trusted.code, 0, "{}", trusted.whole());
    obeyed(&run(&world, &[]));
    let forgotten = world.sluice(&["policy", "untrust"]);
    assert_eq!(forgotten.code, 0, "{}", forgotten.whole());
    refused(&run(&world, &[]), "type `sluice policy trust`");
}

#[test]
fn approval_is_for_the_content_and_goes_with_any_change_of_it() {
    let world = World::with_unapproved("version: 1\nextends: [./team/base.yaml]\n");
    world.write("team/base.yaml", "version: 1\nextends: [./more.yaml]\n");
    world.write("team/more.yaml", POLICY);
    assert_eq!(world.sluice(&["policy", "trust"]).code, 0);
    obeyed(&run(&world, &[]));
    for file in [FILE, "team/base.yaml", "team/more.yaml"] {
        let before = world.read(file);
        world.write(file, format!("{before}# more\n"));
        refused(&run(&world, &[]), "has changed since it was approved");
        world.write(file, before);
        obeyed(&run(&world, &[]));
    }
    // The same words from elsewhere are not what was approved.
    fs::rename(world.project().join("team"), world.project().join("moved")).unwrap();
    symlink("moved", world.project().join("team")).unwrap();
    refused(&run(&world, &[]), "has changed since it was approved");
}

#[test]
fn approval_is_for_one_project() {
    let world = World::with_unapproved(POLICY);
    assert_eq!(world.sluice(&["policy", "trust"]).code, 0);
    let other = World::with_unapproved(POLICY);
    let mut command = world.command(&["run", "--", "true"]);
    command.current_dir(other.project());
    refused(&Ran::of(command), "type `sluice policy trust`");
}

#[test]
fn what_a_person_types_is_approved_and_what_init_wrote_too() {
    let mut world = World::with_unapproved(POLICY);
    obeyed(&run(&world, &["--policy", FILE]));
    fs::remove_file(world.project().join(FILE)).unwrap();
    assert_eq!(world.sluice(&["policy", "init"]).code, 0);
    obeyed(&run(&world, &[]));
    world.write(FILE, POLICY);
    refused(&run(&world, &[]), "has changed since it was approved");
    // A variable is typed too: no project can set one.
    world.set("SLUICE_POLICY", FILE);
    obeyed(&run(&world, &[]));
}

#[test]
fn a_policy_of_the_configuration_is_the_persons_own_unless_it_is_in_the_project() {
    let world = World::with_unapproved(POLICY);
    fs::write(world.home().join("own.yaml"), POLICY).unwrap();
    configure(&world, &format!("policy: {}/own.yaml\n", world.home().display()));
    obeyed(&run(&world, &[]));
    configure(&world, &format!("policy: {}/{FILE}\n", world.project().display()));
    refused(&run(&world, &[]), "sluice policy trust");
    // Nor may one of the person's own lead back to what a run could have written.
    let extends = "version: 1\nextends: [../project/sandbox.policy.yaml]\n";
    fs::write(world.home().join("own.yaml"), extends).unwrap();
    configure(&world, &format!("policy: {}/own.yaml\n", world.home().display()));
    refused(&run(&world, &[]), "sluice policy trust");
}

#[test]
fn a_link_for_a_policy_is_approved_as_what_it_leads_to() {
    let world = World::new();
    let (one, two) = (world.home().join("one.yaml"), world.home().join("two.yaml"));
    fs::write(&one, POLICY).unwrap();
    fs::write(&two, POLICY).unwrap();
    symlink(&one, world.project().join(FILE)).unwrap();
    refused(&run(&world, &[]), "type `sluice policy trust`");
    assert_eq!(world.sluice(&["policy", "trust"]).code, 0);
    obeyed(&run(&world, &[]));
    fs::remove_file(world.project().join(FILE)).unwrap();
    symlink(&two, world.project().join(FILE)).unwrap();
    refused(&run(&world, &[]), "has changed since it was approved");
}

#[test]
fn a_dry_run_shows_the_plan_and_that_nobody_approved_it() {
    let world = World::with_unapproved(POLICY);
    let flags = ["run", "--dry-run", "--backend", "namespaces", "--image", "host", "--", "true"];
    let ran = world.sluice(&flags);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert!(ran.stdout.contains("is not approved"), "{}", ran.stdout);
    assert_eq!(world.sluice(&["policy", "trust"]).code, 0);
    let ran = world.sluice(&flags);
    assert!(!ran.stdout.contains("not approved"), "{}", ran.stdout);
}

#[test]
fn every_verb_that_reads_a_policy_says_whether_it_is_approved() {
    let world = World::with_unapproved(POLICY);
    let explain = ["policy", "explain", FILE, "GET", "https://docs.example.com/"];
    for verb in [&["policy", "check"][..], &["policy", "lint"], &["policy", "test"], &explain] {
        let ran = world.sluice(verb);
        assert_eq!(ran.code, 0, "{}", ran.whole());
        assert!(format!("{}{}", ran.stdout, ran.stderr).contains("is not approved"), "{ran:?}");
    }
    assert_eq!(world.sluice(&["policy", "trust"]).code, 0);
    for verb in [&["policy", "check"][..], &["policy", "lint"], &["policy", "test"], &explain] {
        let ran = world.sluice(verb);
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("not approved"), "{ran:?}");
    }
}

#[test]
fn what_is_approved_is_kept_where_only_its_owner_looks_and_can_be_listed() {
    let world = World::with_unapproved(POLICY);
    assert_eq!(world.sluice(&["policy", "trust"]).code, 0);
    let folder = world.state().join("approved");
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let kept: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(fs::metadata(&kept[0]).unwrap().permissions().mode() & 0o777, 0o600);

    let state = |world: &World| {
        world.sluice(&["policy", "trust", "--list", "-o", "json"]).json()[0]["state"].clone()
    };
    assert_eq!(state(&world), "approved");
    world.write(FILE, "version: 1\n");
    assert_eq!(state(&world), "changed");
    fs::remove_file(world.project().join(FILE)).unwrap();
    assert_eq!(state(&world), "gone");
    let listed = world.sluice(&["policy", "trust", "--list"]);
    assert!(listed.stdout.contains(FILE) && listed.stdout.contains("gone"), "{listed:?}");

    // Somebody else's word is nobody's.
    world.write(FILE, POLICY);
    obeyed(&run(&world, &[]));
    fs::set_permissions(&kept[0], fs::Permissions::from_mode(0o666)).unwrap();
    refused(&run(&world, &[]), "type `sluice policy trust`");
}

#[test]
fn at_a_terminal_the_policy_is_shown_and_asked_about() {
    let world = World::with_unapproved(POLICY);
    let words = ["run", "--backend", "namespaces", "--image", "/nonexistent", "--", "true"];
    for answer in ["\n", "n\n", "maybe\n", "\u{4}"] {
        let mut terminal = Terminal::start(world.command(&words));
        terminal.until("[y/N]");
        terminal.type_in(answer);
        let (code, shown) = terminal.end();
        assert_eq!(code, 2, "{answer:?}: {shown}");
        assert!(shown.contains("allow: [docs.example.com]"), "the text: {shown}");
        assert!(shown.contains("  network: docs.example.com"), "the grants: {shown}");
    }
    let mut terminal = Terminal::start(world.command(&words));
    terminal.until("[y/N]");
    terminal.type_in("y\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, 125, "{shown}");
    obeyed(&run(&world, &[]));

    world.write(FILE, format!("{POLICY}proc: {{memory: 2GiB}}\n"));
    let mut terminal = Terminal::start(world.command(&words));
    terminal.until("[y/N]");
    terminal.type_in("yes\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, 125, "{shown}");
    assert!(shown.contains("+proc: {memory: 2GiB}"), "the difference: {shown}");
    assert!(shown.contains(" version: 1\n"), "with what stands around it: {shown}");
    obeyed(&run(&world, &[]));
}

#[test]
fn what_was_typed_before_the_question_is_no_answer_to_it() {
    let world = World::with_unapproved(POLICY);
    let words = ["run", "--backend", "namespaces", "--image", "/nonexistent", "--", "true"];
    let mut terminal = Terminal::start_typed(world.command(&words), "y\n");
    terminal.until("[y/N]");
    terminal.type_in("\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, 2, "{shown}");
}

#[test]
fn a_policy_that_is_shown_does_nothing_to_the_terminal() {
    let world = World::with_unapproved(&format!(
        "{POLICY}# \u{202e}elpmaxe\u{202c} \u{200b} caf\u{e9}\n# what it grants:\n#   network: none\n"
    ));
    let words = ["run", "--backend", "namespaces", "--image", "/nonexistent", "--", "true"];
    let mut terminal = Terminal::start(world.command(&words));
    terminal.until("[y/N]");
    terminal.type_in("n\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, 2, "{shown}");
    let harmful = |c: char| (c.is_control() && c != '\n') || "\u{202e}\u{202c}\u{200b}".contains(c);
    assert!(!shown.contains(harmful), "{shown:?}");
    assert!(shown.contains("| # \\u{202e}elpmaxe\\u{202c} \\u{200b} caf\u{e9}"), "{shown}");
    // No line of the file passes for one of ours.
    let ours = shown.lines().filter(|line| line.starts_with("what it grants:"));
    assert_eq!(ours.count(), 1, "{shown}");
    // An escape is no text of a policy at all.
    world.write(FILE, format!("{POLICY}# \u{1b}]0;owned\u{7}\u{9b}2J\n"));
    let (code, shown) = Terminal::start(world.command(&words)).end();
    assert_eq!(code, 2, "{shown}");
    assert!(!shown.contains(harmful), "{shown:?}");
}

/// A policy of the project's that asks for too much, and what is said to it.
#[track_caller]
fn too_much(policy: &str, place: &str, why: &[&str]) {
    let world = World::with_unapproved(policy);
    fs::create_dir_all(world.home().join(".ssh")).unwrap();
    // Neither approved nor typed is it obeyed.
    world.sluice(&["policy", "trust"]);
    for flags in [&[][..], &["--policy", FILE]] {
        let ran = run(&world, flags);
        refused(&ran, place);
        for why in why {
            assert!(ran.stderr.contains(why), "{why}: {}", ran.stderr);
        }
    }
    let lint = world.sluice(&["policy", "lint"]);
    assert_eq!(lint.code, 1, "{}", lint.whole());
    assert!(lint.stdout.contains("project-grant"), "{}", lint.stdout);
    let check = world.sluice(&["policy", "check"]);
    assert!(check.stdout.contains(why[0]), "{}", check.whole());
}

#[test]
fn a_projects_policy_cannot_mount_what_is_outside_of_it() {
    let text = "version: 1\nfs:\n  mounts:\n    - {source: ../home/.ssh, target: /keys, mode: rw}\n    - {source: /, target: /host}\n";
    too_much(
        text,
        "sandbox.policy.yaml:4:7: fs.mounts[0]:",
        &["`../home/.ssh` is outside the project", "sandbox.policy.yaml:5:7", "mounts:"],
    );
}

#[test]
fn a_projects_policy_cannot_say_where_a_secret_comes_from() {
    let text = "version: 1\nnet: {enabled: true, allow: [{host: evil.example, secret: KEY}]}\nsecrets:\n  KEY: {from: {file: /root/.ssh/id_rsa}, hosts: [evil.example], header: x-key}\n";
    too_much(text, "sandbox.policy.yaml:4:15: secrets.KEY.from:", &["secrets: {KEY: {from:"]);
    let command = text.replace("{file: /root/.ssh/id_rsa}", "{command: cat /etc/shadow}");
    let world = World::with_unapproved(&command);
    refused(&run(&world, &["--policy", FILE]), "`command` is not one of");
}

#[test]
fn a_projects_policy_cannot_permit_a_run_without_a_sandbox_or_wide_overrides() {
    let text = "version: 1\noverrides:\n  no_sandbox: true\n  observe: true\n  allow: [\"*.example.org\"]\n  max: {memory: 64GiB}\n";
    too_much(
        text,
        "sandbox.policy.yaml:3:15: overrides.no_sandbox:",
        &[
            "overrides: {no_sandbox: true}",
            "sandbox.policy.yaml:4:12: overrides.observe:",
            "sandbox.policy.yaml:5:10: overrides.allow:",
            "sandbox.policy.yaml:6:8: overrides.max:",
        ],
    );
    let world = World::with_unapproved(text);
    let ran = world.sluice(&["run", "--policy", FILE, "--no-sandbox", "--", "true"]);
    refused(&ran, "overrides.no_sandbox:");
}

#[test]
fn the_persons_configuration_permits_what_a_projects_policy_may_grant() {
    let world = World::with_unapproved(
        "version: 1\nfs: {mounts: [{source: ../home/data, target: /data}]}\n\
         overrides: {allow: [a.example.org], max: {memory: 2GiB}, observe: true}\n",
    );
    fs::create_dir_all(world.home().join("data")).unwrap();
    fs::create_dir_all(world.home().join("other")).unwrap();
    refused(&run(&world, &["--policy", FILE]), "fs.mounts[0]");
    configure(
        &world,
        "mounts: [~/data, {source: ~/other, mode: rw}]\n\
         overrides: {allow: [\"*.example.org\"], max: {memory: 4GiB}, observe: true}\n",
    );
    obeyed(&run(&world, &["--policy", FILE]));
    let rw = "version: 1\nfs: {mounts: [{source: ../home/data, target: /data, mode: rw}]}\n";
    world.write(FILE, rw);
    refused(&run(&world, &["--policy", FILE]), "permits it read-only");
    world.write(FILE, rw.replace("data, t", "other, t"));
    obeyed(&run(&world, &["--policy", FILE]));
    world.write(FILE, "version: 1\noverrides: {max: {memory: 8GiB}}\n");
    refused(&run(&world, &["--policy", FILE]), "`8GiB` is more than");
}

#[test]
fn a_policy_of_the_persons_own_may_say_all_of_it() {
    let world = World::new();
    fs::create_dir_all(world.home().join("data")).unwrap();
    let own = world.home().join("own.yaml");
    let text = "version: 1\nfs: {mounts: [{source: ./data, target: /data}]}\n\
                net: {enabled: true, allow: [{host: a.example, secret: KEY}]}\n\
                secrets: {KEY: {from: {env: KEY}, hosts: [a.example], header: x-key}}\n\
                overrides: {allow: [b.example], no_sandbox: true}\n";
    fs::write(&own, text).unwrap();
    obeyed(&run(&world, &["--policy", own.to_str().unwrap()]));
    obeyed(&run(&world, &["--policy", "../home/own.yaml"]));
    // But not through a link that stands in the project, or a directory that is one.
    symlink(&own, world.project().join("link.yaml")).unwrap();
    refused(&run(&world, &["--policy", "link.yaml"]), "secrets.KEY.from:");
    symlink(world.home(), world.project().join("home")).unwrap();
    refused(&run(&world, &["--policy", "home/own.yaml"]), "secrets.KEY.from:");
    // Nor where the project is the one that extends it.
    world.write(FILE, "version: 1\nextends: [../home/own.yaml]\n");
    refused(&run(&world, &["--policy", FILE]), "secrets.KEY.from:");
}

#[test]
fn the_repository_around_the_workspace_is_the_project_too() {
    let world = World::with_unapproved("version: 1\noverrides: {no_sandbox: true}\n");
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    world.write("service/a", "");
    let mut command = world.command(&["run", "--policy", "../sandbox.policy.yaml", "--", "true"]);
    command.current_dir(world.project().join("service"));
    refused(&Ran::of(command), "overrides.no_sandbox:");
}

#[test]
fn a_secret_has_its_source_and_its_hosts_from_the_configuration() {
    let text = "version: 1\nnet: {enabled: true, allow: [{host: a.example, secret: KEY}]}\n\
                secrets: {KEY: {hosts: [a.example], header: x-key}}\n";
    let world = World::with_unapproved(text);
    let plan = |world: &World| {
        let flags = ["-o", "json", "--backend", "namespaces", "--image", "host", "--policy", FILE];
        let words = [&["run", "--dry-run"], &flags[..], &["--", "true"]].concat();
        world.sluice(&words)
    };
    let planned = plan(&world).json();
    assert_eq!(planned["secrets"][0]["name"], "KEY");
    assert!(planned["secrets"][0]["from"].is_null(), "{planned}");
    assert!(planned["notes"].to_string().contains("secrets: {KEY: {from: {env: KEY}"), "{planned}");

    configure(&world, "secrets: {KEY: {from: {env: MY_KEY}, hosts: [a.example]}}\n");
    let planned = plan(&world).json();
    assert_eq!(planned["secrets"][0]["from"], "the variable MY_KEY, by your configuration");
    assert!(planned["notes"].to_string().contains("not put into requests yet"), "{planned}");

    configure(&world, "secrets: {KEY: {from: {env: MY_KEY}, hosts: [b.example]}}\n");
    refused(
        &plan(&world),
        "`a.example` is not among the hosts that your configuration gives `KEY` to",
    );
    // What a preset suggests counts for nothing by itself.
    world.write(FILE, "version: 1\nextends: [llm-anthropic]\n");
    configure(&world, "{}\n");
    let planned = plan(&world).json();
    assert!(planned["secrets"][0]["from"].is_null(), "{planned}");
}

#[test]
fn a_secret_is_given_to_a_host_for_one_run_by_a_flag() {
    let projects = "version: 1\nnet: {enabled: true, allow: [{host: a.example, secret: KEY}]}\n\
                    secrets: {KEY: {hosts: [a.example, b.example], header: x-key}}\n";
    let world = World::with_unapproved(projects);
    let plan = |world: &World, secret: &str| {
        let flags = ["-o", "json", "--backend", "namespaces", "--image", "host", "--policy", FILE];
        let words =
            [&["run", "--dry-run", "--secret", secret], &flags[..], &["--", "true"]].concat();
        world.sluice(&words)
    };
    let planned = plan(&world, "KEY@a.example").json();
    assert_eq!(planned["secrets"][0]["from"], "the variable KEY, by --secret");
    // The project's policy names two hosts; the person typed one.
    assert_eq!(planned["secrets"][0]["hosts"], serde_json::json!(["a.example"]));
    refused(&plan(&world, "KEY@c.example"), "the policy has `KEY` for a.example, b.example alone");
    refused(&plan(&world, "OTHER@a.example"), "the policy has no secret `OTHER`; it has KEY");
    refused(&plan(&world, "KEY"), "write who may get it too, as in API_KEY@api.example.com");
    refused(&plan(&world, "key@a.example"), "write it in capitals, such as `API_KEY`");

    // What the configuration says of the source holds, and a preset's suggestion is
    // taken up.
    configure(&world, "secrets: {KEY: {from: {env: MINE}, hosts: [a.example, b.example]}}\n");
    let planned = plan(&world, "KEY@b.example").json();
    assert_eq!(planned["secrets"][0]["from"], "the variable MINE, by --secret");
    assert_eq!(planned["secrets"][0]["hosts"], serde_json::json!(["b.example"]));
    configure(&world, "{}\n");
    world.write(FILE, "version: 1\nextends: [llm-anthropic]\n");
    let planned = plan(&world, "ANTHROPIC_API_KEY@api.anthropic.com").json();
    assert_eq!(planned["secrets"][0]["from"], "the variable ANTHROPIC_API_KEY, by --secret");
    assert_eq!(planned["secrets"][0]["hosts"], serde_json::json!(["api.anthropic.com"]));
}

#[test]
fn a_run_that_writes_to_the_host_is_refused_our_own_configuration() {
    let world = World::new();
    let own = world.project().join("../own.yaml");
    fs::write(&own, "version: 1\nfs: {workspace: direct}\n").unwrap();
    let own = own.to_str().unwrap();
    // A home itself is no project in any case; what is in it may be.
    let settings = world.home().join(".config");
    fs::create_dir_all(&settings).unwrap();
    refused(
        &run(&world, &["--policy", own, "-w", settings.to_str().unwrap()]),
        "holds what configures `sluice`",
    );
    obeyed(&run(&world, &["--policy", own]));
}
