//! Where the values of a policy's secrets would come from, and by whose word.
//!
//! The person's configuration says it, or a policy of their own. A project's
//! policy cannot, and what a preset says is a suggestion.

use std::collections::BTreeMap;
use std::sync::Arc;

use policies::{Policy, SecretFrom, SecretName};
use serde::Serialize;

use crate::config::SecretSource;
use crate::policy::files::Opened;

/// A secret of the policy, never with its value.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct SecretPlan {
    pub name: String,
    /// Where the value is, and who says so; nothing if nobody does.
    pub from: Option<String>,
    /// Who may get it.
    pub hosts: Vec<String>,
}

/// The secrets of `policy`, and what a person should know of them.
pub(super) fn settle(
    policy: &Policy,
    files: &BTreeMap<Arc<str>, Opened>,
    configured: &BTreeMap<SecretName, SecretSource>,
) -> (Vec<SecretPlan>, Vec<String>) {
    let (mut plans, mut notes) = (Vec::new(), Vec::new());
    for (name, secret) in &policy.secrets {
        let is_persons = files.get(&secret.declared_in).is_some_and(|file| !file.is_projects);
        let own = secret.from.as_ref().filter(|_| is_persons);
        let (from, mut hosts) = match (configured.get(name), own) {
            (Some(source), _) => {
                let given = secret.hosts.iter().filter(|host| host.is_among(&source.hosts));
                (Some(in_words(&source.from, "your configuration")), given.collect())
            }
            (None, Some(from)) => {
                (Some(in_words(from, "your policy")), secret.hosts.iter().collect::<Vec<_>>())
            }
            (None, None) => (None, Vec::new()),
        };
        if policy.rules().any(|rule| rule.secret() == Some(name)) {
            let why = match (&from, hosts.is_empty()) {
                (None, _) => {
                    let hosts: Vec<String> = secret.hosts.iter().map(ToString::to_string).collect();
                    format!(
                        "nobody says where `{name}` comes from; your configuration would: \
                         `secrets: {{{name}: {{from: {{env: {name}}}, hosts: [{}]}}}}`",
                        hosts.join(", ")
                    )
                }
                (Some(_), true) => {
                    format!("your configuration gives `{name}` to none of the policy's hosts")
                }
                (Some(_), false) => format!("`{name}` is known and not put into requests yet"),
            };
            notes.push(format!("{why}; requests that would carry it are refused"));
        }
        hosts.sort_by_key(ToString::to_string);
        plans.push(SecretPlan {
            name: name.to_string(),
            from,
            hosts: hosts.into_iter().map(ToString::to_string).collect(),
        });
    }
    (plans, notes)
}

fn in_words(from: &SecretFrom, by: &str) -> String {
    match from {
        SecretFrom::Env(name) => format!("the variable {name}, by {by}"),
        SecretFrom::File(path) => format!("the file {path}, by {by}"),
    }
}
