//! The language's documentation is true: every example is read, and passes its
//! own tests; every field of the schema is mentioned.

use policies::{NoFiles, Source, read, schema};

const PAGE: &str = include_str!("../../docs/policy-language.md");

#[test]
fn every_example_is_valid_and_passes_its_own_tests() {
    let examples: Vec<&str> = PAGE
        .split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().expect("a block ends"))
        .collect();
    assert!(examples.len() >= 5, "only {} examples were found", examples.len());
    for (number, example) in examples.iter().enumerate() {
        let source = Source::new(format!("example {number}"), *example);
        let policy = read(&source, &NoFiles).unwrap_or_else(|problems| panic!("{problems}"));
        for result in policy.run_tests() {
            assert!(result.passed, "example {number}: {result}");
        }
    }
}

#[test]
fn every_field_of_the_schema_is_described() {
    let schema: serde_json::Value = serde_json::from_str(&schema()).expect("a schema");
    let mut fields = Vec::new();
    collect(&schema, &mut fields);
    assert!(fields.len() > 40, "{fields:?}");
    let missing: Vec<&String> = fields
        .iter()
        .filter(|field| !PAGE.contains(&format!("`{field}`")) && !mentioned(field))
        .collect();
    assert!(missing.is_empty(), "docs/policy-language.md does not describe {missing:?}");
}

/// Fields that stand in a longer phrase, such as `approvals.timeout` or inside
/// an inline mapping.
fn mentioned(field: &str) -> bool {
    [format!(".{field}`"), format!("{field}: "), format!("`{field}.")]
        .iter()
        .any(|form| PAGE.contains(form))
}

fn collect(value: &serde_json::Value, fields: &mut Vec<String>) {
    if let Some(properties) = value.get("properties").and_then(|found| found.as_object()) {
        fields.extend(properties.keys().cloned());
    }
    match value {
        serde_json::Value::Object(entries) => {
            entries.values().for_each(|entry| collect(entry, fields))
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, fields)),
        _ => {}
    }
}
