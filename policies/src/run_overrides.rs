//! What a single run may change about its policy.
//!
//! A run may always be stricter than its policy. Where it wants more, the policy's
//! `overrides` must permit it. Everything that is not permitted is reported at once,
//! together with what is.

use std::sync::Arc;

use crate::compile::{RuleList, host_shape};
use crate::decide::Rules;
use crate::document::{Mode, RuleFields};
use crate::host_pattern::{HostPattern, listed_hosts};
use crate::policy::{Policy, ProcLimits};
use crate::reach::Reach;
use crate::rule::{Rule, RuleLocation};
use crate::summary::summary;
use crate::units::{Cpus, Size, Span};
use crate::verdict::Verdict;

/// What one run asks for beside its policy.
#[derive(Clone, Debug, Default)]
pub struct RunOverrides {
    /// Hosts for safe requests, as a bare host in `allow` would permit.
    pub allow: Vec<HostPattern>,
    pub proc: ProcLimits,
    pub observe: bool,
    pub no_sandbox: bool,
}

/// Something a run asked for that its policy does not permit.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotPermitted {
    #[error("`{asked}` is not among the hosts that a run may add; the policy permits {permitted}")]
    Host { asked: HostPattern, permitted: String },
    #[error("{limit} `{asked}` is more than the policy permits, which is `{most}`")]
    Limit { limit: &'static str, asked: String, most: String },
    #[error("the policy turned the network off (`net.enabled: false`), so no host can be added")]
    NetworkOff,
    #[error(
        "running without a sandbox is not permitted; the policy would need `overrides: {{no_sandbox: true}}`"
    )]
    NoSandbox,
    #[error("observing is not permitted; the policy would need `overrides: {{observe: true}}`")]
    Observe,
}

impl Policy {
    /// This policy for one run that asks for `wanted`, or all it may not have.
    pub fn for_run(mut self, wanted: &RunOverrides) -> Result<Self, Vec<NotPermitted>> {
        let mut not_permitted = Vec::new();
        for host in &wanted.allow {
            if !host.is_among(&self.overrides.allow) {
                let permitted = permitted_hosts(&self.overrides.allow);
                not_permitted.push(NotPermitted::Host { asked: host.clone(), permitted });
            }
        }
        if self.net.turned_off && !wanted.allow.is_empty() {
            not_permitted.push(NotPermitted::NetworkOff);
        }
        let (base, max) = (self.proc.clone(), &self.overrides.max);
        let asked = &wanted.proc;
        let mut limits = LimitChecker { not_permitted: &mut not_permitted };
        self.proc = ProcLimits {
            cpus: limits.take::<Cpus>("cpus", asked.cpus, base.cpus, max.cpus),
            memory: limits.take::<Size>("memory", asked.memory, base.memory, max.memory),
            pids: limits.take::<u32>("pids", asked.pids, base.pids, max.pids),
            disk: limits.take::<Size>("disk", asked.disk, base.disk, max.disk),
            timeout: limits.take::<Span>("timeout", asked.timeout, base.timeout, max.timeout),
            output: limits.take::<Size>("output", asked.output, base.output, max.output),
        };
        if wanted.observe && self.net.mode == Mode::Enforce {
            if self.overrides.observe {
                self.net.mode = Mode::Observe;
            } else {
                not_permitted.push(NotPermitted::Observe);
            }
        }
        if wanted.no_sandbox && !self.overrides.no_sandbox {
            not_permitted.push(NotPermitted::NoSandbox);
        }
        if !not_permitted.is_empty() {
            return Err(not_permitted);
        }
        self.add_hosts(&wanted.allow);
        Ok(self)
    }

    fn add_hosts(&mut self, hosts: &[HostPattern]) {
        if hosts.is_empty() {
            return;
        }
        let added = hosts.iter().enumerate().map(|(number, host)| {
            let fields = RuleFields { host: Some(host.clone()), ..RuleFields::default() };
            Rule {
                id: format!("run.allow[{number}]").into(),
                verdict: Verdict::Allow,
                location: RuleLocation { source: Arc::from("this run"), line: 0 },
                reason: None,
                reach: Reach::public(),
                secret: None,
                exempts_secret_rules: false,
                shapes: vec![host_shape(RuleList::Of(Verdict::Allow), host, &fields)],
                summary: summary(&fields).into(),
            }
        });
        let rules = self.net.rules.iter().cloned().chain(added).collect();
        self.net.rules =
            Rules::new(rules).expect("rules without path patterns add nothing to an automaton");
        self.net.enabled = true;
    }
}

struct LimitChecker<'b> {
    not_permitted: &'b mut Vec<NotPermitted>,
}

impl LimitChecker<'_> {
    /// The limit in force. What the policy leaves open is open to the run, up
    /// to `max`.
    fn take<T: Copy + Ord + ToString>(
        &mut self,
        limit: &'static str,
        asked: Option<T>,
        base: Option<T>,
        max: Option<T>,
    ) -> Option<T> {
        let Some(wanted) = asked else { return base };
        let most = match (base, max) {
            (Some(base), Some(max)) => Some(base.max(max)),
            (base, max) => base.or(max),
        };
        if let Some(most) = most
            && wanted > most
        {
            let (asked, most) = (wanted.to_string(), most.to_string());
            self.not_permitted.push(NotPermitted::Limit { limit, asked, most });
        }
        Some(wanted)
    }
}

fn permitted_hosts(permitted: &[HostPattern]) -> String {
    if permitted.is_empty() {
        return "none; it would need `overrides: {allow: [...]}`".to_owned();
    }
    listed_hosts(permitted)
}

#[cfg(test)]
mod tests;
