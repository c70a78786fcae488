//! The pilot, from `compose/up` to `compose/down`, on a real engine.
//!
//! What is promised of it is asked from inside the sandbox, in the agent's own
//! image, and believed only where the same question has another answer outside.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what does not hold in a test ends it"
)]

mod files;
mod fresh_clone;
mod pilot;

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::process::Command;

use tests::CommandDeadline as _;
use tests::boxes::{docker, image};

use pilot::{Pilot, Said, can_run};

/// One story, because starting it takes longer than all of its questions. Each
/// line is a claim; a claim that fails takes the pilot down too.
#[test]
fn a_team_tries_it_and_a_reviewer_reads_what_happened() {
    if !can_run() {
        return;
    }
    let mut pilot = Pilot::from_clone("a", &[]);
    what_it_says_to_try_does_what_it_says(&pilot);
    the_containers_are_confined_as_a_runs_are(&pilot);
    what_is_allowed_passes_over_http1_and_http2(&pilot);
    what_is_not_is_refused_with_a_reason(&pilot);
    programs_that_ignore_the_proxy_are_caught(&pilot);
    every_name_is_answered_by_the_gateway(&pilot);
    the_walls_are_those_of_a_run(&pilot);
    nothing_of_the_host_answers(&pilot);
    the_gateway_shows_its_five_doors_and_no_other(&pilot);
    neither_key_nor_log_nor_secrets_are_inside(&pilot);
    only_what_was_allowed_arrived(&pilot);
    a_policy_is_swapped_without_a_restart(&pilot);
    a_mistake_changes_nothing(&pilot);
    other_settings_are_another_gateway(&pilot);
    another_clone_leaves_it_alone(&pilot);
    a_second_one_stands_beside_it_and_neither_reaches_the_other(&pilot);
    the_reviewer_finds_a_whole_log_and_every_refusal(&pilot);
    without_its_gateway_there_is_no_network(&pilot);
    assert_eq!(pilot.down(), "", "nothing is left");
}

/// What is kept verifies, and what is removed was said; nothing goes because
/// something else failed.
#[test]
fn an_end_seals_the_log_and_removes_nothing_unsaid() {
    if !can_run() {
        return;
    }
    let Some(image) = image() else { return };
    let mut pilot = Pilot::up("c", &[("PILOT_IMAGE", image), ("PILOT_COMMAND", "sleep 3600")]);
    let asked = "printf 'GET http://other.pilot.test/ HTTP/1.1\\r\\nHost: other.pilot.test\\r\\n\
                 Connection: close\\r\\n\\r\\n' | nc -w 5 gateway.sluice 3128";
    pilot.inside(&["sh", "-c", asked]).assert_says("403");

    docker(&["stop", &pilot.container("gateway")]);
    let volume = format!("{}_audit:/audit", pilot.project);
    let change = |from: &str, to: &str| {
        let edit = format!("sed -i 's/{from}/{to}/' /audit/audit.jsonl");
        docker(&[
            "run",
            "--rm",
            "--network",
            "none",
            "--volume",
            &volume,
            image,
            "sh",
            "-c",
            &edit,
        ]);
    };
    change("other.pilot.test", "harmless.exampl");
    let refused = pilot.script("down", &[]);
    assert!(refused.code == 1 && refused.stderr.contains("not fit to be sealed"), "{refused:?}");
    assert!(refused.stderr.contains("nothing is removed"), "{refused:?}");
    assert!(pilot.left().contains("_audit") && pilot.kept().is_empty(), "{refused:?}");

    change("harmless.exampl", "other.pilot.test");
    let ended = pilot.script("down", &[]);
    assert_eq!((ended.code, pilot.left().as_str()), (0, ""), "{ended:?}");
    for gone in ["_gateway", "_inside", "volume ", "_audit"] {
        assert!(ended.stderr.contains(gone), "{gone} was not said: {ended:?}");
    }
    let kept = pilot.kept();
    assert_eq!(kept.len(), 1, "{ended:?}");
    assert!(ended.stderr.contains(kept[0].to_str().unwrap()), "{ended:?}");
    let verified = pilot.verify(&kept[0]);
    assert_eq!(verified.code, 0, "{verified:?}");
    verified.assert_says("whole").assert_says("sealed 20");
    let text = fs::read_to_string(kept[0].join("audit.jsonl")).unwrap();
    assert!(text.contains("other.pilot.test"), "{text}");
    fs::write(kept[0].join("audit.jsonl"), text.replace("other", "third")).unwrap();
    assert_eq!(pilot.verify(&kept[0]).code, 1);

    // Containers may be gone already, by Docker's own command.
    let again = pilot.script("up", &[]);
    assert_eq!(again.code, 0, "{again:?}");
    let label = format!("label=com.docker.compose.project={}", pilot.project);
    for id in docker(&["ps", "-aq", "--filter", &label]).lines() {
        docker(&["rm", "-f", id]);
    }
    let ended = pilot.script("down", &[]);
    assert_eq!((ended.code, pilot.left().as_str()), (0, ""), "{ended:?}");
    assert_eq!(pilot.kept().len(), 2, "{ended:?}");

    let again = pilot.script("up", &[]);
    assert_eq!(again.code, 0, "{again:?}");
    let said = pilot.down_with(&["--remove-log"]);
    assert!(said.contains("the audit log goes with it"), "{said}");
    assert_eq!((pilot.left().as_str(), pilot.kept().len()), ("", 2), "{said}");

    // One whose gateway never came up leaves no log, and that holds nobody back.
    let label = format!("com.docker.compose.project={}", pilot.project);
    docker(&["volume", "create", "--label", &label, &format!("{}_audit", pilot.project)]);
    let said = pilot.down_with(&[]);
    assert!(said.contains("nothing was ever recorded"), "{said}");
    assert_eq!((pilot.left().as_str(), pilot.kept().len()), ("", 2), "{said}");
}

