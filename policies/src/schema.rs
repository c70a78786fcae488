//! The language as a JSON Schema, for editors and other tools.

use schemars::generate::SchemaSettings;

use crate::document::PolicyDocument;

/// The schema of `sandbox.policy.yaml`, as committed in
/// `docs/schema/policy.v1.json`.
pub fn schema() -> String {
    let schema =
        SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<PolicyDocument>();
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_schema_is_current() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/schema/policy.v1.json");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(file, schema()).unwrap();
        }
        let committed = std::fs::read_to_string(file).unwrap();
        assert!(committed == schema(), "run the tests with UPDATE_EXPECT=1 and commit {file}");
    }
}
