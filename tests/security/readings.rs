//! C17: whatever path a server makes of the one it is sent, a rule meant it.
//!
//! Real servers are asked what they serve for paths in many spellings. Where
//! policy lets a spelling pass, it must let pass the path that is served, as
//! though it had been asked for plainly.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use policies::{NoFiles, Policy, RequestPath, SampleRequest, Source, Verdict, read};
use tests::available::{is_installed, python};

/// What the decoded path is to an application, and which file a file server
/// takes it for.
const WSGI: &str = r#"
import http.server, os, sys, threading
from wsgiref.simple_server import make_server, WSGIRequestHandler

class Files(http.server.SimpleHTTPRequestHandler):
    def __init__(self): self.directory = "/"

class Quiet(WSGIRequestHandler):
    def log_message(self, *args): pass
    def get_environ(self):
        environ = super().get_environ()
        environ["file"] = Files().translate_path(self.path)
        return environ

def app(environ, start):
    start("200 OK", [])
    return [environ["PATH_INFO"].encode("latin-1"), b"\n", os.fsencode(environ["file"])]

server = make_server("127.0.0.1", 0, app, handler_class=Quiet)
print(server.server_port, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
"#;

/// What a URL parser leaves of the path, and that decoded.
const NODE: &str = r#"
const server = require("http").createServer((req, res) => {
  const path = new URL(req.url, "http://server").pathname;
  res.end(path + "\n" + decodeURIComponent(path));
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit(0)).resume();
"#;

/// The path that locations are compared with; what a proxy sends on that gives
/// its server a path of its own; what one sends on that hands over the decoded
/// path, which is a common mistake.
fn nginx(folder: &str) -> String {
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log stderr crit;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{ listen unix:{folder}/plain; location / {{ return 200 $uri; }} }}
    server {{ listen unix:{folder}/behind; location / {{ return 200 $request_uri; }} }}
    server {{ listen unix:{folder}/proxy; location / {{ proxy_pass http://unix:{folder}/behind:/; }} }}
    server {{ listen unix:{folder}/hands-over; location / {{ proxy_pass http://unix:{folder}/behind:$uri; }} }}
}}
"
    )
}

#[test]
fn what_python_serves_is_what_was_judged() {
    let Some(python) = python(&["wsgiref"]) else { return };
    let server = Server::start(Command::new(python).args(["-c", WSGI]));
    compare("python", || server.connect(), whole);
}

#[test]
fn what_node_serves_is_what_was_judged() {
    if !is_installed("node") {
        return;
    }
    let server = Server::start(Command::new("node").args(["-e", NODE]));
    compare("node", || server.connect(), whole);
}

#[test]
fn what_nginx_serves_is_what_was_judged() {
    if !is_installed("nginx") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("nginx.conf");
    std::fs::write(&config, nginx(folder.path().to_str().unwrap())).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-c").arg(&config).arg("-p").arg(folder.path());
    let _running = Running(command.stdin(Stdio::null()).spawn().unwrap());
    for way in ["plain", "proxy"] {
        compare(way, || connect_unix(&folder.path().join(way)), whole);
    }
    // Its server finds a query where none was sent.
    let before_query = |served: &[u8]| served.split(|b| b"?#".contains(b)).next().unwrap().to_vec();
    compare("hands-over", || connect_unix(&folder.path().join("hands-over")), before_query);
}

/// Sends every spelling that we would send, and looks at what is served.
#[track_caller]
fn compare<S: Read + Write>(
    server: &str,
    connect: impl Fn() -> S,
    path_of: impl Fn(&[u8]) -> Vec<u8>,
) {
    let policies = policies();
    let (mut sent, mut changed, mut let_pass) = (0, 0, 0);
    for spelling in spellings() {
        let Ok(path) = RequestPath::parse(&spelling) else { continue };
        sent += 1;
        for served in ask(connect(), path.as_str()) {
            let served = as_path(&path_of(&served));
            changed += usize::from(served != path.as_str());
            for policy in &policies {
                if verdict(policy, path.as_str()) != Verdict::Allow {
                    continue;
                }
                let_pass += 1;
                assert_eq!(
                    verdict(policy, &served),
                    Verdict::Allow,
                    "{server} serves `{served}` for `{path}`, which {:?} allows",
                    policy.name
                );
            }
        }
    }
    // Or the test shows nothing.
    assert!(sent > 200 && changed > 50 && let_pass > 200, "{sent} {changed} {let_pass}");
}

/// What a server says it serves is a path and nothing else.
fn whole(served: &[u8]) -> Vec<u8> {
    served.to_vec()
}

fn policies() -> Vec<Policy> {
    let rules = [
        "allow: [h.example], deny: [{host: h.example, paths: ['/admin/**', /secret]}]",
        "allow: [{host: h.example, paths: [/v1/*, '/public/**', /, /a*]}]",
        "allow: [{host: h.example, paths: ['/**']}], deny: [{host: h.example, paths: ['/*/admin', '/v1/*/b']}]",
        "allow: [h.example], ask: [{host: h.example, paths: ['/admin/**', '/**/secret']}]",
    ];
    let policy = |rules| {
        let text = format!("version: 1\nnet: {{enabled: true, {rules}}}\n");
        read(&Source::new(rules, text), &NoFiles).unwrap()
    };
    rules.map(policy).into()
}

/// What policy says of a path; what we would not send is denied.
fn verdict(policy: &Policy, path: &str) -> Verdict {
    match SampleRequest::new("GET", &format!("https://h.example{path}")) {
        Ok(asked) => policy.decide(&asked.question()).verdict,
        Err(_) => Verdict::Deny,
    }
}

/// A few hundred paths, made of what attacks are made of. Always the same.
fn spellings() -> Vec<String> {
    const NAMES: [&str; 8] = ["admin", "secret", "v1", "public", "a", "b", "Admin", "users"];
    const SLASHES: [&str; 8] = ["/", "/", "/", "%2f", "%2F", "%EF%BC%8F", "%E2%81%84", "%E2%88%95"];
    const AROUND: [&str; 22] = [
        "",
        "",
        "",
        "",
        "",
        "",
        ";",
        ";x",
        ";x=1",
        "%3bx",
        "%20",
        "+",
        "%2b",
        ".",
        "%2e",
        "%23x",
        "%3fx",
        "%e2%80%8b",
        "%C2%A0",
        "::$DATA",
        "%EF%BC%8E",
        "%CD%BE",
    ];
    let mut state: u64 = 17;
    let mut pick = |from: &[&'static str]| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let at = usize::try_from(state >> 33).unwrap() % from.len();
        from[at]
    };
    let mut spellings = Vec::new();
    for _ in 0..900 {
        let mut path = "/".to_owned();
        let segments = ["1", "22", "333"];
        for number in 0..pick(&segments).len() {
            if number > 0 {
                path.push_str(pick(&SLASHES));
            }
            path.push_str(pick(&["", "", "", "", "%20", "%E2%80%8B"]));
            path.push_str(pick(&NAMES));
            path.push_str(pick(&AROUND));
        }
        spellings.push(path);
    }
    spellings
}

/// Asks for a path and reads what the server says it serves, a line each.
fn ask(mut stream: impl Read + Write, path: &str) -> Vec<Vec<u8>> {
    let request = format!("GET {path} HTTP/1.0\r\nhost: h.example\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        panic!("{path}: no answer: {}", String::from_utf8_lossy(&answer));
    };
    let (head, body) = answer.split_at(end + 4);
    if !head.starts_with(b"HTTP/1.1 200") && !head.starts_with(b"HTTP/1.0 200") {
        return Vec::new();
    }
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(<[u8]>::to_vec).collect()
}

/// A path as a server holds it, in the plainest spelling of it.
fn as_path(served: &[u8]) -> String {
    let mut path = String::new();
    let mut rest = served;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => path.push(char::from(*byte)),
            b'/' | b'-' | b'.' | b'_' | b'~' | b';' | b'+' | b':' | b'$' | b'=' | b'@' => {
                path.push(char::from(*byte));
            }
            // Some of the servers leave escapes as they are.
            b'%' if after.len() >= 2 && after[..2].iter().all(u8::is_ascii_hexdigit) => {
                path.push('%');
            }
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

struct Server {
    port: u16,
    _running: Running,
}

impl Server {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { port: line.trim().parse().unwrap(), _running: Running(child) }
    }

    #[expect(clippy::disallowed_methods, reason = "the server that this test started")]
    fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).unwrap()
    }
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A socket is there once nginx is.
fn connect_unix(socket: &Path) -> UnixStream {
    let late = Instant::now() + Duration::from_secs(60);
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return stream,
            Err(err) if Instant::now() > late => panic!("{}: {err}", socket.display()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
