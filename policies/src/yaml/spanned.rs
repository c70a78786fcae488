//! A value together with the place it stands at.
//!
//! [`Spanned`] is for checks that span several fields. [`Item`] is for checks of
//! something that has fields of its own: it also says whether all of them could
//! be read, because a check of half a rule finds mistakes that nobody made.

use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use crate::problems::Position;

/// Remembers where a value was written, for checks that span several fields.
#[derive(Clone, Debug)]
pub struct Spanned<T> {
    pub at: Position,
    pub value: T,
}

/// One of several, such as a rule in a list.
#[derive(Clone, Debug)]
pub struct Item<T> {
    pub at: Position,
    /// Its number in the list as written, from zero.
    pub index: usize,
    /// Nothing in it was set aside: what it does not say was not written.
    pub whole: bool,
    pub value: T,
}

/// The struct name by which our deserializer recognises these types. No file
/// can contain it: it is asked for by the type, never read.
pub(super) const NAME: &str = "\0spanned";
pub(super) const FIELDS: &[&str] = &["line", "column", "width", "index", "whole", "value"];

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Item { at, value, .. } = Item::deserialize(deserializer)?;
        Ok(Self { at, value })
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct(NAME, FIELDS, ItemVisitor(PhantomData))
    }
}

struct ItemVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ItemVisitor<T> {
    type Value = Item<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value with its place")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut numbers = [0usize; 5];
        for (number, expected) in numbers.iter_mut().zip(FIELDS) {
            if map.next_key::<String>()?.as_deref() != Some(*expected) {
                return Err(A::Error::custom("only our own YAML reader knows places"));
            }
            *number = map.next_value()?;
        }
        let [line, column, width, index, whole] = numbers;
        map.next_key::<String>()?;
        let value = map.next_value()?;
        Ok(Item { at: Position { line, column, width }, index, whole: whole == 1, value })
    }
}

/// In the schema a place is invisible: it is the value that people write.
macro_rules! invisible_in_the_schema {
    ($($wrapper:ident)*) => {
        $(impl<T: JsonSchema> JsonSchema for $wrapper<T> {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                T::schema_name()
            }

            fn schema_id() -> std::borrow::Cow<'static, str> {
                T::schema_id()
            }

            fn inline_schema() -> bool {
                T::inline_schema()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                T::json_schema(generator)
            }
        })*
    };
}

invisible_in_the_schema!(Item Spanned);
