//! Plans as text: a request and a policy in, every decision out.

use std::collections::BTreeMap;
use std::path::PathBuf;

use expect_test::{Expect, expect, expect_file};
use policies::{NoFiles, ProcLimits, Source};

use super::*;
use crate::spec::{Approval, BackendKind};

const MACHINE: Machine = Machine { processors: 2, open_files: 20_000 };

pub(crate) fn request() -> Request {
    Request {
        command: vec!["make".into(), "test".into()],
        caller: StartedBy { user: "kim".into(), host: "workstation".into() },
        tty: false,
        fail_on_denied: false,
        probe: false,
        no_sandbox: false,
        terminal: "xterm".into(),
        backend: BackendKind::Docker,
        image: None,
        workspace: PathBuf::from("/home/kim/widgets"),
        mode: None,
        user: UserIds { uid: 1500, gid: 1500 },
        own_users: None,
        owner: UserIds { uid: 1500, gid: 1500 },
        attach: None,
        defaults: ProcLimits::default(),
        environment: Vec::new(),
        value_hashes: BTreeMap::new(),
        show: Vec::new(),
        pins: Vec::new(),
        trusted: Vec::new(),
        runs: PathBuf::from("/home/kim/.local/state/sluice/runs"),
        files: BTreeMap::new(),
        approval: Approval::Named,
        policies_here: Vec::new(),
        secrets: Vec::new(),
        tools: Vec::new(),
        notes: Vec::new(),
    }
}

fn abilities() -> Abilities {
    Abilities {
        backend: "docker",
        image: "sluice/agent",
        attachments: vec![Attachment::Network],
        no_sockets: None,
        cpus: Enforcement::Enforced,
        memory: Enforcement::Enforced,
        pids: Enforcement::Enforced,
        inotify: Enforcement::Enforced,
        pipes: Enforcement::Enforced,
        terminals: Enforcement::Enforced,
        user: UserOf::Caller,
    }
}

#[test]
fn a_limit_that_the_policy_sets_is_kept_or_refused() {
    let weak = Abilities {
        memory: Enforcement::Unavailable { why: "no controller".into() },
        ..abilities()
    };
    let attempt = |policy: &str| {
        let source = Source::new("sandbox.policy.yaml", policy);
        let policy = policies::read(&source, &NoFiles).unwrap();
        plan(RunId::now(), &request(), &policy, &MACHINE, &weak)
    };
    let refused = attempt("version: 1\nproc: {memory: 1GiB}\n").unwrap_err();
    expect!["docker cannot limit memory here: no controller; leave the limit out, or choose another backend"]
        .assert_eq(&refused.to_string());
    let plan = attempt("version: 1\nproc: {pids: 9}\n").unwrap();
    assert_eq!(plan.unenforced, ["memory"]);
    assert_eq!(plan.notes, ["docker does not limit memory here: no controller"]);
}

fn attached(
    attachments: &[Attachment],
    asked: Option<Attachment>,
    net: &str,
) -> Result<(Attachment, Vec<String>), String> {
    let is_weak = !attachments.contains(&Attachment::Sockets);
    let abilities = Abilities {
        attachments: attachments.to_vec(),
        no_sockets: is_weak.then(|| "only root may".to_owned()),
        ..abilities()
    };
    let source = Source::new("p", format!("version: 1\nnet: {{enabled: true{net}}}\n"));
    let policy = policies::read(&source, &NoFiles).unwrap();
    let request = Request { attach: asked, ..request() };
    let plan = plan(RunId::now(), &request, &policy, &MACHINE, &abilities);
    let plan = plan.map_err(|refused| refused.to_string())?;
    Ok((plan.network.unwrap().attach, plan.notes))
}

#[test]
fn a_sandbox_is_attached_by_the_strongest_way_there_is_and_a_weaker_one_is_said() {
    use Attachment::{Network, Sockets};
    assert_eq!(attached(&[Sockets, Network], None, ""), Ok((Sockets, Vec::new())));
    let said = "the sandbox is attached to its gateway by a network: only root may".to_owned();
    assert_eq!(attached(&[Network], None, ""), Ok((Network, vec![said])));
    assert_eq!(attached(&[Sockets, Network], Some(Network), ""), Ok((Network, Vec::new())));
}

#[test]
fn an_attachment_that_cannot_be_had_is_a_refusal_and_never_a_weaker_one() {
    use Attachment::{Network, Sockets};
    let wanted = ", attach: sockets";
    assert_eq!(attached(&[Sockets, Network], None, wanted), Ok((Sockets, Vec::new())));
    for (asked, net, why) in [
        (None, wanted, "only root may; the policy wants it"),
        (Some(Sockets), "", "only root may; your configuration wants it"),
    ] {
        let refused = attached(&[Network], asked, net).unwrap_err();
        let expected =
            format!("docker cannot attach a sandbox to its gateway by `sockets` here: {why}");
        assert_eq!(refused, expected);
    }
    let refused = attached(&[Sockets, Network], Some(Network), wanted).unwrap_err();
    assert!(refused.contains("your configuration says `attach: network`"), "{refused}");
    // A policy can ask for less than there is, and gets the strongest all the same.
    assert_eq!(attached(&[Sockets, Network], None, ", attach: network").unwrap().0, Sockets);
}

