//! From files to a policy.
//!
//! [`read`] is the only way to a [`Policy`]. This crate touches no file: what
//! the policy extends is asked of [`Sources`], which the caller provides and
//! which decides what a relative name may lead to.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::capability::{RegistryKind, RegistryUrl};
use crate::compile::{Layer, compile};
use crate::document::PolicyDocument;
use crate::merge::merge;
use crate::names::SecretName;
use crate::policy::{Policy, Secret};
use crate::presets;
use crate::problems::{Problems, Source, did_you_mean};
use crate::project_bounds::ProjectBounds;
use crate::yaml::{self, Spanned};

/// Where the files come from that a policy extends.
pub trait Sources {
    /// Loads the file that `written` names in the file `from`.
    ///
    /// The source's name must be the same for the same file, however it was
    /// written: that is how circles are noticed.
    fn load(&self, written: &str, from: &Source) -> Result<Source, String>;

    /// The registries that this machine's package managers use. Asked only where a
    /// rule leaves it to them, and then perhaps for several rules.
    fn registries(&self, _kind: RegistryKind) -> Vec<RegistryUrl> {
        Vec::new()
    }

    /// What the file `source` may grant at most, where it is a project's. A
    /// person's own may grant all that the language has words for.
    fn bounds(&self, _source: &Source) -> Option<ProjectBounds<'_>> {
        None
    }
}

/// No files: presets alone can be extended.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl Sources for NoFiles {
    fn load(&self, written: &str, _from: &Source) -> Result<Source, String> {
        Err(format!("`{written}` is a file, and files cannot be read here"))
    }
}

/// Reads a policy and all that it extends, or says everything that is wrong.
///
/// ```
/// use policies::{SampleRequest, NoFiles, Source, Verdict, read};
///
/// let text = "version: 1\nnet:\n  enabled: true\n  allow: [docs.python.org]\n";
/// let policy = read(&Source::new("agent.policy.yaml", text), &NoFiles)?;
///
/// let asked = SampleRequest::new("GET", "https://docs.python.org/3/").unwrap();
/// let decision = policy.decide(&asked.question());
/// assert_eq!(decision.to_string(), "allow: net.allow[0]");
///
/// let asked = SampleRequest::new("POST", "https://docs.python.org/3/").unwrap();
/// assert_eq!(policy.decide(&asked.question()).to_string(), "deny: no rule matches");
/// # Ok::<(), policies::Problems>(())
/// ```
pub fn read(source: &Source, sources: &dyn Sources) -> Result<Policy, Problems> {
    let mut reader = PolicyReader {
        sources,
        layers: Vec::new(),
        open: Vec::new(),
        named: BTreeMap::new(),
        problems: Problems::default(),
        out_of_bounds: Problems::default(),
        is_enforced: false,
    };
    reader.take(source, "", sources.bounds(source).as_ref());
    let PolicyReader { layers, mut problems, out_of_bounds, is_enforced, .. } = reader;
    let own = layers.into_iter().rev().collect();
    match merge(own) {
        Ok(mut policy) => {
            rebound_secrets(source, &policy, &mut problems);
            if problems.is_empty() {
                policy.out_of_bounds = out_of_bounds.in_reading_order();
                return Ok(policy);
            }
            if is_enforced {
                // All at once, so that nobody has to come back for it.
                problems.append(out_of_bounds);
            }
        }
        Err(err) => {
            problems
                .push(source.whole(format!("the rules of one host are too large together: {err}")));
        }
    }
    Err(problems.in_reading_order())
}

/// A file may bind a secret of a preset anew, to other hosts. The preset's
/// rules must still be among them.
fn rebound_secrets(source: &Source, policy: &Policy, problems: &mut Problems) {
    for rule in policy.rules() {
        let Some(secret) = rule.secret().and_then(|name| policy.secrets.get(name)) else {
            continue;
        };
        let foreign = rule.shapes.iter().find(|shape| !shape.host.is_among(&secret.hosts));
        if let (Some(shape), Some(name)) = (foreign, rule.secret()) {
            problems.push(source.whole(format!(
                "`{}` sends secret `{name}` to `{}`, which `secrets.{name}.hosts` does not name",
                rule.id(),
                shape.host
            )));
        }
    }
}

