//! Things on the host that a sandbox must not reach, and that notice if it does.
//!
//! Each of them says the token to whoever comes, so that the attack program
//! knows it got there, and counts, so that a visit is known even if the visitor
//! got no answer.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use inside::probe::attack;
use inside::probe::fetch;

/// All of them, listening until the process ends.
#[derive(Debug)]
pub(super) struct Canaries {
    pub(super) token: String,
    pub(super) everywhere: SocketAddr,
    pub(super) loopback: SocketAddr,
    pub(super) udp: SocketAddr,
    pub(super) abstract_socket: String,
    /// Files that hold the token.
    pub(super) files: Vec<PathBuf>,
    heard: Arc<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    visits: AtomicU64,
    who: Mutex<Vec<String>>,
}

impl Heard {
    fn visit(&self, who: String) {
        self.visits.fetch_add(1, Ordering::SeqCst);
        let mut known = self.who.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < 16 {
            known.push(who);
        }
    }
}

impl Canaries {
    /// Starts them. `secret` is a file of the caller's that gets the token too.
    pub(super) fn start(token: &str, secret: PathBuf) -> io::Result<Self> {
        let heard = Arc::new(Heard::default());
        let everywhere = tcp(Ipv4Addr::UNSPECIFIED, "0.0.0.0", token, &heard)?;
        let loopback = tcp(Ipv4Addr::LOCALHOST, "loopback", token, &heard)?;
        let udp = udp(token, &heard)?;
        let abstract_socket = format!("sluice-selftest-{token}");
        unix(&abstract_socket, token, &heard)?;
        let mut files = vec![secret];
        // Shared memory is a place that namespaces forget.
        files.push(PathBuf::from(format!("/dev/shm/sluice-selftest-{token}")));
        files.retain(|path| fs::write(path, token).is_ok());
        let token = token.to_owned();
        Ok(Self { token, everywhere, loopback, udp, abstract_socket, files, heard })
    }

    /// Who came; nobody, it must be.
    pub(super) fn visitors(&self) -> Vec<String> {
        self.heard.who.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn visits(&self) -> u64 {
        self.heard.visits.load(Ordering::SeqCst)
    }

    /// That they can hear: a visit of our own, which is then forgotten.
    pub(super) fn are_awake(&self) -> bool {
        let before = self.visits();
        let mut said = String::new();
        let visited = fetch::connect(self.loopback).and_then(|mut stream| {
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
            stream.read_to_string(&mut said)
        });
        let heard = visited.is_ok() && said.contains(&self.token) && self.visits() > before;
        self.heard.visits.store(before, Ordering::SeqCst);
        self.heard.who.lock().unwrap_or_else(PoisonError::into_inner).clear();
        heard
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        for path in &self.files {
            drop(fs::remove_file(path));
        }
    }
}

fn tcp(
    at: Ipv4Addr,
    name: &'static str,
    token: &str,
    heard: &Arc<Heard>,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((at, 0))?;
    let address = listener.local_addr()?;
    let (token, heard) = (token.to_owned(), Arc::clone(heard));
    thread::spawn(move || {
        for visitor in listener.incoming().flatten() {
            let from = visitor.peer_addr().map(|from| from.to_string()).unwrap_or_default();
            heard.visit(format!("TCP on {name} from {from}"));
            let token = token.clone();
            thread::spawn(move || attack::tell(visitor, &token));
        }
    });
    Ok(address)
}

fn udp(token: &str, heard: &Arc<Heard>) -> io::Result<SocketAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let address = socket.local_addr()?;
    let (token, heard) = (token.to_owned(), Arc::clone(heard));
    thread::spawn(move || {
        let mut asked = [0; 2048];
        while let Ok((_, from)) = socket.recv_from(&mut asked) {
            heard.visit(format!("UDP from {from}"));
            drop(socket.send_to(token.as_bytes(), from));
        }
    });
    Ok(address)
}

fn unix(name: &str, token: &str, heard: &Arc<Heard>) -> io::Result<()> {
    let listener = UnixListener::bind_addr(&UnixAddress::from_abstract_name(name)?)?;
    let (token, heard) = (token.to_owned(), Arc::clone(heard));
    thread::spawn(move || {
        for mut visitor in listener.incoming().flatten() {
            heard.visit("an abstract Unix socket".to_owned());
            drop(visitor.write_all(token.as_bytes()));
        }
    });
    Ok(())
}

/// Every IPv4 address of this machine but loopback, as the kernel's table of
/// routes has them.
pub(super) fn own_addresses() -> Vec<IpAddr> {
    attack::own_addresses()
}
