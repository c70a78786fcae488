//! Types that are written as text in a file.

/// Reads a type in a document through its `parse`, and describes it in the
/// schema: a description and, where one exists, a pattern editors can check.
macro_rules! from_text {
    ($type:ty, $name:literal, $description:literal $(, pattern = $pattern:literal)?) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "description": $description,
                    $("pattern": $pattern,)?
                })
            }
        }
    };
}

pub(crate) use from_text;
