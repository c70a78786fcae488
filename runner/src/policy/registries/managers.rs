//! What a run's package managers and its gateway are told, so that both mean
//! the same registry.

use std::path::{Path, PathBuf};

use policies::{PythonPackage, Registries, RegistryUrl};

use super::{Found, Machine, file_hosts};

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

impl Managers {
    pub(in crate::policy) fn add_pip(&mut self, found: Found) {
        let urls: Vec<String> = found.registries.iter().map(RegistryUrl::to_string).collect();
        // A default of pip's own is the default in the sandbox too.
        if let (true, Some((main, extra))) = (found.named, urls.split_first()) {
            self.set("PIP_INDEX_URL", main);
            if !extra.is_empty() {
                self.set("PIP_EXTRA_INDEX_URL", &extra.join(" "));
            }
        }
        self.registries.pip = self.believed("pip", found);
    }

    pub(in crate::policy) fn add_npm(&mut self, found: Found) {
        if let (true, Some(main)) = (found.named, found.registries.first()) {
            self.set("npm_config_registry", &format!("{main}/"));
        }
        self.registries.npm = self.believed("npm", found);
    }

    /// Looks up where files of the index are; whether that is known.
    pub(in crate::policy) fn find_files(
        &mut self,
        package: Option<&PythonPackage>,
        machine: &Machine<'_>,
        cache: Option<&Path>,
    ) -> bool {
        let (Some(index), Some(package)) = (self.registries.pip.first(), package) else {
            return false;
        };
        let authority = self.authorities.first().map(PathBuf::as_path);
        match file_hosts::of(index, package, authority, machine, cache) {
            Some(files) => {
                self.registries.pip_files = files;
                true
            }
            None => {
                self.notes.push(
                    "pip did not say where its index keeps its files, so they are expected on \
                     the same host; `files: [https://...]` in the rule names another"
                        .to_owned(),
                );
                false
            }
        }
    }

    fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    fn believed(&mut self, manager: &str, found: Found) -> Vec<RegistryUrl> {
        if found.withheld {
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
    use super::*;

    fn found(urls: &[&str], named: bool, withheld: bool) -> Found {
        let registries = urls.iter().map(|url| RegistryUrl::parse(url).unwrap()).collect();
        Found { registries, named, withheld, authority: None }
    }

    #[test]
    fn the_sandbox_is_told_what_somebody_set_and_not_what_is_the_default_anyway() {
        let mut managers = Managers::default();
        managers.add_pip(found(&["https://default.example/simple"], false, false));
        assert!(managers.environment.is_empty());
        assert_eq!(managers.registries.pip.len(), 1);

        managers.add_pip(found(&["https://a.example/s", "https://b.example/s"], true, false));
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
    }

    #[test]
    fn a_password_that_stays_here_is_said_to() {
        let mut managers = Managers::default();
        managers.add_pip(found(&["https://a.example/s"], true, true));
        assert!(managers.notes[0].contains("neither is given"), "{:?}", managers.notes);
    }
}
