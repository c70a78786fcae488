//! serde over the tree: a failure knows its place.
//!
//! Errors are made deep inside visitors that know nothing of files. Each level
//! they pass on their way up adds its step, and the innermost one its place.

use std::fmt;

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Expected, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};

use super::spanned;
use super::tree::{MapKey, PathStep, YamlNode, YamlValue, boolean_hint, written};
use crate::problems::{Position, did_you_mean};

pub(super) fn from_tree<T: DeserializeOwned>(tree: &YamlNode) -> Result<T, ValueError> {
    T::deserialize(NodeReader::of(tree))
}

/// Why a value could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct ValueError {
    pub(super) message: String,
    pub(super) at: Position,
    pub(super) steps: Vec<PathStep>,
    /// The value is unusable only because a part of it was set aside before:
    /// nothing new to report.
    pub(super) follows_from_another: bool,
    placed: bool,
    kind: ValueErrorKind,
}

#[derive(Debug)]
enum ValueErrorKind {
    Missing(&'static str),
    Other,
    Unknown(String),
}

impl ValueError {
    pub(super) fn path(&self) -> String {
        written(&self.steps)
    }

    fn new(message: String, kind: ValueErrorKind) -> Self {
        let at = Position::default();
        Self { message, at, steps: Vec::new(), follows_from_another: false, placed: false, kind }
    }

    /// Gives the failure the place of the node it happened in, unless it has
    /// one from further in.
    fn within(mut self, node: &YamlNode) -> Self {
        if self.placed {
            return self;
        }
        self.placed = true;
        self.at = node.at;
        if let YamlValue::Map(entries) = &node.value {
            let named = |name: &str| entries.iter().find(|(key, _)| key.text == name);
            match &self.kind {
                ValueErrorKind::Unknown(name) => {
                    if let Some((key, _)) = named(name) {
                        self.at = key.at;
                        self.steps.push(PathStep::Key(name.clone()));
                    }
                }
                ValueErrorKind::Missing(name) => self.follows_from_another = named(name).is_some(),
                ValueErrorKind::Other => {}
            }
        }
        self
    }

    fn under(mut self, step: PathStep) -> Self {
        self.steps.insert(0, step);
        self
    }
}

impl de::Error for ValueError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string(), ValueErrorKind::Other)
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let hint = match found {
            Unexpected::Str(text) if expected.to_string().contains("boolean") => {
                boolean_hint(text).map(|word| format!("; write `{word}`")).unwrap_or_default()
            }
            Unexpected::Str(text)
                if text.parse::<u64>().is_ok()
                    && expects(expected).starts_with("a whole number") =>
            {
                " in quotes, which is text; leave the quotes out".to_owned()
            }
            Unexpected::Unit => "; give it a value or remove the line".to_owned(),
            _ => String::new(),
        };
        let message = format!("expected {}, found {}{hint}", expects(expected), FoundValue(found));
        Self::new(message, ValueErrorKind::Other)
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(
            format!("expected {}, found {}", expects(expected), FoundValue(found)),
            ValueErrorKind::Other,
        )
    }

    fn unknown_variant(written: &str, expected: &'static [&'static str]) -> Self {
        let hint = match did_you_mean(written, expected.iter().copied()) {
            Some(word) => format!("; did you mean `{word}`?"),
            None => String::new(),
        };
        let known = expected.join("`, `");
        Self::new(format!("`{written}` is not one of `{known}`{hint}"), ValueErrorKind::Other)
    }

    fn unknown_field(written: &str, expected: &'static [&'static str]) -> Self {
        let hint = match did_you_mean(written, expected.iter().copied()) {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("known here: `{}`", expected.join("`, `")),
        };
        let message = format!("there is no field `{written}`; {hint}");
        Self::new(message, ValueErrorKind::Unknown(written.to_owned()))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("`{field}` is missing"), ValueErrorKind::Missing(field))
    }
}

/// serde's own words for what it wants, in ours.
fn expects(expected: &dyn Expected) -> String {
    let words = expected.to_string();
    match words.as_str() {
        "a boolean" => "`true` or `false`".to_owned(),
        "a string" => "text".to_owned(),
        "a sequence" => "a list".to_owned(),
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" | "usize" => "a whole number, not negative".to_owned(),
        _ if words.starts_with("struct ") || words == "a map" => "a mapping of fields".to_owned(),
        _ => words,
    }
}

struct FoundValue<'a>(Unexpected<'a>);

impl fmt::Display for FoundValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Unexpected::Bool(value) => write!(f, "`{value}`"),
            Unexpected::Float(value) => write!(f, "the number {value}"),
            Unexpected::Map => f.write_str("a mapping"),
            Unexpected::Seq => f.write_str("a list"),
            Unexpected::Signed(value) => write!(f, "the number {value}"),
            Unexpected::Str(text) => write!(f, "`{text}`"),
            Unexpected::Unit => f.write_str("nothing"),
            Unexpected::Unsigned(value) => write!(f, "the number {value}"),
            other => write!(f, "{other}"),
        }
    }
}

#[derive(Clone, Copy)]
struct NodeReader<'t> {
    node: &'t YamlNode,
    /// Its number, if it stands in a list.
    index: usize,
}

impl<'t> NodeReader<'t> {
    fn of(node: &'t YamlNode) -> Self {
        Self { node, index: 0 }
    }
}