#[test]
fn nobody_has_a_relay_without_asking_for_it() {
    use Attachment::{Network, Relay, Sockets};
    assert_eq!(attached(&[Relay, Network], None, "").unwrap().0, Network);
    assert_eq!(attached(&[Sockets, Relay, Network], None, ", attach: relay").unwrap().0, Sockets);
    let said = "the sandbox is attached to its gateway by a relay: only root may".to_owned();
    assert_eq!(attached(&[Relay, Network], None, ", attach: relay"), Ok((Relay, vec![said])));
    assert_eq!(attached(&[Sockets, Relay, Network], Some(Relay), "").unwrap().0, Relay);
    assert!(attached(&[Sockets, Relay], Some(Relay), ", attach: sockets").is_err());
}

/// The doors that are planned for these rules, and what is said of them.
fn doors_of(attach: Attachment, rules: &str) -> Result<(DoorsPlan, Vec<String>), String> {
    let abilities = Abilities { attachments: Attachment::ALL.to_vec(), ..abilities() };
    let text = format!("version: 1\nnet: {{enabled: true, allow: [{rules}]}}\n");
    let policy = policies::read(&Source::new("p", text), &NoFiles).unwrap();
    let request = Request { attach: Some(attach), ..request() };
    let plan = plan(RunId::now(), &request, &policy, &MACHINE, &abilities);
    let plan = plan.map_err(|refused| refused.to_string())?;
    Ok((plan.network.unwrap().doors, plan.notes))
}

const DATABASES: &str = "{host: b.test, port: 5432, protocol: tcp}, {host: x.test, port: 8443}, \
     {host: a.test, port: [5432, 443], protocol: tcp}, {host: y.test, port: 3128}";

#[test]
fn each_host_of_a_tcp_rule_has_an_address_that_is_nobody_elses() {
    for (attach, first) in [(Attachment::Sockets, "198.19.0.1"), (Attachment::Relay, "127.19.0.1")]
    {
        let (doors, notes) = doors_of(attach, DATABASES).unwrap();
        // Where the proxy is there is somebody already.
        assert_eq!(doors.ports, [8443]);
        let hosts: Vec<_> = doors.hosts.iter().map(|it| (&*it.host, &*it.ports)).collect();
        assert_eq!(hosts, [("a.test", &[443, 5432][..]), ("b.test", &[5432])]);
        assert_eq!(doors.hosts[0].address.to_string(), first);
        assert_ne!(doors.hosts[0].address, doors.hosts[1].address);
        assert_eq!(notes, Vec::<String>::new());
    }
}

#[test]
fn on_a_network_hosts_of_tcp_rules_have_no_address_and_that_is_said() {
    let (doors, notes) = doors_of(Attachment::Network, DATABASES).unwrap();
    assert_eq!((doors.ports, doors.hosts), (vec![8443], Vec::new()));
    let [note] = notes.as_slice() else { panic!("{notes:?}") };
    assert!(note.contains("a.test, b.test"), "{note}");
}

#[test]
fn more_doors_than_there_is_room_for_are_refused() {
    let ports = |count: usize| (0..count).map(|at| (9000 + at).to_string()).collect::<Vec<_>>();
    let rule = |count| format!("{{host: a.test, port: [{}]}}", ports(count).join(", "));
    assert_eq!(doors_of(Attachment::Sockets, &rule(128)).unwrap().0.ports.len(), 128);
    let refused = doors_of(Attachment::Sockets, &rule(129)).unwrap_err();
    assert!(refused.starts_with("the policy names 129 ports beside the usual ones"), "{refused}");
}

pub(crate) fn planned(policy: &str, request: &Request) -> Plan {
    let source = Source::new("sandbox.policy.yaml", policy);
    let policy = policies::read(&source, &NoFiles).unwrap_or_else(|problems| panic!("{problems}"));
    let run = RunId::parse("20261116-031045-7f3a2b").unwrap();
    plan(run, request, &policy, &MACHINE, &abilities()).unwrap()
}

#[track_caller]
fn check(policy: &str, request: &Request, expected: Expect) {
    expected.assert_eq(&PlanText(&planned(policy, request)).to_string());
}

