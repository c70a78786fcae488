//! The sockets that the gateway was started with.
//!
//! This is systemd's protocol: `LISTEN_FDS` counts the sockets, from file
//! descriptor 3 on, and `LISTEN_FDNAMES` may name them. A descriptor that was not
//! counted is not touched, even if the settings name it: it may be anything.

use std::env;
use std::fmt;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::RawFd;

use listenfd::ListenFd;
use socket2::{Domain, Socket, Type};

use crate::config::Fd;

/// Inherited sockets that no listener has taken yet.
pub struct Inherited {
    fds: ListenFd,
    first: RawFd,
    /// One per socket, as far as they have names.
    names: Vec<String>,
}

/// One inherited socket.
#[derive(Debug)]
pub(crate) enum InheritedSocket {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

/// Why an inherited socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InheritedError {
    #[error("{fd} was inherited, and is not a raw socket (AF_INET, SOCK_RAW)")]
    WrongForUnanswered { fd: Fd, source: io::Error },
    #[error("{fd} was inherited, and is not a TCP or UDP socket that can be used")]
    NotASocket { fd: Fd, source: io::Error },
    #[error("{fd} was not inherited; {there}")]
    NotInherited { fd: Fd, there: AvailableSockets },
}

/// The sockets that were inherited, for the message that one was not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AvailableSockets {
    first: RawFd,
    names: Vec<String>,
    count: usize,
}

impl Inherited {
    /// Takes over the sockets that the environment names.
    ///
    /// Call it first, while there is one thread: it removes the variables, so that
    /// no child process takes the sockets for its own.
    pub fn from_env() -> Self {
        let first = env::var(FIRST_FD).ok().and_then(|first| first.parse().ok()).unwrap_or(3);
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let names = names.split(':').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Self { fds: ListenFd::from_env(), first, names }
    }

    /// No socket was inherited.
    pub fn nothing() -> Self {
        Self { fds: ListenFd::empty(), first: 3, names: Vec::new() }
    }

    /// The socket with that number, or every socket of that name: one name may
    /// stand for a TCP and a UDP socket of the same port.
    pub(crate) fn take(&mut self, fd: &Fd) -> Result<Vec<InheritedSocket>, InheritedError> {
        let mut sockets = Vec::new();
        for index in self.indexes(fd) {
            sockets.extend(self.take_at(index, fd)?);
        }
        if sockets.is_empty() { Err(self.not_inherited(fd)) } else { Ok(sockets) }
    }

    /// The raw socket with that number, or those of that name: one sees one protocol.
    /// They are read as they are: whoever opened them has chosen what they see.
    pub(crate) fn take_raw(&mut self, fd: &Fd) -> Result<Vec<Socket>, InheritedError> {
        let unusable = |source| InheritedError::WrongForUnanswered { fd: fd.clone(), source };
        let (family, kind) = (Domain::IPV4.into(), Type::RAW.into());
        let mut sockets = Vec::new();
        for index in self.indexes(fd) {
            let taken = self.fds.take_custom::<Socket>(index, family, kind, "raw socket");
            if let Some(socket) = taken.map_err(unusable)? {
                socket.set_nonblocking(true).map_err(unusable)?;
                sockets.push(socket);
            }
        }
        if sockets.is_empty() { Err(self.not_inherited(fd)) } else { Ok(sockets) }
    }

    fn indexes(&self, fd: &Fd) -> Vec<usize> {
        match fd {
            Fd::Number(number) => number
                .checked_sub(self.first)
                .and_then(|n| usize::try_from(n).ok())
                .into_iter()
                .collect(),
            Fd::Name(name) => {
                let named = self.names.iter().enumerate().filter(|(_, known)| *known == name);
                named.map(|(index, _)| index).collect()
            }
        }
    }

    fn not_inherited(&self, fd: &Fd) -> InheritedError {
        let there = AvailableSockets {
            first: self.first,
            names: self.names.clone(),
            count: self.fds.len(),
        };
        InheritedError::NotInherited { fd: fd.clone(), there }
    }

