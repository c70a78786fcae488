//! What of ours lies in a project, and must not be a run's to write.

use std::path::Path;

use engine::spec::beneath;
use policies::{MountMode, Policy, RelativePath, Workspace};

use crate::exit::Failure;
use crate::policy::project::lies_in;

/// Policies at the top of the project: each is read-only for a run, also one that
/// this run is not under.
pub(super) fn policies_in(workspace: &Path) -> Vec<RelativePath> {
    let entries = std::fs::read_dir(workspace).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let names = files.filter_map(|entry| entry.file_name().into_string().ok());
    let ours = |name: &String| name.ends_with(".policy.yaml") || name.ends_with(".policy.yml");
    let mut names: Vec<String> = names.filter(ours).collect();
    names.sort();
    names.iter().filter_map(|name| RelativePath::parse(name).ok()).collect()
}

/// Refuses a run that could write what configures us: the next one would obey it.
pub(super) fn cannot_be_written(
    ours: &[&Path],
    workspace: &Path,
    mode: Workspace,
    policy: &Policy,
    beside: impl Fn(&str) -> std::path::PathBuf,
) -> Result<(), Failure> {
    let project = (mode == Workspace::Direct).then(|| workspace.to_owned());
    let mounts = policy.fs.mounts.iter().filter(|mount| mount.mode == MountMode::Rw);
    let mounts = mounts.map(|mount| beneath(&beside(&mount.declared_in), &mount.source));
    for directory in project.into_iter().chain(mounts) {
        if let Some(path) = ours.iter().find(|path| lies_in(path, &directory)) {
            return Err(Failure::Usage(format!(
                "{} holds what configures `sluice` ({}), and this run could write it; use a \
                 directory below it as the project, or `--mode overlay`",
                directory.display(),
                path.display()
            )));
        }
    }
    Ok(())
}
