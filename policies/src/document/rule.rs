//! One rule as written: a bare host, or a mapping of fields.

use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::capability::{Access, GitRepository, NpmPackage, RegistryUrl};
use crate::from_text::at_least_one;
use crate::glob::{PathPattern, RefPattern, TextPattern};
use crate::host_pattern::HostPattern;
use crate::method::Method;
use crate::names::{HeaderName, PlainName, SecretName};
use crate::python_package::PythonPackage;
use crate::reach::AddressRange;

/// One entry of `allow`, `ask`, `deny` or `passthrough`.
#[derive(Clone, Debug)]
pub enum WrittenRule {
    /// `docs.python.org`: https on 443 with a safe method. In `deny`: anything to that host.
    Bare(HostPattern),
    Fields(Box<RuleFields>),
}

/// A rule with conditions. Every condition that is written must hold.
#[derive(Clone, Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Rule")]
pub struct RuleFields {
    /// What reports call this rule; its place in the file if left out.
    pub name: Option<PlainName>,
    /// A host, `*.example.com` for every name below it, or an address.
    pub host: Option<HostPattern>,
    /// One port or several; the protocol's own if left out.
    pub port: Option<OneOrMany<Port>>,
    /// `https` if left out; `tcp` relays bytes unseen.
    pub protocol: Option<RuleProtocol>,
    /// Methods; GET, HEAD and OPTIONS if left out. In `deny`: all.
    pub methods: Option<Vec<Method>>,
    /// Paths, where `*` stands for part of a segment and `**` for any number of segments.
    pub paths: Option<Vec<PathPattern>>,
    /// Query parameters that must be there, once, with such a value; `*` stands for any text.
    pub query: BTreeMap<String, TextPattern>,
    /// Request headers that must be there with such a value; `*` stands for any text.
    pub headers: BTreeMap<HeaderName, TextPattern>,
    /// Private ranges that the host may resolve to, beside public addresses.
    pub addresses: Vec<AddressRange>,
    /// The rule is about WebSocket connections; other requests need a rule of their own.
    pub websocket: Option<bool>,
    /// The secret that the gateway puts into such requests.
    pub secret: Option<SecretName>,
    /// A repository, such as `github.com/acme/widgets`; `*` stands for one segment.
    pub git: Option<GitRepository>,
    /// With `git`: `fetch` if left out.
    pub access: Option<Access>,
    /// With `access: push`: the refs that may be pushed, such as `refs/heads/agent/*`.
    pub refs: Option<Vec<RefPattern>>,
    /// Python packages that may be downloaded.
    pub pip: Option<Vec<PythonPackage>>,
    /// npm packages that may be downloaded.
    pub npm: Option<Vec<NpmPackage>>,
    /// With `pip` or `npm`: the registry; the package manager's own configuration if left out.
    pub registry: Option<RegistryUrl>,
    /// With `pip`: where the registry keeps its files, if that is another host.
    pub files: Vec<RegistryUrl>,
    /// In `deny`: the exception. `secret` spares requests that a rule with a bound secret allows.
    pub unless: Option<Unless>,
    /// Why this rule is here; shown to whoever is refused.
    pub reason: Option<String>,
}

/// What a connection carries.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Protocol")]
pub enum RuleProtocol {
    Http,
    Https,
    Tcp,
}

/// What a deny spares.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unless {
    /// Requests that an allow rule with a bound secret matches.
    Secret,
}

at_least_one!(
    /// A port number, 1 to 65535.
    Port,
    u16 = "u16",
    "port 0 cannot be dialled; write 1 to 65535"
);

/// One value, or a list of them.
#[derive(Clone, Debug)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for V<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one value or a list of them")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
                let one = serde::de::IntoDeserializer::into_deserializer(number);
                T::deserialize(one).map(|one| OneOrMany(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = seq.next_element()? {
                    all.push(one);
                }
                if all.is_empty() {
                    return Err(A::Error::custom(
                        "an empty list matches nothing; name at least one",
                    ));
                }
                Ok(OneOrMany(all))
            }
        }
        deserializer.deserialize_any(V(std::marker::PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("OneOrMany{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        schemars::json_schema!({
            "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }]
        })
    }
}

impl<'de> Deserialize<'de> for WrittenRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = WrittenRule;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a host such as `example.com`, or fields such as `{host: example.com}`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<WrittenRule, E> {
                HostPattern::parse(text).map(WrittenRule::Bare).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WrittenRule, A::Error> {
                let fields = RuleFields::deserialize(MapAccessDeserializer::new(map))?;
                Ok(WrittenRule::Fields(Box::new(fields)))
            }
        }
        deserializer.deserialize_any(V)
    }
}

impl JsonSchema for WrittenRule {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HostOrRule".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let bare = generator.subschema_for::<HostPattern>();
        let fields = generator.subschema_for::<RuleFields>();
        schemars::json_schema!({ "anyOf": [bare, fields] })
    }
}
