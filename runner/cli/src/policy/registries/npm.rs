//! Where npm looks for packages: `registry`, and `@scope:registry` for scopes.
//!
//! npm's order, the strongest first: the environment, the user's file, the
//! machine's, and npm's own default. The file of the project, which npm would
//! read in between, is left out on purpose.

use std::path::PathBuf;

use super::ini::{Indented, settings};
use super::{LookupScope, RegistryConfig, installed};

/// The registries npm is set up to use, the main one first.
pub(super) fn registries(machine: &LookupScope) -> RegistryConfig {
    let mut main = from_environment(machine, "registry");
    let mut authority = from_environment(machine, "cafile");
    let mut scoped = Vec::new();
    for path in files(machine) {
        let Some(text) = machine.read(&path) else { continue };
        // Of several lines with one key the last counts.
        let mut here = None;
        for setting in settings(&text, Indented::StandsAlone) {
            let value = expanded(&setting.value, machine);
            if setting.key == "registry" {
                here = value;
            } else if setting.key == "cafile" {
                authority = authority.or(value);
            } else if setting.key.starts_with('@') && setting.key.ends_with(":registry") {
                scoped.extend(value);
            }
        }
        main = main.or(here);
    }
    let is_named = main.is_some();
    let main = main.or_else(|| installed::npm(machine));
    RegistryConfig::new(main.iter().chain(&scoped), is_named, authority)
}

/// npm takes its variables in either case.
fn from_environment(machine: &LookupScope, key: &str) -> Option<String> {
    let name = format!("npm_config_{key}");
    machine.text(&name).or_else(|| machine.text(&name.to_ascii_uppercase()))
}

fn files(machine: &LookupScope) -> Vec<PathBuf> {
    let named =
        |key| from_environment(machine, key).map(PathBuf::from).filter(|path| path.is_absolute());
    let mut files = Vec::new();
    files.extend(named("userconfig").or_else(|| machine.home().map(|home| home.join(".npmrc"))));
    match named("globalconfig") {
        Some(path) => files.push(path),
        None => {
            // Below the prefix that npm is installed at.
            files.extend(machine.prefixes().iter().map(|prefix| prefix.join("etc/npmrc")));
            files.extend(
                ["usr/local/etc/npmrc", "usr/etc/npmrc", "etc/npmrc"]
                    .map(|path| machine.root.join(path)),
            );
        }
    }
    files
}

/// Replaces `${NAME}` by the variable's value. What names an unknown variable
/// is no value.
fn expanded(value: &str, machine: &LookupScope) -> Option<String> {
    let mut whole = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}')?;
        whole.push_str(before);
        whole.push_str(&machine.text(name)?);
        rest = after;
    }
    whole.push_str(rest);
    Some(whole).filter(|whole| !whole.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;

    #[test]
    fn the_environment_beats_the_user_beats_the_machine_beats_npm() {
        let path = "usr/share/nodejs/@npmcli/config/lib/definitions/definitions.js";
        let fake = Fake::new()
            .file(path, "define('registry', {\n  default: 'https://default.example/',\n})\n")
            .with("PATH", "@/usr/bin");
        assert_eq!(fake.found(registries), ["https://default.example"]);
        assert!(!fake.whole(registries).is_named);
        let fake = fake.file("usr/local/etc/npmrc", "registry=https://m.example/\n");
        assert_eq!(fake.found(registries), ["https://m.example"]);
        let fake = fake.file("home/.npmrc", "registry=https://u.example/npm/\n");
        assert_eq!(fake.found(registries), ["https://u.example/npm"]);
        let fake = fake.with("NPM_CONFIG_REGISTRY", "https://a:b@upper.example/");
        assert_eq!(fake.found(registries), ["https://upper.example"]);
        let fake = fake.with("npm_config_registry", "https://lower.example/");
        assert_eq!(fake.found(registries), ["https://lower.example"]);
    }

    #[test]
    fn a_scopes_registry_is_one_too() {
        let fake = Fake::new().file(
            "home/.npmrc",
            "registry=https://u.example/\n@acme:registry=https://acme.example/npm/\n//acme.example/npm/:_authToken=s3cret\n",
        );
        assert_eq!(fake.found(registries), ["https://u.example", "https://acme.example/npm"]);
    }

    #[test]
    fn variables_are_filled_in_or_the_line_does_not_count() {
        let fake = Fake::new().file("home/.npmrc", "registry=https://${HOST}/npm/\n");
        assert!(fake.found(registries).is_empty());
        let fake = fake.with("HOST", "u.example");
        assert_eq!(fake.found(registries), ["https://u.example/npm"]);
    }

    #[test]
    fn a_projects_own_settings_are_never_read() {
        let fake = Fake::new().file("work/.npmrc", "registry=https://evil.example/\n");
        let inside = fake.dir.path().join("work/.npmrc").to_str().unwrap().to_owned();
        let fake = fake.with("NPM_CONFIG_USERCONFIG", &inside);
        assert!(fake.found(registries).is_empty());
    }
}
