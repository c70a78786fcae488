//! Amounts as people write them: `2GiB`, `30m`, `0.5`.
//!
//! A limit is a promise, so an amount is read exactly or not at all: nothing is
//! rounded, nothing wraps, zero is refused (it would mean "none" to one reader
//! and "no limit" to the next), and a unit is never guessed.

mod cpus;
mod size;
mod span;

use std::fmt;

use serde::de::{self, Unexpected, Visitor};

use crate::quoted_input::QuotedInput;
pub use cpus::Cpus;
pub use size::Size;
pub use span::Span;

/// Text that is no amount of what was asked for, and what to write.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{written}` is not a {what}: {why}")]
pub struct UnitError {
    written: QuotedInput,
    what: &'static str,
    why: UnitFault,
}

impl UnitError {
    fn new(written: &str, what: &'static str, why: UnitFault) -> Self {
        Self { written: QuotedInput::of(written), what, why }
    }

    pub fn fault(&self) -> &UnitFault {
        &self.why
    }
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitFault {
    #[error("write `{0}`")]
    Instead(String),
    #[error("write {0}")]
    Syntax(&'static str),
    #[error("it is too large")]
    TooLarge,
    #[error("it must be more than zero")]
    Zero,
}

/// Splits `15min` into `15` and `min`. The number has digits only.
fn leading_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// Reads an amount from text or a number in a document, through its `parse`.
struct AmountVisitor<T> {
    parse: fn(&str) -> Result<T, UnitError>,
    what: &'static str,
    syntax: &'static str,
    /// Whether a number may have a fraction.
    fractions: bool,
}

impl<T> Visitor<'_> for AmountVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {}: {}", self.what, self.syntax)
    }

    fn visit_str<E: de::Error>(self, written: &str) -> Result<T, E> {
        (self.parse)(written).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        if !self.fractions {
            return Err(E::invalid_type(Unexpected::Float(number), &self));
        }
        // The shortest text that reads as this number is what was written.
        self.visit_str(&number.to_string())
    }
}

/// Writes an amount to a document as text, reads it with an [`AmountVisitor`], and
/// describes it in the schema.
macro_rules! amount_in_documents {
    ($type:ident, fractions: $fractions:literal, schema: $schema:tt) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(super::AmountVisitor {
                    parse: Self::parse,
                    what: WHAT,
                    syntax: SYNTAX,
                    fractions: $fractions,
                })
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}

use amount_in_documents;
