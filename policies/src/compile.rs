//! From one document as written to one layer that is right in itself.
//!
//! What a single field can get wrong, its type has refused already. Here are
//! the mistakes that take two fields to make: a port without a protocol, a
//! secret on a host it is not meant for. A rule with a mistake is reported and
//! left out, and the rest is still checked.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::capability::RegistryLookup;
use crate::document::{PolicyDocument, SecretSection, WrittenRule};
use crate::names::SecretName;
use crate::policy::{Carried, Mount, PolicyNote, PolicyTest, Secret};
use crate::problems::{Problem, Problems, Source};
use crate::rule::Rule;
use crate::sample_request::SampleRequest;
use crate::verdict::Verdict;
use crate::yaml::{Item, Spanned};

mod rule;

use rule::RuleCompiler;
pub(crate) use rule::{RuleList, host_shape};

/// One document, checked.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) source: Arc<str>,
    pub(crate) document: PolicyDocument,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) secrets: BTreeMap<SecretName, Secret>,
    pub(crate) tests: Vec<PolicyTest>,
    pub(crate) notes: Vec<PolicyNote>,
}

/// Checks one document.
///
/// `prefix` tells the rules of this document from those of others: empty for
/// the policy's own. `known` are the secrets of documents it extends, which its
/// rules may use too.
pub(crate) fn compile(
    source: &Source,
    prefix: &str,
    document: PolicyDocument,
    known: &BTreeMap<SecretName, Secret>,
    registries: &RegistryLookup<'_>,
    problems: &mut Problems,
) -> Layer {
    // A secret that could not be read would make its rules look wrong too. It
    // may be one of ours, or one of a file that we extend or failed to.
    let unread = |problem: &Problem| {
        let ours = problem.source == source.name;
        !ours || problem.path.starts_with("secrets") || problem.path.starts_with("extends")
    };
    let mut secrets_are_read = !problems.iter().any(unread);
    let mut secrets = BTreeMap::new();
    for (name, written) in document.secrets.iter().filter(|(_, written)| written.whole) {
        match secret(source, &written.value) {
            Ok(secret) => {
                secrets.insert(name.clone(), secret);
            }
            Err(message) => {
                problems.push(source.problem(written.at, format!("secrets.{name}"), message));
                secrets_are_read = false;
            }
        }
    }
    let mut all = known.clone();
    all.extend(secrets.clone());

    let compiler =
        RuleCompiler { source, prefix, secrets: secrets_are_read.then_some(&all), registries };
    let net = &document.net;
    let lists = [
        (RuleList::Of(Verdict::Deny), &net.deny),
        (RuleList::Of(Verdict::Ask), &net.ask),
        (RuleList::Of(Verdict::Allow), &net.allow),
        (RuleList::Passthrough, &net.passthrough),
    ];
    let mut compiled = CompiledRules::default();
    for (list, written) in lists {
        compiled.add(list, written, &compiler, problems);
    }
    Layer {
        source: Arc::clone(&source.name),
        mounts: mounts(source, &document),
        rules: compiled.rules,
        secrets,
        tests: tests_of(source, &document, problems),
        notes: compiled.notes,
        document,
    }
}

/// The rules of one document so far.
#[derive(Default)]
struct CompiledRules {
    rules: Vec<Rule>,
    notes: Vec<PolicyNote>,
    /// Each name's rule, by its number. Looking through them all for every name would
    /// make a long policy slow to read.
    named: HashMap<Arc<str>, usize>,
}

impl CompiledRules {
    fn add(
        &mut self,
        list: RuleList,
        written: &[Item<WrittenRule>],
        compiler: &RuleCompiler<'_>,
        problems: &mut Problems,
    ) {
        // Half a rule is reported already; a check of it would find mistakes that
        // nobody made.
        for Item { at, index, value, .. } in written.iter().filter(|item| item.whole) {
            let path = format!("net.{}[{index}]", list.field());
            let problem = |message| compiler.source.problem(*at, path.clone(), message);
            match compiler.rule(list, &path, *at, value) {
                Ok((rule, note)) => {
                    let first = *self.named.entry(Arc::clone(&rule.id)).or_insert(self.rules.len());
                    if let Some(first) = self.rules.get(first) {
                        let (id, line) = (&rule.id, first.location.line);
                        let message =
                            format!("`{id}` names two rules; the first is on line {line}");
                        problems.push(problem(message));
                    }
                    self.notes.extend(note);
                    self.rules.push(rule);
                }
                Err(faults) => faults.into_iter().for_each(|fault| problems.push(problem(fault))),
            }
        }
    }
}

fn tests_of(
    source: &Source,
    document: &PolicyDocument,
    problems: &mut Problems,
) -> Vec<PolicyTest> {
    let mut tests = Vec::new();
    for Item { at, index, value, .. } in document.tests.iter().filter(|test| test.whole) {
        match SampleRequest::parse(value) {
            Ok(sample) => tests.push(PolicyTest {
                request: value.request.as_str().into(),
                expect: value.expect,
                rule: value.rule.as_deref().map(Into::into),
                line: at.line,
                sample,
            }),
            Err(message) => {
                problems.push(source.problem(*at, format!("tests[{index}]"), message));
            }
        }
    }
    tests
}

fn secret(source: &Source, written: &SecretSection) -> Result<Secret, String> {
    if written.hosts.is_empty() {
        return Err("`hosts` is empty, so the secret could go nowhere; name its hosts".to_owned());
    }
    let carried = match (&written.header, &written.basic, &written.format) {
        (Some(_), Some(_), _) => {
            return Err("`header` and `basic` exclude each other; keep one".to_owned());
        }
        (None, None, _) => {
            return Err(
                "say how requests carry it: `header: x-api-key`, or `basic: user`".to_owned()
            );
        }
        (None, Some(_), Some(_)) => {
            return Err("`format` goes with `header`; `basic` has a fixed form".to_owned());
        }
        (None, Some(user), None) => {
            if user.contains(|c: char| c == ':' || c.is_control()) {
                return Err("a user name for `basic` cannot contain `:`".to_owned());
            }
            Carried::Basic { user: user.clone() }
        }
        (Some(name), None, format) => {
            let format = format.as_deref().unwrap_or("{secret}");
            let halves = format.split_once("{secret}");
            let Some((before, after)) = halves.filter(|(_, after)| !after.contains("{secret}"))
            else {
                return Err(format!(
                    "`format: {format}` must contain `{{secret}}` once, as in `Bearer {{secret}}`"
                ));
            };
            if format.contains(|c: char| c.is_control() || !c.is_ascii()) {
                return Err("`format` must be plain ASCII text".to_owned());
            }
            let (before, after) = (before.to_owned(), after.to_owned());
            Carried::Header { name: name.clone(), before, after }
        }
    };
    Ok(Secret {
        from: written.from.as_ref().map(|from| from.value.clone()),
        declared_in: Arc::clone(&source.name),
        hosts: written.hosts.clone(),
        carried,
    })
}

fn mounts(source: &Source, document: &PolicyDocument) -> Vec<Mount> {
    let mount = |written: &Spanned<crate::document::MountSection>| Mount {
        source: written.value.source.clone(),
        declared_in: Arc::clone(&source.name),
        target: written.value.target.clone(),
        mode: written.value.mode,
    };
    document.fs.mounts.iter().map(mount).collect()
}

#[cfg(test)]
mod tests;
