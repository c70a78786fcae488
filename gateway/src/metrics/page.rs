//! `docs/metrics.md` is made from what the gateway registers, so no number is
//! missing there and none is there that does not exist.
//!
//! `UPDATE_EXPECT=1 cargo test -p sluice-gateway --lib page` writes it anew.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use audit::{EntryOutcome, WayIn};
use expect_test::expect_file;

use super::{GaugeValues, MAX_REQUEST_SERIES, Metrics};
use crate::dial::UpstreamFacts;

const PREFACE: &str = "\
# Metrics

Every number a gateway gives. Made from what it registers; do not edit. `UPDATE_EXPECT=1 cargo test -p sluice-gateway --lib page` writes
it anew, and a test fails when it is out of date.

`GET /metrics` on the control socket gives them in the OpenMetrics text format, which Prometheus reads:

```sh
curl -s --unix-socket control/control.sock http://gateway/metrics
```

One gateway serves one sandbox and lives as long, so its numbers start at zero with every run. No label can be chosen by a sandbox:
hosts and paths are in the [audit log](audit-format.md), never here.

| metric | type | labels | meaning |
|---|---|---|---|
";

/// What each label can be.
const LABELS: &[(&str, &str)] = &[
    ("code", "`allowed`, or a code of [refusals](refusals.md)"),
    ("outcome", "`relayed`, `refused`, `failed` or `abandoned`, as in the audit log"),
    ("reused", "`true`: a kept connection; `false`: a fresh one"),
    ("record", "the record that was asked for: `A`, `AAAA` and so on"),
    ("response", "how the question was answered, such as `NOERROR`"),
    (
        "rule",
        "the rule that decided, by its name, else by its place in the policy; `none`; `other` beyond the bound below",
    ),
    ("step", "`resolve`, `connect` or `tls`"),
    (
        "way",
        "the listener: `captured_http`, `captured_https`, `captured_port`, `dns`, `proxy`, `socks5`, `tcp`",
    ),
];

const WORTH_AN_ALERT: &str = "
## Worth an alert

| expression | says |
|---|---|
| `sluice_audit_available == 0` | nothing can be recorded, so every request is refused with `audit_unavailable` |
| `sluice_audit_unwritten > 1000` | the disk does not keep up |
| `increase(sluice_requests_total{outcome=\"refused\"}[1m]) > 20` | somebody inside tries doors |
| `increase(sluice_dns_questions_dropped_total[1m]) > 0` | a flood of questions for names |
| `increase(sluice_requests_total{outcome=\"abandoned\"}[5m]) > 0` | a task ended without saying how: report it |
";

#[test]
fn the_page_is_what_is_registered() {
    let text = one_of_each().encode(GaugeValues::default());
    let mut page = PREFACE.to_owned();
    let mut seen = BTreeSet::new();
    for block in text.split("# HELP ").skip(1) {
        let (name, rest) = block.split_once(' ').unwrap();
        let help = rest.lines().next().unwrap();
        let kind = block.split("# TYPE ").nth(1).unwrap();
        let kind = kind.lines().next().unwrap().split_once(' ').unwrap().1;
        let sample = block.lines().skip(1).find(|line| line.starts_with("sluice_")).unwrap();
        let labels: Vec<&str> = sample
            .split_once('{')
            .map(|(_, labels)| labels.split(',').filter_map(|label| label.split('=').next()))
            .into_iter()
            .flatten()
            .filter(|label| *label != "le")
            .collect();
        let shown = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        assert!(sample.starts_with(name), "{sample}");
        writeln!(page, "| `{shown}` | {kind} | {} | {help} |", labels.join(", ")).unwrap();
        seen.extend(labels);
    }
    page.push_str("\n| label | is |\n|---|---|\n");
    for (label, meaning) in LABELS {
        assert!(seen.remove(label), "no metric is labelled `{label}`");
        writeln!(page, "| `{label}` | {meaning} |").unwrap();
    }
    assert!(seen.is_empty(), "say in LABELS what these are: {seen:?}");
    writeln!(
        page,
        "\nBeyond {MAX_REQUEST_SERIES} series a rule is counted as `other`: memory is bounded whatever policies come."
    )
    .unwrap();
    page.push_str(WORTH_AN_ALERT);
    for name in
        WORTH_AN_ALERT.split('`').filter_map(|code| code.find("sluice_").map(|at| &code[at..]))
    {
        let name: String =
            name.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        assert!(
            page.contains(&format!("| `{name}` |")),
            "an alert on `{name}`, which is not there"
        );
    }
    expect_file!["../../../docs/metrics.md"].assert_eq(&page);
}

/// Families show their labels only once something was counted.
fn one_of_each() -> Metrics {
    let metrics = Metrics::new();
    metrics.request("allowed", Some("net.allow[0]"), EntryOutcome::Relayed, Duration::ZERO);
    metrics.accepted(WayIn::Proxy);
    metrics.connection(WayIn::Proxy, EntryOutcome::Relayed);
    metrics.question("A", "NOERROR");
    metrics.questions_dropped(1);
    metrics.dialled(&UpstreamFacts {
        address: SocketAddr::from(([127, 0, 0, 1], 443)).into(),
        proxied: false,
        tls: None,
        reused: false,
        resolve: Duration::ZERO,
        connect: Duration::ZERO,
        handshake: Duration::ZERO,
    });
    metrics
}
