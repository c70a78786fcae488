//! What a run's package managers and its gateway are told, so that both mean
//! the same registry.

use std::cell::{Cell, OnceCell};
use std::path::PathBuf;

use policies::{Registries, RegistryKind, RegistryUrl};

use super::{LookupScope, RegistryConfig, npm, pip};

/// What is looked up on a machine, once somebody asks.
#[derive(Debug, Default)]
pub(in crate::policy) struct Lookup {
    machine: LookupScope,
    npm: OnceCell<RegistryConfig>,
    pip: OnceCell<RegistryConfig>,
    /// A rule left it to us where files are.
    is_asked_for_files: Cell<bool>,
}

/// Pip and npm as this machine has set them up, where a policy's rules leave
/// it to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Managers {
    pub(crate) registries: Registries,
    /// Variables for the sandbox; never with a user name or a password.
    pub(crate) environment: Vec<(String, String)>,
    /// Authorities that they believe here, as PEM files.
    pub(crate) authorities: Vec<PathBuf>,
    pub(crate) notes: Vec<String>,
}

impl Lookup {
    pub(in crate::policy) fn on(machine: LookupScope) -> Self {
        Self { machine, ..Self::default() }
    }

    pub(in crate::policy) fn registries(&self, kind: RegistryKind) -> Vec<RegistryUrl> {
        let pip = || self.pip.get_or_init(|| pip::registries(&self.machine));
        match kind {
            RegistryKind::Npm => {
                self.npm.get_or_init(|| npm::registries(&self.machine)).registries.clone()
            }
            RegistryKind::Pip => pip().registries.clone(),
            RegistryKind::PipFiles => {
                self.is_asked_for_files.set(true);
                pip().files.clone()
            }
        }
    }

    /// All that was asked for.
    pub(in crate::policy) fn into_managers(self) -> Managers {
        let mut managers = Managers::default();
        if let Some(found) = self.pip.into_inner() {
            managers.add_pip(found, self.is_asked_for_files.get());
        }
        if let Some(found) = self.npm.into_inner() {
            managers.add_npm(found);
        }
        managers
    }
}

impl Managers {
    fn add_pip(&mut self, found: RegistryConfig, is_asked_for_files: bool) {
        let urls: Vec<String> = found.registries.iter().map(RegistryUrl::to_string).collect();
        if let Some((main, extra)) = urls.split_first() {
            // A default of pip's own is the default in the sandbox too.
            if found.is_named {
                self.set("PIP_INDEX_URL", main);
                if !extra.is_empty() {
                    self.set("PIP_EXTRA_INDEX_URL", &extra.join(" "));
                }
            }
            if is_asked_for_files && found.files.is_empty() {
                self.notes.push(format!(
                    "packages are expected on the host of pip's index, {main}; where the index \
                     keeps them on another, write `files: [https://...]` in the pip rule"
                ));
            }
        }
        self.registries.pip_files.clone_from(&found.files);
        self.registries.pip = self.believed("pip", found);
    }

    fn add_npm(&mut self, found: RegistryConfig) {
        if let (true, Some(main)) = (found.is_named, found.registries.first()) {
            self.set("npm_config_registry", &format!("{main}/"));
        }
        self.registries.npm = self.believed("npm", found);
    }

    fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    fn believed(&mut self, manager: &str, found: RegistryConfig) -> Vec<RegistryUrl> {
        if found.had_credentials {
            self.notes.push(format!(
                "{manager} has a user name or a password for its registry here; neither is given \
                 to the sandbox or the gateway"
            ));
        }
        if let Some(authority) = found.authority
            && !self.authorities.contains(&authority)
        {
            self.authorities.push(authority);
        }
        found.registries
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;

    fn found(urls: &[&str], is_named: bool, had_credentials: bool) -> RegistryConfig {
        let registries = urls.iter().map(|url| RegistryUrl::parse(url).unwrap()).collect();
        RegistryConfig { registries, is_named, had_credentials, ..RegistryConfig::default() }
    }

    #[test]
    fn the_sandbox_is_told_what_somebody_set_and_not_what_is_the_default_anyway() {
        let mut managers = Managers::default();
        managers.add_pip(found(&["https://default.example/simple"], false, false), false);
        assert!(managers.environment.is_empty());
        assert_eq!(managers.registries.pip.len(), 1);

        managers
            .add_pip(found(&["https://a.example/s", "https://b.example/s"], true, false), false);
        managers.add_npm(found(&["https://n.example/npm"], true, false));
        let told = managers.environment.iter().map(|(name, value)| format!("{name}={value}"));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                "PIP_INDEX_URL=https://a.example/s",
                "PIP_EXTRA_INDEX_URL=https://b.example/s",
                "npm_config_registry=https://n.example/npm/",
            ]
        );
        assert!(managers.notes.is_empty());
    }

    #[test]
    fn a_password_that_stays_here_is_said_to() {
        let mut managers = Managers::default();
        managers.add_pip(found(&["https://a.example/s"], true, true), false);
        assert!(managers.notes[0].contains("neither is given"), "{:?}", managers.notes);
    }

    #[test]
    fn nothing_is_looked_up_that_nobody_asks_for() {
        let fake = Fake::new().with("PIP_INDEX_URL", "https://a.example/s");
        let managers = Lookup::on(fake.machine()).into_managers();
        assert!(managers.registries.is_empty() && managers.environment.is_empty());
        let lookup = Lookup::on(fake.machine());
        assert_eq!(lookup.registries(RegistryKind::Pip).len(), 1);
        let managers = lookup.into_managers();
        assert_eq!((managers.registries.pip.len(), managers.notes.len()), (1, 0));
    }

    #[test]
    fn a_rule_without_files_gets_a_note_that_says_what_to_write() {
        let fake = Fake::new().with("PIP_INDEX_URL", "https://a.example/s");
        let lookup = Lookup::on(fake.machine());
        assert!(lookup.registries(RegistryKind::PipFiles).is_empty());
        let notes = lookup.into_managers().notes;
        assert!(notes[0].contains("`files: [https://...]`"), "{notes:?}");
    }
}
