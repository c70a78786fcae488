//! Any text as a policy, alone and together with another that it extends.

use crate::policy::{NetLimits, ProcLimits};
use crate::{Mode, NoFiles, Policy, Problems, SampleRequest, Source, Sources, read};

/// Reading gives a policy or problems that can be shown on a terminal, never a
/// panic; explaining a decision never contradicts it; and a policy that extends
/// another is no wider than the two are, each by itself.
///
/// A line `---` divides the input into the policy and the one it extends.
pub fn policy_text(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (own, base) = text.split_once("\n---\n").unwrap_or((text, ""));
    let Some(own_policy) = checked(read(&Source::new("own.policy.yaml", own), &NoFiles)) else {
        return;
    };
    let sample = requests(&own_policy);
    for sample in &sample {
        let decision = own_policy.decide(&sample.question());
        let explained = own_policy.explain(sample);
        assert!(
            explained.decision.verdict == decision.verdict
                || explained.because.contains("unopened"),
            "{sample:?}: {decision}, explained as {}",
            explained.decision
        );
    }
    own_policy.run_tests();
    own_policy.lint();

    let base_source = Source::new("base.policy.yaml", base);
    let Some(base_policy) = checked(read(&base_source, &NoFiles)) else { return };
    let extending = Source::new("own.policy.yaml", format!("extends: [./base.yaml]\n{own}"));
    // It is refused if it extends something already, or rebinds a secret.
    let Some(both) = checked(read(&extending, &OneFile(base_source))) else { return };
    let sample = sample.into_iter().chain(requests(&base_policy));
    for sample in sample {
        let verdict = |policy: &Policy| policy.decide(&sample.question()).verdict;
        let (own, base, both) = (verdict(&own_policy), verdict(&base_policy), verdict(&both));
        // A file may rely on the other for turning the network on.
        let on = own_policy.net.enabled && base_policy.net.enabled;
        assert!(!on || both <= own.max(base), "{sample:?}: {own}, {base}, together {both}");
    }
    let observes = |policy: &Policy| policy.net.mode == Mode::Observe;
    assert!(!observes(&both) || observes(&own_policy) || observes(&base_policy));
    assert!(!both.net.enabled || own_policy.net.enabled || base_policy.net.enabled);
    assert!(!both.net.enabled || !(own_policy.net.turned_off || base_policy.net.turned_off));
    for one in [&own_policy, &base_policy] {
        assert_no_higher(&both.proc, &one.proc);
        assert_net_no_higher(&both.net.limits, &one.net.limits);
        assert!(one.fs.protect.is_subset(&both.fs.protect));
        assert!(one.fs.deny.iter().all(|denied| both.fs.deny.contains(denied)));
    }
}

/// Problems are printed on a terminal, and quote what was written.
fn checked(outcome: Result<Policy, Problems>) -> Option<Policy> {
    match outcome {
        Ok(policy) => Some(policy),
        Err(problems) => {
            assert!(!problems.is_empty());
            let shown = problems.to_string();
            let escape = shown.chars().find(|c| c.is_control() && *c != '\n');
            assert_eq!(escape, None, "{shown:?}");
            None
        }
    }
}

/// Requests that the policy's own rules are about, and some that they are not.
fn requests(policy: &Policy) -> Vec<SampleRequest> {
    let mut hosts = vec!["example.com".to_owned(), "sub.example.com".to_owned()];
    for rule in policy.rules().take(8) {
        for shape in &rule.shapes {
            hosts.push(shape.host.to_string().replace("**", "a.b").replace('*', "a"));
        }
    }
    let mut requests = Vec::new();
    for host in hosts.iter().take(12) {
        for (method, scheme, path) in [
            ("GET", "https", "/"),
            ("POST", "https", "/v1/a"),
            ("GET", "http", "/v1/"),
            ("DELETE", "https", "/admin?a=b"),
            ("GET", "wss", "/v1"),
        ] {
            requests.extend(SampleRequest::new(method, &format!("{scheme}://{host}{path}")));
        }
    }
    requests
}

/// The base, wherever it is asked for.
struct OneFile(Source);

impl Sources for OneFile {
    fn load(&self, _written: &str, _from: &Source) -> Result<Source, String> {
        Ok(self.0.clone())
    }
}

fn assert_no_higher(both: &ProcLimits, one: &ProcLimits) {
    assert_limit(both.cpus, one.cpus);
    assert_limit(both.memory, one.memory);
    assert_limit(both.pids, one.pids);
    assert_limit(both.disk, one.disk);
    assert_limit(both.timeout, one.timeout);
    assert_limit(both.output, one.output);
}

fn assert_net_no_higher(both: &NetLimits, one: &NetLimits) {
    assert_limit(both.upload, one.upload);
    assert_limit(both.download, one.download);
    assert_limit(both.host_upload, one.host_upload);
    assert_limit(both.body, one.body);
    assert_limit(both.hosts, one.hosts);
    assert_limit(both.wildcard_names, one.wildcard_names);
    assert_limit(both.urls, one.urls);
    assert_limit(both.requests_per_minute, one.requests_per_minute);
    assert_limit(both.connections, one.connections);
    assert_limit(both.idle, one.idle);
    assert_limit(both.total, one.total);
}

/// A limit that one of them has is kept, and is no higher.
fn assert_limit<T: PartialOrd + std::fmt::Debug>(both: Option<T>, one: Option<T>) {
    if let Some(one) = one {
        assert!(both.as_ref().is_some_and(|both| *both <= one), "{both:?} beside {one:?}");
    }
}
