//! The host's end of a relay: a sandbox's doors where nobody may open sockets in there.
//!
//! A launcher makes a network that is a twin of the sandbox's, with the gateway's sockets
//! in it. The sandbox's first process opens the same doors by itself and comes to a socket
//! of ours; that connection is handed to the launcher, which makes every connection that is
//! announced on it again in the twin. Whatever the sandbox says there, it reaches what it
//! would reach at its own doors.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use protocol::launcher::{LauncherCommand, LauncherMessage, RelaySpec};

use super::doors::{self, OpenDoors};
use super::launcher::Launcher;
use super::local::LocalFiles;
use crate::link::PendingLink;
use crate::own_user;
use crate::plan::{NetworkPlan, Plan};

/// A twin that waits for its sandbox.
#[derive(Debug)]
pub(in crate::backend) struct RelayTwin {
    launcher: Launcher,
}

impl RelayTwin {
    /// Makes it, with the gateway's sockets.
    pub(in crate::backend) async fn make(
        program: &Path,
        plan: &Plan,
        network: &NetworkPlan,
    ) -> io::Result<(Self, OpenDoors)> {
        let mut launcher = Launcher::start(program, "relay")?;
        let user = own_user::gateway_user();
        let spec = RelaySpec {
            listeners: doors::listeners(network),
            user: user.uid,
            group: user.gid,
            session: plan.session.is_some(),
        };
        launcher.voice.say(&spec).await?;
        let doors = OpenDoors::received(&mut launcher, &spec.listeners).await?;
        Ok((Self { launcher }, doors))
    }

    /// Waits for the sandbox's first process, and lets the twin serve it until either is
    /// gone. Where nobody comes the twin ends with its sandbox's start.
    pub(in crate::backend) fn serve(self, local: &LocalFiles) -> io::Result<()> {
        let pending = PendingLink::listen_at(&local.relay_socket())?;
        let Self { mut launcher } = self;
        tokio::spawn(async move {
            let Ok(channel) = pending.accept(CHANNEL_TIMEOUT).await else { return };
            let stream = channel.into_stream();
            let to_twin = launcher.voice.clone();
            if to_twin.hand_over(&LauncherCommand::Relay, &[stream.as_fd()]).await.is_err() {
                return;
            }
            drop(stream);
            // It says nothing more before its end.
            while let Ok(Some((LauncherMessage::ListenersOpened, _))) = launcher.hear().await {}
        });
        Ok(())
    }
}

/// A sandbox whose first process has not come by then will not.
const CHANNEL_TIMEOUT: Duration = Duration::from_secs(300);
