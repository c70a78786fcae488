//! `pbench origin`: the server behind every proxy, with HTTP/1.1 and HTTP/2 by ALPN.
//!
//! A second port, without TLS, answers every request with the counters: connections,
//! handshakes, requests. They show how a proxy treats its upstream side.

mod counters;
mod responses;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::{HandshakeKind, ProtocolVersion};
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use self::counters::OriginCounters;
use crate::tls;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value = "127.0.0.77:443")]
    listen: SocketAddr,
    /// Where the counters are
    #[arg(long, default_value = "127.0.0.77:8077")]
    admin: String,
    #[arg(long)]
    cert: PathBuf,
    #[arg(long)]
    key: PathBuf,
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let acceptor = TlsAcceptor::from(tls::origin_config(&args.cert, &args.key)?);
    let counters = Arc::new(OriginCounters::default());
    let admin = TcpListener::bind(&args.admin).await.with_context(|| args.admin.clone())?;
    tokio::spawn(serve_counters(admin, Arc::clone(&counters)));

    let listener = listen(args.listen)?;
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        OriginCounters::count(&counters.tcp);
        tokio::spawn(serve(socket, acceptor.clone(), Arc::clone(&counters)));
    }
}

/// With room for every connection that a workload opens at once.
fn listen(address: SocketAddr) -> Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into()).with_context(|| address.to_string())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into())?)
}

async fn serve(socket: TcpStream, acceptor: TlsAcceptor, counters: Arc<OriginCounters>) {
    // It fails on a socket that is gone already.
    socket.set_nodelay(true).ok();
    let Ok(stream) = acceptor.accept(socket).await else {
        return OriginCounters::count(&counters.tls_failed);
    };
    let tls = stream.get_ref().1;
    OriginCounters::count(match tls.handshake_kind() {
        Some(HandshakeKind::Resumed) => &counters.tls_resumed,
        _ => &counters.tls_full,
    });
    if tls.protocol_version() == Some(ProtocolVersion::TLSv1_2) {
        OriginCounters::count(&counters.tls12);
    }
    let is_h2 = tls.alpn_protocol() == Some(b"h2");
    if is_h2 {
        OriginCounters::count(&counters.h2_conns);
    }

    let _open = counters.open_connection();
    let answering = service_fn(move |request| {
        let counters = Arc::clone(&counters);
        async move { responses::answer(request, &counters).await }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    let mut server = if is_h2 { server.http2_only() } else { server.http1_only() };
    server
        .http2()
        .max_concurrent_streams(1024)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20);
    // However it ends, the client says what it missed.
    server.serve_connection(TokioIo::new(stream), answering).await.ok();
}

async fn serve_counters(listener: TcpListener, counters: Arc<OriginCounters>) {
    while let Ok((socket, _)) = listener.accept().await {
        let counters = Arc::clone(&counters);
        tokio::spawn(async move {
            let answering = service_fn(|_: hyper::Request<Incoming>| async {
                Ok::<_, Infallible>(responses::text(counters.json().to_string()))
            });
            http1::Builder::new().serve_connection(TokioIo::new(socket), answering).await.ok();
        });
    }
}

const BACKLOG: i32 = 4096;