struct PolicyReader<'r> {
    sources: &'r dyn Sources,
    /// What was read, the deepest first: a file comes after what it extends.
    layers: Vec<Layer>,
    /// The files between the policy and the one that is being read.
    open: Vec<Arc<str>>,
    /// How often each name was extended.
    named: BTreeMap<String, u32>,
    problems: Problems,
    /// What a project's file may not grant; no problem of the language.
    out_of_bounds: Problems,
    is_enforced: bool,
}

impl PolicyReader<'_> {
    fn take(&mut self, source: &Source, prefix: &str, bounds: Option<&ProjectBounds<'_>>) {
        let (document, found) = yaml::read_partial::<PolicyDocument>(source);
        self.problems.append(found);
        let Some(document) = document else { return };
        if let Some(bounds) = bounds {
            bounds.check(source, &document, &mut self.out_of_bounds);
            self.is_enforced |= bounds.is_enforced;
        }

        self.open.push(Arc::clone(&source.name));
        // From the last to the first, so that the finished list reads as written.
        for Spanned { at, value } in document.extends.iter().rev() {
            if let Err(message) = self.extend(source, value) {
                self.problems.push(source.problem(*at, "extends", message));
            }
        }
        self.open.pop();

        let known = self.known_secrets();
        let registries = |kind| self.sources.registries(kind);
        let layer = compile(source, prefix, document, &known, &registries, &mut self.problems);
        self.layers.push(layer);
    }

    fn extend(&mut self, from: &Source, written: &str) -> Result<(), String> {
        let (source, bounds) = if is_file(written) {
            let source = self.sources.load(written, from)?;
            let bounds = self.sources.bounds(&source);
            (source, bounds)
        } else {
            (presets::find(written).ok_or_else(|| unknown_preset(written))?, None)
        };
        if self.open.contains(&source.name) {
            let mut circle: Vec<&str> = self.open.iter().map(AsRef::as_ref).collect();
            circle.push(&source.name);
            return Err(format!("`{written}` leads in a circle: {}", circle.join(" -> ")));
        }
        // Extended twice on different ways is extended once.
        if self.layers.iter().any(|layer| layer.source == source.name) {
            return Ok(());
        }
        if self.open.len() > MAX_EXTENDS_DEPTH {
            return Err(format!(
                "`{written}` is extended through more than {MAX_EXTENDS_DEPTH} files"
            ));
        }
        if self.layers.len() >= MAX_EXTENDED_FILES {
            return Err(format!("more than {MAX_EXTENDED_FILES} files are extended in all"));
        }
        let prefix = self.prefix(written);
        self.take(&source, &prefix, bounds.as_ref());
        Ok(())
    }

    /// How the rules of a file are told from others: by the name it is extended
    /// under, which is the same wherever the files lie.
    fn prefix(&mut self, written: &str) -> String {
        let times = self.named.entry(written.to_owned()).or_default();
        *times += 1;
        match times {
            1 => format!("{written}:"),
            // Another file, that another folder calls the same.
            times => format!("{written}#{times}:"),
        }
    }

    fn known_secrets(&self) -> BTreeMap<SecretName, Secret> {
        self.layers.iter().flat_map(|layer| layer.secrets.clone()).collect()
    }
}

/// A path or something that ends like a file; anything else is a preset.
fn is_file(written: &str) -> bool {
    written.contains('/') || written.ends_with(".yaml") || written.ends_with(".yml")
}

fn unknown_preset(written: &str) -> String {
    let names = presets::names();
    match did_you_mean(written, names.iter().copied()) {
        Some(name) => format!("there is no preset `{written}`; did you mean `{name}`?"),
        None => format!(
            "there is no preset `{written}`; known are `{}`; a file is written as `./{written}.yaml`",
            names.join("`, `")
        ),
    }
}

const MAX_EXTENDS_DEPTH: usize = 8;
const MAX_EXTENDED_FILES: usize = 64;

#[cfg(test)]
pub(crate) mod tests;
