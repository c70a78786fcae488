//! The first process of a sandbox, with real commands in namespaces of their own.
//!
//! There are no walls here but the numbers of processes: what is tried is what the
//! first process does, also when a command of the same sandbox works against it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use inside::passing::{frame, line, receive_line, send_all};
use inside::process_tree::ProcessStat;
use protocol::init::{
    CommandEnd, CommandSpec, InitArgs, InitMessage, InitOrder, InitRequest, MAX_LINE_BYTES,
    RelayArgs, SandboxLifetime, Streams, TerminalSize,
};
use protocol::launcher::{LauncherCommand, LauncherMessage, ListenerSpec, RelaySpec, SocketKind};
use protocol::relay::RelayFrame;
use protocol::spool::SpoolEvent;
use tempfile::TempDir;

#[path = "../../../tests/src/skip.rs"]
mod skip;

/// A sandbox that is nothing but its first process.
struct Sandbox {
    home: TempDir,
    unshare: Child,
    /// The first process, as it is called out here.
    pid: i32,
}

/// A command, and who was told of it.
struct Begun {
    told: BufReader<UnixStream>,
    spool: PathBuf,
}

impl Sandbox {
    /// Nothing, and a line that says so, where nobody may make namespaces.
    fn start(lives: Duration) -> Option<Self> {
        Self::start_under(&[], lives)
    }

    fn start_under(stage: &[&str], lives: Duration) -> Option<Self> {
        Self::start_with(stage, lives, GRACE)
    }

