//! Numbers for operators, in the Prometheus text format, on the control socket.
//!
//! Labels are rules, codes, ways in and outcomes, never hosts: a sandbox
//! chooses host names, and a label it can choose is memory it can take and a
//! place to write secrets. Rules change with the policy, so they are bounded
//! too: beyond [`MAX_REQUEST_SERIES`] series a rule is counted as `other`.

mod labels;
#[cfg(test)]
mod page;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use audit::{EntryOutcome, WayIn};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::dial::UpstreamFacts;
use labels::{
    ConnectionLabels, OutcomeLabel, OutcomeLabels, QuestionLabels, RequestLabels, StepLabels,
    UpstreamLabels, WayLabel, WayLabels,
};

/// How many series the requests may have.
const MAX_REQUEST_SERIES: usize = 1024;

/// The counters of one gateway.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    /// Series of `requests` that were asked for.
    series: AtomicUsize,
    ended: AtomicU64,
    refused: AtomicU64,
    request_seconds: Family<OutcomeLabels, Histogram, fn() -> Histogram>,
    accepted: Family<WayLabels, Counter>,
    connections: Family<ConnectionLabels, Counter>,
    dial_seconds: Family<StepLabels, Histogram, fn() -> Histogram>,
    upstreams: Family<UpstreamLabels, Counter>,
    questions: Family<QuestionLabels, Counter>,
    questions_dropped: Counter,
    gauges: Gauges,
}

/// What is not counted here but is known elsewhere, at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GaugeValues {
    pub(crate) open_connections: u32,
    pub(crate) tasks: usize,
    pub(crate) uploaded: u64,
    pub(crate) downloaded: u64,
    pub(crate) leaves: usize,
    pub(crate) audit_available: bool,
    pub(crate) audit_written: u64,
    pub(crate) audit_unwritten: u64,
    pub(crate) policy_generation: u64,
    pub(crate) draining: bool,
}

