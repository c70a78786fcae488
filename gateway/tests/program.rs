//! The program as it is started: its words, its exit codes, its sockets.

#![expect(clippy::disallowed_methods, reason = "a test is on the sandbox's side of the gateway")]

#[path = "../../tests/src/skip.rs"]
mod skip;

use std::fs;
use std::io::ErrorKind::{ConnectionRefused, NotFound};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway::control;
use protocol::control::Status;
use tempfile::TempDir;

use crate::skip::skip;

const POLICY: &str = "version: 1\nname: program\nnet: {enabled: true, allow: [allowed.test]}\n";

/// A directory with settings and a policy, as an operator has one.
struct Place(TempDir);

impl Place {
    fn new(listen: &str, more: &str) -> Self {
        let place = Self(tempfile::tempdir().expect("a directory can be made"));
        let settings = format!(
            "run: program\npolicy: p.yaml\nlisten: {listen}\ncontrol: run/c.sock\naudit: audit\n{more}"
        );
        place.write("gateway.yaml", &settings);
        place.write("p.yaml", POLICY);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file can be written");
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-gateway"));
        command.env_clear().arg("--config").arg(self.path("gateway.yaml"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().expect("the program can be started")
    }

    fn socket(&self) -> PathBuf {
        self.path("run/c.sock")
    }

    /// The first status of which `holds` is true.
    async fn until(&self, holds: impl Fn(&Status) -> bool) -> Status {
        let asking = async {
            loop {
                let status = control::status(&self.socket()).await.expect("it answers");
                if holds(&status) {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), asking).await.expect("it comes to that")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("audit/audit.jsonl")).expect("the log is there")
    }
}

/// A program that serves, ended with the test.
struct Served(Child);

impl Served {
    async fn start(place: &Place, command: &mut Command) -> (Self, Status) {
        let mut served = Self(command.spawn().expect("the program can be started"));
        for _ in 0..500 {
            match control::status(&place.socket()).await {
                Ok(status) => return (served, status),
                Err(err) if matches!(err.kind(), NotFound | ConnectionRefused) => {}
                Err(err) => panic!("{err}"),
            }
            if let Some(code) = served.0.try_wait().expect("it can be asked") {
                panic!("it ended with {code}: {}", served.words());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("it is not ready after ten seconds");
    }

    fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status();
        assert!(status.expect("kill can be started").success());
    }

    /// Waits for its end: the exit code and what it logged.
    fn end(mut self) -> (Option<i32>, String) {
        let words = self.words();
        (self.0.wait().expect("it can be waited for").code(), words)
    }

    fn words(&mut self) -> String {
        let mut words = String::new();
        if let Some(stderr) = &mut self.0.stderr {
            stderr.read_to_string(&mut words).expect("it is text");
        }
        words
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test]
async fn it_serves_until_told_to_stop_and_leaves_a_closed_log() {
    let place = Place::new("{proxy: 127.0.0.1:0, dns: 127.0.0.1:0}", "");
    let (served, status) = Served::start(&place, &mut place.command()).await;
    let ways: Vec<&str> = status.listening.iter().map(|one| one.way.as_str()).collect();
    assert_eq!(ways, ["proxy", "dns/udp", "dns/tcp"]);
    assert!(status.ready);

    served.signal("TERM");
    let (code, words) = served.end();
    assert_eq!(code, Some(0), "{words}");
    assert!(words.contains("ready") && words.trim_end().ends_with("stopped"), "{words}");
    assert!(!words.contains('\u{1b}'), "a file is no terminal: {words}");
    assert!(
        place.log().trim_end().lines().next_back().is_some_and(|line| line.contains("log_closed"))
    );
    assert!(!place.path("run/c.sock").exists());
}

#[tokio::test]
async fn a_socket_planted_by_whoever_starts_it_is_served() {
    let planted = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = planted.local_addr().expect("it is bound");
    let place = Place::new("{proxy: fd:door}", "");
    let mut command = place.command();
    // Standard input is the one descriptor that can be planted without unsafe code.
    command.stdin(Stdio::from(OwnedFd::from(planted)));
    command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "door").env("LISTEN_FDS_FIRST_FD", "0");
    let (served, status) = Served::start(&place, &mut command).await;
    assert_eq!(status.listening.first().map(|one| one.address.clone()), Some(address.to_string()));

    let mut stream = TcpStream::connect(address).expect("it listens");
    stream
        .write_all(b"CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test:443\r\n\r\n")
        .expect("open");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("it is text");
    assert!(reply.starts_with("HTTP/1.1 403 ") && reply.contains("no_rule"), "{reply}");
    control::ask(&place.socket(), "POST", "/drain", "").await.expect("it answers");
    assert_eq!(served.end().0, Some(0));
}

#[test]
fn a_socket_that_was_not_inherited_is_no_start() {
    let place = Place::new("{proxy: fd:7}", "");
    let (code, words) = said(&place.run(&[]));
    assert_eq!(code, Some(1));
    assert!(
        words.contains("sluice-gateway: fd:7 was not inherited; LISTEN_FDS names no sockets"),
        "{words}"
    );
}

#[test]
fn something_planted_that_is_no_socket_is_no_start() {
    let place = Place::new("{proxy: fd:0}", "");
    let mut command = place.command();
    command.env("LISTEN_FDS", "1").env("LISTEN_FDS_FIRST_FD", "0");
    let (code, words) = said(&command.output().expect("the program can be started"));
    assert_eq!(code, Some(1));
    assert!(words.contains("fd:0 was inherited, and is not a TCP or UDP socket"), "{words}");
}

#[tokio::test]
async fn a_drain_waits_for_who_is_inside_and_then_cuts() {
    let place = Place::new("{socks: 127.0.0.1:0}", "limits: {drain: 300ms}\n");
    let (served, status) = Served::start(&place, &mut place.command()).await;
    let address = status.listening.first().map(|one| one.address.clone()).expect("it listens");
    // Half a greeting: it waits for the rest, far longer than the drain does.
    let mut inside = TcpStream::connect(address).expect("it listens");
    inside.write_all(&[5]).expect("it is open");
    place.until(|status| status.counts.open_connections == 1).await;

    served.signal("TERM");
    let (code, words) = served.end();
    assert_eq!(code, Some(0), "{words}");
    assert!(words.contains("cutting the connections that are left connections=1"), "{words}");
    let log = place.log();
    let connection = log.lines().find(|line| line.contains(r#""kind":"connection""#));
    assert!(
        connection.is_some_and(|line| line.contains(r#""sluice.outcome":"abandoned""#)),
        "{log}"
    );
    assert!(log.trim_end().lines().next_back().is_some_and(|line| line.contains("log_closed")));
}

#[tokio::test]
async fn sighup_reads_the_policy_again_and_keeps_the_old_one_on_any_problem() {
    let place = Place::new("{proxy: 127.0.0.1:0}", "");
    let (served, status) = Served::start(&place, &mut place.command()).await;
    assert_eq!(status.policy.generation, 1);
    place.write("p.yaml", "version: 1\nnet: [\n");
    served.signal("HUP");
    // The refusal is a line of the log; until it is there the status says nothing new.
    let status = place.until(|_| place.log().contains("policy_refused")).await;
    assert_eq!(status.policy.generation, 1);
    place.write("p.yaml", &POLICY.replace("allowed.test", "other.test"));
    served.signal("HUP");
    place.until(|status| status.policy.generation == 2).await;
    served.signal("INT");
    assert_eq!(served.end().0, Some(0));
}

#[test]
fn settings_that_are_wrong_are_the_operators_to_fix() {
    let place = Place::new("{proxy: 3128}", "lisen: {}\n");
    let (code, words) = said(&place.run(&[]));
    assert_eq!(code, Some(2));
    let shown = words.replace(&place.0.path().display().to_string(), "DIR");
    expect_test::expect![[r#"
        sluice-gateway: DIR/gateway.yaml:3:17: listen.proxy: expected where to listen, such as `127.0.0.1:3128` or `fd:3`, or a list of that, found the number 3128
          3 | listen: {proxy: 3128}
            |                 ^^^^
        DIR/gateway.yaml:6:1: lisen: there is no field `lisen`; did you mean `listen`?
          6 | lisen: {}
            | ^^^^^
    "#]].assert_eq(&shown);

    let mut elsewhere = Command::new(env!("CARGO_BIN_EXE_sluice-gateway"));
    elsewhere.env("SLUICE_GATEWAY_CONFIG", "/nonexistent/gateway.yaml");
    let (code, words) = said(&elsewhere.output().expect("the program can be started"));
    assert_eq!(code, Some(2));
    assert_eq!(
        words,
        "sluice-gateway: cannot read /nonexistent/gateway.yaml\n  because: No such file or directory (os error 2)\n"
    );
}

// ATTACKS G5: missing at start means no start.
#[test]
fn a_policy_that_is_missing_or_wrong_is_no_start() {
    let place = Place::new("{proxy: 127.0.0.1:0}", "");
    fs::remove_file(place.path("p.yaml")).expect("it is there");
    let (code, words) = said(&place.run(&[]));
    assert_eq!(code, Some(2));
    assert!(words.contains("cannot read the policy"), "{words}");
    assert!(words.contains("because: No such file or directory"), "{words}");
    assert!(place.log().contains("policy_refused"));

    place.write("p.yaml", "version: 1\nnet: {enabled: maybe}\n");
    let (code, words) = said(&place.run(&["--check"]));
    assert_eq!(code, Some(2));
    assert!(words.contains("p.yaml:2:16: net.enabled: expected `true` or `false`"), "{words}");
}

#[tokio::test]
async fn its_time_ends_it_when_nobody_else_does() {
    let place = Place::new("{proxy: 127.0.0.1:0}", "");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    let until = (now.as_secs() + 3).to_string();
    let (served, _) = Served::start(&place, place.command().args(["--until", &until])).await;
    let (code, words) = served.end();
    assert_eq!(code, Some(0), "{words}");
    assert!(words.contains("--until has come") && words.contains("audit log is closed"), "{words}");

    let past = place.command().args(["--until", "1"]).output().expect("as before");
    assert_eq!(said(&past).0, Some(0), "one whose time is over ends at once");
}

#[test]
fn a_directory_that_others_can_read_is_no_start() {
    let loosen = |path: &Path| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::create_dir_all(path).expect("it can be made");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    };
    for (name, settings) in [("run", ""), ("audit", ""), ("ca", "ca: {directory: ca}\n")] {
        let place = Place::new("{proxy: 127.0.0.1:0}", settings);
        loosen(&place.path(name));
        let (code, words) = said(&place.run(&[]));
        assert_eq!(code, Some(1), "{name}: {words}");
        assert!(words.contains("chmod 700") || words.contains("0700"), "{name}: {words}");
    }
}

#[tokio::test]
async fn a_full_disk_is_said_and_service_resumes_when_there_is_room() {
    let place = Place::new("{proxy: 127.0.0.1:0}", "");
    let Some(disk) = SmallDisk::mount(&place.path("disk")) else {
        return skip("the right to mount");
    };
    let settings = fs::read_to_string(place.path("gateway.yaml")).expect("it was written");
    place.write("gateway.yaml", &settings.replace("audit: audit", "audit: disk/audit"));
    let (served, status) = Served::start(&place, &mut place.command()).await;
    let address = status.listening.first().map(|one| one.address.clone()).expect("it listens");
    let refused = |patience: Duration| {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        stream.set_read_timeout(Some(patience)).expect("it can be set");
        // It may hang up with a refusal before it has heard anything.
        drop(
            stream.write_all(b"CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test:443\r\n\r\n"),
        );
        let mut reply = String::new();
        drop(stream.read_to_string(&mut reply));
        reply
    };
    assert!(refused(Duration::from_secs(20)).starts_with("HTTP/1.1 403 "));

    disk.fill();
    while control::status(&place.socket()).await.expect("it answers").ready {
        refused(Duration::from_millis(20));
    }
    let status = control::status(&place.socket()).await.expect("it answers");
    let why = status.audit.why_not.expect("it is not available");
    assert!(why.contains("waits for room on its disk: No space left on device"), "{why}");
    let reply = refused(Duration::from_secs(20));
    assert!(reply.starts_with("HTTP/1.1 503 ") && reply.contains("audit_unavailable"), "{reply}");

    disk.make_room();
    place.until(|status| status.ready).await;
    assert!(refused(Duration::from_secs(20)).starts_with("HTTP/1.1 403 "));
    served.signal("TERM");
    let (code, words) = served.end();
    assert_eq!(code, Some(0), "{words}");
    let said = |what: &str| words.matches(what).count();
    assert_eq!(said("the audit log has no room, so nothing passes"), 1, "{words}");
    assert!(words.contains(&format!("folder={}", place.path("disk/audit").display())), "{words}");
    assert_eq!(said("the audit log has room again, and the gateway goes on"), 1, "{words}");
    let verified = audit::verify(&place.path("disk/audit"), &[]).expect("the chain is whole");
    assert!(verified.log.is_some_and(|log| log.closed && log.recovered == 0));
    let log = fs::read_to_string(place.path("disk/audit/audit.jsonl")).expect("it is there");
    assert_eq!(log.matches(r#""kind":"log_resumed""#).count(), 1, "{log}");
}

/// A disk of 256 KiB.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Option<Self> {
        fs::create_dir(at).expect("it can be made");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k,mode=0700", "none"]).arg(at);
        let mounted = mount.stderr(Stdio::null()).status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(at.to_owned()))
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filler")).expect("there is room for a name");
        while file.write_all(&[0; 512]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("filler")).expect("it is there");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

#[test]
fn help_and_version_are_for_people() {
    let place = Place::new("{proxy: 127.0.0.1:0}", "");
    let help = place.run(&["--help"]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    expect_test::expect![[r#"
        The one way out of a sandbox.

        Serves until SIGTERM or SIGINT, then drains. SIGHUP reads the policy again.

        Usage: sluice-gateway [OPTIONS]

        Options:
              --config <FILE>
                  Settings file

                  [env: SLUICE_GATEWAY_CONFIG=]
                  [default: /etc/sluice/gateway.yaml]

              --set <NAME=VALUE>
                  Value for `${NAME}` in the settings

              --observe
                  Allow what no rule matches, and record it as `would_deny`. The policy must permit it

                  [env: SLUICE_GATEWAY_OBSERVE=]

              --lifeline
                  Stop when standard input is closed: its other end is gone

                  [env: SLUICE_GATEWAY_LIFELINE=]

              --until <SECONDS>
                  Stop at this Unix time, even with connections open

                  [env: SLUICE_GATEWAY_UNTIL=]

              --check
                  Check settings and policy, print what would run, and exit

                  [env: SLUICE_GATEWAY_CHECK=]

              --health
                  Ask the running gateway whether it is ready, and exit

                  [env: SLUICE_GATEWAY_HEALTH=]

              --log <FILTER>
                  What to log, such as `info` or `gateway=debug`

                  [env: SLUICE_GATEWAY_LOG=]
                  [default: info]

              --log-format <FORMAT>
                  Format of the log

                  [env: SLUICE_GATEWAY_LOG_FORMAT=]
                  [default: text]
                  [possible values: json, text]

          -h, --help
                  Print help (see a summary with '-h')

          -V, --version
                  Print version"#]].assert_eq(&help.join("\n"));
    let (code, words) = said(&place.run(&["--log", "gateway=loud"]));
    assert_eq!(code, Some(2));
    assert!(words.contains("`gateway=loud` is not a log filter"), "{words}");
}

#[test]
fn every_flag_has_a_variable() {
    let place = Place::new("{proxy: 127.0.0.1:0}", "");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-gateway"));
    command.env("SLUICE_GATEWAY_CONFIG", place.path("gateway.yaml"));
    command.env("SLUICE_GATEWAY_CHECK", "1").env("SLUICE_GATEWAY_LOG_FORMAT", "json");
    let output = command.output().expect("the program can be started");
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(words.contains("policy    program ("), "{words}");
    assert!(!place.path("audit").exists(), "checking leaves nothing behind");

    let (code, words) =
        said(&command.env("SLUICE_GATEWAY_OBSERVE", "1").output().expect("as before"));
    assert_eq!(code, Some(2));
    assert_eq!(
        words,
        "sluice-gateway: observing is not permitted; the policy would need `overrides: {observe: true}`\n"
    );
}
