//! Every preset we ship is right, and keeps its own promises.

use super::*;
use crate::{NoFiles, RegistryKind, RegistryUrl, Sources, read};

/// A machine whose package managers use a registry of their own.
struct Machine;

impl Sources for Machine {
    fn load(&self, written: &str, from: &Source) -> Result<Source, String> {
        NoFiles.load(written, from)
    }

    fn registries(&self, kind: RegistryKind) -> Vec<RegistryUrl> {
        let url = |text| vec![RegistryUrl::parse(text).unwrap()];
        match kind {
            RegistryKind::Npm => url("https://npm.registry.test/"),
            RegistryKind::Pip => url("https://pip.registry.test/simple/"),
            RegistryKind::PipFiles => Vec::new(),
        }
    }
}

#[test]
fn every_preset_is_valid_passes_its_own_tests_and_has_some() {
    for name in names() {
        let policy =
            read(&find(name).unwrap(), &Machine).unwrap_or_else(|err| panic!("{name}:\n{err}"));
        assert_eq!(&*policy.name, name);
        assert!(!policy.tests.is_empty(), "{name} has no tests");
        for result in policy.run_tests() {
            assert!(result.passed, "{name}: {result}");
        }
    }
}

#[test]
fn every_preset_names_the_schema_on_its_first_lines() {
    for (name, text) in PRESETS {
        let mut lines = text.lines();
        let schema = "../../docs/schema/policy.v1.json";
        assert_eq!(
            lines.next(),
            Some(&*format!("# yaml-language-server: $schema={schema}")),
            "{name}"
        );
        assert_eq!(lines.next(), Some(&*format!("# $schema: {schema}")), "{name}");
    }
}

#[test]
fn every_preset_satisfies_the_schema() {
    let schema: serde_json::Value = serde_json::from_str(&crate::schema()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for (name, text) in PRESETS {
        let value: serde_json::Value = crate::yaml::read(&Source::new(*name, *text)).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&value).map(|err| err.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
}

#[test]
fn the_list_is_the_folder() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/presets");
    let mut there: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    there.sort();
    let listed: Vec<String> = names().iter().map(|name| format!("{name}.policy.yaml")).collect();
    assert_eq!(there, listed);
}
