//! Why a request gets the answer it gets, and what would change it.

use std::fmt::Write as _;

use crate::decide::Admission;
use crate::method::Method;
use crate::policy::Policy;
use crate::rule::{Carries, Rule, Shape};
use crate::target::Scheme;
use crate::testing::Asked;
use crate::verdict::{Decision, Reason, Verdict};

/// An answer with everything a person wants to know about it.
#[derive(Debug)]
pub struct Explanation<'p> {
    pub decision: Decision<'p>,
    /// In a sentence.
    pub because: String,
    /// Rules about the same host that would have allowed it but for a detail.
    pub near_misses: Vec<NearMiss<'p>>,
    /// The narrowest entry for `net.allow` that would let this request pass,
    /// if an entry could.
    pub would_allow: Option<String>,
    /// What else would have to change, if an entry is not enough.
    pub but: Option<String>,
}

#[derive(Debug)]
pub struct NearMiss<'p> {
    pub rule: &'p Rule,
    pub lacks: &'static str,
}

impl Policy {
    /// Explains the answer to one request.
    pub fn explain(&self, asked: &Asked) -> Explanation<'_> {
        let decision = self.decide(&asked.question());
        let sealed = match self.admit(&asked.target.destination) {
            Admission::Passthrough(decision) | Admission::Tcp(decision) => Some(decision),
            Admission::Ask(_) | Admission::Deny(_) | Admission::Inspect => None,
        };
        if let Some(decision) = sealed {
            let because = "the connection is relayed unopened, so its requests are not judged";
            return Explanation {
                decision,
                because: because.to_owned(),
                near_misses: Vec::new(),
                would_allow: None,
                but: None,
            };
        }
        let denied = decision.verdict != Verdict::Allow;
        let but = match (decision.reason, decision.rule) {
            (Reason::NetworkOff, _) => {
                Some("the network is off: set `net.enabled: true`".to_owned())
            }
            (Reason::Rule, Some(rule)) if decision.verdict == Verdict::Deny => Some(format!(
                "a deny beats every allow: `{}` ({} line {}) would have to go",
                rule.id(),
                rule.written_at().source,
                rule.written_at().line
            )),
            (Reason::Rule, Some(rule)) if decision.verdict == Verdict::Ask => Some(format!(
                "a person is asked because of `{}`; without that rule an entry would allow it",
                rule.id()
            )),
            _ => None,
        };
        Explanation {
            because: because(&decision),
            near_misses: if denied { self.near_misses(asked) } else { Vec::new() },
            would_allow: denied.then(|| narrowest_rule(asked, None)),
            but,
            decision,
        }
    }

    /// The smallest entry for `net.allow` that would let a request pass, also one
    /// that asks the server for another method by a header; what a refusal tells
    /// its reader.
    pub fn hint(asked: &Asked, overridden: Option<Method>) -> String {
        narrowest_rule(asked, overridden)
    }

    fn near_misses(&self, asked: &Asked) -> Vec<NearMiss<'_>> {
        let mut near = Vec::new();
        for rule in self.rules().filter(|rule| rule.verdict() == Verdict::Allow) {
            let about = rule
                .shapes
                .iter()
                .filter(|shape| shape.host.matches(&asked.target.destination.host));
            if let Some(lacks) = about.map(|shape| lacking(shape, asked)).next() {
                near.push(NearMiss { rule, lacks });
            }
        }
        near
    }
}

fn because(decision: &Decision<'_>) -> String {
    match (decision.reason, decision.rule) {
        (Reason::NetworkOff, _) => "the network is off, so nothing goes out".to_owned(),
        (Reason::Rule, Some(rule)) => {
            let at = rule.written_at();
            let mut text = format!(
                "`{}` ({} line {}) matches: {}",
                rule.id(),
                at.source,
                at.line,
                rule.summary()
            );
            if let Some(reason) = rule.reason() {
                write!(text, "; {reason}").expect("writing to a string cannot fail");
            }
            text
        }
        (Reason::NoRule | Reason::Rule, _) => {
            "no rule matches, and what no rule allows is denied".to_owned()
        }
    }
}

/// The first condition of a shape that this request does not meet.
fn lacking(shape: &Shape, asked: &Asked) -> &'static str {
    let question = asked.question();
    let scheme_fits = match shape.carries {
        Carries::Anything => true,
        Carries::Http => question.scheme == Scheme::Http,
        Carries::Https => question.scheme == Scheme::Https,
        Carries::Sealed | Carries::Tcp => false,
    };
    if !scheme_fits {
        return "protocol";
    }
    if !shape.fits_port(question.to) {
        return "port";
    }
    if question.websocket != (shape.websocket == crate::rule::Websocket::Only) {
        return "websocket";
    }
    if !shape.methods.has(question.method) {
        return "method";
    }
    if !shape.fits_path(question.path) {
        return "path";
    }
    "query or headers"
}

/// One entry in flow form, ready to paste below `net.allow`.
fn narrowest_rule(asked: &Asked, overridden: Option<Method>) -> String {
    let target = &asked.target;
    let mut entry = format!("{{host: {}", quoted(&target.destination.host.to_string()));
    let mut add =
        |field: String| write!(entry, ", {field}").expect("writing to a string cannot fail");
    if target.scheme == Scheme::Http {
        add("protocol: http".to_owned());
    }
    if target.destination.port != target.scheme.default_port() {
        add(format!("port: {}", target.destination.port));
    }
    if asked.websocket {
        add("websocket: true".to_owned());
    } else {
        let other = overridden.filter(|other| *other != asked.method);
        let other = other.map(|other| format!(", {other}")).unwrap_or_default();
        add(format!("methods: [{}{other}]", asked.method.as_str()));
    }
    // A `*` in the path would read as a wildcard, which is wider than the path
    // itself but still the narrowest that can be written.
    add(format!("paths: [{}]", quoted(target.path.as_str())));
    entry.push('}');
    entry
}

/// Quotes what YAML's flow style would read otherwise.
fn quoted(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-@".contains(&b);
    let safe =
        text.bytes().all(plain) && text.starts_with(|c: char| c == '/' || c.is_ascii_alphabetic());
    if safe { text.to_owned() } else { format!("\"{text}\"") }
}

#[cfg(test)]
mod tests;
