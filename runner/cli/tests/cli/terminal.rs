//! A terminal with the program in it, and somebody who types.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

/// The program, and what its terminal has shown so far.
pub(crate) struct Terminal {
    child: Child,
    screen: File,
    shown: String,
}

impl Terminal {
    /// Starts `command` with a terminal for all it reads and says.
    pub(crate) fn start(command: Command) -> Self {
        Self::start_typed(command, "")
    }

    /// The same, with keys that were pressed before it began.
    pub(crate) fn start_typed(mut command: Command, keys: &str) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let screen = openpt(flags).unwrap();
        grantpt(&screen).unwrap();
        unlockpt(&screen).unwrap();
        let end = || Stdio::from(ioctl_tiocgptpeer(&screen, flags).unwrap());
        command.stdin(end()).stdout(end()).stderr(end());
        let mut screen = File::from(screen);
        screen.write_all(keys.as_bytes()).unwrap();
        let child = command.spawn().unwrap();
        // It holds ends of its own, which would keep the terminal open.
        drop(command);
        Self { child, screen, shown: String::new() }
    }

    /// Waits until `words` are shown.
    #[track_caller]
    pub(crate) fn until(&mut self, words: &str) {
        while !self.shown.contains(words) {
            assert!(self.read(), "it ended without {words:?}:\n{}", self.shown);
        }
    }

    pub(crate) fn type_in(&mut self, keys: &str) {
        self.screen.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for its end: the code, and all that was shown.
    pub(crate) fn end(mut self) -> (i32, String) {
        while self.read() {}
        (self.child.wait().unwrap().code().unwrap(), std::mem::take(&mut self.shown))
    }

    /// Reads more; whether there was any.
    fn read(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(90);
        let mut ready = [PollFd::new(&self.screen, PollFlags::IN)];
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        while poll(&mut ready, Some(&second)).unwrap_or(0) == 0 {
            assert!(Instant::now() < deadline, "it says nothing more:\n{}", self.shown);
        }
        let mut bytes = [0; 4096];
        // An error is how a terminal ends whose other side is closed.
        let read = self.screen.read(&mut bytes).unwrap_or(0);
        self.shown.push_str(&String::from_utf8_lossy(&bytes[..read]).replace('\r', ""));
        read > 0
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
