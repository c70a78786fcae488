//! What is not wrong in a policy but worth a second look.
//!
//! A policy that is valid can still say less than its author thinks (a rule
//! that never matches) or more (a wildcard over a place where anyone can rent a
//! name). Each finding has a stable code, names its rule and says what to write
//! instead.

use std::sync::Arc;

use crate::case_fold::lower;
use crate::decision::Decision;
use crate::document::Mode;
use crate::glob::PathPattern;
use crate::host_pattern::{HostPattern, covers};
use crate::method::Method;
use crate::policy::Policy;
use crate::rule::{Carries, Paths, PortSet, Rule, Shape, Websocket};
use crate::verdict::Verdict;

/// Something worth a second look.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LintFinding {
    /// Stable: reports and exceptions go by it.
    pub code: &'static str,
    /// The rule it is about, unless it is about the policy as a whole.
    pub rule: Option<Arc<str>>,
    pub source: Arc<str>,
    /// The rule's line; 0 for the policy as a whole.
    pub line: usize,
    pub message: String,
    /// What to do about it.
    pub instead: String,
}

impl std::fmt::Display for LintFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.source)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}: ", self.code)?;
        if let Some(rule) = &self.rule {
            write!(f, "{rule}: ")?;
        }
        write!(f, "{}; {}", self.message, self.instead)
    }
}

impl Policy {
    /// Everything worth a second look, in the order of the rules.
    pub fn lint(&self) -> Vec<LintFinding> {
        let rules: Vec<&Rule> = self.rules().collect();
        let mut findings = Vec::new();
        for (number, rule) in rules.iter().enumerate() {
            unreachable(rule, &rules, number, &mut findings);
            beside_secret(rule, &rules, &mut findings);
            wide(rule, &mut findings);
            blind(rule, &rules, &mut findings);
            ambiguous_paths(rule, &mut findings);
            not_done_yet(rule, &mut findings);
        }
        self.idle_secrets(&mut findings);
        self.switches(&mut findings);
        for note in &self.notes {
            let rule = rules.iter().find(|rule| note.rule.as_deref() == Some(rule.id()));
            findings.push(LintFinding {
                code: "no-registry",
                rule: note.rule.clone(),
                source: rule
                    .map_or_else(|| self.own_source(), |rule| Arc::clone(&rule.location.source)),
                line: rule.map_or(0, |rule| rule.location.line),
                message: "the rule matches nothing".to_owned(),
                instead: note.message.clone(),
            });
        }
        findings
    }

    fn idle_secrets(&self, findings: &mut Vec<LintFinding>) {
        for (name, secret) in &self.secrets {
            let used = self.rules().any(|rule| rule.secret.as_ref() == Some(name));
            let reachable = self.rules().filter(|rule| rule.verdict != Verdict::Deny).any(|rule| {
                rule.shapes.iter().any(|shape| {
                    secret
                        .hosts
                        .iter()
                        .any(|host| covers(host, &shape.host) || covers(&shape.host, host))
                })
            });
            if !used {
                let message = if reachable {
                    format!("secret `{name}` is declared, and no rule carries it")
                } else {
                    format!("secret `{name}` is bound to no host that a rule lets requests reach")
                };
                let instead =
                    format!("add `secret: {name}` to the rule for its host, or remove it");
                findings.push(self.whole("unused-secret", message, instead));
            }
            for host in &secret.hosts {
                if let HostPattern::Wildcard(_) = host {
                    let message = format!("secret `{name}` may go to every name below `{host}`");
                    let instead = "name the hosts one by one".to_owned();
                    findings.push(self.whole("wide-secret", message, instead));
                }
            }
        }
    }

    fn switches(&self, findings: &mut Vec<LintFinding>) {
        let grants = self.rules().any(|rule| rule.verdict != Verdict::Deny);
        if grants && !self.net.enabled {
            let message = "rules let requests pass, but the network is off".to_owned();
            let instead = "write `net: {enabled: true}`, or remove the rules".to_owned();
            findings.push(self.whole("network-off", message, instead));
        }
        if self.net.mode == Mode::Observe {
            let message = "requests that no rule names go out".to_owned();
            let instead = "use it to learn what a run needs, then write `mode: enforce`".to_owned();
            findings.push(self.whole("observing", message, instead));
        }
        if self.scan.is_written {
            let message = "`scan` changes nothing yet: no gateway looks into bodies".to_owned();
            let instead = "do not rely on it; allow fewer hosts and methods".to_owned();
            findings.push(self.whole("not-in-force", message, instead));
        }
    }

