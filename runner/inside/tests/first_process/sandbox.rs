//! A sandbox that is nothing but its first process, and commands in it.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use inside::passing::{frame, line, send_all};
use protocol::init::{
    CommandEnd, CommandSpec, InitArgs, InitMessage, InitOrder, InitRequest, MAX_LINE_BYTES,
    RelayArgs, SandboxLifetime, Streams, TerminalSize,
};
use protocol::launcher::ListenerSpec;
use protocol::spool::SpoolEvent;
use tempfile::TempDir;

use crate::skip;

/// A sandbox that is nothing but its first process.
pub(crate) struct Sandbox {
    pub(crate) home: TempDir,
    pub(crate) unshare: Child,
    /// The first process, as it is called out here.
    pub(crate) pid: i32,
}

/// A command, and who was told of it.
pub(crate) struct Begun {
    pub(crate) told: BufReader<UnixStream>,
    pub(crate) spool: PathBuf,
}

impl Sandbox {
    /// Nothing, and a line that says so, where nobody may make namespaces.
    pub(crate) fn start(lives: Duration) -> Option<Self> {
        Self::start_under(&[], lives)
    }

    pub(crate) fn start_under(stage: &[&str], lives: Duration) -> Option<Self> {
        Self::start_with(stage, lives, GRACE)
    }

    /// With a program before it that sets the stage.
    pub(crate) fn start_with(stage: &[&str], lives: Duration, grace: Duration) -> Option<Self> {
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
    pub(crate) fn with_doors(doors: &[ListenerSpec]) -> Option<(Self, UnixStream)> {
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

    pub(crate) fn begin(&self, spec: CommandSpec) -> Begun {
        let count = fs::read_dir(self.home.path()).unwrap().count();
        let spool = self.home.path().join(format!("{count}.spool"));
        let mut options = OpenOptions::new();
        let theirs = options.append(true).create_new(true).open(&spool).unwrap();
        let input = File::open("/dev/null").unwrap();
        let told = self.ask(&InitRequest::Run(spec), &[input.as_fd(), theirs.as_fd()]);
        Begun { told, spool }
    }

    /// Starts a command, which must succeed.
    pub(crate) fn run(&self, spec: CommandSpec) -> Begun {
        let mut begun = self.begin(spec);
        assert_eq!(begun.next(), Some(InitMessage::Started));
        begun
    }

    /// How long it takes to say that it lives.
    pub(crate) fn hello(&self) -> Duration {
        let begun = Instant::now();
        let mut told = self.ask(&InitRequest::Hello, &[]);
        while next(&mut told).expect("an answer") != InitMessage::Ready {}
        begun.elapsed()
    }

    /// Ends everything, and waits until it has.
    pub(crate) fn end(mut self) -> (TempDir, Option<CommandEnd>) {
        let end = last(self.ask(&InitRequest::End, &[]));
        self.unshare.wait().unwrap();
        (std::mem::replace(&mut self.home, tempfile::tempdir().unwrap()), end)
    }
}

/// Where nobody may make namespaces, it prints a line that says so.
pub(crate) fn can_be_made(words: &[&str]) -> bool {
    if !skip::is_installed("unshare") {
        return false;
    }
    let tried = Command::new(words[0]).args(&words[1..]).arg("true").output().unwrap();
    if !tried.status.success() {
        skip::skip("user namespaces");
    }
    tried.status.success()
}

pub(crate) fn first_process(words: &[&str], args: &InitArgs) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(env!("CARGO_BIN_EXE_sluice-init"));
    command.arg(serde_json::to_string(args).unwrap());
    command
}

pub(crate) fn args_with_doors(home: &TempDir, doors: &[ListenerSpec]) -> InitArgs {
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
    pub(crate) fn or_other(&self, text: &str, other: &Self, its: &str) -> bool {
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
    pub(crate) fn wait_for(&self, text: &str) {
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
pub(crate) fn last(mut told: BufReader<UnixStream>) -> Option<CommandEnd> {
    loop {
        if let InitMessage::Ended(end) = next(&mut told)? {
            return Some(end);
        }
    }
}

/// What is in a spool, and how the command ended.
pub(crate) fn printed(spool: &PathBuf) -> (String, Option<CommandEnd>) {
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

pub(crate) fn shell(script: &str) -> CommandSpec {
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

pub(crate) fn with_terminal(spec: CommandSpec) -> CommandSpec {
    let terminal = Some(TerminalSize { columns: 80, rows: 24 });
    CommandSpec { streams: Streams::Spooled { max_output_bytes: u64::MAX, terminal }, ..spec }
}

/// It is looked for in so many folders that others can do something meanwhile.
pub(crate) fn slow_to_start(spec: CommandSpec) -> CommandSpec {
    let path = format!("{}/usr/bin:/bin", "/:".repeat(60_000));
    CommandSpec { environment: vec![("PATH".to_owned(), path)], ..spec }
}

/// Does something to the first command that is about to start, `$p` in `/proc`. With a
/// terminal it is our own program for a while, under the name of a link.
pub(crate) fn against_starters(what: &str) -> CommandSpec {
    shell(&format!(
        "echo ready; while :; do for p in /proc/[0-9]*; do c=; read -r c 2>/dev/null <$p/comm; \
         case $p,$c in /proc/1,*) ;; *,sluice-init | *,exe) {what} ;; esac; done; done"
    ))
}

pub(crate) const NAMESPACES: [&str; 7] =
    ["unshare", "--user", "--map-user=1000", "--pid", "--mount-proc", "--fork", "--kill-child"];
/// A network like one that an engine makes without any: loopback, whose ports are
/// everybody's.
pub(crate) const NETWORK_FOR_DOORS: [&str; 7] = [
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
pub(crate) const TEST_DEADLINE: Duration = Duration::from_secs(60);
pub(crate) const LONG: Duration = Duration::from_secs(600);
