//! `ca:`: where the gateway's own authority is kept, and for how long it is good.

use std::fmt;
use std::path::{Path, PathBuf};

use certs::Lifetime;
use policies::Span;
use policies::yaml::Spanned;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::document::FilePath;

/// Where the gateway's own authority is kept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ca {
    /// In a directory that only we can enter, and used again by the next gateway.
    Directory { path: PathBuf, lifetime: Lifetime },
    /// In memory; it ends with the gateway.
    Memory { lifetime: Lifetime },
}

#[derive(Debug, Default)]
pub(super) struct CaSection(CaFields);

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CaFields {
    directory: Option<FilePath>,
    lifetime: Option<Spanned<Span>>,
}

impl CaSection {
    pub(super) fn resolve(self, base: &Path, mut problem: impl FnMut(Spanned<String>)) -> Ca {
        let Self(CaFields { directory, lifetime }) = self;
        let lifetime = lifetime.map_or_else(Lifetime::default, |Spanned { at, value }| {
            Lifetime::new(value.get()).unwrap_or_else(|err| {
                problem(Spanned { at, value: err.to_string() });
                Lifetime::default()
            })
        });
        match directory {
            Some(FilePath(path)) => Ca::Directory { path: base.join(path), lifetime },
            None => Ca::Memory { lifetime },
        }
    }
}

impl<'de> Deserialize<'de> for CaSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CaVisitor)
    }
}

struct CaVisitor;

impl<'de> Visitor<'de> for CaVisitor {
    type Value = CaSection;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`memory`, or fields such as `{directory: ca, lifetime: 7d}`")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<CaSection, E> {
        match text {
            "memory" => Ok(CaSection::default()),
            path => Err(E::custom(format!(
                "expected `memory`, or a directory, which is written `{{directory: {path}}}`"
            ))),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CaSection, A::Error> {
        CaFields::deserialize(MapAccessDeserializer::new(map)).map(CaSection)
    }
}
