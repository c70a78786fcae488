//! Through a proxy of the operator's.
//!
//! We connect to the proxy, ask it for `CONNECT host:port`, and then speak with
//! the upstream as if it were at the other end of the wire; TLS is verified
//! against the upstream's own name all the same.
//!
//! A name is sent as it is, and the proxy looks it up. So the addresses behind
//! a name are the proxy's to judge, not ours; what policy says about names
//! holds, and an address literal is checked as ever. A network whose proxy
//! resolves inside names is a network whose inside names need a policy.

use std::io;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use policies::Destination;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::resolve::ResolveError;
use super::settings::{Credentials, UpstreamProxy};
use crate::http1_codec::head::{HeadFault, HeadSearch, ResponseHead};

/// Why the operator's proxy led nowhere.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxyError {
    #[error("it wants other credentials")]
    Credentials,
    #[error("its name leads to a metadata address")]
    Forbidden,
    #[error("cannot reach it")]
    Io(#[from] io::Error),
    #[error("its answer is not HTTP")]
    NotHttp(#[from] HeadFault),
    #[error("it answered {status}")]
    Refused { status: u16 },
    #[error("cannot resolve its name")]
    Unresolved(#[source] ResolveError),
}

/// Asks the proxy at the other end of `stream` to connect it with `to`.
pub(super) async fn connect(
    proxy: &UpstreamProxy,
    to: &Destination,
    stream: &mut TcpStream,
) -> Result<(), ProxyError> {
    stream.write_all(request(proxy.credentials.as_ref(), to).as_bytes()).await?;
    match read_status(stream).await? {
        200..=299 => Ok(()),
        407 => Err(ProxyError::Credentials),
        status => Err(ProxyError::Refused { status }),
    }
}

fn request(credentials: Option<&Credentials>, to: &Destination) -> String {
    let authorization = credentials.map_or_else(String::new, |credentials| {
        let encoded = BASE64_STANDARD.encode(credentials.expose());
        format!("Proxy-Authorization: Basic {encoded}\r\n")
    });
    format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{authorization}\r\n")
}

/// Reads the head of the answer, and not one byte of what follows it.
///
/// Byte by byte, because the bytes after the head are the upstream's. It is
/// short, and read once per connection.
async fn read_status(stream: &mut (impl AsyncRead + Unpin)) -> Result<u16, ProxyError> {
    let (mut head, mut search) = (Vec::with_capacity(256), HeadSearch::new(MAX_HEAD_BYTES));
    while search.end(&head)?.is_none() {
        head.push(stream.read_u8().await?);
    }
    let mut response = ResponseHead::default();
    response.read(&head, MAX_HEADERS)?;
    Ok(response.status)
}

const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever a proxy answers, it is read to the end of its head at most,
        /// and only a status counts as one.
        #[test]
        fn an_answer_is_a_status_or_an_error_and_never_a_panic(
            answer in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let read = runtime.block_on(async {
                read_status(&mut answer.as_slice()).await
            });
            if let Ok(status) = read {
                prop_assert!(answer.starts_with(b"HTTP/1."));
                prop_assert!((100..1000).contains(&status));
            }
        }
    }
}
