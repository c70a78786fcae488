//! Several layers into one policy, never wider than it says.
//!
//! Rules add up: whoever extends a preset wants its rules, and a deny counts
//! wherever it comes from. Everything else takes the strictest: the smallest
//! limit, the closest mode, the narrowest right to override. So extending can
//! add what a file spells out as rules, and can loosen nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::compile::Layer;
use crate::decide::Rules;
use crate::document::{
    Mode, NetLimitsSection, OverridesSection, ProcSection, ScanAction, ScanSection, Workspace,
};
use crate::host_pattern::HostPattern;
use crate::names::RelativePath;
use crate::policy::{
    ApprovalSettings, Fs, Net, NetLimits, Overrides, Policy, ProcLimits, ScanSettings,
};
use crate::problems::Problems;
use crate::units::Span;
use crate::yaml::Spanned;

/// Merges `layers`, of which the first is the policy's own.
///
/// # Errors
/// When the rules of one host together are too large to compile.
pub(crate) fn merge(layers: Vec<Layer>) -> Result<Policy, globset::Error> {
    let net = |layer: &Layer| (layer.document.net.enabled, layer.document.net.mode);
    let switches: Vec<_> = layers.iter().map(net).collect();
    let said = |wanted| switches.iter().any(|(enabled, _)| *enabled == Some(wanted));
    let observes = |wanted| switches.iter().any(|(_, mode)| *mode == Some(wanted));
    // A switch is on when somebody turned it on and nobody turned it off.
    let enabled = said(true) && !said(false);
    let observe = observes(Mode::Observe) && !observes(Mode::Enforce);

    let name = layers.first().map_or("unnamed", |own| match &own.document.name {
        Some(name) => name.as_str(),
        None => stem(&own.source),
    });
    let mut policy = Policy {
        name: Arc::from(name),
        fs: merge_fs(&layers),
        proc: layers
            .iter()
            .map(|layer| proc_limits(&layer.document.proc))
            .fold(ProcLimits::default(), strictest_proc),
        net: Net {
            enabled,
            turned_off: said(false),
            mode: if observe { Mode::Observe } else { Mode::Enforce },
            attach: layers
                .iter()
                .filter_map(|layer| layer.document.net.attach)
                .max()
                .unwrap_or_default(),
            limits: layers.iter().fold(NetLimits::default(), |limits, layer| {
                strictest_net(limits, &layer.document.net.limits)
            }),
            rules: Rules::new(Vec::new())?,
        },
        secrets: BTreeMap::new(),
        scan: ScanSettings {
            secrets: strictest(layers.iter().map(|layer| layer.document.scan.secrets))
                .unwrap_or(ScanAction::Deny),
            patterns: strictest(layers.iter().map(|layer| layer.document.scan.patterns))
                .unwrap_or(ScanAction::Report),
            is_written: layers
                .iter()
                .map(|layer| &layer.document.scan)
                .any(ScanSection::is_written),
        },
        approvals: ApprovalSettings {
            timeout: strictest(layers.iter().map(|layer| layer.document.approvals.timeout))
                .unwrap_or(DEFAULT_APPROVAL_TIMEOUT),
        },
        overrides: merge_overrides(layers.iter().map(|layer| &layer.document.overrides)),
        tests: Vec::new(),
        sources: layers.iter().map(|layer| Arc::clone(&layer.source)).collect(),
        notes: Vec::new(),
        out_of_bounds: Problems::default(),
    };
    let mut rules = Vec::new();
    for (number, layer) in layers.into_iter().enumerate() {
        rules.extend(layer.rules);
        policy.notes.extend(layer.notes);
        for (name, secret) in layer.secrets {
            // The policy's own binding of a name stands before a preset's.
            policy.secrets.entry(name).or_insert(secret);
        }
        // Tests belong to the file that carries them: a preset's hold for the preset.
        if number == 0 {
            policy.tests = layer.tests;
        }
    }
    policy.net.rules = Rules::new(rules)?;
    Ok(policy)
}

