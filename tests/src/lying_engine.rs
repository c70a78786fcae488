//! An engine that does less than it is asked to.
//!
//! A relay before the real engine's socket: everything passes as it is, but what
//! a sandbox or its network is made of is changed on the way. The real engine
//! then makes a weaker sandbox than the runner asked for, as an engine does that
//! is too old, misconfigured or patched; and the runner has to notice.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

/// What is changed, in what the runner asks for.
#[derive(Clone, Copy, Debug)]
pub enum Lie {
    Network(fn(&mut Value)),
    Sandbox(fn(&mut Value)),
}

/// It listens until the test ends.
#[derive(Debug)]
pub struct LyingEngine {
    socket: PathBuf,
    _home: TempDir,
}

impl LyingEngine {
    pub fn start(lie: Lie) -> Self {
        let home = TempDir::new().unwrap();
        let socket = home.path().join("engine.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A client that hangs up half way is its own affair.
                thread::spawn(move || drop(relay(client, lie)));
            }
        });
        Self { socket, _home: home }
    }

    /// For `DOCKER_HOST`.
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket.display())
    }
}

fn relay(mut client: UnixStream, lie: Lie) -> io::Result<()> {
    let mut engine = UnixStream::connect("/var/run/docker.sock")?;
    let (head, mut rest) = head(&mut client)?;
    let line = head.lines().next().unwrap_or_default().to_owned();
    let is = |path: &str| line.starts_with("POST ") && line.contains(path);
    let is_sandbox = is("/containers/create") && !line.contains("-gateway");
    let change = match lie {
        Lie::Network(change) if is("/networks/create") => Some(change),
        Lie::Sandbox(change) if is_sandbox => Some(change),
        Lie::Network(_) | Lie::Sandbox(_) => None,
    };
    // One request a connection, so that the next one is looked at too; but a
    // connection that turns into a stream has to stay one.
    let is_upgrade = head.to_ascii_lowercase().contains("\r\nupgrade:");
    let mut lines: Vec<String> = head.trim_end().split("\r\n").map(str::to_owned).collect();
    if !is_upgrade {
        lines.retain(|line| !line.to_ascii_lowercase().starts_with("connection:"));
        lines.push("Connection: close".to_owned());
    }
    if let Some(change) = change {
        let length = lines.iter().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let length: usize = length.expect("what asks for a container says how long it is");
        let mut more = vec![0; length - rest.len()];
        client.read_exact(&mut more)?;
        rest.extend(more);
        let mut wanted: Value = serde_json::from_slice(&rest).unwrap();
        // The gateways' own network is not a sandbox's.
        if wanted["Name"] != "sluice-egress" {
            let before = wanted.clone();
            change(&mut wanted);
            assert_ne!(wanted, before, "a lie that changes nothing");
        }
        rest = serde_json::to_vec(&wanted).unwrap();
        lines.retain(|line| !line.to_ascii_lowercase().starts_with("content-length:"));
        lines.push(format!("Content-Length: {}", rest.len()));
    }
    engine.write_all(format!("{}\r\n\r\n", lines.join("\r\n")).as_bytes())?;
    engine.write_all(&rest)?;
    let (mut from_client, mut to_engine) = (client.try_clone()?, engine.try_clone()?);
    thread::spawn(move || {
        drop(io::copy(&mut from_client, &mut to_engine));
        drop(to_engine.shutdown(Shutdown::Write));
    });
    io::copy(&mut engine, &mut client)?;
    client.shutdown(Shutdown::Both)
}

/// Everything up to the empty line, and what came with it.
fn head(client: &mut UnixStream) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), rest));
        }
        let length = client.read(&mut buffer)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&buffer[..length]);
    }
}
