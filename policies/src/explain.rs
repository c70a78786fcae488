//! Why a request gets the answer it gets, and what would change it.

use std::fmt::Write as _;

use crate::decide::Admission;
use crate::decision::{Decision, Reason};
use crate::method::Method;
use crate::policy::Policy;
use crate::rule::{Mismatch, Rule};
use crate::sample_request::SampleRequest;
use crate::target::Scheme;
use crate::verdict::Verdict;

/// An answer with everything a person wants to know about it.
#[derive(Debug)]
pub struct Explanation<'p> {
    pub decision: Decision<'p>,
    /// In a sentence.
    pub because: String,
    /// Each way in which servers read the path; empty if there is only one.
    pub readings: Vec<JudgedReading<'p>>,
    /// Rules that allow it, while the decision's rule denies it or asks.
    pub overruled: Vec<&'p Rule>,
    /// Rules about the same host that would have allowed it but for a detail.
    pub near_misses: Vec<NearMiss<'p>>,
    /// The narrowest entry for `net.allow` that would let this request pass,
    /// if an entry could.
    pub would_allow: Option<String>,
    /// What else would have to change, if an entry is not enough.
    pub but: Option<String>,
}

/// A rule that would have allowed the request, and the first condition that
/// the request does not meet.
#[derive(Debug)]
pub struct NearMiss<'p> {
    pub rule: &'p Rule,
    pub lacks: Mismatch,
    /// The reading of the path that does not fit, if the path as sent does.
    pub reading: Option<String>,
}

/// One of several ways in which servers read a path, and the answer to it.
#[derive(Debug)]
pub struct JudgedReading<'p> {
    pub path: String,
    pub decision: Decision<'p>,
}

impl Policy {
    /// Explains the answer to one request.
    pub fn explain(&self, sample: &SampleRequest) -> Explanation<'_> {
        let decision = self.decide(&sample.question());
        let unopened = match self.admit(&sample.target.destination) {
            Admission::Passthrough(decision) | Admission::Tcp(decision) => Some(decision),
            Admission::Ask(_) | Admission::Deny(_) | Admission::Inspect => None,
        };
        if let Some(decision) = unopened {
            let because = "the connection is relayed unopened, so its requests are not judged";
            return Explanation {
                decision,
                because: because.to_owned(),
                readings: Vec::new(),
                overruled: Vec::new(),
                near_misses: Vec::new(),
                would_allow: None,
                but: None,
            };
        }
        let denied = decision.verdict != Verdict::Allow;
        let (mut overruled, mut near_misses) = (Vec::new(), Vec::new());
        if denied {
            for (rule, near) in self.net.rules.nearness(&sample.question()) {
                match near.lacks {
                    None => overruled.push(rule),
                    Some(lacks) => {
                        near_misses.push(NearMiss { rule, lacks, reading: near.reading });
                    }
                }
            }
        }
        let not_done_yet = decision.not_done_yet().map(|it| it.why().to_owned());
        let but = match (decision.reason, decision.rule) {
            _ if not_done_yet.is_some() => not_done_yet,
            (Reason::NetworkOff, _) => {
                Some("the network is off: set `net.enabled: true`".to_owned())
            }
            (Reason::TermsDiffer, _) => Some(
                "one rule would have to match it however a server reads it; or send the plainest \
                 spelling"
                    .to_owned(),
            ),
            (Reason::Rule, Some(rule)) if decision.verdict == Verdict::Deny => {
                Some(beyond_deny(rule, &overruled))
            }
            (Reason::Rule, Some(rule)) if decision.verdict == Verdict::Ask => Some(format!(
                "a person is asked because of `{}`; without that rule an entry would allow it",
                rule.id()
            )),
            _ => None,
        };
        let entry_helps = denied && decision.reason != Reason::TermsDiffer;
        let readings = self.judged_readings(sample);
        Explanation {
            because: because(&decision, &readings),
            readings,
            overruled,
            near_misses,
            would_allow: entry_helps.then(|| Self::hint(sample, None)),
            but,
            decision,
        }
    }

    /// The narrowest entry for `net.allow` that would let a request pass, in flow form
    /// and ready to paste. `override_method` is the method that a header asks for, if any.
    pub fn hint(sample: &SampleRequest, override_method: Option<Method>) -> String {
        let target = &sample.target;
        let mut entry = format!("{{host: {}", quoted(&target.destination.host.to_string()));
        let mut add =
            |field: String| write!(entry, ", {field}").expect("writing to a string cannot fail");
        if target.scheme == Scheme::Http {
            add("protocol: http".to_owned());
        }
        if target.destination.port != target.scheme.default_port() {
            add(format!("port: {}", target.destination.port));
        }
        if sample.websocket {
            add("websocket: true".to_owned());
        } else {
            let other = override_method.filter(|other| *other != sample.method);
            let other = other.map(|other| format!(", {other}")).unwrap_or_default();
            add(format!("methods: [{}{other}]", sample.method.as_str()));
        }
        // A `*` in the path would read as a wildcard, which is wider than the path
        // itself but still the narrowest that can be written.
        add(format!("paths: [{}]", quoted(target.path.as_str())));
        entry.push('}');
        entry
    }

    fn judged_readings(&self, sample: &SampleRequest) -> Vec<JudgedReading<'_>> {
        let path = &sample.target.path;
        if path.has_one_reading() || !self.net.enabled {
            return Vec::new();
        }
        let judge = |reading: &str| JudgedReading {
            path: reading.to_owned(),
            decision: self.net.rules.decide_reading(&sample.question(), reading),
        };
        path.readings().map(judge).collect()
    }
}

