//! One request over HTTP or HTTPS, through the proxy or past it.
//!
//! `sluice-probe fetch [--direct] URL`: prints what came, and ends with 0 if the answer
//! was a success, with 22 if it was not, with 7 if there was none.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};

use crate::names::address_of;

/// How to get there.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// As a program that knows nothing of proxies.
    Direct,
    /// As the variables say.
    Proxy,
}

/// What came back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FetchAnswer {
    pub status: u16,
    pub body: String,
}

impl FetchAnswer {
    /// Whether a gateway of ours said no, in the words it says that with.
    pub fn is_refusal(&self) -> bool {
        (400..500).contains(&self.status)
            && self.body.contains("\"code\"")
            && self.body.contains("\"request_id\"")
    }

    /// The code of a refusal.
    pub fn code(&self) -> Option<String> {
        let body: serde_json::Value = serde_json::from_str(&self.body).ok()?;
        Some(body.get("code")?.as_str()?.to_owned())
    }
}

/// `sluice-probe fetch ...`, after these two words.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "this is a program's own output")]
pub fn main(arguments: &[String]) -> ExitCode {
    let (way, urls) = match arguments.split_first() {
        Some((word, rest)) if word == "--direct" => (Way::Direct, rest),
        _ => (Way::Proxy, arguments),
    };
    let mut worst = 0;
    for url in urls {
        match fetch(url, way) {
            Ok(answer) => {
                println!("{} {}", answer.status, answer.body.trim_end());
                if !(200..300).contains(&answer.status) {
                    worst = worst.max(22);
                }
            }
            Err(err) => {
                eprintln!("{url}: {err}");
                worst = worst.max(7);
            }
        }
    }
    ExitCode::from(worst)
}

/// Gets `url`.
pub fn fetch(url: &str, way: Way) -> io::Result<FetchAnswer> {
    let target =
        FetchTarget::parse(url).ok_or_else(|| wrong("not a URL this client understands"))?;
    let FetchTarget { tls, host, port, path } = &target;
    let proxy = match way {
        Way::Direct => None,
        Way::Proxy => proxy(*tls),
    };
    let (mut stream, asked) = match &proxy {
        None => (connect(SocketAddr::new(address_of(host)?, *port))?, path.clone()),
        Some((at, through)) => {
            let mut stream = connect(SocketAddr::new(address_of(at)?, *through))?;
            if *tls {
                let wanted = format!("{host}:{port}");
                let answer = open_tunnel(&mut stream, &wanted)?;
                if answer.status != 200 {
                    return Ok(answer);
                }
                (stream, path.clone())
            } else {
                (stream, format!("http://{}{path}", target.authority()))
            }
        }
    };
    let authority = target.authority();
    if !*tls {
        return exchange(&mut stream, &authority, &asked);
    }
    let name = ServerName::try_from(host.clone()).map_err(|_| wrong("not a server's name"))?;
    let session = ClientConnection::new(config()?, name).map_err(io::Error::other)?;
    exchange(&mut StreamOwned::new(session, stream), &authority, &asked)
}

/// Opens a connection, if that takes no longer than `patience`.
#[expect(clippy::disallowed_methods, reason = "a client, inside or at home; not the gateway")]
pub fn knock(at: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&at, patience)
}

/// Opens a connection, with patience for a handshake and an answer.
pub fn connect(at: SocketAddr) -> io::Result<TcpStream> {
    let stream = knock(at, Duration::from_secs(4))?;
    stream.set_read_timeout(Some(Duration::from_secs(8)))?;
    stream.set_write_timeout(Some(Duration::from_secs(8)))?;
    Ok(stream)
}