    /// With a program before it that sets the stage.
    fn start_with(stage: &[&str], lives: Duration, grace: Duration) -> Option<Self> {
        let mut words = stage.to_vec();
        words.extend(NAMESPACES);
        words.push("--net");
        if !can_be_made(&words) {
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let lifetime = SandboxLifetime::Until(SystemTime::now() + lives);
        let socket = home.path().join("runner.sock");
        let args = InitArgs { socket, grace, bounded: Vec::new(), lifetime, relay: None };
        Some(Self::in_namespaces(&words, home, &args))
    }

    /// With doors that it opens itself, in a network that is ready for them; and the end
    /// of their channel that is outside.
    fn with_doors(doors: &[ListenerSpec]) -> Option<(Self, UnixStream)> {
        if !skip::is_installed("ip") {
            return None;
        }
        let words = [&NETWORK_FOR_DOORS, &NAMESPACES[..]].concat();
        if !can_be_made(&words) {
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let channels = UnixListener::bind(home.path().join("relay.sock")).unwrap();
        let args = args_with_doors(&home, doors);
        let sandbox = Self::in_namespaces(&words, home, &args);
        // It is ready, so it has connected.
        channels.set_nonblocking(true).unwrap();
        let (channel, _) = channels.accept().unwrap();
        channel.set_read_timeout(Some(TEST_DEADLINE)).unwrap();
        Some((sandbox, channel))
    }

    fn in_namespaces(words: &[&str], home: TempDir, args: &InitArgs) -> Self {
        let host = UnixListener::bind(&args.socket).unwrap();
        let unshare = first_process(words, args).spawn().unwrap();
        let (first, _) = host.accept().unwrap();
        let pid = rustix::net::sockopt::socket_peercred(&first).unwrap().pid;
        let mut told = BufReader::new(first);
        while next(&mut told) != Some(InitMessage::Ready) {}
        let serving = UnixListener::bind(home.path().join("s")).unwrap();
        send_all(told.get_ref(), &line(&InitOrder::Serve).unwrap(), &[serving.as_fd()]).unwrap();
        Self { home, unshare, pid: pid.as_raw_nonzero().get() }
    }

    fn ask(&self, request: &InitRequest, given: &[BorrowedFd<'_>]) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(self.home.path().join("s")).unwrap();
        stream.set_read_timeout(Some(TEST_DEADLINE)).unwrap();
        send_all(&stream, &frame(request).unwrap(), given).unwrap();
        BufReader::new(stream)
    }

    fn begin(&self, spec: CommandSpec) -> Begun {
        let count = fs::read_dir(self.home.path()).unwrap().count();
        let spool = self.home.path().join(format!("{count}.spool"));
        let mut options = OpenOptions::new();
        let theirs = options.append(true).create_new(true).open(&spool).unwrap();
        let input = File::open("/dev/null").unwrap();
        let told = self.ask(&InitRequest::Run(spec), &[input.as_fd(), theirs.as_fd()]);
        Begun { told, spool }
    }

    /// Starts a command, which must succeed.
    fn run(&self, spec: CommandSpec) -> Begun {
        let mut begun = self.begin(spec);
        assert_eq!(begun.next(), Some(InitMessage::Started));
        begun
    }

    /// How long it takes to say that it lives.
    fn hello(&self) -> Duration {
        let begun = Instant::now();
        let mut told = self.ask(&InitRequest::Hello, &[]);
        while next(&mut told).expect("an answer") != InitMessage::Ready {}
        begun.elapsed()
    }

    /// Ends everything, and waits until it has.
    fn end(mut self) -> (TempDir, Option<CommandEnd>) {
        let end = last(self.ask(&InitRequest::End, &[]));
        self.unshare.wait().unwrap();
        (std::mem::replace(&mut self.home, tempfile::tempdir().unwrap()), end)
    }
}

/// Where nobody may make namespaces, it prints a line that says so.
fn can_be_made(words: &[&str]) -> bool {
    if !skip::is_installed("unshare") {
        return false;
    }
    let tried = Command::new(words[0]).args(&words[1..]).arg("true").output().unwrap();
    if !tried.status.success() {
        skip::skip("user namespaces");
    }
    tried.status.success()
}

fn first_process(words: &[&str], args: &InitArgs) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(env!("CARGO_BIN_EXE_sluice-init"));
    command.arg(serde_json::to_string(args).unwrap());
    command
}

fn args_with_doors(home: &TempDir, doors: &[ListenerSpec]) -> InitArgs {
    InitArgs {
        socket: home.path().join("runner.sock"),
        grace: GRACE,
        bounded: Vec::new(),
        lifetime: SandboxLifetime::Until(SystemTime::now() + LONG),
        relay: Some(RelayArgs { socket: home.path().join("relay.sock"), doors: doors.to_vec() }),
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.unshare.kill().ok();
        self.unshare.wait().ok();
    }
}

impl Begun {
    fn next(&mut self) -> Option<InitMessage> {
        next(&mut self.told)
    }

    /// Waits until it has printed this or another has printed that; whether the other.
    fn or_other(&self, text: &str, other: &Self, its: &str) -> bool {
        let deadline = Instant::now() + TEST_DEADLINE;
        while !printed(&other.spool).0.contains(its) {
            if printed(&self.spool).0.contains(text) {
                return false;
            }
            assert!(Instant::now() < deadline, "waited in vain for {text} or {its}");
            thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Waits until its spool has this in it.
    fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + TEST_DEADLINE;
        while !printed(&self.spool).0.contains(text) {
            assert!(Instant::now() < deadline, "waited in vain for {text}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn next(told: &mut BufReader<UnixStream>) -> Option<InitMessage> {
    let mut line = String::new();
    told.take(MAX_LINE_BYTES as u64).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// How it ended, if anybody said so.
fn last(mut told: BufReader<UnixStream>) -> Option<CommandEnd> {
    loop {
        if let InitMessage::Ended(end) = next(&mut told)? {
            return Some(end);
        }
    }
}

/// What is in a spool, and how the command ended.
fn printed(spool: &PathBuf) -> (String, Option<CommandEnd>) {
    let bytes = fs::read(spool).unwrap();
    let (mut rest, mut text, mut end) = (&*bytes, Vec::new(), None);
    while let Ok(Some((event, _, length))) = SpoolEvent::parse(rest) {
        rest = &rest[length..];
        match event {
            SpoolEvent::Output(bytes) | SpoolEvent::Error(bytes) => text.extend(bytes),
            SpoolEvent::Ended(ended) => end = Some(ended.end),
            SpoolEvent::Resized(_) => {}
        }
    }
    (String::from_utf8_lossy(&text).into_owned(), end)
}

fn shell(script: &str) -> CommandSpec {
    CommandSpec {
        words: ["sh", "-c", script].map(str::to_owned).to_vec(),
        directory: None,
        environment: Vec::new(),
        streams: Streams::Spooled { max_output_bytes: u64::MAX, terminal: None },
        deadline: None,
        ends_sandbox: false,
        outlives_client: false,
    }
}

fn with_terminal(spec: CommandSpec) -> CommandSpec {
    let terminal = Some(TerminalSize { columns: 80, rows: 24 });
    CommandSpec { streams: Streams::Spooled { max_output_bytes: u64::MAX, terminal }, ..spec }
}

/// It is looked for in so many folders that others can do something meanwhile.
fn slow_to_start(spec: CommandSpec) -> CommandSpec {
    let path = format!("{}/usr/bin:/bin", "/:".repeat(60_000));
    CommandSpec { environment: vec![("PATH".to_owned(), path)], ..spec }
}

/// Does something to the first command that is about to start, `$p` in `/proc`. With a
/// terminal it is our own program for a while, under the name of a link.
fn against_starters(what: &str) -> CommandSpec {
    shell(&format!(
        "echo ready; while :; do for p in /proc/[0-9]*; do c=; read -r c 2>/dev/null <$p/comm; \
         case $p,$c in /proc/1,*) ;; *,sluice-init | *,exe) {what} ;; esac; done; done"
    ))
}

const NAMESPACES: [&str; 7] =
    ["unshare", "--user", "--map-user=1000", "--pid", "--mount-proc", "--fork", "--kill-child"];
/// A network like one that an engine makes without any: loopback, whose ports are
/// everybody's.
const NETWORK_FOR_DOORS: [&str; 7] = [
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "sh",
    "-c",
    "ip link set lo up && echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start && exec \"$0\" \"$@\"",
];
/// A trap of a shell on a busy machine has run by then.
const GRACE: Duration = Duration::from_secs(3);
/// Reached only by a test that fails.
const TEST_DEADLINE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(600);

#[test]
fn a_command_that_is_stopped_before_it_starts_holds_up_nobody() {
    for spec in [shell("echo hi"), with_terminal(shell("echo hi"))] {
        let Some(sandbox) = Sandbox::start(LONG) else { return };
        let attacker = sandbox.run(against_starters("kill -STOP ${p#/proc/}; echo caught; exit"));
        attacker.wait_for("ready");
        // One that is too quick for it starts, and the next is tried.
        let mut tries = (0..50).map(|_| sandbox.begin(slow_to_start(spec.clone())));
        let _stopped = tries.find(|started| started.or_other("hi", &attacker, "caught"));
        attacker.wait_for("caught");
        sandbox.hello();
        // Its end is noticed, and another command starts and ends.
        assert_eq!(last(attacker.told), Some(CommandEnd::Exited(0)));
        assert_eq!(last(sandbox.run(shell("exit 3")).told), Some(CommandEnd::Exited(3)));
        assert_eq!(sandbox.end().1, Some(CommandEnd::Exited(0)));
    }
}

#[test]
fn nobody_holds_on_to_what_says_that_a_terminal_was_taken() {
    let Some(sandbox) = Sandbox::start(LONG) else { return };
    // Where it is while the command is looked for.
    let hold = "sleep 0.02; exec 2>/dev/null; exec 9>$p/fd/3; exec sleep 600";
    let attacker = sandbox.run(against_starters(hold));
    attacker.wait_for("ready");
    let command = sandbox.run(with_terminal(slow_to_start(shell("echo hi; exit 5"))));
    assert_eq!(last(command.told), Some(CommandEnd::Exited(5)));
}

/// Prints something when it is asked to end, and goes on.
const STUBBORN: &str = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done";

#[test]
fn the_last_words_of_a_command_that_had_to_be_killed_are_on_record() {
    let Some(sandbox) = Sandbox::start(LONG) else { return };
    let commands: Vec<Begun> = (0..8).map(|_| sandbox.run(shell(STUBBORN))).collect();
    commands.iter().for_each(|command| command.wait_for("ready"));
    let (_home, _) = sandbox.end();
    for command in commands {
        let killed = Some(CommandEnd::Signaled(9));
        let (text, end) = printed(&command.spool);
        assert!(text.contains("asked") && end == killed, "{text} {end:?}");
        assert_eq!(last(command.told), killed);
    }
}

#[test]
fn so_are_those_of_a_sandbox_whose_time_is_over() {
    let Some(mut sandbox) = Sandbox::start(Duration::from_secs(8)) else { return };
    let command = sandbox.run(shell(STUBBORN));
    assert_eq!(sandbox.unshare.wait().unwrap().code(), Some(124));
    let (text, end) = printed(&command.spool);
    assert!(text.contains("asked") && end == Some(CommandEnd::Signaled(9)), "{text} {end:?}");
}

#[test]
fn what_a_full_disk_took_of_a_frame_does_not_hide_how_the_command_ended() {
    // To the first process, a file that may not grow is a disk that is full.
    let Some(sandbox) = Sandbox::start_under(&["prlimit", "--fsize=1000"], LONG) else { return };
    let more = sandbox.home.path().join("more");
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", more.display());
    let script = format!("echo one; {wait}; head -c 2000 /dev/zero; sleep 600");
    let command = sandbox.run(shell(&script));
    command.wait_for("one");
    File::create(more).unwrap();
    let told = last(command.told);
    assert!(matches!(told, Some(CommandEnd::Unrecorded(_))), "{told:?}");
    assert_eq!(printed(&command.spool), ("one\n".to_owned(), told));
}

#[test]
fn a_reason_of_any_length_arrives() {
    let Some(sandbox) = Sandbox::start(LONG) else { return };
    let missing = "/x".repeat(60_000);
    let words = vec![missing.clone()];
    for spec in [
        CommandSpec { words: words.clone(), ..shell("") },
        with_terminal(CommandSpec { words, ..shell("") }),
        CommandSpec { directory: Some(missing), ..shell("") },
    ] {
        let end = last(sandbox.begin(spec).told);
        let Some(CommandEnd::Unstartable { why, .. }) = end else { panic!("{end:?}") };
        assert!(why.contains("/x/x"), "{why}");
    }
}

#[test]
fn a_terminal_whose_command_did_not_start_leaves_nobody_to_wait_for() {
    let Some(sandbox) = Sandbox::start_with(&[], LONG, 2 * TEST_DEADLINE) else { return };
    let words = vec!["/no/such/program".to_owned()];
    let begun = sandbox.begin(with_terminal(CommandSpec { words, ..shell("") }));
    let end = last(begun.told);
    assert!(matches!(end, Some(CommandEnd::Unstartable { code: 127, .. })), "{end:?}");
    // Whoever is left is waited for longer than for this answer.
    assert_eq!(sandbox.end().1, Some(CommandEnd::Exited(0)));
}

/// The run whose end is the sandbox's.
fn run_of(script: &str) -> CommandSpec {
    CommandSpec { ends_sandbox: true, ..shell(script) }
}

#[test]
fn whoever_is_ended_with_the_run_is_on_record_too() {
    let Some(mut sandbox) = Sandbox::start(LONG) else { return };
    let others: Vec<Begun> = (0..8).map(|_| sandbox.run(shell(STUBBORN))).collect();
    others.iter().for_each(|other| other.wait_for("ready"));
    let run = sandbox.run(run_of("exit 3"));
    assert_eq!(last(run.told), Some(CommandEnd::Exited(3)));
    assert_eq!(sandbox.unshare.wait().unwrap().code(), Some(3));
    for other in others {
        assert_eq!(printed(&other.spool).1, Some(CommandEnd::Signaled(9)));
        assert_eq!(last(other.told), Some(CommandEnd::Signaled(9)));
    }
}

#[test]
fn a_run_ends_also_while_other_commands_start() {
    let Some(mut sandbox) = Sandbox::start(LONG) else { return };
    let run = sandbox.run(run_of("sleep 0.3; exit 3"));
    let has_ended = AtomicBool::new(false);
    let end = thread::scope(|scope| {
        for name in 0..4 {
            let (socket, has_ended) = (sandbox.home.path().join("s"), &has_ended);
            let spool = sandbox.home.path().join(format!("{name}.others"));
            scope.spawn(move || {
                let mut begun = Vec::new();
                while !has_ended.load(Ordering::Relaxed) && begun.len() < 50 {
                    let Ok(stream) = UnixStream::connect(&socket) else { return };
                    let theirs = OpenOptions::new().append(true).create(true).open(&spool);
                    let input = File::open("/dev/null").unwrap();
                    let request = frame(&InitRequest::Run(shell("exec sleep 600"))).unwrap();
                    send_all(&stream, &request, &[input.as_fd(), theirs.unwrap().as_fd()]).ok();
                    begun.push(stream);
                    thread::sleep(Duration::from_millis(7));
                }
                // They hold on to their commands as long as it matters.
                while !has_ended.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let end = last(run.told);
        has_ended.store(true, Ordering::Relaxed);
        end
    });
    assert_eq!(end, Some(CommandEnd::Exited(3)));
    assert_eq!(sandbox.unshare.wait().unwrap().code(), Some(3));
}

#[test]
fn a_first_process_that_cannot_wait_for_its_commands_does_not_take_the_processor() {
    if !skip::is_installed("prlimit") {
        return;
    }
    let Some(sandbox) = Sandbox::start(LONG) else { return };
    let spec = CommandSpec { outlives_client: true, ..shell("sleep 1; echo go; sleep 600") };
    let command = sandbox.run(spec);
    // The kernel waits for no more descriptors than there may be.
    let limit = ["--nofile=1:1".to_owned(), format!("--pid={}", sandbox.pid)];
    assert!(Command::new("prlimit").args(limit).status().unwrap().success());
    let taken = || ProcessStat::of(sandbox.pid).unwrap().cpu_nanoseconds;
    // It waits anew when something was printed.
    command.wait_for("go");
    let before = taken();
    thread::sleep(Duration::from_secs(1));
    let taken = Duration::from_nanos(taken() - before);
    assert!(taken < Duration::from_millis(300), "{taken:?} of a second");
}

fn door(kind: SocketKind, port: u16) -> ListenerSpec {
    let address = DOORS;
    ListenerSpec { name: format!("{kind:?}"), address, port, kind }
}

const DOORS: Ipv4Addr = Ipv4Addr::new(127, 18, 0, 1);

/// The next frame of the channel, as the bytes that `expected` has.
fn expect(mut channel: &UnixStream, expected: RelayFrame<'_>) {
    let mut bytes = Vec::new();
    expected.write_to(&mut bytes);
    let mut came = vec![0; bytes.len()];
    channel.read_exact(&mut came).unwrap();
    assert_eq!(RelayFrame::parse(&came).unwrap().map(|(frame, _)| frame), Some(expected));
}

fn tell(mut channel: &UnixStream, frame: RelayFrame<'_>) {
    let mut bytes = Vec::new();
    frame.write_to(&mut bytes);
    channel.write_all(&bytes).unwrap();
}

#[test]
fn doors_that_it_opens_are_there_before_it_is_ready_and_close_with_their_channel() {
    if !skip::is_installed("bash") {
        return;
    }
    let doors = [door(SocketKind::Tcp, 443), door(SocketKind::Udp, 53)];
    let Some((sandbox, channel)) = Sandbox::with_doors(&doors) else { return };
    let connect = "exec 3<>/dev/tcp/127.18.0.1/443";
    let script = format!("bash -c '{connect}; echo hello >&3; cat <&3'");
    let command = sandbox.run(shell(&script));
    let address = SocketAddrV4::new(DOORS, 443);
    expect(&channel, RelayFrame::Open { id: 1, address });
    expect(&channel, RelayFrame::Data { id: 1, bytes: b"hello\n" });
    tell(&channel, RelayFrame::Data { id: 1, bytes: b"and to you\n" });
    tell(&channel, RelayFrame::End { id: 1 });
    expect(&channel, RelayFrame::Done { id: 1 });
    let spool = command.spool.clone();
    assert_eq!(last(command.told), Some(CommandEnd::Exited(0)));
    assert_eq!(printed(&spool).0, "and to you\n");
    expect(&channel, RelayFrame::End { id: 1 });
    tell(&channel, RelayFrame::Done { id: 1 });

    let asking =
        sandbox.run(shell("bash -c 'exec 3<>/dev/udp/127.18.0.1/53; printf q >&3; head -c 1 <&3'"));
    let address = SocketAddrV4::new(DOORS, 53);
    expect(&channel, RelayFrame::Datagram { id: 2, address, bytes: b"q" });
    tell(&channel, RelayFrame::Datagram { id: 2, address, bytes: b"a" });
    let spool = asking.spool.clone();
    assert_eq!(last(asking.told), Some(CommandEnd::Exited(0)));
    assert_eq!(printed(&spool).0, "a");

    // Without the other end there is no network, and the sandbox lives on.
    let stuck = sandbox.run(shell(&format!("bash -c '{connect}; echo connected; cat <&3'")));
    stuck.wait_for("connected");
    expect(&channel, RelayFrame::Open { id: 3, address: SocketAddrV4::new(DOORS, 443) });
    drop(channel);
    assert_eq!(last(stuck.told), Some(CommandEnd::Exited(1)));
    let refused = sandbox.run(shell(&format!("bash -c '{connect}'")));
    let spool = refused.spool.clone();
    assert_eq!(last(refused.told), Some(CommandEnd::Exited(1)));
    assert!(printed(&spool).0.contains("refused"), "{}", printed(&spool).0);
    sandbox.hello();
}

#[test]
fn a_command_reaches_a_gateway_that_listens_in_the_twin_of_its_network() {
    if !skip::is_installed("bash") {
        return;
    }
    let doors = [door(SocketKind::Tcp, 443), door(SocketKind::Udp, 53)];
    let Some((sandbox, channel)) = Sandbox::with_doors(&doors) else { return };
    let (runner, far) = UnixStream::pair().unwrap();
    runner.set_read_timeout(Some(TEST_DEADLINE)).unwrap();
    let mut twin = Command::new(env!("CARGO_BIN_EXE_sluice-launch"))
        .arg("relay")
        .stdin(OwnedFd::from(far))
        .spawn()
        .unwrap();
    let spec = RelaySpec { listeners: doors.to_vec(), user: 1000, group: 1000, session: false };
    send_all(&runner, &line(&spec).unwrap(), &[]).unwrap();
    let (answer, mut sockets): (LauncherMessage, _) = receive_line(&runner).unwrap();
    assert_eq!(answer, LauncherMessage::ListenersOpened);
    let gateway = TcpListener::from(sockets.remove(0));
    send_all(&runner, &line(&LauncherCommand::Relay).unwrap(), &[channel.as_fd()]).unwrap();
    // From here on the relay is between the two ends alone.
    drop(channel);
    let bytes = 3_000_000;
    let answering = thread::spawn(move || {
        let (mut client, _) = gateway.accept().unwrap();
        let mut asked = [0; 3];
        client.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"go\n");
        client.write_all(&vec![b'x'; bytes]).unwrap();
    });
    let script = "bash -c 'exec 3<>/dev/tcp/127.18.0.1/443; echo go >&3; wc -c <&3'";
    let command = sandbox.run(shell(script));
    let spool = command.spool.clone();
    assert_eq!(last(command.told), Some(CommandEnd::Exited(0)));
    assert_eq!(printed(&spool).0.trim(), bytes.to_string());
    answering.join().unwrap();
    // The sandbox ends, and its relay with it.
    sandbox.end();
    assert!(twin.wait().unwrap().success());
}

#[test]
fn commands_find_no_door_to_take_and_no_descriptor_of_the_relay() {
    if !skip::is_installed("python3") {
        return;
    }
    let doors = [door(SocketKind::Tcp, 443), door(SocketKind::Udp, 53)];
    let Some((sandbox, _channel)) = Sandbox::with_doors(&doors) else { return };
    let attack = "python3 - <<'END'
import os, socket
for kind, port in (socket.SOCK_STREAM, 443), (socket.SOCK_DGRAM, 53):
    for address in '127.18.0.1', '0.0.0.0':
        for option in 0, socket.SO_REUSEADDR, socket.SO_REUSEPORT:
            taken = socket.socket(socket.AF_INET, kind)
            if option:
                taken.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                taken.bind((address, port))
                print('took', address, port)
            except OSError as err:
                print(err.strerror)
held = []
for number in range(256):
    try:
        held.append(os.readlink(f'/proc/1/fd/{number}'))
    except OSError as err:
        pass
print(held)
END";
    let command = sandbox.run(shell(attack));
    let spool = command.spool.clone();
    assert_eq!(last(command.told), Some(CommandEnd::Exited(0)));
    let expected = format!("{}[]\n", "Address already in use\n".repeat(12));
    assert_eq!(printed(&spool).0, expected);
}

#[test]
fn a_sandbox_whose_doors_cannot_be_opened_does_not_start_and_says_why() {
    let words = [&NETWORK_FOR_DOORS, &NAMESPACES[..]].concat();
    if !skip::is_installed("ip") || !can_be_made(&words) {
        return;
    }
    let twice = [door(SocketKind::Tcp, 443), door(SocketKind::Tcp, 443)];
    for (doors, why) in [
        (&twice[..], "Tcp on 127.18.0.1:443: Address already in use (os error 98)"),
        (&[door(SocketKind::RawTcp, 0)], "RawTcp on 127.18.0.1:0: a relay has no door for packets"),
        // Nobody listens for the channel.
        (&twice[..1], "relay.sock: No such file or directory (os error 2)"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let args = args_with_doors(&home, doors);
        let host = UnixListener::bind(&args.socket).unwrap();
        let output = first_process(&words, &args).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        let told = String::from_utf8(output.stderr).unwrap();
        let begin = "sluice-init: cannot open the gateway's doors: ";
        assert!(told.starts_with(begin) && told.ends_with(&format!("{why}\n")), "{told}");
        // The host is told nothing: neither a fact nor that it is ready.
        let (mut first, _) = host.accept().unwrap();
        assert_eq!(first.read(&mut [0]).unwrap(), 0);
    }
}
