//! Control groups: how much of the machine a sandbox may take.
//!
//! Which there are is found out, not assumed: controllers of the first version
//! have a tree each, those of the second share one, and what we may write to is
//! ours to divide. Where there is nothing of the kind a limit is not enforced,
//! and [`Groups::abilities`] says why.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use policies::Attachment;
use protocol::launcher::{GroupKind, MountEntry};
use rustix::fs::Access;

use super::{NAME, delegated};
use crate::backend::{Abilities, Enforcement, MAX_BEGINNING_AGE, Stats, UserOf, shared_pipes};
use crate::plan::{Limits, RunId};

/// Where groups can be made, by what they limit.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Groups {
    memory: Option<Base>,
    pids: Option<Base>,
    cpu: Option<Base>,
    /// Counts processor time, in the first version.
    cpuacct: Option<Base>,
}

/// A group of ours, in which others can be made.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Base {
    path: PathBuf,
    kind: GroupKind,
}

/// The groups of one run, as they were found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Group {
    pub(super) run: RunId,
    pub(super) owner: u32,
    /// Nobody is in them, and whoever was to enter had a minute for it.
    pub(super) is_forsaken: bool,
}

impl Groups {
    /// What this process can make.
    pub(super) fn here() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::below(Path::new("/sys/fs/cgroup"), &own)
    }

    fn below(root: &Path, own: &str) -> Self {
        let first = |controller| first_version(root, own, controller);
        let found = Self {
            memory: first("memory"),
            pids: first("pids"),
            cpu: first("cpu"),
            cpuacct: first("cpuacct"),
        };
        if found != Self::default() {
            return found;
        }
        let second = |controller| second_version(root, own, controller);
        Self { memory: second("memory"), pids: second("pids"), cpu: second("cpu"), cpuacct: None }
    }

    /// Where groups can be made, for people.
    pub(super) fn in_words(&self) -> String {
        let named = [("memory", &self.memory), ("pids", &self.pids), ("cpu", &self.cpu)];
        let made = named.iter().filter_map(|(name, base)| {
            Some(format!("{name} in {}", base.as_ref()?.path.display()))
        });
        let made: Vec<_> = made.collect();
        match made.is_empty() {
            true => "none can be made by this user".to_owned(),
            false => format!("made here: {}", made.join(", ")),
        }
    }

    pub(super) fn abilities(&self) -> Abilities {
        let told = |base: &Option<Base>, controller: &str| match base {
            Some(_) => Enforcement::Enforced,
            None => Enforcement::Unavailable {
                why: format!(
                    "no `{controller}` control group can be made by this user; root can, and so \
                     can whoever is in a delegated one (`systemd-run --user --scope -p \
                     Delegate=yes`) or was given one (version 1: `mkdir \
                     /sys/fs/cgroup/{controller}/NAME`, `chown USER` it)"
                ),
            },
        };
        let root = is_root();
        Abilities {
            backend: NAME,
            image: super::HOST,
            attachments: vec![Attachment::Sockets],
            no_sockets: None,
            cpus: told(&self.cpu, "cpu"),
            memory: match told(&self.memory, "memory") {
                Enforcement::Unavailable { why } => Enforcement::Watched { why },
                told => told,
            },
            // Without a group the kernel still counts processes per user
            // namespace, against a limit that each of them has.
            pids: Enforcement::Enforced,
            // Bounded in its user namespace.
            inotify: Enforcement::Enforced,
            pipes: if root { Enforcement::Enforced } else { shared_pipes() },
            terminals: Enforcement::Enforced,
            user: if root { UserOf::Itself } else { UserOf::Caller },
        }
    }

    /// How much the launcher is to look after, where no group counts it.
    pub(super) fn watched_memory(&self, limits: &Limits) -> Option<u64> {
        self.memory.is_none().then_some(limits.memory)
    }

    /// Whether processes are counted by a group.
    pub(super) fn count_processes(&self) -> bool {
        self.pids.is_some()
    }

    /// Makes the groups of `run` and sets their limits.
    pub(super) fn make(&self, run: &RunId, limits: &Limits) -> io::Result<Vec<PathBuf>> {
        let mut made = Vec::new();
        for base in self.bases() {
            let path = base.of(run);
            if made.contains(&path) {
                continue;
            }
            fs::create_dir(&path)?;
            made.push(path);
        }
        if let Some(base) = &self.memory {
            let (most, with_swap, value) = match base.kind {
                GroupKind::First(_) => {
                    ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", limits.memory)
                }
                // The second version counts swap by itself.
                GroupKind::Second => ("memory.max", "memory.swap.max", 0),
            };
            set(&base.of(run), most, limits.memory)?;
            // A kernel that does not count swap has no such file.
            if base.of(run).join(with_swap).exists() {
                set(&base.of(run), with_swap, value)?;
            }
        }
        if let Some(base) = &self.pids {
            set(&base.of(run), "pids.max", limits.pids)?;
        }
        if let Some(base) = &self.cpu {
            let quota = u64::from(limits.cpu_millis) * PERIOD / 1000;
            match base.kind {
                GroupKind::First(_) => {
                    set(&base.of(run), "cpu.cfs_period_us", PERIOD)?;
                    set(&base.of(run), "cpu.cfs_quota_us", quota)?;
                }
                GroupKind::Second => {
                    set(&base.of(run), "cpu.max", format!("{quota} {PERIOD}"))?;
                }
            }
        }
        Ok(made)
    }

    /// What a sandbox sees of its own groups: it measures its limits there.
    pub(super) fn view(&self) -> Vec<MountEntry> {
        let place = |at: &str, kind: &GroupKind| MountEntry::Groups {
            at: format!("/sys/fs/cgroup{at}"),
            kind: kind.clone(),
        };
        let named = [
            ("/memory", &self.memory),
            ("/pids", &self.pids),
            ("/cpu", &self.cpu),
            ("/cpuacct", &self.cpuacct),
        ];
        let mut places = Vec::new();
        for (at, base) in named {
            match base {
                Some(Base { kind: kind @ GroupKind::First(_), .. }) => places.push(place(at, kind)),
                Some(Base { kind: GroupKind::Second, .. }) => {
                    return vec![place("", &GroupKind::Second)];
                }
                None => {}
            }
        }
        places
    }

    /// Removes the groups of `run`; that there are none is as good.
    pub(super) fn remove(&self, run: &RunId) -> io::Result<()> {
        for base in self.bases() {
            match fs::remove_dir(base.of(run)) {
                Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Runs whose groups are there.
    pub(super) fn found(&self) -> Vec<Group> {
        let mut found: Vec<Group> = Vec::new();
        for base in self.bases() {
            for entry in fs::read_dir(&base.path).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let run = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
                let Some(Ok(run)) = run.map(RunId::parse) else { continue };
                let Ok(seen) = entry.metadata() else { continue };
                let is_forsaken = is_old(&seen) && is_empty(&entry.path());
                match found.iter_mut().find(|known| known.run == run) {
                    Some(known) => known.is_forsaken &= is_forsaken,
                    None => found.push(Group { run, owner: seen.uid(), is_forsaken }),
                }
            }
        }
        found
    }

    /// Whether the kernel ended a process of `run` for want of memory.
    pub(super) fn ran_out_of_memory(&self, run: &RunId) -> bool {
        let Some(base) = &self.memory else { return false };
        let file = match base.kind {
            GroupKind::First(_) => "memory.oom_control",
            GroupKind::Second => "memory.events",
        };
        let text = fs::read_to_string(base.of(run).join(file)).unwrap_or_default();
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.and_then(|kills| kills.trim().parse::<u64>().ok()).is_some_and(|kills| kills > 0)
    }

    /// What `run` takes at this moment, as far as it is counted.
    pub(super) fn stats(&self, run: &RunId) -> Stats {
        let number = |base: &Option<Base>, first: &str, second: &str| {
            let base = base.as_ref()?;
            let file = if base.kind == GroupKind::Second { second } else { first };
            let text = fs::read_to_string(base.of(run).join(file)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let usage = number(&self.cpuacct, "cpuacct.usage", "").or_else(|| {
            let base = self.cpu.as_ref()?;
            let text = fs::read_to_string(base.of(run).join("cpu.stat")).ok()?;
            let micros = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
            micros.parse::<u64>().ok()?.checked_mul(1000)
        });
        let memory = &self.memory;
        Stats {
            cpu_nanoseconds: usage.unwrap_or_default(),
            memory: number(memory, "memory.usage_in_bytes", "memory.current").unwrap_or_default(),
            memory_limit: number(memory, "memory.limit_in_bytes", "memory.max").unwrap_or_default(),
            pids: number(&self.pids, "pids.current", "pids.current").unwrap_or_default(),
            pids_limit: number(&self.pids, "pids.max", "pids.max").unwrap_or_default(),
            // Everything goes over loopback, where what is sent is received.
            received: 0,
            sent: 0,
        }
    }

    fn bases(&self) -> impl Iterator<Item = &Base> {
        [&self.memory, &self.pids, &self.cpu, &self.cpuacct].into_iter().flatten()
    }
}

impl Base {
    fn of(&self, run: &RunId) -> PathBuf {
        self.path.join(format!("{PREFIX}{run}"))
    }
}

/// A run enters its groups within seconds of making them, or never.
fn is_old(group: &fs::Metadata) -> bool {
    let age = group.modified().map(|made| made.elapsed());
    matches!(age, Ok(Ok(age)) if age > MAX_BEGINNING_AGE)
}

fn is_empty(group: &Path) -> bool {
    fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|inside| inside.trim().is_empty())
}

fn set(group: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    let path = group.join(file);
    fs::write(&path, value.to_string())
        .map_err(|err| io::Error::new(err.kind(), format!("{}: {err}", path.display())))
}

/// Our own group in the tree of `controller`, if we may make others in it; else one
/// that somebody gave us there.
fn first_version(root: &Path, own: &str, controller: &str) -> Option<Base> {
    let (kind, path) = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|known| known == controller).then_some((controllers, path))
    })?;
    let tree = root.join(controller);
    // Inside a container the tree may begin where we are.
    let candidates = [tree.join(path.trim_start_matches('/')), tree];
    let base = candidates.into_iter().find(|path| path.join("cgroup.procs").exists())?;
    // Root is asked for nothing more: what it cannot write to is read-only.
    let given = || delegated::find(&root.join(controller)).filter(|_| !is_root());
    let base = if is_ours(&base) { Some(base) } else { given() };
    Some(Base { path: base?, kind: GroupKind::First(kind.to_owned()) })
}