    fn whole(&self, code: &'static str, message: String, instead: String) -> LintFinding {
        LintFinding { code, rule: None, source: self.own_source(), line: 0, message, instead }
    }

    fn own_source(&self) -> Arc<str> {
        self.sources.first().map_or_else(|| Arc::from("policy"), Arc::clone)
    }
}

/// A rule that asks for what no gateway can do yet, so that it refuses instead.
fn not_done_yet(rule: &Rule, findings: &mut Vec<LintFinding>) {
    let of_shape = |shape| Decision::by(rule, shape).not_done_yet();
    if let Some(why) = rule.shapes.iter().find_map(of_shape) {
        let instead = "what it names stays out of reach until that is built";
        findings.push(about(rule, "not-in-force", why.why().to_owned(), instead));
    }
}

/// A rule that can never decide, because others always decide before it.
fn unreachable(rule: &Rule, rules: &[&Rule], number: usize, findings: &mut Vec<LintFinding>) {
    if rule.shapes.is_empty() {
        return;
    }
    // Only an allow is spared for its secret.
    let secret = rule.secret.as_ref().filter(|_| rule.verdict == Verdict::Allow);
    let spared = |other: &Rule| other.exempts_secret_rules && secret.is_some();
    let stricter = |other: &&&Rule| other.verdict < rule.verdict && !spared(other);
    let hidden = rules.iter().filter(stricter).find(|other| covered(rule, other));
    if let Some(other) = hidden {
        let message = format!("never decides: `{}` answers {} first", other.id(), other.verdict);
        let instead = match secret {
            Some(secret) if other.verdict == Verdict::Deny => format!(
                "write `unless: secret` into `{}` to spare what goes out with `{secret}`, or \
                 remove one of the two",
                other.id()
            ),
            _ => "remove one of the two".to_owned(),
        };
        findings.push(about(rule, "unreachable", message, &instead));
        return;
    }
    let earlier = rules.iter().take(number).filter(|other| {
        other.verdict == rule.verdict && other.secret == rule.secret && other.reach == rule.reach
    });
    if let Some(other) = earlier.into_iter().find(|other| covered(rule, other)) {
        let message = format!("adds nothing to `{}`, which matches all that it does", other.id());
        findings.push(about(
            rule,
            "shadowed",
            message,
            "remove it, or make the other one narrower",
        ));
    }
}

/// A rule without a secret for a host that another rule sends one to: what only the
/// former matches goes out with whatever credential the sandbox has.
fn beside_secret(rule: &Rule, rules: &[&Rule], findings: &mut Vec<LintFinding>) {
    let denied = |other: &&Rule| other.verdict == Verdict::Deny && covered(rule, other);
    if rule.verdict == Verdict::Deny || rule.secret.is_some() || rules.iter().any(denied) {
        return;
    }
    let opened = rule.shapes.iter().filter(|shape| shape.carries != Carries::Passthrough);
    let hosts: Vec<&HostPattern> = opened.map(|shape| &shape.host).collect();
    // The narrower of two hosts that have names in common.
    let common = |one: &HostPattern| {
        hosts.iter().find_map(|own| match (covers(one, own), covers(own, one)) {
            (true, _) => Some((*own).clone()),
            (false, true) => Some(one.clone()),
            (false, false) => None,
        })
    };
    let bound = rules.iter().filter(|bound| bound.verdict == Verdict::Allow).find_map(|bound| {
        let secret = bound.secret.as_ref()?;
        let host = bound.shapes.iter().find_map(|shape| common(&shape.host))?;
        Some((bound.id(), secret, host))
    });
    let Some((bound, secret, host)) = bound else { return };
    let message =
        format!("lets requests to `{host}` pass without `{secret}`, which `{bound}` sends there");
    let instead =
        format!("if they must not, add to `net.deny`: {{host: \"{host}\", unless: secret}}");
    findings.push(about(rule, "beside-secret", message, &instead));
}

