//! What a person permits to policies that come with a project.
//!
//! A project's policy is its author's word, or that of a run that wrote it; this
//! is the person's own. Where nothing is written here, nothing is permitted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use policies::yaml::Item;
use policies::{
    HostPattern, MountMode, Overrides, OverridesSection, Problems, SecretFrom, SecretName, Source,
};

/// What policies of projects may grant beyond the project itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Permitted {
    pub mounts: Vec<PermittedMount>,
    /// How far they may let a single run go beyond them.
    pub overrides: Overrides,
    pub secrets: BTreeMap<SecretName, SecretSource>,
}

/// A directory that they may mount, or anything below it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PermittedMount {
    pub source: PathBuf,
    pub writable: bool,
}

/// Where a secret's value is, and who may get it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SecretSource {
    pub from: SecretFrom,
    pub hosts: Vec<HostPattern>,
}

/// A permitted mount as written: a path, or one with its mode.
#[derive(Debug, serde::Deserialize)]
#[serde(untagged, expecting = "a path, such as `~/data`, or `{source: ~/data, mode: rw}`")]
pub(super) enum MountWritten {
    Plain(String),
    WithMode(MountFields),
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MountFields {
    source: String,
    #[serde(default)]
    mode: MountMode,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretWritten {
    // Both are needed. Asked for here, the first that is missing would hide what
    // else is wrong.
    #[serde(default)]
    from: Option<SecretFrom>,
    #[serde(default)]
    hosts: Vec<HostPattern>,
}

/// The sections as written.
#[derive(Debug)]
pub(super) struct Sections {
    pub(super) mounts: Vec<Item<MountWritten>>,
    pub(super) overrides: OverridesSection,
    pub(super) secrets: BTreeMap<SecretName, Item<SecretWritten>>,
}

impl Sections {
    /// What they mean for somebody with this home; every problem is said.
    pub(super) fn understand(
        self,
        source: &Source,
        home: Option<&Path>,
    ) -> Result<Permitted, Problems> {
        let mut problems = Problems::default();
        let mut permitted =
            Permitted { overrides: self.overrides.granted(), ..Permitted::default() };
        for Item { at, index, value, .. } in self.mounts {
            let (written, mode) = match value {
                MountWritten::Plain(written) => (written, MountMode::Ro),
                MountWritten::WithMode(MountFields { source, mode }) => (source, mode),
            };
            match whole(&written, home) {
                Some(source) => permitted
                    .mounts
                    .push(PermittedMount { source, writable: mode == MountMode::Rw }),
                None => {
                    let message = format!(
                        "`{written}` is not a whole path; write `/data` or `~/data`, without `..`"
                    );
                    problems.push(source.problem(at, format!("mounts[{index}]"), message));
                }
            }
        }
        for (name, Item { at, value: SecretWritten { from, hosts }, .. }) in self.secrets {
            let mut wrong =
                |message| problems.push(source.problem(at, format!("secrets.{name}"), message));
            if hosts.is_empty() {
                wrong("`hosts` is empty, so the secret could go nowhere; name its hosts");
            }
            match from {
                Some(from) => drop(permitted.secrets.insert(name, SecretSource { from, hosts })),
                None => {
                    wrong("say where the value is: `from: {env: NAME}` or `from: {file: PATH}`")
                }
            }
        }
        problems.or(permitted)
    }
}

/// A path that means the same from everywhere.
fn whole(written: &str, home: Option<&Path>) -> Option<PathBuf> {
    let path = match written.strip_prefix("~/") {
        Some(below) => home?.join(below),
        None if written == "~" => home?.to_owned(),
        None => PathBuf::from(written),
    };
    let is_plain = path.components().all(|part| part != std::path::Component::ParentDir);
    (path.is_absolute() && is_plain).then_some(path)
}