/// The nearest group above us that is ours to divide and divides `controller`.
///
/// A group with processes of its own cannot, so our own group is passed by
/// unless it is the root of all.
fn second_version(root: &Path, own: &str, controller: &str) -> Option<Base> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let own = root.join(path.trim_start_matches('/'));
    let above =
        own.ancestors().skip(usize::from(own != root)).take_while(|up| up.starts_with(root));
    let divides = |group: &Path| {
        let file = group.join("cgroup.subtree_control");
        let has = |text: &str| text.split_whitespace().any(|known| known == controller);
        has(&fs::read_to_string(&file).unwrap_or_default())
            || fs::write(&file, format!("+{controller}")).is_ok()
    };
    let base = above.into_iter().find(|group| is_ours(group) && divides(group))?;
    Some(Base { path: base.to_owned(), kind: GroupKind::Second })
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn is_ours(group: &Path) -> bool {
    let may = |path: &Path, access| rustix::fs::access(path, access).is_ok();
    may(group, Access::WRITE_OK | Access::EXEC_OK)
        && may(&group.join("cgroup.procs"), Access::WRITE_OK)
}

/// Microseconds over which processor time is divided.
const PERIOD: u64 = 100_000;
const PREFIX: &str = "sluice-";

#[cfg(test)]
mod tests {
    use super::*;