/// A rule that lets more pass than its author may have had in mind.
fn wide(rule: &Rule, findings: &mut Vec<LintFinding>) {
    if rule.verdict == Verdict::Deny {
        return;
    }
    for shape in &rule.shapes {
        let HostPattern::Wildcard(suffix) = &shape.host else { continue };
        if shape.host.is_shared_suffix() || is_shared_hosting(suffix.as_str()) {
            let message = format!("anyone can get a name below `{suffix}`, an attacker too");
            findings.push(about(rule, "shared-suffix", message, "name your own hosts one by one"));
        }
        let writes =
            Method::ALL.into_iter().any(|method| method.mutates() && shape.methods.has(method));
        if writes
            && matches!(shape.paths, Paths::Any)
            && matches!(shape.carries, Carries::Http | Carries::Https)
        {
            let message = format!("writes to any path of any host below `{suffix}` pass");
            let instead = "name the hosts, or the paths, that take the writes";
            findings.push(about(rule, "wildcard-write", message, instead));
        }
    }
}

/// A rule under which the gateway sees less than it could.
fn blind(rule: &Rule, rules: &[&Rule], findings: &mut Vec<LintFinding>) {
    if rule.verdict == Verdict::Deny {
        return;
    }
    for shape in &rule.shapes {
        match (shape.carries, &shape.host) {
            (Carries::Passthrough, HostPattern::Wildcard(suffix)) => {
                let message = format!(
                    "TLS to every name below `{suffix}` is not opened: names and bodies can carry data out unseen"
                );
                let instead = "name one host, or allow it without passthrough";
                findings.push(about(rule, "wildcard-passthrough", message, instead));
            }
            (Carries::Passthrough, _) => {
                let message = "TLS is not opened: methods, paths, bodies and secrets are neither judged nor recorded";
                let instead = "keep it only for programs that pin their certificates";
                findings.push(about(rule, "passthrough", message.to_owned(), instead));
            }
            (Carries::Tcp, _) => {
                let message =
                    "bytes are relayed unseen: only who is contacted is judged and recorded";
                let instead = "keep it only for protocols that are not HTTP";
                findings.push(about(rule, "tcp", message.to_owned(), instead));
            }
            (Carries::Anything | Carries::Http | Carries::Https, _) => {}
        }
        if let (Carries::Tcp, HostPattern::Address(address)) = (shape.carries, &shape.host) {
            let message = format!(
                "no name leads to `{address}`, so only programs that use the proxy reach it"
            );
            let instead = "name the host, and give its address with `addresses` or a pin";
            findings.push(about(rule, "no-door", message, instead));
        }
        if shape.carries == Carries::Passthrough {
            let opened = rules.iter().find(|other| {
                other.verdict != Verdict::Deny
                    && other.shapes.iter().any(|opened| {
                        matches!(opened.carries, Carries::Https)
                            && covers(&opened.host, &shape.host)
                    })
            });
            if let Some(other) = opened {
                let message = format!("never applies: `{}` opens TLS to the same host", other.id());
                findings.push(about(rule, "unreachable", message, "remove one of the two"));
            }
        }
    }
}

/// A pattern whose text servers take for other paths than the rule names.
fn ambiguous_paths(rule: &Rule, findings: &mut Vec<LintFinding>) {
    for shape in &rule.shapes {
        let Paths::Patterns(patterns) = &shape.paths else { continue };
        let named = |reading: &&str| match rule.verdict {
            Verdict::Deny => patterns
                .iter()
                .flat_map(PathPattern::folded)
                .any(|glob| glob.compile_matcher().is_match(lower(reading))),
            Verdict::Allow | Verdict::Ask => {
                patterns.iter().any(|pattern| pattern.glob().compile_matcher().is_match(reading))
            }
        };
        for pattern in patterns {
            let Some(reading) = pattern.others().find(|reading| !named(reading)) else { continue };
            let (message, instead) = if rule.verdict == Verdict::Deny {
                let message = format!(
                    "some servers take `{pattern}` for `{reading}`, which the rule does not deny"
                );
                (message, "deny both if they are the same to the server")
            } else {
                let message = format!(
                    "some servers take `{pattern}` for `{reading}`; the rule lets it pass all the same"
                );
                (message, "keep it if the server means the same by both, or write the plainer one")
            };
            findings.push(about(rule, "path-readings", message, instead));
        }
    }
}

