//! Step 2 of 10, for SOCKS5 (RFC 1928): where the client wants to go.
//!
//! No authentication, CONNECT alone, names and addresses. A name arrives as
//! counted bytes, so it may hold anything, also a NUL or a line break; it goes
//! through the same parser as every other name, and what that refuses never
//! reaches policy.
//!
//! Exactly the bytes of the negotiation are read, never one more: what a client
//! sends ahead belongs to whoever serves the connection next. Every message has
//! a length that one byte can say, and the whole has a deadline, so a client
//! that trickles holds a few hundred bytes for a few seconds.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use policies::{Destination, Host, HostError};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time;

/// What a request is answered with. The numbers are RFC 1928's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SocksReply {
    AddressTypeUnsupported = 8,
    CommandUnsupported = 7,
    GeneralFailure = 1,
    NotAllowed = 2,
    Succeeded = 0,
}

/// Why no destination came out of a negotiation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocksError {
    #[error("the address type {0} is not one of IPv4, name and IPv6")]
    AddressType(u8),
    #[error("{0}")]
    Host(#[from] HostError),
    #[error("the client went away: {0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Malformed(&'static str),
    #[error("the client did not say where it wants to go within {0:?}")]
    Timeout(Duration),
    #[error("only CONNECT is served; BIND and UDP would leave without being seen (command {0})")]
    UnsupportedCommand(u8),
    #[error("version {0} of SOCKS is not spoken here; use SOCKS5")]
    Version(u8),
    #[error("the client insists on authenticating, and there is nothing to authenticate against")]
    WantsAuthentication,
}

/// Reads where the client wants to go.
///
/// When this fails the client has been told, as far as the protocol has words
/// for it. When it succeeds the client waits for a [`reply`].
pub(crate) async fn negotiate<S>(stream: &mut S, limit: Duration) -> Result<Destination, SocksError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let negotiation = async {
        greet(stream).await?;
        request(stream).await
    };
    match time::timeout(limit, negotiation).await {
        Ok(outcome) => outcome,
        Err(_elapsed) => Err(SocksError::Timeout(limit)),
    }
}

/// Answers the client's request. The bound address is left unsaid: it is ours,
/// and none of the sandbox's business.
pub(crate) async fn reply<S>(stream: &mut S, reply: SocksReply) -> io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    let [version, reserved] = [VERSION, 0];
    stream.write_all(&[version, reply as u8, reserved, IPV4, 0, 0, 0, 0, 0, 0]).await?;
    stream.flush().await
}

/// Agrees on "no authentication", or refuses.
async fn greet<S>(stream: &mut S) -> Result<(), SocksError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match stream.read_u8().await? {
        VERSION => {}
        4 => {
            // In its own words, so that the client reports a refusal and not a riddle.
            stream.write_all(&[0, SOCKS4_REJECTED, 0, 0, 0, 0, 0, 0]).await?;
            return Err(SocksError::Version(4));
        }
        other => return Err(SocksError::Version(other)),
    }
    let mut methods = [0; u8::MAX as usize];
    let offered = usize::from(stream.read_u8().await?);
    let methods = methods.get_mut(..offered).unwrap_or_default();
    stream.read_exact(methods).await?;
    if methods.contains(&NO_AUTHENTICATION) {
        stream.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
        stream.flush().await?;
        Ok(())
    } else {
        stream.write_all(&[VERSION, NONE_ACCEPTABLE]).await?;
        Err(SocksError::WantsAuthentication)
    }
}

/// Reads the request, and answers it if it cannot be served.
async fn request<S>(stream: &mut S) -> Result<Destination, SocksError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let refusal = match read_request(stream).await {
        Ok(destination) => return Ok(destination),
        Err(refusal) => refusal,
    };
    let told = match refusal {
        SocksError::AddressType(_) => SocksReply::AddressTypeUnsupported,
        SocksError::Host(_) | SocksError::Malformed(_) => SocksReply::GeneralFailure,
        SocksError::UnsupportedCommand(_) => SocksReply::CommandUnsupported,
        SocksError::Io(_)
        | SocksError::Timeout(_)
        | SocksError::Version(_)
        | SocksError::WantsAuthentication => return Err(refusal),
    };
    reply(stream, told).await?;
    Err(refusal)
}

async fn read_request<S>(stream: &mut S) -> Result<Destination, SocksError>
where
    S: AsyncRead + Unpin,
{
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [version, command, reserved, address_type] = head;
    if version != VERSION {
        return Err(SocksError::Version(version));
    }
    if reserved != 0 {
        return Err(SocksError::Malformed("the reserved byte is not zero"));
    }
    // The whole request is read before a command is refused: closing a socket
    // with bytes unread resets it, and the refusal would be lost with them.
    let host = read_host(stream, address_type).await?;
    let port = stream.read_u16().await?;
    if command != CONNECT {
        return Err(SocksError::UnsupportedCommand(command));
    }
    if port == 0 {
        return Err(SocksError::Malformed("port 0 cannot be dialled"));
    }
    Ok(Destination { host: host?, port })
}

/// The outer error ends the reading; the inner one is about the name alone, and
/// what follows the name can still be read.
async fn read_host<S>(
    stream: &mut S,
    address_type: u8,
) -> Result<Result<Host, SocksError>, SocksError>
where
    S: AsyncRead + Unpin,
{
    match address_type {
        IPV4 => {
            let mut octets = [0; 4];
            stream.read_exact(&mut octets).await?;
            Ok(Ok(Host::from(IpAddr::V4(Ipv4Addr::from(octets)))))
        }
        IPV6 => {
            let mut octets = [0; 16];
            stream.read_exact(&mut octets).await?;
            Ok(Ok(Host::from(IpAddr::V6(Ipv6Addr::from(octets)))))
        }
        NAME => {
            let mut name = [0; u8::MAX as usize];
            let length = usize::from(stream.read_u8().await?);
            let name = name.get_mut(..length).unwrap_or_default();
            stream.read_exact(name).await?;
            Ok(Host::parse_bytes(name).map_err(SocksError::Host))
        }
        other => Err(SocksError::AddressType(other)),
    }
}

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NONE_ACCEPTABLE: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
const SOCKS4_REJECTED: u8 = 91;

#[cfg(test)]
mod tests;
