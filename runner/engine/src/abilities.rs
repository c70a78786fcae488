//! What a backend can promise on this machine.

use policies::Attachment;

/// What a backend can promise here. Plans are made of it, so that nothing is
/// promised that the machine does not keep.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Abilities {
    pub backend: &'static str,
    /// What sandboxes are made of where nobody says.
    pub image: &'static str,
    /// How a sandbox's doors can reach its gateway here, the strongest first.
    pub attachments: Vec<Attachment>,
    /// Why not by sockets, where that is so.
    pub no_sockets: Option<String>,
    pub cpus: Enforcement,
    pub memory: Enforcement,
    pub pids: Enforcement,
    /// Whether a sandbox has a share of its own of what the kernel counts for a
    /// whole user or a whole machine: instances of inotify; pages of pipes, and
    /// with them epoll's watches and descriptors in flight; terminals.
    pub inotify: Enforcement,
    pub pipes: Enforcement,
    pub terminals: Enforcement,
    /// Whose user a sandbox can be.
    pub user: UserOf,
}

/// Whom the kernel counts a sandbox for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UserOf {
    /// Whoever starts it.
    Caller,
    /// Nobody else; and the number is the same inside.
    Host,
    /// Nobody else; inside it has the number that it has anywhere.
    Itself,
}

impl Abilities {
    /// The strongest attachment that is chosen by itself. A relay is for where there is nothing
    /// else; nobody has it without asking.
    pub fn usual_attachment(&self) -> Attachment {
        let usual = self.attachments.iter().copied().filter(|way| *way != Attachment::Relay);
        usual.max().unwrap_or_default()
    }
}

/// Whether a limit is one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Enforcement {
    Enforced,
    Unavailable {
        why: String,
    },
    /// It is measured from outside, and a run that takes more is ended. More than
    /// nothing, and less than what anybody who asks for a limit means.
    Watched {
        why: String,
    },
}
