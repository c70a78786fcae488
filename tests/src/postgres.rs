//! A real PostgreSQL, with a database of the test's own.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::available::skip;
use crate::deadline::{ChildDeadline as _, CommandDeadline as _, wait_for};

/// A server on loopback, ended with the test. Whoever reaches it is let in.
#[derive(Debug)]
pub struct Postgres {
    server: Child,
    port: u16,
    _home: TempDir,
}

impl Postgres {
    /// One that calls itself `name`; if there is no PostgreSQL here, the test says so.
    pub fn start(name: &str) -> Option<Self> {
        let programs = programs()?;
        let home = TempDir::new().unwrap();
        // It refuses to be root, and to be nobody.
        let given = Command::new("chown").arg(format!("{USER}:{USER}")).arg(home.path()).status();
        assert!(given.unwrap().success());
        let data = home.path().join("data");
        let as_user = |program: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"]);
            command.arg(programs.join(program)).current_dir(home.path()).stdin(Stdio::null());
            command
        };
        let made = as_user("initdb")
            .args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8"])
            .args(["--no-locale", "-D"])
            .arg(&data)
            .output_in_time()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = as_user("postgres")
            .arg("-D")
            .arg(&data)
            .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "unix_socket_directories=", "-c", "fsync=off"])
            .args(["-c", &format!("cluster_name={name}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let asked = |sql: &str| {
            let words = ["-h", "127.0.0.1", "-U", "postgres", "-Atc", sql, "-p"];
            let port = port.to_string();
            let said = as_user("psql").args(words).arg(port).output_in_time().unwrap();
            String::from_utf8_lossy(&said.stdout).trim().to_owned()
        };
        wait_for("the database", || (asked(WHO_IT_IS) == name).then_some(()));
        Some(Self { server, port, _home: home })
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A fast shutdown ends its children too.
        let id = self.server.id().to_string();
        drop(Command::new("kill").args(["-INT", &id]).status());
        drop(self.server.wait_in_time());
    }
}

/// What a server says that it is called.
pub const WHO_IT_IS: &str = "select current_setting('cluster_name')";

/// Where Debian has its programs.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found =
        versions.map(|entry| entry.path().join("bin")).find(|bin| bin.join("initdb").exists());
    if found.is_none() {
        skip("postgresql");
    }
    found
}

/// Whom Debian's package makes for it.
const USER: &str = "postgres";
