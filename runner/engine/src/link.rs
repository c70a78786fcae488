//! The host's end of the first connection with a sandbox's first process.
//!
//! It is made before any command exists; after it nobody else is let in, so
//! whatever arrives here was said by our own program. It is still read with limits.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use inside::passing;
use protocol::init::{InitMessage, InitOrder, MAX_LINE_BYTES};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::time;

/// The way to a first process that has not spoken yet.
#[derive(Debug)]
pub struct PendingLink {
    listener: UnixListener,
    path: PathBuf,
}

/// The connection. A sandbox whose starter must stay ends when this is dropped.
#[derive(Debug)]
pub struct Link {
    lines: BufReader<UnixStream>,
}

/// Why the first process's report did not arrive, or cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("sluice-init sent more than {MAX_FACTS} facts")]
    Endless,
    #[error("cannot speak with sluice-init")]
    Io(#[from] io::Error),
    #[error("the sandbox did not report within {0:?}")]
    Late(Duration),
    #[error("the sandbox is not on this machine, so its network cannot be entered")]
    NotHere,
    #[error("the sandbox ended before its command was started")]
    Silent,
}

impl PendingLink {
    /// Listens at `path`, for whoever the sandbox's user may be. That it is the
    /// sandbox is the business of the folder around it.
    pub fn listen_at(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o666))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Waits for the first process, and shuts the door behind it.
    pub async fn accept(self, within: Duration) -> Result<Link, LinkError> {
        let accepted = time::timeout(within, self.listener.accept()).await;
        let (stream, _) = accepted.map_err(|_| LinkError::Late(within))??;
        drop(fs::remove_file(&self.path));
        Ok(Link { lines: BufReader::new(stream) })
    }
}

impl Link {
    /// The number of the first process on this machine. The kernel says it, so it is right
    /// in whichever process namespace an engine counts.
    pub fn first_process(&self) -> Result<i32, LinkError> {
        let peer = self.lines.get_ref().peer_cred()?.pid();
        // Nought is one that cannot be seen from here.
        peer.filter(|pid| *pid > 0).ok_or(LinkError::NotHere)
    }

    /// The connection itself, where it is not for messages.
    pub fn into_stream(self) -> UnixStream {
        self.lines.into_inner()
    }

    /// What was measured before any command.
    pub async fn facts(&mut self, within: Duration) -> Result<BTreeMap<String, String>, LinkError> {
        let reading = async {
            let mut facts = BTreeMap::new();
            loop {
                match self.next().await? {
                    Some(InitMessage::Fact { name, value }) if facts.len() < MAX_FACTS => {
                        facts.insert(name, value);
                    }
                    Some(InitMessage::Fact { .. }) => return Err(LinkError::Endless),
                    Some(InitMessage::Ready) => return Ok(facts),
                    Some(_) | None => return Err(LinkError::Silent),
                }
            }
        };
        time::timeout(within, reading).await.map_err(|_| LinkError::Late(within))?
    }

    async fn next(&mut self) -> Result<Option<InitMessage>, LinkError> {
        let mut line = Vec::new();
        let limit = MAX_LINE_BYTES as u64;
        let read = (&mut self.lines).take(limit).read_until(b'\n', &mut line).await?;
        match read {
            0 => Ok(None),
            _ => Ok(Some(serde_json::from_slice(&line).map_err(io::Error::other)?)),
        }
    }

    /// Hands over the socket that commands are served on.
    pub async fn hand_over_socket(&self, listener: impl AsFd) -> Result<(), LinkError> {
        let line = passing::line(&InitOrder::Serve)?;
        let stream = self.lines.get_ref();
        // One short line: it goes whole or not at all.
        let send = || Ok(passing::send_some(stream, &line, &[listener.as_fd()])?);
        stream.async_io(Interest::WRITABLE, send).await?;
        Ok(())
    }
}

const MAX_FACTS: usize = 256;

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    fn fact(name: &str, value: &str) -> Vec<u8> {
        let (name, value) = (name.to_owned(), value.to_owned());
        passing::line(&InitMessage::Fact { name, value }).unwrap()
    }

    #[tokio::test]
    async fn only_the_first_one_is_let_in() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("s");
        let listening = PendingLink::listen_at(&path).unwrap();
        let mut first = UnixStream::connect(&path).await.unwrap();
        let mut link = listening.accept(SOON).await.unwrap();
        assert!(UnixStream::connect(&path).await.is_err());
        first.write_all(&fact("a", "b\nc")).await.unwrap();
        first.write_all(&passing::line(&InitMessage::Ready).unwrap()).await.unwrap();
        let facts = link.facts(SOON).await.unwrap();
        assert_eq!(facts.get("a").map(String::as_str), Some("b\nc"));
        drop(first);
        assert!(matches!(link.facts(SOON).await, Err(LinkError::Silent)));
    }

    #[tokio::test]
    async fn a_sandbox_that_talks_without_end_is_not_believed() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut link = Link { lines: BufReader::new(near) };
        let talker = tokio::spawn(async move {
            let mut far = far;
            let mut number = 0_u32;
            while far.write_all(&fact(&format!("n{number}"), "x")).await.is_ok() {
                number += 1;
            }
        });
        assert!(matches!(link.facts(SOON).await, Err(LinkError::Endless)));
        drop(link);
        talker.await.unwrap();
    }
}
