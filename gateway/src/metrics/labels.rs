//! The labels: rules, codes, ways in, outcomes. Nothing a sandbox can choose.

use std::fmt;
use std::hash::{Hash, Hasher};

use audit::{EntryOutcome, WayIn};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(super) struct RequestLabels {
    pub(super) code: &'static str,
    pub(super) rule: String,
    pub(super) outcome: OutcomeLabel,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(super) struct OutcomeLabels {
    pub(super) outcome: OutcomeLabel,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(super) struct WayLabels {
    pub(super) way: WayLabel,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(super) struct ConnectionLabels {
    pub(super) way: WayLabel,
    pub(super) outcome: OutcomeLabel,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(super) struct StepLabels {
    pub(super) step: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(super) struct UpstreamLabels {
    pub(super) reused: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(super) struct QuestionLabels {
    pub(super) record: &'static str,
    pub(super) response: &'static str,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct OutcomeLabel(pub(super) EntryOutcome);

impl Hash for OutcomeLabel {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_str().hash(state);
    }
}

impl EncodeLabelValue for OutcomeLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        EncodeLabelValue::encode(&self.0.as_str(), encoder)
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct WayLabel(pub(super) WayIn);

impl WayLabel {
    fn as_str(self) -> &'static str {
        match self.0 {
            WayIn::CapturedHttp => "captured_http",
            WayIn::CapturedHttps => "captured_https",
            WayIn::CapturedPort => "captured_port",
            WayIn::Dns => "dns",
            WayIn::Proxy => "proxy",
            WayIn::Socks5 => "socks5",
            WayIn::Tcp => "tcp",
        }
    }
}

impl Hash for WayLabel {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl EncodeLabelValue for WayLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        EncodeLabelValue::encode(&self.as_str(), encoder)
    }
}
