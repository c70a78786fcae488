//! SOCKS5 from the client's side.

use std::net::IpAddr;

use super::Sandbox;
use crate::line::Line;

/// Whom a SOCKS client asks for.
#[derive(Clone, Debug)]
pub enum SocksName {
    Address(IpAddr),
    Bytes(Vec<u8>),
    Host(String),
}

impl SocksName {
    fn spelled(&self) -> Vec<u8> {
        let name = |bytes: &[u8]| {
            let length = u8::try_from(bytes.len()).unwrap();
            [&[3, length], bytes].concat()
        };
        match self {
            Self::Address(IpAddr::V4(address)) => [&[1], address.octets().as_slice()].concat(),
            Self::Address(IpAddr::V6(address)) => [&[4], address.octets().as_slice()].concat(),
            Self::Bytes(bytes) => name(bytes),
            Self::Host(host) => name(host.as_bytes()),
        }
    }
}

impl Sandbox {
    /// Asks for a connection; the error is the reply code.
    pub async fn socks_to(&self, name: SocksName, port: u16) -> Result<Line, u8> {
        self.socks_ask(1, &name, port).await
    }

    /// Sends any command.
    pub async fn socks_ask(&self, command: u8, name: &SocksName, port: u16) -> Result<Line, u8> {
        let mut line = self.socks().await;
        line.send([5, 1, 0]).await;
        assert_eq!(line.take(2).await, [5, 0], "no-auth is accepted");
        let request = [&[5, command, 0], name.spelled().as_slice(), &port.to_be_bytes()].concat();
        line.send(request).await;
        let head = line.take(4).await;
        let code = head[1];
        match head[3] {
            1 => line.take(6).await,
            3 => {
                let length = line.take(1).await[0];
                line.take(usize::from(length) + 2).await
            }
            4 => line.take(18).await,
            kind => panic!("a reply with the address type {kind}"),
        };
        if code == 0 { Ok(line) } else { Err(code) }
    }
}
