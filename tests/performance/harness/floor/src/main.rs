//! floor-proxy: what CPU, latency and memory are within reach, as a lower bound.
//!
//!   floor-proxy PORT CA.pem CA.key ORIGIN_CA.pem LOG ALLOWED_SUFFIX THREADS
//!
//! Not a product: no deadlines, no limits, no changed headers, no HTTP/2. It opens TLS,
//! checks the host and logs one line for each request, so that bars can be set by a
//! measurement. It shares no code with the gateway and stays as it is when that
//! changes. What it does on purpose:
//!
//! - both handshakes at once, and upstream connections that are kept for the next client;
//! - a leaf for each host, made once, all with one key; sessions that both sides resume;
//! - a thread for each processor, with a listener of its own;
//! - buffers only while bytes are in flight, large reads while a peer sends at full speed
//!   (TLS by itself reads four kibibytes at a time), several records in one write.

mod access_log;
mod body;
mod buffer;
mod leaf;
mod proxy;
mod read_ahead;
mod relay;
mod upstream;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::task::{self, LocalSet};

use self::access_log::AccessLog;
use self::leaf::LeafMaker;
use self::proxy::FloorProxy;
use self::upstream::Upstreams;

/// The command line, in its order.
struct FloorArgs {
    port: u16,
    ca: PathBuf,
    ca_key: PathBuf,
    origin_ca: PathBuf,
    log: PathBuf,
    allowed_suffix: String,
    threads: usize,
}

impl FloorArgs {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut next = |name: &str| words.next().with_context(|| format!("{name} is missing"));
        Ok(Self {
            port: next("PORT")?.parse()?,
            ca: next("CA.pem")?.into(),
            ca_key: next("CA.key")?.into(),
            origin_ca: next("ORIGIN_CA.pem")?.into(),
            log: next("LOG")?.into(),
            allowed_suffix: next("ALLOWED_SUFFIX")?,
            threads: next("THREADS")?.parse()?,
        })
    }
}

fn main() -> Result<()> {
    let args = FloorArgs::parse(std::env::args().skip(1))?;
    let provider = provider();
    let proxy = Arc::new(FloorProxy {
        leaves: LeafMaker::read(&args.ca, &args.ca_key, Arc::clone(&provider))?,
        upstream_tls: upstream::tls_config(&args.origin_ca, provider)?,
        allowed_suffix: args.allowed_suffix,
        log: AccessLog::create(&args.log)?,
    });
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let threads: Vec<_> = (0..args.threads)
        .map(|_| {
            let (proxy, listener) = (Arc::clone(&proxy), listen(address)?);
            Ok(thread::spawn(move || serve(listener, &proxy)))
        })
        .collect::<Result<_>>()?;
    for thread in threads {
        thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked")))?;
    }
    Ok(())
}

fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![kx_group::X25519, kx_group::SECP256R1];
    Arc::new(provider)
}

/// Every thread listens on the same port; the kernel spreads connections over them.
fn listen(address: SocketAddr) -> Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into()).with_context(|| address.to_string())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// One thread's connections, until the process ends.
fn serve(listener: Socket, proxy: &Arc<FloorProxy>) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::from_std(listener.into())?;
        let upstreams = Rc::new(Upstreams::default());
        loop {
            let Ok((socket, client)) = listener.accept().await else { continue };
            let (proxy, upstreams) = (Arc::clone(proxy), Rc::clone(&upstreams));
            task::spawn_local(async move {
                // The client sees that it ended; nobody else wants to know.
                proxy.serve(socket, client, &upstreams).await.ok();
            });
        }
    })
}

const BACKLOG: i32 = 1024;

#[cfg(test)]
mod tests;
