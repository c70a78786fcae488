//! What Podman said of itself, kept until something may have changed it.
//!
//! To say so it asks the machine's package manager about each program that it uses, which
//! takes longer than a whole sandbox. The answer depends on its program, its settings, and
//! the control groups that this user was given: as long as these are the same, and the
//! machine was not started anew, so is the answer. What a sandbox needs is measured in it
//! besides, so an answer that is wrong all the same refuses a start and weakens none.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::about::About;
use crate::environment::Environment;
use crate::public_file;

/// Where the answer of the Podman that this environment starts is kept, and for what.
#[derive(Debug)]
pub(super) struct AboutCache {
    path: PathBuf,
    depends_on: u64,
}

#[derive(Deserialize, Serialize)]
struct CachedAbout {
    depends_on: u64,
    about: About,
}

impl AboutCache {
    pub(super) fn of(environment: &Environment) -> Self {
        let depends_on = depends_on(environment);
        Self { path: environment.runtime().join("podman.about"), depends_on }
    }

    /// What it said when everything was as it is.
    pub(super) fn read(&self) -> Option<About> {
        let written: CachedAbout = serde_json::from_slice(&fs::read(&self.path).ok()?).ok()?;
        (written.depends_on == self.depends_on).then_some(written.about)
    }

    /// That it cannot be kept costs time alone.
    pub(super) fn keep(&self, about: &About) {
        let written = CachedAbout { depends_on: self.depends_on, about: about.clone() };
        if let Ok(text) = serde_json::to_vec(&written) {
            drop(public_file::write(&self.path, &text));
        }
    }
}

fn depends_on(environment: &Environment) -> u64 {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    for place in ["/proc/sys/kernel/random/boot_id", "/proc/self/cgroup"] {
        fs::read(place).unwrap_or_default().hash(&mut hasher);
    }
    for place in programs(environment).chain(settings(environment)).chain(control_groups()) {
        state_of(&place).hash(&mut hasher);
    }
    hasher.finish()
}

/// Its program, as far as this environment leads to one.
fn programs(environment: &Environment) -> impl Iterator<Item = PathBuf> {
    let path = environment.variable("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.into_iter().map(|folder| folder.join("podman"))
}

/// Files, and folders of files, in which a person or a distribution set something.
fn settings(environment: &Environment) -> impl Iterator<Item = PathBuf> {
    let home = environment.absolute("HOME").map(|home| home.join(".config"));
    let own = environment.absolute("XDG_CONFIG_HOME").or(home);
    let named = ["CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"];
    let named = named.map(|name| environment.variable(name).map(PathBuf::from));
    let all = ["/usr/share", "/etc"].map(PathBuf::from).into_iter().chain(own);
    let names = ["containers.conf", "containers.conf.d", "storage.conf"];
    all.flat_map(move |folder| names.map(|name| folder.join("containers").join(name)))
        .chain(named.into_iter().flatten())
}

/// The controllers that were given to each group that we are in.
fn control_groups() -> impl Iterator<Item = PathBuf> {
    let ours = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let unified = ours.lines().find_map(|line| line.strip_prefix("0::/").map(str::to_owned));
    let group = unified.map(|group| Path::new("/sys/fs/cgroup").join(group));
    let above = group.iter().flat_map(|group| group.ancestors()).map(Path::to_owned);
    let above: Vec<PathBuf> = above.take_while(|path| path.starts_with("/sys/fs/cgroup")).collect();
    above.into_iter().map(|group| group.join("cgroup.controllers"))
}

/// What would be different if somebody had changed it.
fn state_of(path: &Path) -> Option<(u64, u64, i64, i64, u64, Vec<u8>)> {
    let seen = fs::metadata(path).ok()?;
    // Files of the kernel have neither a size nor a time of their own.
    let text = match seen.len() {
        0 => fs::read(path).unwrap_or_default(),
        _ => Vec::new(),
    };
    Some((seen.dev(), seen.ino(), seen.mtime(), seen.mtime_nsec(), seen.len(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_until_its_program_or_a_setting_changes() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        let (bin, config) = (at("bin"), at("config/containers"));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&config).unwrap();
        fs::create_dir_all(at("run/sluice")).unwrap();
        fs::write(bin.join("podman"), "a program").unwrap();
        let [run, bin_path, config_home] =
            [at("run"), bin.clone(), at("config")].map(|path| path.display().to_string());
        let environment = Environment::new([
            ("XDG_RUNTIME_DIR", run.as_str()),
            ("PATH", bin_path.as_str()),
            ("XDG_CONFIG_HOME", config_home.as_str()),
        ]);
        let about: About = serde_json::from_value(serde_json::json!({
            "host": {"cgroupVersion": "v2", "networkBackend": "netavark",
                     "security": {"rootless": true}},
            "version": {"Version": "4.3.1"},
        }))
        .unwrap();
        let read = || AboutCache::of(&environment).read();
        let keep = || AboutCache::of(&environment).keep(&about);
        assert_eq!(read(), None);
        keep();
        assert_eq!(read(), Some(about.clone()));
        fs::write(bin.join("podman"), "another program").unwrap();
        assert_eq!(read(), None);
        keep();
        assert_eq!(read(), Some(about.clone()));
        fs::write(config.join("containers.conf"), "[engine]").unwrap();
        assert_eq!(read(), None);
        fs::write(at("run/sluice/podman.about"), "no answer").unwrap();
        assert_eq!(read(), None);
    }
}
