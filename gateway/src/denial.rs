//! Policy's no, with what there is to say about it.

use audit::{Name, VerdictRecord};
use policies::{Decision, Destination, NotDoneYet, Policy, PolicyQuestion, Reason, Scheme};

#[derive(Clone, Debug, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct Denial {
    /// `no_rule`, `terms_differ`, `denied`, `not_approved`, `network_off`, or what
    /// cannot be done yet.
    pub(crate) code: &'static str,
    pub(crate) verdict: VerdictRecord,
    pub(crate) rule: Option<Name>,
    pub(crate) detail: String,
    /// What a person could change.
    pub(crate) hint: Option<String>,
}

impl Denial {
    /// A destination was denied, before anything was asked of it.
    pub(crate) fn of_host(decision: &Decision<'_>, to: &Destination) -> Self {
        let entry = match to.port {
            // A bare host is https on 443.
            443 => format!("{}", to.host),
            port => format!("{{host: {}, port: {port}}}", quoted(&to.host.to_string())),
        };
        Self::new(decision, &format!("`{to}`"), || Some(entry))
    }

    /// A request was denied.
    pub(crate) fn of_request(decision: &Decision<'_>, question: &PolicyQuestion<'_>) -> Self {
        let PolicyQuestion { scheme, to, method, path, .. } = question;
        let mut what = format!("`{method} {scheme}://{to}{path}`");
        if let Some(other) = question.override_method.filter(|other| other != method) {
            what.push_str(&format!(", which a header or a parameter turns into {other},"));
        }
        if let Some(other) = question.alternate_paths.first() {
            what.push_str(&format!(", which a header or a parameter turns into `{}`,", other.path));
        }
        if question.websocket {
            what.push_str(" as a WebSocket");
        }
        Self::new(decision, &what, || narrowest_entry(question))
    }

    /// A rule allows it and asks for more than can be done yet. That is not carried
    /// out by half.
    pub(crate) fn not_done_yet(lacking: NotDoneYet, rule: Name) -> Self {
        let detail = match lacking {
            NotDoneYet::Body => format!(
                "the rule `{rule}` wants the body checked, which this gateway cannot do yet"
            ),
            NotDoneYet::Secret => {
                format!(
                    "the rule `{rule}` puts a secret into the request, which this gateway cannot do yet"
                )
            }
        };
        let code = lacking.code();
        Self { code, verdict: VerdictRecord::Deny, rule: Some(rule), detail, hint: None }
    }

    fn new(decision: &Decision<'_>, what: &str, entry: impl FnOnce() -> Option<String>) -> Self {
        let rule = decision.rule_id();
        let because = decision.rule.and_then(policies::Rule::reason);
        let because = because.map(|why| format!(": {why}")).unwrap_or_default();
        let (verdict, detail, hint) = match (decision.reason, decision.verdict) {
            (Reason::NetworkOff, _) => (
                VerdictRecord::Deny,
                format!("{what} is refused: the network is off"),
                Some("a person could set `net.enabled: true` in the policy".to_owned()),
            ),
            (Reason::Rule, policies::Verdict::Ask) => (
                VerdictRecord::Ask,
                format!("{what} needs a person's approval, and has none{because}"),
                entry().map(|entry| format!("a person could add to `net.allow`: {entry}")),
            ),
            (Reason::Rule, _) => (
                VerdictRecord::Deny,
                format!("{what} is denied by the rule `{}`{because}", rule.unwrap_or_default()),
                Some("a deny beats every allow: a person would have to remove the rule".to_owned()),
            ),
            (Reason::TermsDiffer, _) => (
                VerdictRecord::Deny,
                format!(
                    "{what} could be read in several ways, and the rules that allow those differ \
                     in their secret, addresses or refs"
                ),
                Some("send the plainest spelling of it".to_owned()),
            ),
            (Reason::NoRule, _) => (
                VerdictRecord::Deny,
                format!("{what} is not allowed: no rule matches"),
                entry().map(|entry| format!("a person could add to `net.allow`: {entry}")),
            ),
        };
        Self { code: decision.code(), verdict, rule: rule.map(Name::from), detail, hint }
    }
}

/// The smallest entry that would let the request pass.
fn narrowest_entry(question: &PolicyQuestion<'_>) -> Option<String> {
    // One entry would not do.
    if !question.alternate_paths.is_empty() {
        return None;
    }
    let scheme = match (question.scheme, question.websocket) {
        (Scheme::Http, false) => "http",
        (Scheme::Http, true) => "ws",
        (Scheme::Https, false) => "https",
        (Scheme::Https, true) => "wss",
    };
    let url = format!("{scheme}://{}{}", question.to, question.path);
    let asked = policies::SampleRequest::new(question.method.as_str(), &url).ok()?;
    Some(Policy::hint(&asked, question.override_method))
}

/// Quotes what YAML's flow style would read otherwise.
fn quoted(host: &str) -> String {
    if host.contains([':', '[']) { format!("\"{host}\"") } else { host.to_owned() }
}