    fn take_at(
        &mut self,
        index: usize,
        fd: &Fd,
    ) -> Result<Option<InheritedSocket>, InheritedError> {
        let unusable = |source| InheritedError::NotASocket { fd: fd.clone(), source };
        // Asking for the wrong kind leaves it where it is.
        if let Ok(listener) = self.fds.take_tcp_listener(index) {
            let Some(listener) = listener else { return Ok(None) };
            listener.set_nonblocking(true).map_err(unusable)?;
            return Ok(Some(InheritedSocket::Tcp(listener)));
        }
        let socket = self.fds.take_udp_socket(index).map_err(unusable)?;
        let Some(socket) = socket else { return Ok(None) };
        socket.set_nonblocking(true).map_err(unusable)?;
        Ok(Some(InheritedSocket::Udp(socket)))
    }
}

impl fmt::Debug for Inherited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inherited")
            .field("first", &self.first)
            .field("count", &self.fds.len())
            .field("names", &self.names)
            .finish()
    }
}

impl fmt::Display for AvailableSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, names, count } = self;
        if *count == 0 {
            return f
                .write_str("LISTEN_FDS names no sockets, so the gateway was started with none");
        }
        write!(f, "there are {count}, from fd:{first} on")?;
        if names.is_empty() { Ok(()) } else { write!(f, ", called `{}`", names.join("`, `")) }
    }
}

/// Where the count begins, if not at 3. Only `systemfd` and tests say so.
const FIRST_FD: &str = "LISTEN_FDS_FIRST_FD";

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};

    use super::*;

    const THIS: &str =
        "bind::inherited::tests::what_was_handed_over_is_found_by_number_and_by_name";

    /// Sockets can be handed over only to a process that starts: to this test, again.
    #[test]
    fn what_was_handed_over_is_found_by_number_and_by_name() {
        if env::var_os("LISTEN_FDS").is_some() {
            return take_what_was_handed_over();
        }
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = [tcp.local_addr().unwrap(), udp.local_addr().unwrap()];
        let told = Command::new(env::current_exe().unwrap())
            .args(["--exact", THIS])
            .env("LISTEN_FDS", "3")
            .env("LISTEN_FDS_FIRST_FD", "0")
            .env("LISTEN_FDNAMES", "web:output:dns")
            .env("EXPECTED", format!("{} {}", at[0], at[1]))
            .stdin(Stdio::from(OwnedFd::from(tcp)))
            .stdout(Stdio::piped())
            .stderr(Stdio::from(OwnedFd::from(udp)))
            .output()
            .unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stdout));
    }

    fn take_what_was_handed_over() {
        let expected = env::var("EXPECTED").unwrap();
        let mut inherited = Inherited::from_env();
        assert_eq!(inherited.names, ["web", "output", "dns"]);

        let web = inherited.take(&Fd::Number(0)).unwrap();
        let [InheritedSocket::Tcp(tcp)] = &web[..] else { panic!("{web:?}") };
        let dns = inherited.take(&Fd::Name("dns".to_owned())).unwrap();
        let [InheritedSocket::Udp(udp)] = &dns[..] else { panic!("{dns:?}") };
        let found = format!("{} {}", tcp.local_addr().unwrap(), udp.local_addr().unwrap());
        assert_eq!(found, expected);

        let twice = inherited.take(&Fd::Name("web".to_owned())).unwrap_err();
        assert!(matches!(twice, InheritedError::NotInherited { .. }), "{twice}");
        let output = inherited.take(&Fd::Name("output".to_owned())).unwrap_err();
        assert!(matches!(output, InheritedError::NotASocket { .. }), "{output}");
        let other = inherited.take(&Fd::Name("other".to_owned())).unwrap_err();
        let told = "there are 3, from fd:0 on, called `web`, `output`, `dns`";
        assert!(other.to_string().ends_with(told), "{other}");
    }
}
