//! What a person hears at the end of a run: what became of it, whom it talked to,
//! what it changed, and what to type next.

use std::path::Path;

use audit::search::SearchQuery;
use engine::outcome::Traffic;
use engine::plan::Plan;
use engine::report::RunReport;
use files::printable::Printable;

use crate::amounts::{short_size, took};
use crate::audit::{HostTotals, totals_of};

/// In a few lines, each of them short.
pub(super) fn lines(plan: &Plan, report: &RunReport) -> Vec<String> {
    let Ok(done) = &report.ended else { return Vec::new() };
    let traffic = done.seen.usage.network;
    let hosts = match traffic {
        Some(traffic) if traffic.requests <= MAX_SUMMARIZED_REQUESTS => hosts_of(&plan.evidence),
        Some(_) | None => None,
    };
    let how = match done.outcome.kind() {
        "exited" => "exited".to_owned(),
        kind => format!("ended as `{kind}`"),
    };
    let (code, took) = (done.outcome.code(), took(done.seen.usage.wall.as_secs_f64()));
    let ended = format!("run {} {how} with code {code} after {took}", plan.run);
    told(&ended, traffic, hosts.as_deref(), report.changed)
}

/// What passed the gateway, host by host; nothing if the log cannot be read.
fn hosts_of(evidence: &Path) -> Option<Vec<HostTotals>> {
    let found = audit::search::search(evidence, &SearchQuery::default()).ok()?;
    Some(totals_of(found.filter_map(|seen| seen.ok()?.event().ok())))
}

fn told(
    ended: &str,
    traffic: Option<Traffic>,
    hosts: Option<&[HostTotals]>,
    changed: Option<usize>,
) -> Vec<String> {
    let changes = match changed {
        None => None,
        Some(0) => Some("nothing changed".to_owned()),
        Some(1) => Some("1 file changed".to_owned()),
        Some(count) => Some(format!("{count} files changed")),
    };
    let mut next = Vec::new();
    if changed.is_some_and(|count| count > 0) {
        next.extend(["diff", "apply"]);
    }
    let Some(traffic) = traffic else {
        let mut line = format!("{ended}; no network");
        line.extend(changes.map(|changes| format!("; {changes}")));
        line.push_str(&and_then(&next));
        return vec![line];
    };
    let hosts = hosts.unwrap_or_default();
    let is_idle = traffic.requests == 0 && traffic.refused == 0 && hosts.is_empty();
    if !is_idle {
        next.push("audit show");
    }
    let mut lines = vec![ended.to_owned()];
    for (word, count) in
        [("allowed", (|it| it.allowed) as fn(&HostTotals) -> u64), ("failed", |it| it.failed)]
    {
        let counted = hosts.iter().filter(|it| count(it) > 0);
        lines.extend(listed(
            word,
            counted.map(|it| format!("{} ({})", Printable(&it.host), count(it))),
        ));
    }
    let refused = hosts.iter().filter(|it| it.refused > 0).map(|it| {
        let why = it.reasons.first().map(|why| format!(", {why}")).unwrap_or_default();
        format!("{} ({}{why})", Printable(&it.host), it.refused)
    });
    lines.extend(listed("refused", refused));
    let mut line = match is_idle {
        true => "nothing was asked of the network".to_owned(),
        false => {
            format!("sent {}, received {}", short_size(traffic.sent), short_size(traffic.received))
        }
    };
    if hosts.is_empty() && traffic.requests > 0 {
        let Traffic { requests, refused, .. } = traffic;
        line = format!("{requests} requests, {refused} refused, {line}");
    }
    line.extend(changes.map(|changes| format!("; {changes}")));
    line.push_str(&and_then(&next));
    lines.push(line);
    lines
}

/// `allowed a.test (3), b.test (1), and 4 more`; nothing of nothing.
fn listed(word: &str, all: impl Iterator<Item = String>) -> Option<String> {
    let all: Vec<String> = all.collect();
    let shown = all.iter().take(MAX_SHOWN_HOSTS).cloned().collect::<Vec<_>>().join(", ");
    let more = match all.len().saturating_sub(MAX_SHOWN_HOSTS) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    (!all.is_empty()).then(|| format!("{word} {shown}{more}"))
}

fn and_then(next: &[&str]) -> String {
    let verbs: Vec<String> = next.iter().map(|verb| format!("`sluice {verb} last`")).collect();
    if verbs.is_empty() { String::new() } else { format!("; next: {}", verbs.join(", ")) }
}

/// More hosts than that are for `sluice audit summary`.
const MAX_SHOWN_HOSTS: usize = 6;
/// More lines than that are not read again just to sum them up.
const MAX_SUMMARIZED_REQUESTS: u64 = 20_000;

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn host(host: &str, allowed: u64, refused: u64) -> HostTotals {
        let reasons = if refused > 0 { vec!["no_rule".to_owned()] } else { Vec::new() };
        let mut totals = HostTotals::default();
        (totals.host, totals.reasons) = (host.to_owned(), reasons);
        (totals.allowed, totals.refused) = (allowed, refused);
        totals
    }

    #[test]
    fn a_run_is_summed_up_in_a_few_lines() {
        let ended = "run 20261116-031045-7f3a2b exited with code 0 after 3.2s";
        let traffic = Traffic { requests: 6, refused: 2, sent: 2048, received: 5_000_000 };
        let hosts = [host("evil.test", 0, 2), host("a.test", 3, 0), host("b.test", 1, 0)];
        let shown = |traffic, hosts, changed| told(ended, traffic, hosts, changed).join("\n");
        expect![[r#"
            run 20261116-031045-7f3a2b exited with code 0 after 3.2s
            allowed a.test (3), b.test (1)
            refused evil.test (2, no_rule)
            sent 2.0KiB, received 4.7MiB; 5 files changed; next: `sluice diff last`, `sluice apply last`, `sluice audit show last`"#]]
        .assert_eq(&shown(Some(traffic), Some(&hosts), Some(5)));
        expect![
            "run 20261116-031045-7f3a2b exited with code 0 after 3.2s; no network; nothing changed"
        ]
        .assert_eq(&shown(None, None, Some(0)));
        expect![[r#"
            run 20261116-031045-7f3a2b exited with code 0 after 3.2s
            nothing was asked of the network; 1 file changed; next: `sluice diff last`, `sluice apply last`"#]]
        .assert_eq(&shown(Some(Traffic::default()), Some(&[]), Some(1)));
        expect![[r#"
            run 20261116-031045-7f3a2b exited with code 0 after 3.2s
            6 requests, 2 refused, sent 2.0KiB, received 4.7MiB; next: `sluice audit show last`"#]]
        .assert_eq(&shown(Some(traffic), None, None));
        expect![[r#"
            run 20261116-031045-7f3a2b exited with code 0 after 3.2s
            refused 192.0.2.7 (2, no_rule)
            sent 0B, received 0B; next: `sluice audit show last`"#]]
        .assert_eq(&shown(Some(Traffic::default()), Some(&[host("192.0.2.7", 0, 2)]), None));
    }

    #[test]
    fn of_many_hosts_the_first_are_named() {
        let hosts: Vec<HostTotals> = (0..9).map(|it| host(&format!("h{it}.test"), 1, 0)).collect();
        let traffic = Traffic { requests: 9, ..Traffic::default() };
        let lines = told("ended", Some(traffic), Some(&hosts), None);
        assert!(lines[1].ends_with("h5.test (1), and 3 more"), "{lines:?}");
    }
}
