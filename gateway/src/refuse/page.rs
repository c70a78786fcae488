//! `docs/refusals.md` is made from the types that refuse, so no code is missing
//! there and none is told with another status.
//!
//! `UPDATE_EXPECT=1 cargo test -p sluice-gateway --lib page` writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use audit::{EntryOutcome, Name, Unavailable, VerdictRecord};
use expect_test::expect_file;
use policies::{Authority, HostName, Method, NotDoneYet, Reason, RequestPath};
use uuid::Uuid;

use super::{Refusal, Reply};
use crate::denial::Denial;
use crate::dial::testing;
use crate::limits::{LimitKind, LimitReached};
use crate::websocket::WebSocketFault;

const PREFACE: &str = "\
# Refusals

Every code a sandbox can be told. Made from the gateway's own types; do not edit. `UPDATE_EXPECT=1 cargo test -p sluice-gateway --lib
page` writes it anew, and a test fails when it is out of date.

HTTP gets `application/problem+json` (RFC 9457) with `code`, `rule`, `detail`, `request_id` and `hint`, and the same in `x-sluice-code`,
`x-sluice-rule` and `x-sluice-request-id`. gRPC gets a status with the same words. A refused CONNECT carries the code in its reason
phrase, which is what most clients print. SOCKS5 and DNS have only a number to say it with. The request id is the `id` of the audit
event: `sluice audit show ID` says everything about it.

What has no `x-sluice-code` is not a refusal of ours, whatever it says: a header whose name begins with `x-sluice-` is taken out of every
answer of an upstream, interim answers and trailers included. Where TLS is not opened (`passthrough`, `tcp`) nobody can do that.

Codes are stable: programs branch on them. `no` in *again?* means that the same request will be refused again.

| code | status | gRPC | again? | meaning | what helps |
|---|---|---|---|---|---|
";

/// What each code means to whoever is refused, and what helps.
const MEANINGS: &[(&str, &str, &str)] = &[
    (
        "ambiguous",
        "two servers could read it differently",
        "send the plain spelling; `detail` says what is wrong",
    ),
    (
        "audit_unavailable",
        "nothing can be recorded, so nothing passes",
        "make room on the disk, and it goes on; if the log has its size, raise `limits.audit` of the gateway and start it again",
    ),
    ("bad_authority", "the destination cannot be read", "a plain host name or address, and a port"),
    (
        "body_not_checkable",
        "the rule wants the body checked, which this gateway cannot do yet",
        "a rule without that check, or another way",
    ),
    ("body_too_large", "one body is longer than it may be", "`net.limits.body`"),
    (
        "budget_spent",
        "a budget of the run is used up: bytes sent or received, hosts, chosen names or URLs; `detail` names it",
        "that field of `net.limits`; a new run starts at zero",
    ),
    ("cap_reached", "it lasted longer than it may", "`net.limits.total`"),
    ("client_gone", "the client closed; recorded, never sent", ""),
    (
        "denied",
        "a rule denies it; or it is never relayed (TRACE, an unknown method, CONNECT inside a connection); or a new policy ended it",
        "the rule named would have to go: a deny beats every allow",
    ),
    (
        "destination_forbidden",
        "the name resolves to an address that may not be dialled",
        "`addresses` in the rule, for private ranges; nothing for metadata, loopback and link-local",
    ),
    (
        "handshake_failed",
        "TLS with the client failed",
        "the client must trust `/etc/sluice/ca/ca.pem`",
    ),
    ("head_too_large", "the head is longer than it may be", "`limits.header_bytes` of the gateway"),
    ("idle", "nothing moved in time", "`net.limits.idle`"),
    ("malformed", "not HTTP that everyone reads alike", "`detail` says what is wrong"),
    (
        "name_mismatch",
        "the request is for another host than the connection",
        "a connection of its own",
    ),
    ("network_off", "the policy has no network", "`net.enabled: true`"),
    ("no_rule", "no rule allows it", "the rule in `hint`, if a person wants it"),
    ("no_server_name", "the connection does not say whom it is for", "send SNI or `Host`"),
    (
        "not_approved",
        "a rule wants a person's word, and there is none: nobody can be asked yet",
        "a person moves the rule from `ask` to `allow`; see [escalation](escalation.md)",
    ),
    ("opening_timeout", "the client did not say what it wants in time", ""),
    (
        "rate_limited",
        "too many requests in a minute",
        "wait as long as `retry-after` says, or `net.limits.requests_per_minute`",
    ),
    (
        "sealed_name_unreadable",
        "a passthrough connection hides whom it is for",
        "a rule that opens TLS; or a client without ECH",
    ),
    (
        "secret_unavailable",
        "the rule puts a secret into the request, which this gateway cannot do yet",
        "a rule without `secret`",
    ),
    (
        "terms_differ",
        "servers could read it in several ways, and the rules that allow those differ in their secret, addresses or refs",
        "the plainest spelling; a person writes one rule that matches all of them",
    ),
    (
        "upstream_incompatible",
        "its TLS and ours have nothing in common; `detail` says what: below 1.2, or no safe cipher suite",
        "a server with TLS 1.2 or 1.3",
    ),
    ("upstream_malformed", "its answer is not HTTP, or not a WebSocket, that we can vouch for", ""),
    (
        "upstream_proxy_failed",
        "the operator's own proxy refused or failed",
        "`upstream.proxy` of the gateway",
    ),
    ("upstream_timeout", "no answer in time", ""),
    ("upstream_unreachable", "nobody there, or it closed the connection", ""),
    ("upstream_unresolved", "the name has no address", ""),
    (
        "upstream_untrusted",
        "its certificate is not believed; `detail` says why",
        "`upstream.roots` of the gateway, `--trust` of a run",
    ),
    (
        "websocket_malformed",
        "the client sent over a WebSocket what is no frame of one; it got a close frame with 1002",
        "another client library",
    ),
];

#[test]
fn the_page_is_what_refusals_are() {
    let mut rows: BTreeMap<&str, (u16, String, EntryOutcome)> = BTreeMap::new();
    for refusal in samples() {
        let reply = Reply::new(&refusal, Uuid::nil());
        let wire = reply.wire(true);
        let grpc = wire.headers.iter().find(|(name, _)| *name == "grpc-status");
        let row = (reply.status, grpc.unwrap().1.clone(), refusal.outcome());
        let known = rows.insert(reply.code, row.clone());
        assert!(known.is_none_or(|known| known == row), "`{}` is told in two ways", reply.code);
    }
    let mut page = PREFACE.to_owned();
    for (code, (status, grpc, outcome)) in &rows {
        let Some((_, meaning, helps)) = MEANINGS.iter().find(|(named, ..)| named == code) else {
            panic!("say in MEANINGS what `{code}` means");
        };
        let again = match (outcome, *status) {
            (EntryOutcome::Failed, _) | (_, 408 | 429) => "maybe",
            _ => "no",
        };
        writeln!(page, "| `{code}` | {status} | {grpc} | {again} | {meaning} | {helps} |").unwrap();
    }
    for (code, ..) in MEANINGS {
        assert!(rows.contains_key(code), "nothing says `{code}` any more");
    }
    expect_file!["../../../docs/refusals.md"].assert_eq(&page);
}

/// One of each, and each cause that has a code of its own. A new variant does not
/// compile before [`listed`] knows it.
pub(super) fn samples() -> Vec<Refusal> {
    let rule = || Name::from("net.allow[0]");
    let limit = Duration::from_secs(1);
    let why = || "why".to_owned();
    let path = |written| Refusal::Path(RequestPath::parse(written).unwrap_err());
    let mut all = vec![
        Refusal::Ambiguous(why()),
        Refusal::AuditUnavailable(Unavailable::Closed),
        Refusal::BadAuthority(Authority::parse("a b").unwrap_err()),
        Refusal::BadName(HostName::parse("a b").unwrap_err()),
        Refusal::Policy(Denial::not_done_yet(NotDoneYet::Body, rule())),
        Refusal::BodyTooLarge { limit: 1 },
        Refusal::from(reached(LimitKind::Upload)),
        Refusal::from(reached(LimitKind::Download)),
        Refusal::from(reached(LimitKind::RequestsPerMinute)),
        Refusal::CapReached { limit },
        Refusal::ClientGone(why()),
        Refusal::ConnectInside,
        Refusal::HandshakeFailed(why()),
        Refusal::HeadTooLarge { limit: 1 },
        Refusal::Idle { limit },
        Refusal::Malformed(why()),
        Refusal::Method(Method::parse("get").unwrap_err()),
        Refusal::NameMismatch { admitted: why(), named: why() },
        Refusal::NoServerName,
        Refusal::OpeningTimeout { limit },
        path("/a/../b"),
        path("/%0"),
        Refusal::PolicyChanged,
        Refusal::Policy(Denial::not_done_yet(NotDoneYet::Secret, rule())),
        Refusal::Passthrough("why"),
        Refusal::Trace,
        Refusal::UpstreamClosed(why()),
        Refusal::UpstreamMalformed(why()),
        Refusal::UpstreamSilent { limit },
        Refusal::UpstreamWebSocket(WebSocketFault::Reserved),
        Refusal::WebSocket(WebSocketFault::Reserved),
    ];
    all.extend(testing::one_of_each_failure().into_iter().map(Refusal::Dial));
    for (reason, verdict) in [
        (Reason::NetworkOff, policies::Verdict::Deny),
        (Reason::NoRule, policies::Verdict::Deny),
        (Reason::TermsDiffer, policies::Verdict::Deny),
        (Reason::Rule, policies::Verdict::Ask),
        (Reason::Rule, policies::Verdict::Deny),
    ] {
        let code = reason.code(verdict);
        let detail = why();
        let rule = (reason == Reason::Rule).then(rule);
        let verdict = match verdict {
            policies::Verdict::Ask => VerdictRecord::Ask,
            policies::Verdict::Allow | policies::Verdict::Deny => VerdictRecord::Deny,
        };
        let denial = Denial { code, verdict, rule, detail, hint: None };
        all.push(Refusal::Policy(denial));
    }
    all.iter().for_each(listed);
    all
}

fn reached(limit: LimitKind) -> LimitReached {
    LimitReached { limit, value: 1, reached: 2, retry_after: None }
}

/// No `_`: whoever adds a way to refuse adds a sample above.
fn listed(refusal: &Refusal) {
    match refusal {
        Refusal::Ambiguous(_)
        | Refusal::AuditUnavailable(_)
        | Refusal::BadAuthority(_)
        | Refusal::BadName(_)
        | Refusal::BodyTooLarge { .. }
        | Refusal::BudgetSpent(_)
        | Refusal::CapReached { .. }
        | Refusal::ClientGone(_)
        | Refusal::ConnectInside
        | Refusal::Dial(_)
        | Refusal::HandshakeFailed(_)
        | Refusal::HeadTooLarge { .. }
        | Refusal::Idle { .. }
        | Refusal::Malformed(_)
        | Refusal::Method(_)
        | Refusal::NameMismatch { .. }
        | Refusal::NoServerName
        | Refusal::OpeningTimeout { .. }
        | Refusal::Path(_)
        | Refusal::Policy(_)
        | Refusal::PolicyChanged
        | Refusal::RateLimited(_)
        | Refusal::Passthrough(_)
        | Refusal::Trace
        | Refusal::UpstreamClosed(_)
        | Refusal::UpstreamMalformed(_)
        | Refusal::UpstreamSilent { .. }
        | Refusal::UpstreamWebSocket(_)
        | Refusal::WebSocket(_) => {}
    }
}
