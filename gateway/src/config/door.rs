//! Where a listener comes from: an address to bind, or an inherited socket.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

/// One listener as it is to be.
#[derive(Clone, Debug, Eq, PartialEq, serde::Deserialize)]
#[serde(try_from = "String")]
pub enum Door {
    Address(SocketAddr),
    Inherited(Fd),
}

/// Which of the sockets we were started with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Fd {
    /// As `LISTEN_FDNAMES` calls it.
    Name(String),
    Number(RawFd),
}

impl Door {
    /// Whether only this machine, or the holder of an inherited socket, can connect.
    pub(super) fn is_on_this_host(&self) -> bool {
        match self {
            Self::Address(address) => address.ip().is_loopback(),
            Self::Inherited(_) => true,
        }
    }

    /// Whether the address it listens on can be the answer to every name. An
    /// inherited socket is asked when it is taken over.
    pub(super) fn has_own_ipv4(&self) -> bool {
        match self {
            Self::Address(address) => match address.ip() {
                IpAddr::V4(address) => !address.is_unspecified(),
                IpAddr::V6(_) => false,
            },
            Self::Inherited(_) => true,
        }
    }
}

impl TryFrom<String> for Door {
    type Error = String;

    fn try_from(written: String) -> Result<Self, Self::Error> {
        if let Some(fd) = written.strip_prefix("fd:") {
            return fd_from(fd).map(Self::Inherited).ok_or_else(|| {
                format!(
                    "`{written}` names no inherited socket; write its number as `fd:3`, or its \
                     name in LISTEN_FDNAMES as `fd:proxy`"
                )
            });
        }
        written.parse().map(Self::Address).map_err(|_| {
            format!(
                "`{written}` is not where one can listen; write an address and a port such as \
                 `127.0.0.1:3128`, or `fd:3` for an inherited socket"
            )
        })
    }
}

fn fd_from(written: &str) -> Option<Fd> {
    if written.bytes().all(|b| b.is_ascii_digit()) {
        return written.parse().ok().map(Fd::Number);
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    written.bytes().all(plain).then(|| Fd::Name(written.to_owned()))
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Inherited(fd) => fd.fmt(f),
        }
    }
}

impl fmt::Display for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "fd:{name}"),
            Self::Number(number) => write!(f, "fd:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_is_an_address_or_an_inherited_socket() {
        for (written, door) in [
            ("127.0.0.1:3128", Door::Address(([127, 0, 0, 1], 3128).into())),
            ("[::1]:53", Door::Address("[::1]:53".parse().unwrap())),
            ("fd:3", Door::Inherited(Fd::Number(3))),
            ("fd:proxy.v4", Door::Inherited(Fd::Name("proxy.v4".into()))),
        ] {
            assert_eq!(Door::try_from(written.to_owned()).as_ref(), Ok(&door));
            assert_eq!(door.to_string(), written);
        }
    }

    #[test]
    fn anything_else_is_quoted_and_answered_with_what_to_write() {
        for written in ["3128", "localhost:3128", "127.0.0.1", ":80", "fd", ""] {
            let err = Door::try_from(written.to_owned()).unwrap_err();
            assert!(err.starts_with(&format!("`{written}` is not where one can listen")), "{err}");
        }
        for written in ["fd:", "fd:-1", "fd:99999999999", "fd:a:b", "fd: 3"] {
            let refused = Door::try_from(written.to_owned());
            match written {
                // A dash begins no number, but it may begin a name.
                "fd:-1" => assert_eq!(refused, Ok(Door::Inherited(Fd::Name("-1".into())))),
                _ => assert!(refused.unwrap_err().contains("names no inherited socket")),
            }
        }
    }
}
