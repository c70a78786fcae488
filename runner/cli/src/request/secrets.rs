//! Where the values of a policy's secrets would come from, and by whose word.
//!
//! The person's configuration says it, a policy of their own, or `--secret`. A
//! project's policy cannot, and what a preset says is a suggestion that these take
//! up.

use std::collections::BTreeMap;

use engine::spec::SecretPlan;
use policies::{HostPattern, Policy, Secret, SecretFrom, SecretName};

use crate::config::SecretSource;
use crate::exit::Failure;
use crate::policy::read::FilesRead;

/// A secret that a host may get in this run, as `--secret` says it.
#[derive(Clone, Debug)]
pub(super) struct SecretGrant {
    name: SecretName,
    host: HostPattern,
}

impl SecretGrant {
    pub(super) fn parse(written: &str) -> Result<Self, String> {
        let (name, host) = written
            .split_once('@')
            .ok_or("write who may get it too, as in API_KEY@api.example.com")?;
        let name = SecretName::parse(name).map_err(|err| err.to_string())?;
        let host = HostPattern::parse(host).map_err(|err| err.to_string())?;
        Ok(Self { name, host })
    }
}

/// Who says where values come from.
pub(super) struct SecretSources<'a> {
    pub(super) files: &'a FilesRead,
    pub(super) configured: &'a BTreeMap<SecretName, SecretSource>,
    pub(super) granted: &'a [SecretGrant],
}

impl SecretSources<'_> {
    /// Where the value of `secret` comes from, in words, and who may get it.
    fn settle<'s>(
        &self,
        name: &SecretName,
        secret: &'s Secret,
    ) -> (Option<String>, Vec<&'s HostPattern>) {
        let among = |hosts: &[HostPattern]| -> Vec<&'s HostPattern> {
            secret.hosts.iter().filter(|host| host.is_among(hosts)).collect()
        };
        let file = self.files.get(&secret.declared_in);
        let granted: Vec<HostPattern> = self
            .granted
            .iter()
            .filter(|one| one.name == *name)
            .map(|one| one.host.clone())
            .collect();
        let configured = self.configured.get(name);
        if !granted.is_empty() {
            let suggested = secret.from.as_ref().filter(|_| !file.is_some_and(|it| it.is_projects));
            let own = SecretFrom::Env(name.to_string());
            let from = configured.map(|source| &source.from).or(suggested).unwrap_or(&own);
            return (Some(in_words(from, "--secret")), among(&granted));
        }
        let persons = secret.from.as_ref().filter(|_| file.is_some_and(|it| !it.is_projects));
        match (configured, persons) {
            (Some(source), _) => {
                (Some(in_words(&source.from, "your configuration")), among(&source.hosts))
            }
            (None, Some(from)) => {
                (Some(in_words(from, "your policy")), secret.hosts.iter().collect())
            }
            (None, None) => (None, Vec::new()),
        }
    }

    /// What is typed and can have no effect is a mistake.
    fn check(&self, policy: &Policy) -> Result<(), Failure> {
        for SecretGrant { name, host } in self.granted {
            let Some(secret) = policy.secrets.get(name) else {
                let known = match listed(policy.secrets.keys()) {
                    none if none.is_empty() => "it has none".to_owned(),
                    names => format!("it has {names}"),
                };
                return Err(Failure::Usage(format!(
                    "`--secret {name}@{host}`: the policy has no secret `{name}`; {known}"
                )));
            };
            if !secret.hosts.iter().any(|one| one.is_among(std::slice::from_ref(host))) {
                return Err(Failure::Usage(format!(
                    "`--secret {name}@{host}`: the policy has `{name}` for {} alone",
                    listed(&secret.hosts)
                )));
            }
        }
        Ok(())
    }
}

fn listed(items: impl IntoIterator<Item: ToString>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(", ")
}

/// The secrets of `policy`, and what a person should know of them.
pub(super) fn settle(
    policy: &Policy,
    sources: &SecretSources<'_>,
) -> Result<(Vec<SecretPlan>, Vec<String>), Failure> {
    sources.check(policy)?;
    let (mut plans, mut notes) = (Vec::new(), Vec::new());
    for (name, secret) in &policy.secrets {
        let (from, mut hosts) = sources.settle(name, secret);
        if policy.rules().any(|rule| rule.secret() == Some(name)) {
            let why = match (&from, hosts.is_empty()) {
                (None, _) => {
                    let hosts = listed(&secret.hosts);
                    format!(
                        "nobody says where `{name}` comes from; your configuration would: \
                         `secrets: {{{name}: {{from: {{env: {name}}}, hosts: [{hosts}]}}}}`, or \
                         for one run `--secret {name}@HOST`"
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
    Ok((plans, notes))
}

fn in_words(from: &SecretFrom, by: &str) -> String {
    match from {
        SecretFrom::Env(name) => format!("the variable {name}, by {by}"),
        SecretFrom::File(path) => format!("the file {path}, by {by}"),
    }
}
