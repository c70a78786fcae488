//! Types that are written as one text or one number in a file.

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

/// Prints types as their text.
macro_rules! shown_as_written {
    ($($type:ty),*) => {$(
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )*};
}

/// A number that is at least one, and what to write instead of zero.
macro_rules! at_least_one {
    ($(#[$doc:meta])* $type:ident, $number:ty = $name:literal, $zero:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, serde::Deserialize)]
        #[serde(try_from = $name)]
        pub struct $type($number);

        impl $type {
            pub fn get(self) -> $number {
                self.0
            }
        }

        impl TryFrom<$number> for $type {
            type Error = &'static str;

            fn try_from(number: $number) -> Result<Self, Self::Error> {
                if number == 0 { Err($zero) } else { Ok(Self(number)) }
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "integer", "minimum": 1, "maximum": <$number>::MAX })
            }
        }
    };
}

pub(crate) use {at_least_one, from_text, shown_as_written};
