//! Where pip looks for packages: `index-url` and `extra-index-url`.
//!
//! pip's order, the strongest first: the environment, the file that
//! `PIP_CONFIG_FILE` names, the virtual environment's, the user's unless that
//! file was named, the machine's, and pip's own default.

use std::path::PathBuf;

use super::ini::{Indented, IniSetting, settings};
use super::{LookupScope, RegistryConfig, address, installed};

/// The indexes pip is set up to use, the main one first.
pub(super) fn registries(machine: &LookupScope) -> RegistryConfig {
    let mut configured = from_environment(machine);
    for path in files(machine) {
        if let Some(text) = machine.read(&path) {
            configured.complete_with(from_settings(&settings(&text, Indented::Continues)));
        }
    }
    if configured.no_index == Some(true) {
        return RegistryConfig::default();
    }
    let is_named = configured.index.is_some() || configured.extra.is_some();
    let default = installed::pip(machine);
    if configured.index.is_none() {
        configured.index = default.as_ref().map(|default| default.index.clone());
    }
    let urls = configured.index.iter().chain(configured.extra.iter().flatten());
    let found = RegistryConfig::new(urls, is_named, configured.authority);
    // Where an index keeps its files stands on its pages alone, except for this one.
    let of_default = default
        .filter(|default| found.registries.first() == address(&default.index).as_ref())
        .and_then(|default| address(&default.files?));
    RegistryConfig { files: of_default.into_iter().collect(), ..found }
}

/// What one place says. What it does not say is left to the next.
#[derive(Debug, Default)]
struct Configured {
    index: Option<String>,
    extra: Option<Vec<String>>,
    no_index: Option<bool>,
    authority: Option<String>,
}

impl Configured {
    fn complete_with(&mut self, weaker: Self) {
        self.index = self.index.take().or(weaker.index);
        self.extra = self.extra.take().or(weaker.extra);
        self.no_index = self.no_index.or(weaker.no_index);
        self.authority = self.authority.take().or(weaker.authority);
    }
}

fn from_environment(machine: &LookupScope) -> Configured {
    Configured {
        index: machine.text("PIP_INDEX_URL"),
        extra: machine.text("PIP_EXTRA_INDEX_URL").map(|urls| words(&urls)),
        no_index: machine.text("PIP_NO_INDEX").map(|text| is_true(&text)),
        authority: machine.text("PIP_CERT"),
    }
}

/// Configuration files, the strongest first.
fn files(machine: &LookupScope) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if let Some(named) = machine.text("PIP_CONFIG_FILE").map(PathBuf::from) {
        // The documented way to say: no files at all.
        if named.as_os_str() == "/dev/null" {
            return files;
        }
        files.extend(Some(named).filter(|path| path.is_absolute()));
    }
    let replaces_users = files.first().is_some_and(|named| named.exists());
    let virtual_environment = machine.environment.absolute("VIRTUAL_ENV");
    files.extend(virtual_environment.map(|folder| folder.join("pip.conf")));
    if !replaces_users {
        let home = machine.home();
        let config = machine
            .environment
            .absolute("XDG_CONFIG_HOME")
            .or_else(|| home.as_ref().map(|home| home.join(".config")));
        files.extend(config.map(|dir| dir.join("pip/pip.conf")));
        files.extend(home.map(|home| home.join(".pip/pip.conf")));
    }
    files.push(machine.root.join("etc/pip.conf"));
    files.push(machine.root.join("etc/xdg/pip/pip.conf"));
    files
}