/// Asks a proxy for a tunnel; anything but 200 is its answer.
pub fn open_tunnel(stream: &mut TcpStream, wanted: &str) -> io::Result<FetchAnswer> {
    let request = format!("CONNECT {wanted} HTTP/1.1\r\nHost: {wanted}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    // Byte by byte: what follows the head is not ours to read.
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD_BYTES {
        if stream.read(&mut byte)? == 0 {
            break;
        }
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let status = status_of(&head).ok_or_else(|| wrong("the proxy's answer cannot be read"))?;
    let mut body = String::new();
    if status != 200 {
        drop(stream.take(MAX_BODY_BYTES).read_to_string(&mut body));
    }
    Ok(FetchAnswer { status, body })
}

/// One request on a connection that ends with it.
pub fn exchange(
    stream: &mut (impl Read + Write),
    authority: &str,
    asked: &str,
) -> io::Result<FetchAnswer> {
    // In one piece: whoever answers the first and hangs up resets the rest. And
    // whoever answered has been reached, even if it did not hear us out.
    let request = format!(
        "GET {asked} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: sluice\r\n\
         Accept: */*\r\nConnection: close\r\n\r\n"
    );
    let sent = stream.write_all(request.as_bytes()).and_then(|()| stream.flush());
    let mut bytes = Vec::new();
    let read = stream.take(MAX_BODY_BYTES).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match (status_of(&text), read) {
        (Some(status), _) => {
            let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
            let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
            let body = if chunked { unchunked(body) } else { body.to_owned() };
            Ok(FetchAnswer { status, body })
        }
        (None, read) => {
            sent.and(read)?;
            Err(wrong("the connection was closed without an answer"))
        }
    }
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else { break };
        let Some(piece) = after.get(..size).filter(|piece| !piece.is_empty()) else { break };
        body.push_str(piece);
        rest = after.get(size + 2..).unwrap_or_default();
    }
    body
}

fn status_of(text: &str) -> Option<u16> {
    let mut words = text.lines().next()?.split(' ');
    words.next()?.strip_prefix("HTTP/1.")?;
    words.next()?.parse().ok()
}

/// What the variables name, for this kind of request.
fn proxy(tls: bool) -> Option<(String, u16)> {
    let names = if tls { ["https_proxy", "HTTPS_PROXY"] } else { ["http_proxy", "HTTP_PROXY"] };
    let value = names.iter().find_map(|name| std::env::var(name).ok())?;
    let rest = value.trim_end_matches('/').strip_prefix("http://")?.to_owned();
    let (host, port) = rest.rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?))
}

/// Believes what the trust kit says, else what the distribution does.
pub fn config() -> io::Result<Arc<ClientConfig>> {
    let named = std::env::var("SSL_CERT_FILE").ok();
    let places = named.iter().map(String::as_str).chain(BUNDLES);
    let bundle = places
        .map(Path::new)
        .find_map(|path| File::open(path).ok())
        .ok_or_else(|| wrong("there is no bundle of authorities to believe"))?;
    let mut roots = RootCertStore::empty();
    let found = CertificateDer::pem_reader_iter(BufReader::new(bundle));
    roots.add_parsable_certificates(found.flatten());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

const BUNDLES: [&str; 2] = ["/etc/sluice/ca/bundle.pem", "/etc/ssl/certs/ca-certificates.crt"];
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_BODY_BYTES: u64 = 1 << 20;

struct FetchTarget {
    tls: bool,
    host: String,
    port: u16,
    path: String,
}

impl FetchTarget {
    fn parse(url: &str) -> Option<Self> {
        let (tls, rest) = match url.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, url.strip_prefix("http://")?),
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let usual = if tls { 443 } else { 80 };
        let is_port = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if is_port(port) => (host, port.parse().ok()?),
            Some(_) | None => (authority, usual),
        };
        let host = host.trim_matches(['[', ']']).to_owned();
        Some(Self { tls, host, port, path: path.to_owned() })
    }

    fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

fn wrong(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let parts =
            |url| FetchTarget::parse(url).map(|t| (t.tls, t.host.clone(), t.port, t.path.clone()));
        assert_eq!(parts("https://a.example"), Some((true, "a.example".into(), 443, "/".into())));
        assert_eq!(
            parts("http://[2001:db8::1]:81/x"),
            Some((false, "2001:db8::1".into(), 81, "/x".into()))
        );
        assert_eq!(parts("ftp://a"), None);
    }

    /// Hears the first piece, answers, and hangs up.
    struct Hasty {
        heard: Option<Vec<u8>>,
        answer: &'static [u8],
    }

    impl Write for Hasty {
        fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
            if self.heard.is_some() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.heard = Some(piece.to_vec());
            Ok(piece.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    impl Read for Hasty {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.answer.read(into)? {
                0 => Err(io::ErrorKind::ConnectionReset.into()),
                length => Ok(length),
            }
        }
    }

    #[test]
    fn whoever_answers_and_hangs_up_has_answered() {
        let answer = b"HTTP/1.1 200 OK\r\n\r\nthe token";
        let mut hasty = Hasty { heard: None, answer };
        let answer = exchange(&mut hasty, "a.example", "/").unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "the token"));
        assert!(hasty.heard.unwrap().ends_with(b"\r\n\r\n"), "it heard the request whole");
    }

    #[test]
    fn whoever_hangs_up_without_an_answer_has_not() {
        let mut hasty = Hasty { heard: None, answer: b"" };
        let failed = exchange(&mut hasty, "a.example", "/").err().map(|err| err.kind());
        assert_eq!(failed, Some(io::ErrorKind::BrokenPipe));
    }

    #[test]
    fn a_body_in_pieces_is_put_together() {
        assert_eq!(unchunked("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), "abcde");
    }
}