fn what_it_says_to_try_does_what_it_says(pilot: &Pilot) {
    for script in ["up", "review", "down"] {
        let helped = pilot.type_in(&format!("compose/{script} --help"));
        assert!(helped.code == 0 && helped.stdout.contains("-p NAME"), "{helped:?}");
    }
    let shown = |outcome: &str| {
        let line = pilot.told.lines().find(|line| line.contains(outcome)).unwrap();
        line.split('#').next().unwrap().trim().to_owned()
    };
    pilot.type_in(&shown("# allowed")).assert_says(r#""path": "/hello""#);
    pilot.type_in(&shown("# refused")).assert_says(r#""code":"no_rule""#).assert_says("hint");
    pilot
        .type_in(&format!("echo 'id -un' | {}", shown("# look around").replace("exec", "exec -T")))
        .assert_says("agent");
}

/// What questions from inside do not tell apart, because another wall stands
/// behind it.
fn the_containers_are_confined_as_a_runs_are(pilot: &Pilot) {
    for (service, list) in [("sandbox", "seccomp.json"), ("gateway", "seccomp-gateway.json")] {
        let options = docker(&[
            "inspect",
            "-f",
            "{{range .HostConfig.SecurityOpt}}{{println .}}{{end}}",
            &pilot.container(service),
        ]);
        let found = options.lines().find_map(|line| line.strip_prefix("seccomp=")).unwrap();
        let found: serde_json::Value = serde_json::from_str(found).unwrap();
        let file = fs::read(pilot.clone.join("compose").join(list)).unwrap();
        assert_eq!(found, serde_json::from_slice::<serde_json::Value>(&file).unwrap(), "{service}");
    }
    let network = format!("{}_inside", pilot.project);
    assert_eq!(docker(&["network", "inspect", "-f", "{{.Internal}}", &network]), "true");
    let third = pilot.address(0);
    let bridge = format!("slc-c{}", third.split('.').nth(2).unwrap());
    let listed =
        Command::new("ip").args(["-4", "-o", "addr", "show", &bridge]).output_in_time().unwrap();
    assert!(listed.status.success(), "{bridge} is there: {listed:?}");
    assert!(listed.stdout.is_empty(), "no address of the host on {bridge}: {listed:?}");
}

fn what_is_allowed_passes_over_http1_and_http2(pilot: &Pilot) {
    for (flag, version) in [("--http1.1", "1.1 200"), ("--http2", "2 200")] {
        let said = pilot.curl(&[flag, "https://api.pilot.test/hello"]);
        said.assert_ends(version).assert_says(r#""path": "/hello""#);
    }
    let sent = pilot.curl(&["-d", "x=1", "https://api.pilot.test/v1/widgets"]);
    sent.assert_says(r#""body": 3"#);
    pilot.curl(&["https://api.pilot.test/stream"]).assert_says("data: 5");
}

fn what_is_not_is_refused_with_a_reason(pilot: &Pilot) {
    for (flag, version) in [("--http1.1", "1.1 403"), ("--http2", "2 403")] {
        let said = pilot.curl(&[flag, "-X", "DELETE", "https://api.pilot.test/hello"]);
        said.assert_ends(version).assert_says(r#""code":"no_rule""#).assert_says("hint");
    }
    // A host is allowed with TLS unless a rule says otherwise.
    pilot.curl(&["http://api.pilot.test/hello"]).assert_ends("1.1 403");
    let said = pilot.curl(&["https://other.pilot.test/"]);
    assert!(said.code != 0 && said.stderr.contains("response 403"), "{said:?}");
}

fn programs_that_ignore_the_proxy_are_caught(pilot: &Pilot) {
    let direct = ["--noproxy", "*"];
    let ask = |flag, url| pilot.curl(&[direct.as_slice(), &[flag, url]].concat());
    ask("--http1.1", "https://api.pilot.test/").assert_ends("1.1 200");
    ask("--http2", "https://api.pilot.test/").assert_ends("2 200");
    ask("--http1.1", "https://other.pilot.test/").assert_ends("1.1 403").assert_says("no_rule");
    ask("--http2", "https://other.pilot.test/").assert_ends("403").assert_says("no_rule");
    ask("--http1.1", "http://other.pilot.test/").assert_ends("1.1 403").assert_says("no_rule");
}

/// A resolver of the host's would say that there is no such name.
fn every_name_is_answered_by_the_gateway(pilot: &Pilot) {
    let name = format!("c2vjcmv0-{}.leak.test", std::process::id());
    let gateway = pilot.address(2);
    pilot.inside(&["getent", "ahostsv4", &name]).assert_says(&gateway);
    let recorded = pilot.script("review", &["--kind", "dns"]);
    recorded.assert_says(&name);
}

fn the_walls_are_those_of_a_run(pilot: &Pilot) {
    let status = pilot.inside(&["cat", "/proc/self/status"]).stdout;
    for wall in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(wall), "{wall}: {status}");
    }
    assert!(status.contains("Seccomp:\t2") && status.contains("Uid:\t1000"), "{status}");
    let walls = pilot.python(WALLS);
    assert_eq!(walls.stdout, "all of them hold", "{walls:?}");
    // The same questions outside have other answers, or they prove nothing.
    let outside = docker(&[
        "run",
        "--rm",
        "--network",
        "bridge",
        "--user",
        "0",
        "--security-opt",
        "seccomp=unconfined",
        "--cap-add",
        "SYS_ADMIN",
        "sluice/agent:latest",
        "python3",
        "-c",
        WALLS,
    ]);
    assert!(outside.lines().count() > 8 && !outside.contains("all of them"), "{outside}");
}

/// Says each wall that is missing.
const WALLS: &str = r#"
import ctypes, errno, os, socket
missing = []
def refused(what, attempt):
    try:
        attempt()
        missing.append(what)
    except OSError:
        pass
def write(path):
    open(path, "w").close()
    os.unlink(path)
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
refused("packet sockets", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))
refused("vsock", lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM))
refused("raw sockets", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
refused("io_uring", lambda: call(425, 1, ctypes.create_string_buffer(256)))
refused("ptrace", lambda: call(101, 0, 0, 0, 0))
refused("user namespaces", lambda: call(272, 0x10000000))
for place in ["/", "/usr", "/etc", "/etc/sluice/ca"]:
    refused("read-only " + place, lambda: write(place + "/probe"))
if sorted(os.listdir("/sys/class/net")) != ["eth0", "lo"]:
    missing.append("only eth0 and lo")
if any(not line.endswith(" lo\n") for line in open("/proc/net/if_inet6")):
    missing.append("no IPv6")
for name, most in [("memory/memory.limit_in_bytes", 2 << 30), ("pids/pids.max", 512)]:
    v2 = {"memory/memory.limit_in_bytes": "memory.max", "pids/pids.max": "pids.max"}[name]
    path = "/sys/fs/cgroup/" + (name if os.path.exists("/sys/fs/cgroup/" + name) else v2)
    text = open(path).read().strip()
    if text == "max" or int(text) > most:
        missing.append(name)
print("\n".join(missing) or "all of them hold")
"#;

/// On every address that the host has, with services that anybody else reaches.
fn nothing_of_the_host_answers(pilot: &Pilot) {
    let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
    let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
    udp.set_nonblocking(true).unwrap();
    let (port, datagrams) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
    let listed = Command::new("hostname").arg("-I").output_in_time().unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    let of_the_host = listed.split_whitespace().filter(|address| address.contains('.'));
    let mut targets: Vec<_> = of_the_host.map(|address| (address.to_owned(), port)).collect();
    // From an ordinary container all of it arrives, or the question proves nothing.
    let question = knock(&targets, datagrams);
    let ordinary = docker(&["run", "--rm", "sluice/agent:latest", "python3", "-c", &question]);
    assert!(ordinary.contains("open"), "{ordinary}");
    assert!(udp.recv_from(&mut [0; 16]).is_ok(), "no datagram of an ordinary container came");
    while udp.recv_from(&mut [0; 16]).is_ok() {}

    // The address that the bridge would have, and the one it has outside; the
    // stand-in itself, and the gateway's other side.
    targets.extend([(pilot.address(1), port), (pilot.address(129), port)]);
    targets.extend([(pilot.address(130), 443), (pilot.address(130), 80)]);
    targets.push((pilot.address(131), 3128));
    let said = pilot.python(&knock(&targets, datagrams));
    assert_eq!(said.stdout, "done", "{said:?}");
    assert!(udp.recv_from(&mut [0; 16]).is_err(), "a datagram reached the host");
}

/// Python that knocks at all of `targets` at once, and sends each a datagram.
fn knock(targets: &[(String, u16)], datagrams: u16) -> String {
    format!(
        "import select, socket, time
waiting = {{}}
names = socket.socket(type=socket.SOCK_DGRAM)
for at in {targets:?}:
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(at)
    waiting[s] = at
    try: names.sendto(b'leak', (at[0], {datagrams}))
    except OSError: pass
end = time.time() + 5
while waiting and time.time() < end:
    for s in select.select([], list(waiting), [], 0.2)[1]:
        at = waiting.pop(s)
        if s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0: print('open', *at)
print('done')"
    )
}

/// The control socket is a file in the gateway's own memory, and nothing else
/// listens.
fn the_gateway_shows_its_five_doors_and_no_other(pilot: &Pilot) {
    let gateway = pilot.address(2);
    let scan = format!(
        "import socket
found = []
for port in range(1, 65536):
    s = socket.socket(); s.settimeout(5)
    if s.connect_ex(('{gateway}', port)) == 0: found.append(port)
    s.close()
print(*found)"
    );
    assert_eq!(pilot.python(&scan).stdout, "53 80 443 1080 3128");
    let sockets = pilot.inside(&["find", "/", "-xdev", "-type", "s"]);
    assert_eq!(sockets.stdout, "", "{sockets:?}");
    let inspected = docker(&["inspect", "-f", "{{json .Mounts}}", &pilot.container("sandbox")]);
    assert!(!inspected.contains("/control") && !inspected.contains("docker.sock"), "{inspected}");
}

fn neither_key_nor_log_nor_secrets_are_inside(pilot: &Pilot) {
    let kit = pilot.inside(&["ls", "/etc/sluice/ca"]).stdout;
    assert_eq!(kit, "bundle.pem\nca.pem\ntruststore.p12");
    let keys = pilot.inside(&["grep", "-rl", "PRIVATE KEY", "/etc/sluice"]);
    assert_eq!(keys.stdout, "");
    let mounts = pilot.inside(&["cat", "/proc/self/mountinfo"]).stdout;
    for word in ["audit", "secrets", "settings", "control"] {
        assert!(!mounts.contains(word), "{word}: {mounts}");
    }
}

fn only_what_was_allowed_arrived(pilot: &Pilot) {
    let arrived = pilot.arrived();
    assert_eq!(arrived.len(), 7, "{arrived:?}");
    for request in arrived {
        assert_eq!(request["host"], "api.pilot.test", "{request}");
        assert_ne!(request["method"], "DELETE", "{request}");
    }
}

fn a_policy_is_swapped_without_a_restart(pilot: &Pilot) {
    let file = pilot.settings().join("policy.yaml");
    let policy = fs::read_to_string(&file).unwrap();
    // As an editor saves: another file under the same name.
    let wider = format!("{policy}    - other.pilot.test\n");
    fs::write(file.with_extension("new"), wider).unwrap();
    fs::rename(file.with_extension("new"), &file).unwrap();
    let reloaded = pilot.script("up", &["--reload"]);
    assert_eq!(reloaded.code, 0, "{reloaded:?}");
    reloaded.assert_says("policy loaded");
    pilot.curl(&["https://other.pilot.test/"]).assert_ends(" 200");
    fs::write(&file, "version: 1\nnet: {enabled: true, alow: []}\n").unwrap();
    let refused = pilot.script("up", &["--reload"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    refused.assert_says("the policy was refused").assert_says("alow");
    pilot.curl(&["https://other.pilot.test/"]).assert_ends(" 200");
    fs::write(&file, policy).unwrap();
}

/// Each is told by its name and value, and what ran goes on.
fn a_mistake_changes_nothing(pilot: &Pilot) {
    let before = pilot.container("gateway");
    for (name, value) in [
        ("PILOT_CPUS", "4096"),
        ("PILOT_CPUS", "0"),
        ("PILOT_IMAGE", "no-such-image"),
        ("PILOT_MEMORY", "2GiB"),
        ("PILOT_SECRETS", "secrets"),
        ("PILOT_SETTINGS", "./no-such-folder"),
        ("PILOT_WORKSPACE", "/no-such-folder"),
    ] {
        let said = pilot.script_with("up", &[], &[(name, value)]);
        assert_eq!(said.code, 1, "{said:?}");
        let told = format!("`{value}`");
        assert!(said.stderr.contains(name) && said.stderr.contains(&told), "{said:?}");
    }
    let file = pilot.settings().join("gateway.yaml");
    let settings = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{settings}bogus: 1\n")).unwrap();
    let said = pilot.script("up", &[]);
    fs::write(&file, settings).unwrap();
    assert!(said.code == 1 && said.stderr.contains("no field `bogus`"), "{said:?}");
    // The name of a pilot counts wherever it stands.
    let other = pilot.script("up", &["--reload", "-p", "sluice-test-nobody"]);
    assert!(other.code == 1 && other.stderr.contains("sluice-test-nobody"), "{other:?}");
    assert_eq!(pilot.container("gateway"), before);
    pilot.curl(&["https://api.pilot.test/"]).assert_ends(" 200");
}

fn another_clone_leaves_it_alone(pilot: &Pilot) {
    let clone = tempfile::tempdir().unwrap();
    fs::create_dir(clone.path().join("compose")).unwrap();
    for file in ["compose/down", "compose/pilot.sh", ".env"] {
        fs::copy(pilot::clone().join(file), clone.path().join(file)).unwrap();
    }
    let mut down = Command::new(clone.path().join("compose/down"));
    let said = Said::of(down.args(["-p", &pilot.project]).output_in_time().unwrap());
    assert!(said.code == 1 && said.stderr.contains("was started from"), "{said:?}");
    pilot.curl(&["https://api.pilot.test/"]).assert_ends(" 200");
}

/// Nothing in the compose file changes with them, and still `compose/up` heeds
/// them; nothing that was recorded is lost.
fn other_settings_are_another_gateway(pilot: &Pilot) {
    let before = pilot.container("gateway");
    // A policy is read again by the gateway that is there.
    let policy = pilot.settings().join("policy.yaml");
    let was = fs::read_to_string(&policy).unwrap();
    fs::write(&policy, format!("{was}    - other.pilot.test\n")).unwrap();
    assert_eq!(pilot.script("up", &[]).code, 0);
    assert_eq!(pilot.container("gateway"), before, "the same settings are the same gateway");
    pilot.curl(&["https://other.pilot.test/"]).assert_ends(" 200");
    fs::write(&policy, was).unwrap();
    let file = pilot.settings().join("gateway.yaml");
    let settings = fs::read_to_string(&file).unwrap();
    fs::write(&file, settings.replace("${run}", "renamed")).unwrap();
    let again = pilot.script("up", &[]);
    assert_eq!(again.code, 0, "{again:?}");
    assert_ne!(pilot.container("gateway"), before);
    pilot.curl(&["https://api.pilot.test/renamed"]).assert_ends(" 200");
    let review = pilot.script("review", &[]);
    review.assert_says("/audit: whole").assert_says("renamed").assert_says("/v1/widgets");
}

/// Another image, another command, another network.
fn a_second_one_stands_beside_it_and_neither_reaches_the_other(pilot: &Pilot) {
    let Some(image) = image() else { return };
    let changed = [("PILOT_IMAGE", image), ("PILOT_COMMAND", "sleep 3600")];
    let mut second = Pilot::up("b", &changed);
    assert_ne!(pilot.address(2), second.address(2));
    let targets = [(second.address(2), 3128), (second.address(2), 443), (second.address(131), 443)];
    assert_eq!(pilot.python(&knock(&targets, 9)).stdout, "done");
    let doors = second.inside(&["nc", "-w", "2", &second.address(2), "3128", "-e", "true"]);
    assert_eq!(doors.code, 0, "its own gateway is there: {doors:?}");
    let other = second.inside(&["nc", "-w", "2", &pilot.address(2), "3128", "-e", "true"]);
    assert_ne!(other.code, 0, "{other:?}");
    assert_eq!(second.down(), "");
}

fn the_reviewer_finds_a_whole_log_and_every_refusal(pilot: &Pilot) {
    let review = pilot.script("review", &[]);
    assert_eq!(review.code, 0, "{review:?}");
    review.assert_says("/audit: whole").assert_says("api.pilot.test/hello").assert_says("no_rule");
    let refused = pilot.script("review", &["--verdict", "deny"]);
    refused.assert_says("other.pilot.test").assert_says("DELETE");
    assert!(!refused.stdout.contains("/v1/widgets"), "{refused:?}");

    // What is kept can be checked elsewhere, and a changed byte is found.
    let saved = pilot.script("review", &["--save", "evidence"]);
    assert_eq!(saved.code, 0, "{saved:?}");
    let evidence = pilot.home().join("evidence");
    let verify = || pilot.verify(&evidence);
    assert_eq!(verify().code, 0);
    let segment = fs::read_dir(&evidence)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|kind| kind == "jsonl"))
        .unwrap();
    let text = fs::read_to_string(&segment).unwrap();
    fs::write(&segment, text.replacen("other.pilot.test", "harmless.example", 1)).unwrap();
    let broken = verify();
    assert!(broken.code == 1 && broken.stdout.contains("NOT VERIFIED"), "{broken:?}");
}

fn without_its_gateway_there_is_no_network(pilot: &Pilot) {
    let before = pilot.arrived().len();
    docker(&["kill", &pilot.container("gateway")]);
    for words in [
        ["-m", "5", "https://api.pilot.test/"],
        ["--noproxy", "*", "https://api.pilot.test/"],
        ["--noproxy", "*", "http://198.19.255.1/"],
    ] {
        let said = pilot.curl(&words);
        assert!(said.code != 0 && said.stdout.ends_with("0 000"), "{said:?}");
    }
    assert!(pilot.inside(&["getent", "ahostsv4", "api.pilot.test"]).code != 0);
    nothing_of_the_host_answers(pilot);
    assert_eq!(pilot.arrived().len(), before);
    pilot.script("review", &[]).assert_says("/audit: whole").assert_says("not closed");
}
