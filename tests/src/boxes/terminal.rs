//! A person's terminal: `sluice` on a pseudo-terminal, and what it is shown.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::Person;
use crate::deadline::{ChildDeadline as _, JoinDeadline as _};

/// A `sluice` that has a terminal.
#[derive(Debug)]
pub struct OnTerminal {
    child: Child,
    /// Where the person sits.
    outside: File,
    /// What programs have.
    inside: OwnedFd,
    answer_after: Duration,
}

impl Person {
    /// `sluice` with these arguments, on a terminal of its own.
    pub fn on_terminal(&self, arguments: &[&str]) -> OnTerminal {
        let outside = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&outside).unwrap();
        unlockpt(&outside).unwrap();
        let name = ptsname(&outside, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open = || rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
        let inside = open();
        let mut command = self.command(arguments);
        command.env("TERM", "xterm");
        command.stdin(Stdio::from(open())).stdout(Stdio::from(open())).stderr(Stdio::from(open()));
        let child = command.spawn().unwrap();
        OnTerminal { child, outside: outside.into(), inside, answer_after: Duration::ZERO }
    }
}

impl OnTerminal {
    /// At the end of a slow line.
    pub fn answering_after(mut self, time: Duration) -> Self {
        self.answer_after = time;
        self
    }

    /// What the terminal was shown until the program ended, and its code. Asked
    /// where the cursor is, the terminal answers as one does.
    pub fn ended(mut self) -> (String, i32) {
        self.end()
    }

    /// What the next program on this terminal reads when the person presses enter.
    pub fn next_line(mut self) -> String {
        self.end();
        self.outside.write_all(b"\n").unwrap();
        let mut line = [0; 64];
        let length = rustix::io::read(&self.inside, &mut line).unwrap();
        String::from_utf8_lossy(&line[..length]).into_owned()
    }

    fn end(&mut self) -> (String, i32) {
        let mut reading = self.outside.try_clone().unwrap();
        let mut answering = self.outside.try_clone().unwrap();
        let answer_after = self.answer_after;
        let reader = std::thread::spawn(move || {
            let (mut shown, mut buffer, mut answered) = (Vec::new(), [0; 4096], 0);
            while let Ok(length @ 1..) = reading.read(&mut buffer) {
                shown.extend_from_slice(&buffer[..length]);
                let asked = shown.windows(4).filter(|piece| piece == b"\x1b[6n").count();
                while answered < asked {
                    std::thread::sleep(answer_after);
                    answering.write_all(b"\x1b[7;9R").unwrap();
                    answered += 1;
                }
                // What is answered after it is shown too, as what is typed is.
                if shown.windows(END.len()).any(|piece| piece == END) {
                    break;
                }
            }
            shown
        });
        let code = self.child.wait_in_time().unwrap().code().unwrap_or(-1);
        // Everything before it has been read when this has.
        rustix::io::write(&self.inside, END).unwrap();
        let shown = reader.join_in_time();
        (String::from_utf8_lossy(&shown).replace("\x04END", ""), code)
    }
}

const END: &[u8] = b"\x04END";
