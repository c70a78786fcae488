//! A gateway that is killed under load has recorded all that it answered.
//!
//! ATTACKS G10.

#![expect(clippy::disallowed_methods, reason = "a test is on the sandbox's side of the gateway")]

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway::control;
use http::{Request, Response};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

const KILLS: u64 = 20;
const HTTP1_CLIENTS: u64 = 4;
const HTTP2_STREAMS: u64 = 16;
/// No more rounds are begun after this, on a machine that is busy.
const LONGEST: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_in_the_log_of_a_gateway_that_is_killed() {
    let place = Place::new().await;
    let answered = Arc::new(Answered::default());
    let began = Instant::now();
    let mut kills = 0;
    while kills < KILLS && (kills < 3 || began.elapsed() < LONGEST) {
        let (mut program, proxy) = place.start().await;
        let mut clients = JoinSet::new();
        for number in 0..HTTP1_CLIENTS {
            clients.spawn(ask_http1(proxy, format!("/k{kills}c{number}"), Arc::clone(&answered)));
        }
        let asked = control::ask(&place.socket(), "GET", "/ca.pem", "").await;
        let (_, root) = asked.expect("it answers");
        clients.spawn(ask_http2(proxy, root, format!("/k{kills}h"), Arc::clone(&answered)));

        // At another moment each time: after so many answers, and a little more.
        let (enough, spins) = (30 + kills * 37 % 211, kills * 7919 % 40_000);
        let before = answered.count.load(Ordering::SeqCst);
        while answered.count.load(Ordering::SeqCst) < before + enough {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        (0..spins).for_each(|_| std::hint::spin_loop());
        program.0.kill().expect("it runs");
        program.0.wait().expect("it ran");
        while clients.join_next().await.is_some() {}
        kills += 1;
    }

    let answered = answered.paths.lock().expect("nobody panicked").clone();
    let recorded = place.recorded();
    let missing: Vec<_> = answered.iter().filter(|path| !recorded.contains(*path)).collect();
    assert!(answered.len() as u64 > 30 * kills);
    assert!(answered.iter().any(|path| path.contains('h')), "HTTP/2 was answered too");
    assert!(
        missing.is_empty(),
        "{kills} kills: {} of {} answered requests have no record: {missing:?}",
        missing.len(),
        answered.len()
    );
    // Each kill may have torn the last line, and the next start cut it off; the
    // last one still has to.
    drop(audit::Log::open(&place.path("audit"), audit::Options::new("after")).expect("it opens"));
    let verified = audit::verify(&place.path("audit"), &[]).expect("the chain is whole");
    println!("{kills} kills, {} answered, {verified:?}", answered.len());
}

/// The paths of which a client has heard at least the first byte of an answer.
#[derive(Default)]
struct Answered {
    paths: Mutex<HashSet<String>>,
    count: AtomicU64,
}

impl Answered {
    fn note(&self, path: String) {
        self.paths.lock().expect("nobody panicked").insert(path);
        self.count.fetch_add(1, Ordering::SeqCst);
    }
}

/// Asks again and again on one connection, until it breaks. Every eleventh
/// request is for a host that is refused.
async fn ask_http1(proxy: std::net::SocketAddr, prefix: String, answered: Arc<Answered>) {
    let Ok(mut stream) = TcpStream::connect(proxy).await else { return };
    for number in 0.. {
        let path = format!("{prefix}n{number}");
        let host = if number % 11 == 10 { "denied.test" } else { "plain.test" };
        let request = format!("GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        if stream.write_all(request.as_bytes()).await.is_err() {
            return;
        }
        if stream.read_u8().await.is_err() {
            return;
        }
        answered.note(path);
        if read_answer(&mut stream).await.is_err() {
            return;
        }
    }
}

/// The rest of an answer that has a length.
async fn read_answer(stream: &mut TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let length: usize = length.and_then(|length| length.parse().ok()).expect("it has a length");
    stream.read_exact(&mut vec![0; length]).await.map(drop)
}

/// Sixteen requests at a time on one connection, until it breaks.
async fn ask_http2(
    proxy: std::net::SocketAddr,
    root: String,
    prefix: String,
    answered: Arc<Answered>,
) {
    let Ok(client) = connect_http2(proxy, &root).await else { return };
    let mut streams = JoinSet::new();
    for stream in 0..HTTP2_STREAMS {
        let (client, answered) = (client.clone(), Arc::clone(&answered));
        let prefix = format!("{prefix}{stream}");
        streams.spawn(async move {
            for number in 0.. {
                let path = format!("{prefix}n{number}");
                let request = Request::get(format!("https://allowed.test{path}")).body(());
                let request = request.expect("it is one");
                let Ok(mut client) = client.clone().ready().await else { return };
                let Ok((response, _)) = client.send_request(request, true) else { return };
                let Ok(response) = response.await else { return };
                answered.note(path);
                let mut body = response.into_body();
                while let Some(Ok(data)) = body.data().await {
                    drop(body.flow_control().release_capacity(data.len()));
                }
            }
        });
    }
    while streams.join_next().await.is_some() {}
}

async fn connect_http2(
    proxy: std::net::SocketAddr,
    root: &str,
) -> io::Result<h2::client::SendRequest<Bytes>> {
    let mut stream = TcpStream::connect(proxy).await?;
    let tunnel = b"CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n";
    stream.write_all(tunnel).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root.as_bytes()).expect("it is PEM")).expect("a CA");
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("allowed.test").expect("it is a name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let (client, connection) = h2::client::handshake(stream).await.map_err(io::Error::other)?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// A directory with settings and a policy, and two upstreams.
struct Place(TempDir);

/// A program, killed with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Place {
    async fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a directory can be made"));
        let plain = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let secure = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let (plain_at, secure_at) = (at(&plain), at(&secure));
        let key = KeyPair::generate().expect("keys are made");
        let params = CertificateParams::new(vec!["allowed.test".to_owned()]).expect("it is a name");
        let certificate = params.self_signed(&key).expect("it signs itself");
        place.write("root.pem", &certificate.pem());
        tokio::spawn(serve_plain(plain));
        tokio::spawn(serve_http2(secure, certificate.der().clone(), key));
        place.write(
            "gateway.yaml",
            &format!(
                "run: killed\npolicy: p.yaml\nlisten: {{proxy: 127.0.0.1:0}}\ncontrol: run/c.sock\n\
                 audit: audit\nupstream:\n  roots: {{bundled: false, system: false, files: [root.pem]}}\n  \
                 hosts: {{plain.test: \"{plain_at}\", allowed.test: \"{secure_at}\"}}\n\
                 limits: {{requests_per_minute: 100000000}}\n"
            ),
        );
        let policy =
            "version: 1\nname: killed\nnet: {enabled: true, allow: [plain.test, allowed.test]}\n";
        place.write("p.yaml", policy);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file can be written");
    }

    fn socket(&self) -> PathBuf {
        self.path("run/c.sock")
    }

    /// A program that serves, and where.
    async fn start(&self) -> (Program, std::net::SocketAddr) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-gateway"));
        command.env_clear().arg("--config").arg(self.path("gateway.yaml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut program = Program(command.spawn().expect("the program can be started"));
        loop {
            // What the one before left of its socket does not answer.
            if let Ok(status) = control::status(&self.socket()).await {
                let listening = status.listening.first().expect("it listens");
                return (program, listening.address.parse().expect("it is an address"));
            }
            let ended = program.0.try_wait().expect("it can be asked");
            assert!(ended.is_none(), "it ended: {ended:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The paths of all requests that the log knows of.
    fn recorded(&self) -> HashSet<String> {
        let mut paths = HashSet::new();
        for segment in audit::segment::Segment::list(&self.path("audit")).expect("it is there") {
            paths.extend(paths_in(segment.path()));
        }
        paths
    }
}

fn paths_in(log: &Path) -> Vec<String> {
    let text = fs::read(log).expect("it can be read");
    let lines = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let mut paths = Vec::new();
    for line in lines {
        let line: serde_json::Value = serde_json::from_slice(line).expect("it is JSON");
        paths.extend(line.get("url.path").and_then(|path| path.as_str()).map(str::to_owned));
    }
    paths
}

fn at(listener: &TcpListener) -> std::net::SocketAddr {
    listener.local_addr().expect("it is bound")
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Short answers, and now and then one that takes several writes.
fn length_of(number: u64) -> usize {
    if number % 7 == 6 { 40_000 } else { 100 }
}

async fn serve_plain(listener: TcpListener) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { continue };
        tokio::spawn(async move {
            for number in 0.. {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                let length = length_of(number);
                let mut answer =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
                answer.resize(answer.len() + length, b'x');
                if stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn serve_http2(listener: TcpListener, certificate: CertificateDer<'static>, key: KeyPair) {
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("it is a key");
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they belong together");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let Ok(mut connection) = h2::server::handshake(stream).await else { return };
            let mut number = 0;
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let Ok(mut body) = respond.send_response(Response::new(()), false) else {
                    continue;
                };
                drop(body.send_data(Bytes::from(vec![b'x'; length_of(number)]), true));
                number += 1;
            }
        });
    }
}