#[test]
fn without_a_word_about_it_there_is_no_network_and_the_host_is_untouched() {
    check(
        "version: 1\n",
        &request(),
        expect![[r#"
        run          20261116-031045-7f3a2b
        command      make test
        backend      docker
        image        sluice/agent
        user         1500:1500
        starts in    /workspace
        workspace    /home/kim/widgets at /workspace
                     overlay: changes are kept apart until you apply them
                     read-only: .git scripts
        scratch      /home/agent of 512MiB
        scratch      /run of 16MiB
        scratch      /tmp of 1GiB
        network      none
        limits       2 processors, 2GiB of memory
                     512 processes, 16384 open files
                     4GiB of disk, 64MiB of output
                     1h of time
        policy       sandbox (sandbox.policy.yaml)
        environment  3 variables
        evidence     /home/kim/.local/state/sluice/runs/20261116-031045-7f3a2b
    "#]],
    );
}

#[test]
fn a_network_leads_to_the_gateway_alone() {
    check(
        "version: 1
name: widgets
fs: {deny: ['**/.env*'], mounts: [{source: ./deps, target: /deps}]}
proc: {cpus: 64, memory: 64MiB, timeout: 90s}
net: {enabled: true, mode: observe, allow: [docs.example]}
",
        &request(),
        expect![[r#"
            run          20261116-031045-7f3a2b
            command      make test
            backend      docker
            image        sluice/agent
            user         1500:1500
            starts in    /workspace
            workspace    /home/kim/widgets at /workspace
                         overlay: changes are kept apart until you apply them
                         read-only: .git scripts
                         hidden: **/.env*
            mount        /home/kim/widgets/deps at /deps, read-only
            scratch      /home/agent of 16MiB
            scratch      /run of 1MiB
            scratch      /tmp of 32MiB
            network      only to its gateway, which has 1 rule
                         observing: what no rule names passes and is recorded
            limits       2 processors, 64MiB of memory
                         512 processes, 16384 open files
                         4GiB of disk, 64MiB of output
                         1m30s of time
            policy       widgets (sandbox.policy.yaml)
            environment  37 variables
            evidence     /home/kim/.local/state/sluice/runs/20261116-031045-7f3a2b
        "#]],
    );
}

#[test]
fn a_run_may_see_less_of_the_project_than_its_policy_says_and_never_more() {
    let asks = |mode| Request { mode: Some(mode), ..request() };
    let mode = |policy: &str, request| planned(policy, &request).workspace.mode;
    let readonly = "version: 1\nfs: {workspace: readonly}\n";
    assert_eq!(mode(readonly, asks(Workspace::None)), Workspace::None);
    assert_eq!(mode(readonly, asks(Workspace::Direct)), Workspace::Readonly);
    assert_eq!(mode("version: 1\n", asks(Workspace::Direct)), Workspace::Overlay);
}

#[test]
fn the_environment_is_complete_and_what_a_person_chose_wins() {
    let request =
        Request { environment: vec![("CURL_CA_BUNDLE".into(), "/mine.pem".into())], ..request() };
    let plan = planned("version: 1\nnet: {enabled: true}\n", &request);
    let value = |name: &str| {
        let mut found = plan.environment.iter().filter(|(known, _)| known == name);
        let (_, value) = found.next().unwrap();
        assert_eq!(found.next(), None, "{name} is set once");
        value.as_str()
    };
    assert_eq!(value("CURL_CA_BUNDLE"), "/mine.pem");
    assert_eq!(value("SSL_CERT_FILE"), "/etc/sluice/ca/bundle.pem");
    assert_eq!(value("https_proxy"), "http://gateway.sluice:3128");
    assert_eq!(plan.unset, ["SSL_CERT_DIR"]);
    assert!(plan.notes[0].starts_with("`CURL_CA_BUNDLE` is already set"), "{:?}", plan.notes);
}

#[test]
fn a_plan_is_also_for_machines() {
    let json = serde_json::to_value(planned("version: 1\n", &request())).unwrap();
    assert_eq!(json["run"], "20261116-031045-7f3a2b");
    assert_eq!(json["workspace"]["mode"], "overlay");
    assert_eq!(json["network"], serde_json::Value::Null);
    assert_eq!(json["limits"]["timeout_seconds"], 3600.0);
}

#[test]
fn scratch_space_never_outgrows_memory() {
    let plan = planned("version: 1\nproc: {memory: 64MiB}\n", &request());
    let all: u64 = plan.tmpfs.iter().map(|place| place.bytes).sum();
    assert!(all < plan.limits.memory, "{all}");
}

/// `UPDATE_EXPECT=1` writes it.
#[test]
fn the_variables_for_compose_are_those_of_a_run() {
    let plan = planned("version: 1\nnet: {enabled: true}\n", &request());
    let own = ["HOME", "SLUICE_RUN", "USER"];
    let kit = plan.environment.iter().filter(|(name, _)| !own.contains(&name.as_str()));
    let mut text = String::from(
        "# Points the sandbox's tools at the gateway and its certificate. The same that a\n\
         # run has; a test keeps it so.\n",
    );
    kit.for_each(|(name, value)| text.push_str(&format!("{name}={value}\n")));
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../../compose/trust.env")].assert_eq(&text);
}