fn about(rule: &Rule, code: &'static str, message: String, instead: &str) -> LintFinding {
    LintFinding {
        code,
        rule: Some(Arc::clone(&rule.id)),
        source: Arc::clone(&rule.location.source),
        line: rule.location.line,
        message,
        instead: instead.to_owned(),
    }
}

/// Whether every request that `inner` matches is matched by `outer` too.
fn covered(inner: &Rule, outer: &Rule) -> bool {
    inner.shapes.iter().all(|shape| outer.shapes.iter().any(|wider| shape_covers(wider, shape)))
}

fn shape_covers(outer: &Shape, inner: &Shape) -> bool {
    let ports = match (&outer.ports, &inner.ports) {
        (PortSet::Any, _) => true,
        (PortSet::Only(_), PortSet::Any) => false,
        (PortSet::Only(outer), PortSet::Only(inner)) => {
            inner.iter().all(|port| outer.contains(port))
        }
    };
    let paths = match (&outer.paths, &inner.paths) {
        (Paths::Any, _) => true,
        (Paths::Patterns(outer), Paths::Patterns(inner)) => inner
            .iter()
            .all(|path| outer.iter().any(|wider| path_covers(wider.as_str(), path.as_str()))),
        (Paths::Patterns(_) | Paths::PythonFiles(_), _) => false,
    };
    covers(&outer.host, &inner.host)
        && ports
        && paths
        && (outer.carries == Carries::Anything || outer.carries == inner.carries)
        && outer.methods.covers(inner.methods)
        && (outer.websocket == Websocket::Either || outer.websocket == inner.websocket)
        && outer.query.is_empty()
        && outer.headers.is_empty()
        && outer.body_check.is_none()
}

/// Whether one path pattern matches all that another does, where that is plain
/// to see: the same pattern, or a `/**` above it.
fn path_covers(outer: &str, inner: &str) -> bool {
    let above = outer.strip_suffix("**").filter(|above| !above.contains('*'));
    outer == inner || above.is_some_and(|above| inner.starts_with(above))
}

/// Suffixes under which names or buckets are given to anyone who asks, beside
/// those that the public suffix list knows.
fn is_shared_hosting(suffix: &str) -> bool {
    const PROVIDERS: &[&str] = &[
        "amazonaws.com",
        "aliyuncs.com",
        "azure.com",
        "azureedge.net",
        "azurefd.net",
        "azurewebsites.net",
        "backblazeb2.com",
        "cloudapp.azure.com",
        "cloudflarestorage.com",
        "cloudfront.net",
        "core.windows.net",
        "digitaloceanspaces.com",
        "fastly.net",
        "googleapis.com",
        "googleusercontent.com",
        "linodeobjects.com",
        "myqcloud.com",
        "oraclecloud.com",
        "sharepoint.com",
        "slack.com",
        "wasabisys.com",
        "windows.net",
    ];
    const STORES: &[&str] = &[
        "blob",
        "bucket",
        "buckets",
        "cdn",
        "drive",
        "files",
        "objects",
        "pages",
        "s3",
        "sites",
        "spaces",
        "storage",
        "uploads",
        "usercontent",
        "workers",
    ];
    let below = |provider: &str| {
        suffix == provider || suffix.strip_suffix(provider).is_some_and(|rest| rest.ends_with('.'))
    };
    let first = suffix.split('.').next().unwrap_or_default();
    let store = STORES.contains(&first) || first.starts_with("s3-");
    store || PROVIDERS.iter().any(|provider| below(provider))
}

#[cfg(test)]
mod tests;