/// A section for one command is stronger than `[global]`.
fn from_settings(settings: &[IniSetting]) -> Configured {
    let last = |key: &str| {
        let of = |section: &'static str| {
            let right =
                move |setting: &&IniSetting| setting.section == section && setting.key == key;
            settings.iter().rev().find(right)
        };
        of("install").or_else(|| of("global")).map(|setting| setting.value.clone())
    };
    Configured {
        index: last("index-url").filter(|url| !url.is_empty()),
        extra: last("extra-index-url").map(|urls| words(&urls)),
        no_index: last("no-index").map(|text| is_true(&text)),
        authority: last("cert").filter(|path| !path.is_empty()),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn is_true(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on" | "y" | "t")
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;

    #[test]
    fn the_environment_beats_the_user_beats_the_machine() {
        let fake = Fake::new().file("etc/pip.conf", "[global]\nindex-url = https://m.example/\n");
        assert_eq!(fake.found(registries), ["https://m.example"]);
        let fake = fake.file("home/.pip/pip.conf", "[global]\nindex-url = https://u.example/\n");
        assert_eq!(fake.found(registries), ["https://u.example"]);
        let fake = fake
            .file("home/.config/pip/pip.conf", "[global]\nindex_url: https://me:pw@x.example/s/\n");
        assert_eq!(fake.found(registries), ["https://x.example/s"]);
        let fake = fake.with("PIP_INDEX_URL", "https://tok:en@env.example/simple");
        assert_eq!(fake.found(registries), ["https://env.example/simple"]);
    }

    #[test]
    fn what_somebody_set_is_told_from_pips_own_default() {
        let fake = with_pip();
        assert!(!fake.whole(registries).is_named);
        let fake = fake
            .file("etc/pip.conf", "[global]\nindex-url = https://m.example/\ncert = /a/b.pem\n");
        let found = fake.whole(registries);
        assert_eq!((found.is_named, found.had_credentials), (true, false));
        assert_eq!(found.authority.as_deref(), Some(std::path::Path::new("/a/b.pem")));
        let fake = fake.with("PIP_INDEX_URL", "https://me:pw@m.example/");
        assert!(fake.whole(registries).had_credentials);
    }

    #[test]
    fn extra_indexes_come_after_the_main_one() {
        let fake = Fake::new()
            .file(
                "etc/pip.conf",
                "[global]\nindex-url=https://a.example/\nextra-index-url=\n  https://b.example/\n  https://c.example/\n",
            );
        assert_eq!(
            fake.found(registries),
            ["https://a.example", "https://b.example", "https://c.example"]
        );
        let fake = fake.with("PIP_EXTRA_INDEX_URL", "https://d.example/ https://a.example/");
        assert_eq!(fake.found(registries), ["https://a.example", "https://d.example"]);
    }

    #[test]
    fn pips_own_default_comes_last_and_where_its_files_are_is_known() {
        let fake = with_pip();
        assert_eq!(fake.found(registries), ["https://default.example/simple"]);
        let files = |fake: &Fake| fake.whole(registries).files;
        assert_eq!(files(&fake)[0].to_string(), "https://files.example");
        // The same index, set by somebody.
        let fake = fake.with("PIP_INDEX_URL", "https://default.example/simple/");
        assert_eq!(files(&fake).len(), 1);
        let fake = fake.with("PIP_INDEX_URL", "https://mirror.example/simple/");
        assert!(files(&fake).is_empty());
    }

    #[test]
    fn a_virtual_environment_beats_the_user_and_a_named_file_replaces_theirs() {
        let index = |host| format!("[global]\nindex-url = https://{host}.example/\n");
        let fake = Fake::new()
            .file("etc/pip.conf", &index("machine"))
            .file("home/.config/pip/pip.conf", &index("user"))
            .file("home/venv/pip.conf", &index("venv"))
            .file("work/.venv/pip.conf", &index("evil"))
            .file("named/pip.conf", "[global]\ntimeout = 60\n");
        let at = |path| fake.dir.path().join(path).to_str().unwrap().to_owned();
        let (venv, of_project) = (at("home/venv"), at("work/.venv"));
        let named = at("named/pip.conf");
        let fake = fake.with("VIRTUAL_ENV", &venv);
        assert_eq!(fake.found(registries), ["https://venv.example"]);
        let fake = fake.with("VIRTUAL_ENV", &of_project);
        assert_eq!(fake.found(registries), ["https://user.example"]);
        let fake = fake.with("PIP_CONFIG_FILE", &named);
        assert_eq!(fake.found(registries), ["https://machine.example"]);
    }

    fn with_pip() -> Fake {
        let index = "\nPyPI = PackageIndex(\"https://default.example/\", \
                     file_storage_domain=\"files.example\")\n";
        let path = "usr/lib/python3/dist-packages/pip/_internal/models/index.py";
        Fake::new().file(path, index).with("PATH", "@/usr/bin")
    }

    #[test]
    fn without_pip_and_without_settings_there_is_none() {
        assert!(Fake::new().found(registries).is_empty());
        let off = Fake::new().with("PIP_INDEX_URL", "https://a.example/").with("PIP_NO_INDEX", "1");
        assert!(off.found(registries).is_empty());
    }

    #[test]
    fn a_projects_own_settings_are_never_read() {
        let fake = Fake::new().file("work/pip.conf", "[global]\nindex-url=https://evil.example/\n");
        let inside = fake.dir.path().join("work/pip.conf").to_str().unwrap().to_owned();
        let fake = fake.with("PIP_CONFIG_FILE", &inside);
        assert!(fake.found(registries).is_empty());
        let relative = Fake::new().with("PIP_CONFIG_FILE", "Cargo.toml");
        assert!(relative.found(registries).is_empty());
    }

    #[test]
    fn no_configuration_file_means_no_configuration_file() {
        let fake = Fake::new()
            .file("etc/pip.conf", "[global]\nindex-url = https://m.example/\n")
            .with("PIP_CONFIG_FILE", "/dev/null");
        assert!(fake.found(registries).is_empty());
    }
}
