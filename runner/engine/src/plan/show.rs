//! A plan for people.

use std::fmt;
use std::time::Duration;

use files::printable::Printable;
use inside::launch::idmap::Swap;
use policies::{Cpus, Size, Span, Workspace};

use super::{Plan, UserIds, name_of};

/// A plan, a line a decision.
#[derive(Clone, Copy, Debug)]
pub struct PlanText<'p>(pub &'p Plan);

impl fmt::Display for PlanText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(plan) = self;
        let Plan { limits, workspace, .. } = plan;
        line(f, "run", &plan.run)?;
        line(f, "command", Printable(&plan.command.join(" ")))?;
        line(f, "backend", &plan.backend)?;
        line(f, "image", Printable(&plan.image))?;
        line(f, "user", format_args!("{}:{}", plan.user.uid, plan.user.gid))?;
        if plan.host_user != plan.user {
            let UserIds { uid, gid } = plan.host_user;
            line(f, "", format_args!("{uid}:{gid} to the host, and nobody else's"))?;
        }
        line(f, "starts in", &plan.directory)?;
        match &workspace.source {
            None => line(f, "workspace", "none")?,
            Some(source) => {
                let meaning = match workspace.mode {
                    Workspace::Direct => "changes go straight to the host",
                    Workspace::None | Workspace::Readonly => "cannot be changed",
                    Workspace::Overlay => "changes are kept apart until you apply them",
                };
                let source = source.display().to_string();
                line(
                    f,
                    "workspace",
                    format_args!("{} at {}", Printable(&source), workspace.target),
                )?;
                line(f, "", format_args!("{}: {meaning}", name_of(workspace.mode)))?;
                if let Some(Swap { disk, shown }) = workspace.swap(plan.host_user) {
                    line(
                        f,
                        "",
                        format_args!(
                            "files of {}:{} appear as those of {}:{}",
                            disk.uid, disk.gid, shown.uid, shown.gid
                        ),
                    )?;
                }
                line(f, "", format_args!("read-only: {}", words(&workspace.protect)))?;
                if !workspace.deny.is_empty() {
                    line(f, "", format_args!("hidden: {}", words(&workspace.deny)))?;
                }
            }
        }
        for mount in &plan.mounts {
            let how = if mount.read_only { "read-only" } else { "writable" };
            let source = mount.source.display().to_string();
            line(f, "mount", format_args!("{} at {}, {how}", Printable(&source), mount.target))?;
        }
        for place in &plan.tmpfs {
            line(f, "scratch", format_args!("{} of {}", place.target, size(place.bytes)))?;
        }
        match &plan.network {
            None => line(f, "network", "none")?,
            Some(network) => {
                let rules = match network.rules {
                    0 => "which has no rules: it refuses everything".to_owned(),
                    1 => "which has 1 rule".to_owned(),
                    many => format!("which has {many} rules"),
                };
                line(f, "network", format_args!("only to its gateway, {rules}"))?;
                if network.observe {
                    line(f, "", "observing: what no rule names passes and is recorded")?;
                }
            }
        }
        let cpus = processors(limits.cpu_millis);
        line(f, "limits", format_args!("{cpus} processors, {} of memory", size(limits.memory)))?;
        line(f, "", format_args!("{} processes, {} open files", limits.pids, limits.open_files))?;
        line(
            f,
            "",
            format_args!("{} of disk, {} of output", size(limits.disk), size(limits.output)),
        )?;
        line(f, "", format_args!("{} of time", span(limits.timeout)))?;
        line(
            f,
            "policy",
            format_args!("{} ({})", plan.policy.name, plan.policy.sources.join(", ")),
        )?;
        for secret in &plan.secrets {
            let from = secret.from.as_deref().unwrap_or("nowhere: nobody says where it is");
            let to = match secret.hosts.is_empty() {
                true => String::new(),
                false => format!(", for {}", secret.hosts.join(", ")),
            };
            line(f, "secret", format_args!("{} from {}{to}", secret.name, Printable(from)))?;
        }
        line(f, "environment", format_args!("{} variables", plan.environment.len()))?;
        line(f, "evidence", plan.evidence.display())?;
        for note in &plan.notes {
            line(f, "note", Printable(note))?;
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "{name:<12} {value}")
}

pub(crate) fn size(bytes: u64) -> String {
    Size::from_bytes(bytes).map_or_else(|| "nothing".to_owned(), |size| size.to_string())
}

fn processors(millis: u32) -> String {
    let written = format!("{}.{:03}", millis / 1000, millis % 1000);
    Cpus::parse(&written).map_or(written, |cpus| cpus.to_string())
}

fn span(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Span::from_millis(millis).map_or_else(|| "no time".to_owned(), |span| span.to_string())
}

fn words<'w, T: ToString + 'w>(all: impl IntoIterator<Item = &'w T>) -> String {
    all.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
