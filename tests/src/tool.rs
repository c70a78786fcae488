//! Somebody else's programs, run beside a world.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::deadline::within;

/// A program with nothing in its environment that the test did not put there:
/// this machine may have proxy and trust variables of its own.
fn command(program: impl AsRef<std::ffi::OsStr>, args: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env_clear().kill_on_drop(true);
    for name in ["PATH", "LD_LIBRARY_PATH"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.envs(env.iter().copied());
    command
}

/// Runs a program that must succeed, and returns what it said.
pub async fn run(program: &Path, args: &[&str], env: &[(&str, &str)]) -> String {
    let (code, said) = run_any(program, args, env).await;
    assert_eq!(code, Some(0), "{said}");
    said
}

/// Runs a program; its exit code and what it said, standard output first.
pub async fn run_any(
    program: impl AsRef<std::ffi::OsStr>,
    args: &[&str],
    env: &[(&str, &str)],
) -> (Option<i32>, String) {
    let mut command = command(program, args, env);
    let output = within("a program", command.stdin(Stdio::null()).output()).await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// A server that prints its port and ends with its standard input.
#[derive(Debug)]
pub struct Server {
    pub port: u16,
    child: Child,
}

impl Server {
    pub async fn start(program: &Path, args: &[&str]) -> Self {
        let mut command = command(program, args, &[]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = within("a port", lines.next_line()).await.unwrap().unwrap();
        Self { port: port.parse().unwrap(), child }
    }

    pub async fn stop(mut self) {
        drop(self.child.stdin.take());
        within("a server to end", self.child.wait()).await.unwrap();
    }
}
