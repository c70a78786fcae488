//! A small HTTPS server that shows a minted leaf and counts whom it convinced.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use certs::{Alpn, CertificateAuthority, Serving, Subject};
use rustls::{ServerConfig, ServerConnection, Stream};

/// What every page says, so that a tool can prove it read one.
pub(crate) const PAGE: &str = "the gateway was trusted";
/// The one commit of the one repository.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Listens on loopback until the test program ends.
#[derive(Debug)]
pub(crate) struct Server {
    port: u16,
    requests: Arc<AtomicUsize>,
}

impl Server {
    /// Shows a leaf of `authority` for `host`, whoever asks for whatever.
    pub(crate) fn start(authority: &Arc<CertificateAuthority>, host: &str) -> Self {
        let serving = Serving::new(Arc::clone(authority)).unwrap();
        let config = serving.config(&Subject::parse(host).unwrap(), Alpn::Http1).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (config, counted) = (Arc::clone(&config), Arc::clone(&counted));
                // A client that refuses us ends its connection with an error,
                // and that is its right.
                thread::spawn(move || answer(socket?, config, &counted));
            }
        });
        Self { port, requests }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many requests came through TLS: a client that does not trust the
    /// leaf never sends one.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn answer(
    mut socket: TcpStream,
    config: Arc<ServerConfig>,
    counted: &AtomicUsize,
) -> io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut stream = Stream::new(&mut tls, &mut socket);

    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut some = [0; 1024];
        let read = stream.read(&mut some)?;
        if read == 0 || head.len() > 64 * 1024 {
            return Ok(());
        }
        head.extend_from_slice(&some[..read]);
    }
    counted.fetch_add(1, Ordering::SeqCst);

    let (kind, body) = if head.starts_with(b"GET /repo/info/refs?service=git-upload-pack") {
        ("application/x-git-upload-pack-advertisement", references())
    } else {
        ("text/plain", PAGE.to_owned())
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// What git asks for first: the references of a repository with one branch.
fn references() -> String {
    let packet = |line: &str| format!("{:04x}{line}", line.len() + 4);
    let service = packet("# service=git-upload-pack\n");
    let branch = packet(&format!("{COMMIT} refs/heads/main\0agent=test\n"));
    format!("{service}0000{branch}0000")
}