impl<'de> NodeReader<'_> {
    fn any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        let result = match &self.node.value {
            YamlValue::Bool(value) => visitor.visit_bool(*value),
            YamlValue::Float(value) => visitor.visit_f64(*value),
            YamlValue::Integer(value) => match u64::try_from(*value) {
                Ok(value) => visitor.visit_u64(value),
                Err(_) => visitor.visit_i64(*value),
            },
            YamlValue::List(items) => visitor.visit_seq(Items { items, next: 0 }),
            YamlValue::Map(entries) => visitor.visit_map(Entries { entries, next: 0 }),
            YamlValue::Null | YamlValue::SetAside => visitor.visit_unit(),
            YamlValue::Text(text) => visitor.visit_str(text),
        };
        result.map_err(|failure| failure.within(self.node))
    }
}

impl<'de> Deserializer<'de> for NodeReader<'_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.node.value {
            YamlValue::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        if name == spanned::NAME {
            return visitor.visit_map(ItemFields { node: self.node, index: self.index, next: 0 });
        }
        self.any(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        let result = match &self.node.value {
            YamlValue::Text(text) => visitor.visit_enum(EnumNode { name: text, node: None }),
            YamlValue::Map(entries) => match entries.as_slice() {
                [(key, node)] => visitor.visit_enum(EnumNode { name: &key.text, node: Some(node) }),
                _ => Err(de::Error::custom(format!(
                    "expected exactly one of `{}`",
                    variants.join("`, `")
                ))),
            },
            YamlValue::Bool(value) => Err(de::Error::unknown_variant(&value.to_string(), variants)),
            _ => Err(de::Error::custom(format!("expected one of `{}`", variants.join("`, `")))),
        };
        result.map_err(|failure| failure.within(self.node))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// The items of a list, less those set aside.
struct Items<'t> {
    items: &'t [YamlNode],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = ValueError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ValueError> {
        while let Some(node) = self.items.get(self.next) {
            let index = self.next;
            self.next += 1;
            if !matches!(node.value, YamlValue::SetAside) {
                let read = seed.deserialize(NodeReader { node, index });
                return read
                    .map(Some)
                    .map_err(|failure| failure.within(node).under(PathStep::Index(index)));
            }
        }
        Ok(None)
    }
}

/// The fields of a mapping, less those set aside.
struct Entries<'t> {
    entries: &'t [(MapKey, YamlNode)],
    next: usize,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = ValueError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ValueError> {
        while let Some((key, node)) = self.entries.get(self.next) {
            if !matches!(node.value, YamlValue::SetAside) {
                let name = YamlNode { at: key.at, value: YamlValue::Text(key.text.clone()) };
                return seed.deserialize(NodeReader::of(&name)).map(Some).map_err(|failure| {
                    // A key that names no field is placed by the mapping, which
                    // knows the key; a key that is not a proper name, here.
                    match failure.kind {
                        ValueErrorKind::Unknown(_) => ValueError { placed: false, ..failure },
                        ValueErrorKind::Missing(_) | ValueErrorKind::Other => {
                            failure.within(&name).under(PathStep::Key(key.text.clone()))
                        }
                    }
                });
            }
            self.next += 1;
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, ValueError> {
        let (key, node) = self.entries.get(self.next).ok_or_else(|| {
            <ValueError as de::Error>::custom("a value was asked for before its key")
        })?;
        self.next += 1;
        seed.deserialize(NodeReader::of(node))
            .map_err(|failure| failure.within(node).under(PathStep::Key(key.text.clone())))
    }
}

/// The place of a node and the node itself, in the shape [`super::Item`] reads.
struct ItemFields<'t> {
    node: &'t YamlNode,
    index: usize,
    next: usize,
}

impl<'de> MapAccess<'de> for ItemFields<'_> {
    type Error = ValueError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ValueError> {
        let name =
            spanned::FIELDS.get(self.next).copied().map(de::IntoDeserializer::into_deserializer);
        name.map(|name: de::value::StrDeserializer<'_, ValueError>| seed.deserialize(name))
            .transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, ValueError> {
        let Position { line, column, width } = self.node.at;
        let number = |number: usize| -> de::value::UsizeDeserializer<ValueError> {
            de::IntoDeserializer::into_deserializer(number)
        };
        self.next += 1;
        match self.next {
            1 => seed.deserialize(number(line)),
            2 => seed.deserialize(number(column)),
            3 => seed.deserialize(number(width)),
            4 => seed.deserialize(number(self.index)),
            5 => seed.deserialize(number(self.node.is_whole().into())),
            _ => seed.deserialize(NodeReader::of(self.node)),
        }
    }
}

/// An enum written as a word, or as a mapping with that word as its only key.
struct EnumNode<'t> {
    name: &'t str,
    node: Option<&'t YamlNode>,
}

impl<'de> EnumAccess<'de> for EnumNode<'_> {
    type Error = ValueError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self), ValueError> {
        let name: de::value::StrDeserializer<'_, ValueError> =
            de::IntoDeserializer::into_deserializer(self.name);
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'t> EnumNode<'t> {
    fn node(&self) -> Result<&'t YamlNode, ValueError> {
        self.node.ok_or_else(|| {
            de::Error::custom(format!("`{}` needs a value: write `{}: ...`", self.name, self.name))
        })
    }

    fn placed(&self, failure: ValueError, node: &YamlNode) -> ValueError {
        failure.within(node).under(PathStep::Key(self.name.to_owned()))
    }
}

impl<'de> VariantAccess<'de> for EnumNode<'_> {
    type Error = ValueError;

    fn unit_variant(self) -> Result<(), ValueError> {
        match self.node {
            None => Ok(()),
            Some(_) => Err(de::Error::custom(format!("`{}` takes no value", self.name))),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<S::Value, ValueError> {
        let node = self.node()?;
        seed.deserialize(NodeReader::of(node)).map_err(|failure| self.placed(failure, node))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.struct_variant(&[], visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        let node = self.node()?;
        NodeReader::of(node).any(visitor).map_err(|failure| self.placed(failure, node))
    }
}
