//! `sluice-launch`, as its runner sees it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as Pair;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use inside::passing;
use protocol::launcher::{LauncherCommand, LauncherMessage};
use serde::Serialize;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

/// A launcher that was started, and what it said and we have not read.
#[derive(Debug)]
pub(in crate::backend) struct Launcher {
    pub(in crate::backend) voice: LauncherWriter,
    pub(in crate::backend) pid: u32,
    text: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// The way to speak to it, also while somebody else listens.
#[derive(Clone, Debug)]
pub(in crate::backend) struct LauncherWriter(Arc<UnixStream>);

/// One of our own programs, with a socket for its standard input.
pub(in crate::backend) fn start(
    program: &Path,
    word: &str,
    log: [Stdio; 2],
) -> io::Result<(Child, UnixStream)> {
    let (near, far) = Pair::pair()?;
    near.set_nonblocking(true)?;
    let [output, error] = log;
    let child = Command::new(program)
        .arg(word)
        .stdin(OwnedFd::from(far))
        .stdout(output)
        .stderr(error)
        .env_clear()
        // What is typed at our terminal is for us to pass on.
        .process_group(0)
        .spawn()?;
    Ok((child, UnixStream::from_std(near)?))
}

impl Launcher {
    pub(in crate::backend) fn start(program: &Path, word: &str) -> io::Result<Self> {
        let (mut child, socket) = start(program, word, [Stdio::null(), Stdio::null()])?;
        let pid = child.id().unwrap_or_default();
        // Whatever becomes of it, somebody has to wait for it.
        tokio::spawn(async move { child.wait().await });
        Ok(Self { voice: LauncherWriter(Arc::new(socket)), pid, text: Vec::new(), fds: Vec::new() })
    }

    /// The next report, and the descriptors it brings; nothing when the launcher
    /// is gone.
    pub(in crate::backend) async fn hear(
        &mut self,
    ) -> io::Result<Option<(LauncherMessage, Vec<OwnedFd>)>> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                let report = serde_json::from_slice(&line)?;
                let brings = matches!(report, LauncherMessage::ListenersOpened);
                let fds = if brings { std::mem::take(&mut self.fds) } else { Vec::new() };
                return Ok(Some((report, fds)));
            }
            let mut buffer = [0; 4096];
            self.voice.0.readable().await?;
            let fds = &mut self.fds;
            let read = self.voice.0.try_io(Interest::READABLE, || {
                passing::receive(&*self.voice.0, &mut buffer, fds).map_err(Into::into)
            });
            match read {
                Ok(0) => return Ok(None),
                Ok(length) if self.text.len() < MAX_MESSAGE_BYTES => {
                    self.text.extend(buffer.get(..length).unwrap_or_default());
                }
                Ok(_) => return Err(io::Error::other("the launcher talks without end")),
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
                Err(err) => return Err(err),
            }
        }
    }
}

impl LauncherWriter {
    /// One line.
    pub(in crate::backend) async fn say(&self, message: &impl Serialize) -> io::Result<()> {
        say(&self.0, message, &[]).await
    }

    /// One line, and the descriptors that go with it.
    pub(in crate::backend) async fn hand_over(
        &self,
        message: &impl Serialize,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        say(&self.0, message, fds).await
    }

    /// Ends the sandbox. That nobody listens any more is as good.
    pub(in crate::backend) async fn kill(&self) {
        drop(self.say(&LauncherCommand::Kill).await);
    }
}

/// One line, and the descriptors that go with it.
pub(in crate::backend) async fn say(
    socket: &UnixStream,
    message: &impl Serialize,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let (mut left, mut fds) = (line.as_slice(), fds);
    while !left.is_empty() {
        socket.writable().await?;
        let sent = socket.try_io(Interest::WRITABLE, || {
            passing::send_some(socket, left, fds).map_err(Into::into)
        });
        match sent {
            Ok(sent) => {
                left = left.get(sent..).unwrap_or_default();
                fds = &[];
            }
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
            Err(err) => return Err(err),
        }
    }
    Ok(())
}

const MAX_MESSAGE_BYTES: usize = 64 * 1024;
