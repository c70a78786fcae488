//! The gateway itself, in this process or as the program that ships.
//!
//! In this process it has threads of its own, so that a test that is busy does
//! not hold it up, and a panic in one of them fails the test although the
//! gateway survives it. The program is `gateway/src/main.rs` built once more as a
//! target of this package, because only then does Cargo say where it is.

use std::collections::HashSet;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, Once, PoisonError};
use std::{env, fs, panic, process, thread};

use gateway::{Drained, Inherited, Server, config};
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::runtime::{self, Runtime};

use crate::control::Control;
use crate::deadline::{until, within};
use crate::sandbox::Doors;

/// A gateway that serves.
#[derive(Debug)]
pub(crate) struct Running {
    doors: Doors,
    control: Control,
    by: By,
}

#[derive(Debug)]
enum By {
    Process(Child),
    Threads { name: String, runtime: Runtime, server: Box<Server> },
}

impl Running {
    /// Starts a gateway on threads of this process.
    pub(crate) async fn in_process(settings: PathBuf, control: Control) -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        watch_for_panics();
        let name = format!("gateway-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name(&name)
            .enable_all()
            .build()
            .unwrap();
        let config = config::load(&settings).unwrap_or_else(|err| panic!("{err}"));
        let started = runtime.spawn(Server::start(config, Inherited::nothing()));
        let server = within("the gateway to start", started).await.unwrap();
        let server = Box::new(server.unwrap_or_else(|err| panic!("{err}")));
        let doors = doors(&control).await;
        Self { doors, control, by: By::Threads { name, runtime, server } }
    }

    /// Starts the program.
    pub(crate) async fn program(settings: PathBuf, control: Control) -> Self {
        Self::program_after(":".to_owned(), settings, control).await
    }

    /// Starts the program from a shell that has done `before`.
    pub(crate) async fn program_after(before: String, settings: PathBuf, control: Control) -> Self {
        let log = settings.with_file_name("program.log");
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("{before}; exec \"$0\" --config \"$1\""))
            .arg(program())
            .arg(&settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let socket = control.socket.clone();
        until("the program to serve", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!(
                    "the program ended at once: {status}: {}",
                    fs::read_to_string(&log).unwrap()
                );
            }
            std::os::unix::net::UnixStream::connect(&socket).ok()
        })
        .await;
        let doors = doors(&control).await;
        Self { doors, control, by: By::Process(child) }
    }

    pub(crate) fn doors(&self) -> &Doors {
        &self.doors
    }

    pub(crate) fn pid(&self) -> u32 {
        match &self.by {
            By::Process(child) => child.id().unwrap(),
            By::Threads { .. } => process::id(),
        }
    }

    /// Stops it the way an operator does, and waits until it has.
    pub(crate) async fn stop(self) {
        match self.by {
            By::Process(mut child) => {
                self.control.drain().await;
                let status = within("the program to end", child.wait()).await.unwrap();
                assert!(status.success(), "the program ended with {status}");
            }
            By::Threads { name, runtime, server } => {
                let drained = runtime.spawn(async move {
                    match server.drain().await {
                        Drained::All | Drained::Cut { .. } => {}
                    }
                });
                within("the gateway to stop", drained).await.unwrap();
                runtime.shutdown_background();
                let panicked = PANICKED.lock().unwrap_or_else(PoisonError::into_inner);
                assert!(!panicked.contains(&name), "a task of the gateway panicked");
            }
        }
    }
}

impl Running {
    /// Kills the program.
    pub(crate) async fn kill(self) {
        let By::Process(mut child) = self.by else { panic!("only the program can be killed") };
        child.start_kill().unwrap();
        within("the program to die", child.wait()).await.unwrap();
    }
}

/// Starts the program and returns what it says when it ends with a failure.
pub(crate) async fn refuses_to_start(settings: &Path) -> String {
    let ended = Command::new(program()).arg("--config").arg(settings).kill_on_drop(true).output();
    let ended = within("the program to end", ended).await.unwrap();
    assert!(!ended.status.success(), "it started");
    String::from_utf8_lossy(&ended.stderr).into_owned()
}

/// Where the program is that ships.
pub fn program() -> PathBuf {
    let tests = env::current_exe().unwrap();
    let built = tests.parent().and_then(|deps| deps.parent()).unwrap();
    built.join("sluice-gateway-under-test")
}

/// Reads from the gateway itself where it listens.
async fn doors(control: &Control) -> Doors {
    let status = control.get("/status").await;
    let status: Value = serde_json::from_slice(&status.body).unwrap();
    let at = |way: &str| -> SocketAddr {
        let all = status["listening"].as_array().unwrap();
        let one = all.iter().find(|one| one["way"] == way).unwrap();
        one["address"].as_str().unwrap().parse().unwrap()
    };
    Doors {
        proxy: at("proxy"),
        socks: at("socks"),
        http: at("http"),
        https: at("https"),
        dns: at("dns/udp"),
    }
}

/// Threads of gateways in which something panicked.
static PANICKED: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

fn watch_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if let Some(name) = thread::current().name() {
                let mut panicked = PANICKED.lock().unwrap_or_else(PoisonError::into_inner);
                panicked.insert(name.to_owned());
            }
            usual(info);
        }));
    });
}
