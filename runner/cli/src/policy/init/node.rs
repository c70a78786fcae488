//! The packages a Node project names, in `package.json` and its lock file.
//!
//! The lock file also names what those depend on in turn, which is what an
//! installation asks for.

use std::collections::BTreeSet;
use std::path::Path;

use policies::NpmPackage;
use serde_json::Value;

use super::project_scan::{self, Packages};

const KINDS: [&str; 4] =
    ["dependencies", "devDependencies", "optionalDependencies", "peerDependencies"];

/// Node, if there are signs of it.
pub(super) fn look(dir: &Path) -> Option<Packages> {
    let manifest = project_scan::text(&dir.join("package.json"))?;
    let mut names = in_manifest(&manifest);
    if let Some(lock) = project_scan::text(&dir.join("package-lock.json")) {
        names.extend(in_lock(&lock));
    }
    Some(Packages::new("package.json", names))
}

fn in_manifest(text: &str) -> BTreeSet<String> {
    let manifest: Value = serde_json::from_str(text).unwrap_or_default();
    let keys = KINDS.iter().filter_map(|kind| manifest.get(kind)?.as_object());
    keys.flat_map(|map| map.keys()).filter_map(|name| package(name)).collect()
}

/// A lock file's `packages` are named by where they are installed.
fn in_lock(text: &str) -> BTreeSet<String> {
    let lock: Value = serde_json::from_str(text).unwrap_or_default();
    let places = lock.get("packages").and_then(Value::as_object).into_iter().flatten();
    places
        .filter_map(|(place, _)| place.rsplit_once("node_modules/"))
        .filter_map(|(_, name)| package(name))
        .collect()
}

fn package(name: &str) -> Option<String> {
    NpmPackage::parse(name).ok().map(|package| package.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_manifest_and_its_lock_name_packages() {
        let manifest = r#"{"dependencies":{"express":"^4","@types/node":"*","../evil":"1","a b":"1"},
            "devDependencies":{"jest":"1"},"scripts":{"x":"y"}}"#;
        let names: Vec<String> = in_manifest(manifest).into_iter().collect();
        assert_eq!(names, ["@types/node", "express", "jest"]);
        let lock =
            r#"{"packages":{"":{},"node_modules/a":{},"node_modules/a/node_modules/@s/b":{}}}"#;
        let names: Vec<String> = in_lock(lock).into_iter().collect();
        assert_eq!(names, ["@s/b", "a"]);
    }

    #[test]
    fn what_is_not_json_names_nothing() {
        assert!(in_manifest("{").is_empty() && in_lock("[]").is_empty());
    }

    proptest! {
        #[test]
        fn only_names_that_the_language_accepts_are_found(key: String) {
            let manifest = serde_json::json!({ "dependencies": { key: "1" } }).to_string();
            for name in in_manifest(&manifest) {
                prop_assert!(NpmPackage::parse(&name).is_ok());
            }
        }
    }
}
