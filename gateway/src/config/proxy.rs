//! `upstream.proxy:`: a proxy of the operator's through which everything goes.

use std::env::VarError;
use std::fmt;
use std::fs;
use std::path::Path;

use policies::yaml::Spanned;
use policies::{Destination, Problems, SecretFrom, Source};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use crate::dial::{Credentials, UpstreamProxy};

/// Looks up a variable of ours.
pub(super) type Env<'a> = &'a dyn Fn(&str) -> Result<String, VarError>;

/// `proxy.example:3128`, or the same with credentials.
#[derive(Debug)]
pub(super) struct ProxySection {
    address: WrittenProxy,
    user: Option<Spanned<String>>,
    password: Option<Spanned<SecretFrom>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ProxyFields {
    address: WrittenProxy,
    user: Option<Spanned<String>>,
    password: Option<Spanned<SecretFrom>>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(try_from = "String")]
struct WrittenProxy(Destination);

impl TryFrom<String> for WrittenProxy {
    type Error = String;

    fn try_from(written: String) -> Result<Self, Self::Error> {
        let bare = written.strip_prefix("http://").unwrap_or(&written);
        Destination::parse(bare.strip_suffix('/').unwrap_or(bare)).map(Self).map_err(|err| {
            format!("{err}; write the proxy as `proxy.example:3128`, without credentials")
        })
    }
}

impl<'de> Deserialize<'de> for ProxySection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ProxyVisitor;
        impl<'de> Visitor<'de> for ProxyVisitor {
            type Value = ProxySection;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`proxy.example:3128`, or fields such as `{address: .., user: .., password: {file: ..}}`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ProxySection, E> {
                let address = WrittenProxy::try_from(text.to_owned()).map_err(E::custom)?;
                Ok(ProxySection { address, user: None, password: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ProxySection, A::Error> {
                let ProxyFields { address, user, password } =
                    ProxyFields::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ProxySection { address, user, password })
            }
        }
        deserializer.deserialize_any(ProxyVisitor)
    }
}

impl ProxySection {
    pub(super) fn resolve(
        self,
        source: &Source,
        base: &Path,
        env: Env<'_>,
        problems: &mut Problems,
    ) -> Option<UpstreamProxy> {
        let Self { address: WrittenProxy(at), user, password } = self;
        let credentials = match (user, password) {
            (None, None) => None,
            (Some(user), Some(password)) => match read_password(&password.value, base, env) {
                Ok(secret) if !user.value.contains(':') => {
                    Some(Credentials::new(format!("{}:{secret}", user.value)))
                }
                Ok(_) => {
                    let message = "a user name cannot hold `:`; the proxy would cut it there";
                    problems.push(source.problem(user.at, "upstream.proxy.user", message));
                    return None;
                }
                Err(message) => {
                    problems.push(source.problem(password.at, "upstream.proxy.password", message));
                    return None;
                }
            },
            (Some(Spanned { at, .. }), None) => {
                let message = "a user needs a `password`, such as `{file: proxy.password}`";
                problems.push(source.problem(at, "upstream.proxy.user", message));
                return None;
            }
            (None, Some(Spanned { at, .. })) => {
                let message = "a password needs a `user`";
                problems.push(source.problem(at, "upstream.proxy.password", message));
                return None;
            }
        };
        Some(UpstreamProxy { at, credentials })
    }
}

/// The password itself never stands in the file: files are shown, copied and
/// committed.
fn read_password(from: &SecretFrom, base: &Path, env: Env<'_>) -> Result<String, String> {
    let secret = match from {
        SecretFrom::Env(name) => env(name).map_err(|err| format!("`{name}`: {err}"))?,
        SecretFrom::File(path) => {
            let path = base.join(path);
            fs::read_to_string(&path).map_err(|err| format!("{}: {err}", path.display()))?
        }
    };
    let secret = secret.trim_end_matches(['\r', '\n']);
    if secret.is_empty() || secret.contains(char::is_control) {
        return Err("the password that is kept there is empty or not one line of text".to_owned());
    }
    Ok(secret.to_owned())
}