/// What would have to change besides, where a deny decided.
fn beyond_deny(deny: &Rule, overruled: &[&Rule]) -> String {
    let at = format!("`{}` ({} line {})", deny.id(), deny.location().source, deny.location().line);
    if deny.exempts_secret_rules {
        return format!(
            "a deny beats every allow: {at} spares only what a rule with a secret allows, \
             however a server reads it"
        );
    }
    let bound = overruled.iter().find_map(|rule| Some((rule.id(), rule.secret()?)));
    match bound {
        Some((bound, secret)) => format!(
            "a deny beats every allow: {at} would have to go, or say `unless: secret` to spare \
             what `{bound}` sends with `{secret}`"
        ),
        None => format!("a deny beats every allow: {at} would have to go"),
    }
}

fn because(decision: &Decision<'_>, readings: &[JudgedReading<'_>]) -> String {
    // The reading that decided, unless the path as sent would have got the same.
    let same = |reading: &JudgedReading<'_>| {
        reading.decision.reason == decision.reason
            && reading.decision.rule_id() == decision.rule_id()
    };
    let reading = readings.iter().position(same).filter(|number| *number > 0);
    let reading = reading.and_then(|number| readings.get(number));
    match (decision.reason, decision.rule) {
        (Reason::NetworkOff, _) => "the network is off, so nothing goes out".to_owned(),
        (Reason::Rule, Some(rule)) => {
            let at = rule.location();
            let mut text = format!("`{}` ({} line {}) matches", rule.id(), at.source, at.line);
            let mut add = |more: std::fmt::Arguments<'_>| {
                text.write_fmt(more).expect("writing to a string cannot fail");
            };
            if let Some(reading) = reading {
                add(format_args!(" what some servers take the path for, `{}`", reading.path));
            }
            add(format_args!(": {}", rule.summary()));
            if let Some(reason) = rule.reason() {
                add(format_args!("; {reason}"));
            }
            text
        }
        (Reason::TermsDiffer, _) => {
            "servers could read it in several ways, and the rules that allow those differ in \
             their secret, addresses or refs"
                .to_owned()
        }
        (Reason::NoRule | Reason::Rule, _) => match reading {
            Some(reading) => {
                format!("some servers take the path for `{}`, which no rule allows", reading.path)
            }
            None => "no rule matches, and what no rule allows is denied".to_owned(),
        },
    }
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