    fn group(path: &Path) {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("cgroup.procs"), "").unwrap();
    }

    #[test]
    fn controllers_of_the_first_version_have_a_tree_each() {
        let home = tempfile::tempdir().unwrap();
        for path in ["memory/user", "pids", "cpu/user", "cpuacct/user"] {
            group(&home.path().join(path));
        }
        let own = "5:cpu,cpuacct:/user\n4:memory:/user\n2:pids:/gone\n0::/\n";
        let groups = Groups::below(home.path(), own);
        let base = |path: &str, kind: &str| {
            Some(Base { path: home.path().join(path), kind: GroupKind::First(kind.to_owned()) })
        };
        assert_eq!(groups.memory, base("memory/user", "memory"));
        assert_eq!(groups.pids, base("pids", "pids"), "a tree that begins where we are");
        assert_eq!(groups.cpu, base("cpu/user", "cpu,cpuacct"), "mounted together");
        assert!(matches!(groups.abilities().memory, Enforcement::Enforced));
    }

    #[test]
    fn in_the_second_version_the_nearest_divided_group_above_is_taken() {
        let home = tempfile::tempdir().unwrap();
        let (slice, scope) = (home.path().join("app.slice"), home.path().join("app.slice/a.scope"));
        group(&scope);
        group(&slice);
        fs::write(slice.join("cgroup.subtree_control"), "memory pids\n").unwrap();
        let groups = Groups::below(home.path(), "0::/app.slice/a.scope\n");
        let base = Some(Base { path: slice, kind: GroupKind::Second });
        assert_eq!((&groups.memory, &groups.pids), (&base, &base));
        assert_eq!(
            groups.view(),
            [MountEntry::Groups { at: "/sys/fs/cgroup".to_owned(), kind: GroupKind::Second }]
        );
    }

    #[test]
    fn what_cannot_be_made_is_not_promised() {
        let home = tempfile::tempdir().unwrap();
        let groups = Groups::below(home.path(), "4:memory:/user\n0::/\n");
        let abilities = groups.abilities();
        assert!(matches!(abilities.memory, Enforcement::Watched { why } if why.contains("memory")));
        assert!(matches!(abilities.cpus, Enforcement::Unavailable { why } if why.contains("cpu")));
        assert_eq!(abilities.pids, Enforcement::Enforced, "counted per user namespace");
        assert_eq!(groups.view(), []);
    }

    #[test]
    fn a_runs_groups_are_limited_found_and_removed() {
        let home = tempfile::tempdir().unwrap();
        for controller in ["memory", "pids", "cpu"] {
            group(&home.path().join(controller));
        }
        let groups = Groups::below(home.path(), "1:memory:/\n2:pids:/\n3:cpu:/\n");
        let run = RunId::now();
        let plan = crate::plan::tests::planned("version: 1\n", &crate::plan::tests::request());
        let made = groups.make(&run, &plan.limits).unwrap();
        assert_eq!(made.len(), 3);
        let read = |path: &str| {
            fs::read_to_string(home.path().join(path).join(format!("sluice-{run}")).join(
                match path {
                    "memory" => "memory.limit_in_bytes",
                    "cpu" => "cpu.cfs_quota_us",
                    _ => "pids.max",
                },
            ))
            .unwrap()
        };
        assert_eq!(read("memory"), plan.limits.memory.to_string());
        assert_eq!(read("pids"), plan.limits.pids.to_string());
        assert_eq!(read("cpu"), (u64::from(plan.limits.cpu_millis) * 100).to_string());
        let found: Vec<_> = groups.found().into_iter().map(|group| group.run).collect();
        assert_eq!(found, std::slice::from_ref(&run));
        assert!(!groups.found()[0].is_forsaken, "somebody has just made it");
        // The files of a real group go with it.
        for path in made {
            fs::remove_dir_all(path).unwrap();
        }
        groups.remove(&run).unwrap();
        assert_eq!(groups.found(), []);
    }
}
