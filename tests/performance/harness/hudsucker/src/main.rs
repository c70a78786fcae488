//! hudsucker-proxy: the library hudsucker as a peer to measure beside.
//!
//!   hudsucker-proxy PORT CA.pem CA.key ORIGIN_CA.pem LOG ALLOWED_SUFFIX [h2] [nodelay]
//!
//! An allowlist by suffix and one line of log for each request; otherwise as the library
//! comes. `h2` lets upstreams speak HTTP/2; `nodelay` sets TCP_NODELAY on both sides,
//! which the library leaves off.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hudsucker::certificate_authority::RcgenAuthority;
use hudsucker::hyper::{Method, Request, Response, StatusCode};
use hudsucker::rcgen::{Issuer, KeyPair};
use hudsucker::rustls::crypto::aws_lc_rs;
use hudsucker::{Body, HttpContext, HttpHandler, Proxy, RequestOrResponse};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [port, ca, ca_key, origin_ca, log, allowed_suffix, options @ ..] = &words[..] else {
        return Err("six arguments are needed; they stand at the top of main.rs".into());
    };
    let h2 = options.iter().any(|option| option == "h2");
    let nodelay = options.iter().any(|option| option == "nodelay");

    let issuer = Issuer::from_ca_cert_pem(
        &fs::read_to_string(ca)?,
        KeyPair::from_pem(&fs::read_to_string(ca_key)?)?,
    )?;
    let authority = RcgenAuthority::new(issuer, CACHED_LEAVES, aws_lc_rs::default_provider());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse()?));
    let listener = TcpListener::bind(address).await?;
    if nodelay {
        // Accepted sockets inherit it.
        socket2::SockRef::from(&listener).set_tcp_nodelay(true)?;
    }
    Proxy::builder()
        .with_listener(listener)
        .with_ca(authority)
        .with_http_connector(connector(origin_ca, h2, nodelay)?)
        .with_http_handler(LoggingHandler {
            log: AccessLog::create(log)?,
            allowed_suffix: allowed_suffix.as_str().into(),
            line: String::new(),
        })
        .build()?
        .start()
        .await?;
    Ok(())
}

/// How upstreams are reached.
fn connector(
    roots: &str,
    h2: bool,
    nodelay: bool,
) -> Result<HttpsConnector<HttpConnector>, Box<dyn Error>> {
    let mut store = RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(roots)? {
        store.add(root?)?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(nodelay);
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
    Ok(match h2 {
        true => https.enable_http2().wrap_connector(tcp),
        false => https.wrap_connector(tcp),
    })
}

/// The policy and the log.
#[derive(Clone)]
struct LoggingHandler {
    log: AccessLog,
    allowed_suffix: Arc<str>,
    /// What the log will say of the request that is under way.
    line: String,
}

impl HttpHandler for LoggingHandler {
    async fn handle_request(
        &mut self,
        context: &HttpContext,
        request: Request<Body>,
    ) -> RequestOrResponse {
        let host = request.uri().host().unwrap_or_default();
        let is_allowed = host.ends_with(&*self.allowed_suffix);
        let verdict = if is_allowed { "allow" } else { "deny" };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (seconds, micros) = (now.as_secs(), now.subsec_micros());
        let (client, method, uri) = (context.client_addr, request.method(), request.uri());
        self.line = format!("{seconds}.{micros:06} {client} {method} {uri} {verdict}");
        if !is_allowed || request.method() == Method::CONNECT {
            self.log.write(&self.line);
        }
        if is_allowed {
            return request.into();
        }
        let mut refusal = Response::new(Body::from("denied"));
        *refusal.status_mut() = StatusCode::FORBIDDEN;
        refusal.into()
    }

    async fn handle_response(
        &mut self,
        _: &HttpContext,
        response: Response<Body>,
    ) -> Response<Body> {
        self.log.write(&format!("{} {}", self.line, response.status().as_u16()));
        response
    }
}

/// Lines that are written in large pieces by a thread of its own.
#[derive(Clone)]
struct AccessLog(Arc<Mutex<BufWriter<File>>>);

impl AccessLog {
    fn create(path: &str) -> std::io::Result<Self> {
        let log =
            Self(Arc::new(Mutex::new(BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?))));
        let flushed = log.clone();
        thread::spawn(move || {
            loop {
                thread::sleep(FLUSH_INTERVAL);
                flushed.lock().flush().ok();
            }
        });
        Ok(log)
    }

    /// A line that cannot be written is lost: this is no product.
    fn write(&self, line: &str) {
        writeln!(self.lock(), "{line}").ok();
    }

    fn lock(&self) -> MutexGuard<'_, BufWriter<File>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const BUFFER_BYTES: usize = 64 << 10;
const CACHED_LEAVES: u64 = 10_000;
const FLUSH_INTERVAL: Duration = Duration::from_millis(200);