#[derive(Debug, Default)]
struct Gauges {
    open_connections: Gauge,
    tasks: Gauge,
    uploaded: Counter,
    downloaded: Counter,
    leaves: Gauge,
    audit_available: Gauge,
    audit_written: Counter,
    audit_unwritten: Gauge,
    policy_generation: Gauge,
    draining: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let metrics = Self {
            registry: Registry::with_prefix("sluice"),
            requests: Family::default(),
            series: AtomicUsize::new(0),
            ended: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            request_seconds: Family::new_with_constructor(durations),
            accepted: Family::default(),
            connections: Family::default(),
            dial_seconds: Family::new_with_constructor(durations),
            upstreams: Family::default(),
            questions: Family::default(),
            questions_dropped: Counter::default(),
            gauges: Gauges::default(),
        };
        metrics.registered()
    }

    /// One request ended.
    pub(crate) fn request(
        &self,
        code: &'static str,
        rule: Option<&str>,
        outcome: EntryOutcome,
        took: Duration,
    ) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.count(outcome);
        let rule = rule.unwrap_or("none").to_owned();
        let mut labels = RequestLabels { code, rule, outcome: OutcomeLabel(outcome) };
        // An `else` here would hold the family's lock while it is taken again.
        let counted = self.requests.get(&labels).map(|counter| counter.inc()).is_some();
        if !counted {
            if self.series.fetch_add(1, Ordering::Relaxed) >= MAX_REQUEST_SERIES {
                labels.rule = "other".to_owned();
            }
            self.requests.get_or_create(&labels).inc();
        }
        let labels = OutcomeLabels { outcome: OutcomeLabel(outcome) };
        self.request_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    fn count(&self, outcome: EntryOutcome) {
        if outcome == EntryOutcome::Refused {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many requests did not pass, and connections that had none.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many requests ended so far.
    pub(crate) fn requests_ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// One connection was accepted.
    pub(crate) fn accepted(&self, way: WayIn) {
        self.accepted.get_or_create(&WayLabels { way: WayLabel(way) }).inc();
    }

    /// One connection ended.
    pub(crate) fn connection(&self, way: WayIn, outcome: EntryOutcome) {
        self.count(outcome);
        let labels = ConnectionLabels { way: WayLabel(way), outcome: OutcomeLabel(outcome) };
        self.connections.get_or_create(&labels).inc();
    }

    /// An upstream was reached, by a fresh connection or a kept one.
    pub(crate) fn dialled(&self, facts: &UpstreamFacts) {
        let reused = if facts.reused { "true" } else { "false" };
        self.upstreams.get_or_create(&UpstreamLabels { reused }).inc();
        if facts.reused {
            return;
        }
        let handshake = facts.tls.as_ref().map(|_| facts.handshake);
        for (step, took) in
            [("resolve", Some(facts.resolve)), ("connect", Some(facts.connect)), ("tls", handshake)]
        {
            let Some(took) = took else { continue };
            self.dial_seconds.get_or_create(&StepLabels { step }).observe(took.as_secs_f64());
        }
    }

    /// One question for a name was answered.
    pub(crate) fn question(&self, record: &'static str, response: &'static str) {
        self.questions.get_or_create(&QuestionLabels { record, response }).inc();
    }

    /// Questions were dropped because there were too many.
    pub(crate) fn questions_dropped(&self, count: u64) {
        self.questions_dropped.inc_by(count);
    }

    /// Everything, as text.
    pub(crate) fn encode(&self, now: GaugeValues) -> String {
        let gauges = &self.gauges;
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        gauges.open_connections.set(i64::from(now.open_connections));
        gauges.tasks.set(gauge(now.tasks as u64));
        gauges.uploaded.inner().store(now.uploaded, Ordering::Relaxed);
        gauges.downloaded.inner().store(now.downloaded, Ordering::Relaxed);
        gauges.leaves.set(gauge(now.leaves as u64));
        gauges.audit_available.set(i64::from(now.audit_available));
        gauges.audit_written.inner().store(now.audit_written, Ordering::Relaxed);
        gauges.audit_unwritten.set(gauge(now.audit_unwritten));
        gauges.policy_generation.set(gauge(now.policy_generation));
        gauges.draining.set(i64::from(now.draining));

        let mut out = String::new();
        text::encode(&mut out, &self.registry).expect("writing to a string cannot fail");
        out
    }

    fn registered(mut self) -> Self {
        let all = &mut self.registry;
        all.register("requests", "Requests by code, rule and outcome", self.requests.clone());
        all.register_with_unit(
            "request_duration",
            "From the head of a request to the end of its answer",
            Unit::Seconds,
            self.request_seconds.clone(),
        );
        all.register("accepted", "Connections accepted", self.accepted.clone());
        all.register("connections", "Connections that ended", self.connections.clone());
        all.register_with_unit(
            "dial_duration",
            "Steps of reaching an upstream",
            Unit::Seconds,
            self.dial_seconds.clone(),
        );
        all.register(
            "upstream_connections",
            "Upstream connections used, kept ones or fresh ones",
            self.upstreams.clone(),
        );
        all.register("dns_questions", "Questions answered", self.questions.clone());
        all.register(
            "dns_questions_dropped",
            "Questions dropped because there were too many",
            self.questions_dropped.clone(),
        );

        let now = &self.gauges;
        let open = now.open_connections.clone();
        all.register("open_connections", "Connections open now", open);
        all.register("tasks", "Tasks of all workers that have not ended", now.tasks.clone());
        let uploaded = now.uploaded.clone();
        all.register_with_unit("uploaded", "Sent to upstreams", Unit::Bytes, uploaded);
        let downloaded = now.downloaded.clone();
        all.register_with_unit("downloaded", "Received from upstreams", Unit::Bytes, downloaded);
        all.register("leaf_certificates", "Leaves kept", now.leaves.clone());
        let available = now.audit_available.clone();
        all.register("audit_available", "Whether the audit log can be written", available);
        let written = now.audit_written.clone();
        all.register("audit_lines", "Lines of the audit log that are in the file", written);
        let unwritten = now.audit_unwritten.clone();
        all.register("audit_unwritten", "Lines handed over and not written", unwritten);
        let generation = now.policy_generation.clone();
        all.register("policy_generation", "Counts up with every policy", generation);
        all.register("draining", "Whether the gateway is stopping", now.draining.clone());
        self
    }
}

/// From a millisecond to a minute or so.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.5, 13))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn lines(metrics: &Metrics, beginning: &str) -> Vec<String> {
        let text = metrics.encode(GaugeValues { uploaded: 7, ..GaugeValues::default() });
        text.lines().filter(|line| line.starts_with(beginning)).map(str::to_owned).collect()
    }

    #[test]
    fn requests_are_counted_by_code_rule_and_outcome() {
        let metrics = Metrics::new();
        let took = Duration::from_millis(3);
        metrics.request("allowed", Some("net.allow[0]"), EntryOutcome::Relayed, took);
        metrics.request("allowed", Some("net.allow[0]"), EntryOutcome::Relayed, took);
        metrics.request("no_rule", None, EntryOutcome::Refused, took);
        let mut counted = lines(&metrics, "sluice_requests_total");
        counted.sort();
        assert_eq!(
            counted,
            [
                r#"sluice_requests_total{code="allowed",rule="net.allow[0]",outcome="relayed"} 2"#,
                r#"sluice_requests_total{code="no_rule",rule="none",outcome="refused"} 1"#,
            ]
        );
        assert_eq!(
            lines(&metrics, "sluice_uploaded_bytes_total"),
            ["sluice_uploaded_bytes_total 7"]
        );
    }

    #[test]
    fn rules_without_number_take_memory_with_a_bound() {
        let metrics = Metrics::new();
        for number in 0..5000 {
            let rule = format!("net.allow[{number}]");
            metrics.request("allowed", Some(&rule), EntryOutcome::Relayed, Duration::ZERO);
        }
        let counted = lines(&metrics, "sluice_requests_total");
        assert_eq!(counted.len(), MAX_REQUEST_SERIES + 1);
        let other = format!(
            r#"sluice_requests_total{{code="allowed",rule="other",outcome="relayed"}} {}"#,
            5000 - MAX_REQUEST_SERIES
        );
        assert!(counted.contains(&other), "{counted:?}");
    }

    #[test]
    fn a_kept_connection_has_no_dial_time() {
        let metrics = Metrics::new();
        let fresh = UpstreamFacts {
            address: SocketAddr::from(([127, 0, 0, 1], 443)).into(),
            proxied: false,
            tls: None,
            reused: false,
            resolve: Duration::from_millis(1),
            connect: Duration::from_millis(2),
            handshake: Duration::ZERO,
        };
        metrics.dialled(&fresh);
        metrics.dialled(&UpstreamFacts { reused: true, ..fresh });
        let mut counts = lines(&metrics, "sluice_dial_duration_seconds_count");
        counts.sort();
        assert_eq!(
            counts,
            [
                r#"sluice_dial_duration_seconds_count{step="connect"} 1"#,
                r#"sluice_dial_duration_seconds_count{step="resolve"} 1"#,
            ]
        );
        assert_eq!(lines(&metrics, "sluice_upstream_connections_total").len(), 2);
    }
}