fn merge_fs(layers: &[Layer]) -> Fs {
    let always = ALWAYS_PROTECTED.iter().filter_map(|path| RelativePath::parse(path).ok());
    let mut fs = Fs {
        workspace: strictest(layers.iter().map(|layer| layer.document.fs.workspace))
            .unwrap_or(Workspace::Overlay),
        protect: always.collect::<BTreeSet<_>>(),
        deny: Vec::new(),
        show: Vec::new(),
        mounts: Vec::new(),
        artifacts: Vec::new(),
    };
    for layer in layers {
        let written = &layer.document.fs;
        fs.protect.extend(written.protect.iter().cloned());
        let lists = [
            (&mut fs.deny, &written.deny),
            (&mut fs.show, &written.show),
            (&mut fs.artifacts, &written.artifacts),
        ];
        for (all, more) in lists {
            for glob in more {
                if !all.contains(glob) {
                    all.push(glob.clone());
                }
            }
        }
        fs.mounts.extend(layer.mounts.iter().cloned());
    }
    fs
}

/// Rights to override narrow each other; a file that grants none does not
/// forbid what another grants.
pub(crate) fn merge_overrides<'a>(layers: impl Iterator<Item = &'a OverridesSection>) -> Overrides {
    let mut merged = Overrides::default();
    let mut allow: Option<Vec<HostPattern>> = None;
    let (mut observe, mut no_sandbox) = (None, None);
    for layer in layers {
        if let Some(Spanned { value: more, .. }) = &layer.allow {
            allow = Some(match allow {
                None => more.clone(),
                Some(known) => narrowest(&known, more),
            });
        }
        if let Some(max) = &layer.max {
            merged.max = strictest_proc(merged.max, proc_limits(&max.value));
        }
        observe = both(observe, layer.observe.as_ref().map(|observe| observe.value));
        no_sandbox = both(no_sandbox, layer.no_sandbox.as_ref().map(|it| it.value));
    }
    merged.allow = allow.unwrap_or_default();
    merged.observe = observe.unwrap_or(false);
    merged.no_sandbox = no_sandbox.unwrap_or(false);
    merged
}

/// The patterns of either list that some pattern of the other one covers.
fn narrowest(one: &[HostPattern], other: &[HostPattern]) -> Vec<HostPattern> {
    let within = |inner: &[HostPattern], outer: &[HostPattern]| -> Vec<HostPattern> {
        inner.iter().filter(|pattern| pattern.is_among(outer)).cloned().collect()
    };
    let mut both = within(one, other);
    for pattern in within(other, one) {
        if !both.contains(&pattern) {
            both.push(pattern);
        }
    }
    both
}

fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one && other),
        (one, other) => one.or(other),
    }
}

/// The smallest of those that are set.
fn strictest<T: Ord>(values: impl IntoIterator<Item = Option<T>>) -> Option<T> {
    values.into_iter().flatten().min()
}

pub(crate) fn proc_limits(written: &ProcSection) -> ProcLimits {
    ProcLimits {
        cpus: written.cpus,
        memory: written.memory,
        pids: written.pids.map(|count| count.get()),
        disk: written.disk,
        timeout: written.timeout,
        output: written.output,
    }
}

fn strictest_proc(one: ProcLimits, other: ProcLimits) -> ProcLimits {
    ProcLimits {
        cpus: strictest([one.cpus, other.cpus]),
        memory: strictest([one.memory, other.memory]),
        pids: strictest([one.pids, other.pids]),
        disk: strictest([one.disk, other.disk]),
        timeout: strictest([one.timeout, other.timeout]),
        output: strictest([one.output, other.output]),
    }
}

fn strictest_net(one: NetLimits, other: &NetLimitsSection) -> NetLimits {
    NetLimits {
        upload: strictest([one.upload, other.upload]),
        download: strictest([one.download, other.download]),
        host_upload: strictest([one.host_upload, other.host_upload]),
        body: strictest([one.body, other.body]),
        hosts: strictest([one.hosts, other.hosts.map(|count| count.get())]),
        wildcard_names: strictest([one.wildcard_names, other.wildcard_names]),
        urls: strictest([one.urls, other.urls]),
        requests_per_minute: strictest([
            one.requests_per_minute,
            other.requests_per_minute.map(|count| count.get()),
        ]),
        connections: strictest([one.connections, other.connections.map(|count| count.get())]),
        idle: strictest([one.idle, other.idle]),
        total: strictest([one.total, other.total]),
    }
}

/// `team.policy.yaml` is called `team`.
fn stem(source: &str) -> &str {
    let file = source.rsplit('/').next().unwrap_or(source);
    file.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or(file)
}

/// History and tooling are never the sandbox's to change.
const ALWAYS_PROTECTED: [&str; 2] = [".git", "scripts"];

/// Five minutes: long enough to notice, short enough that a client still waits.
const DEFAULT_APPROVAL_TIMEOUT: Span = Span::from_millis(300_000).expect("five minutes are a span");

#[cfg(test)]
mod tests;
