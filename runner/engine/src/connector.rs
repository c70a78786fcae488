//! A way to somebody who serves, that can be used again and again.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

/// A connection, whatever carries it.
pub trait Stream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

pub type ByteStream = Pin<Box<dyn Stream>>;

/// Leads to a server: on this machine to a socket, elsewhere through whatever the
/// backend has for that.
#[derive(Clone)]
pub struct Connector {
    /// For people.
    name: Arc<str>,
    connect: Arc<dyn Fn() -> BoxFuture<'static, io::Result<ByteStream>> + Send + Sync>,
}

impl Connector {
    /// To a Unix socket on this machine.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        let path: PathBuf = path.into();
        let name = path.display().to_string().into();
        let connect = move || -> BoxFuture<'static, io::Result<ByteStream>> {
            let path = path.clone();
            Box::pin(async move { Ok(Box::pin(UnixStream::connect(path).await?) as ByteStream) })
        };
        Self { name, connect: Arc::new(connect) }
    }

    pub async fn connect(&self) -> io::Result<ByteStream> {
        (self.connect)().await
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connector").field(&self.name).finish()
    }
}

impl fmt::Display for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
