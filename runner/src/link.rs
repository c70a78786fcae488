//! The runner's half of the talk with a sandbox's first process.
//!
//! The first connection is the first process's, made before any command exists;
//! after it nobody else is let in, so whatever arrives here was said by our own
//! program. It is still read with limits.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Interest};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::time;

use crate::init::passing;
use crate::init::wire::{End, LONGEST, NotAMessage, Order, Report};

/// The socket, before the first process has come.
#[derive(Debug)]
pub struct Listening {
    listener: UnixListener,
    path: PathBuf,
}

/// The connection, split so that one can listen while another speaks.
#[derive(Debug)]
pub struct Hearing {
    lines: BufReader<OwnedReadHalf>,
}

#[derive(Debug)]
pub struct Speaking {
    stream: OwnedWriteHalf,
}

/// Why nothing was understood.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("the sandbox's first process sent more facts than there are")]
    Endless,
    #[error("cannot speak with the sandbox's first process")]
    Io(#[from] io::Error),
    #[error("the sandbox did not report within {0:?}")]
    Late(Duration),
    #[error(transparent)]
    NotAMessage(#[from] NotAMessage),
    #[error("the sandbox ended before its command was started")]
    Silent,
}

impl Listening {
    /// Listens at `path`, for whoever the sandbox's user may be. That it is the
    /// sandbox is the business of the folder around it.
    pub fn at(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o666))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the first process, and shuts the door behind it.
    pub async fn accept(self, within: Duration) -> Result<(Hearing, Speaking), LinkError> {
        let accepted = time::timeout(within, self.listener.accept()).await;
        let (stream, _) = accepted.map_err(|_| LinkError::Late(within))??;
        drop(fs::remove_file(&self.path));
        Ok(split(stream))
    }
}

/// Both halves of a connection with a sandbox's first process.
pub(crate) fn split(stream: UnixStream) -> (Hearing, Speaking) {
    let (reading, writing) = stream.into_split();
    (Hearing { lines: BufReader::new(reading) }, Speaking { stream: writing })
}

impl Hearing {
    /// What was measured before the command.
    pub async fn facts(&mut self, within: Duration) -> Result<BTreeMap<String, String>, LinkError> {
        let reading = async {
            let mut facts = BTreeMap::new();
            loop {
                match self.next().await? {
                    Some(Report::Fact { name, value }) if facts.len() < MOST_FACTS => {
                        facts.insert(name, value);
                    }
                    Some(Report::Fact { .. }) => return Err(LinkError::Endless),
                    Some(Report::Ready) => return Ok(facts),
                    Some(Report::Ended(_) | Report::Started) | None => {
                        return Err(LinkError::Silent);
                    }
                }
            }
        };
        time::timeout(within, reading).await.map_err(|_| LinkError::Late(within))?
    }

    /// What was measured after it, and how it ended; nothing if it vanished.
    pub async fn end(&mut self) -> (BTreeMap<String, String>, Option<End>) {
        let mut facts = BTreeMap::new();
        while facts.len() < MOST_FACTS {
            match self.next().await {
                Ok(Some(Report::Fact { name, value })) => {
                    facts.insert(name, value);
                }
                Ok(Some(Report::Ended(end))) => return (facts, Some(end)),
                Ok(Some(Report::Ready | Report::Started) | None) | Err(_) => break,
            }
        }
        (facts, None)
    }

    async fn next(&mut self) -> Result<Option<Report>, LinkError> {
        let mut line = Vec::new();
        let limit = u64::try_from(LONGEST).unwrap_or(u64::MAX);
        let read = (&mut self.lines).take(limit).read_until(b'\n', &mut line).await?;
        if read == 0 {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&line);
        Ok(Some(Report::parse(line.trim_end_matches('\n'))?))
    }
}

impl Speaking {
    /// That nobody listens any more is noticed elsewhere.
    pub async fn order(&mut self, order: Order) {
        drop(self.stream.write_all(format!("{order}\n").as_bytes()).await);
    }

    /// Hands over the socket that a session is served on.
    pub async fn serve(self, door: impl AsFd) -> Result<(), LinkError> {
        let line = format!("{}\n", Order::Serve);
        let stream: &UnixStream = self.stream.as_ref();
        // One short line: it goes whole or not at all.
        let send = || Ok(passing::send(stream, line.as_bytes(), &[door.as_fd()])?);
        stream.async_io(Interest::WRITABLE, send).await?;
        Ok(())
    }
}

const MOST_FACTS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn only_the_first_to_come_is_listened_to() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("s");
        let listening = Listening::at(&path).unwrap();
        let mut first = UnixStream::connect(&path).await.unwrap();
        let (mut hearing, _speaking) = listening.accept(SOON).await.unwrap();
        assert!(UnixStream::connect(&path).await.is_err());
        first.write_all(b"fact a b c\nready\n").await.unwrap();
        let facts = hearing.facts(SOON).await.unwrap();
        assert_eq!(facts.get("a").map(String::as_str), Some("b c"));
        drop(first);
        assert_eq!(hearing.end().await.1, None);
    }

    #[tokio::test]
    async fn a_sandbox_that_talks_without_end_is_not_believed() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut hearing, _speaking) = split(near);
        let talker = tokio::spawn(async move {
            let mut far = far;
            let mut number = 0_u32;
            while far.write_all(format!("fact n{number} x\n").as_bytes()).await.is_ok() {
                number += 1;
            }
        });
        assert!(matches!(hearing.facts(SOON).await, Err(LinkError::Endless)));
        drop(hearing);
        drop(_speaking);
        talker.await.unwrap();
    }
}
