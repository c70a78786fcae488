//! How long one decision takes, with few rules and with thousands.
//!
//! `cargo bench -p sluice-policies`. The figures to compare are those of one
//! run: a decision among 10,000 rules should cost about what it costs among 10,
//! whether the rules name different hosts or different paths of one host.

use divan::{Bencher, black_box};
use policies::{NoFiles, Policy, SampleRequest, Source, read};

fn main() {
    divan::main();
}

/// One host a rule: the shape of a long allow-list.
#[divan::bench(args = [10, 100, 1_000, 10_000])]
fn many_hosts(bencher: Bencher, rules: usize) {
    let policy = policy(rules, |number| {
        format!("{{host: h{number}.example.com, methods: [GET], paths: ['/v1/**']}}")
    });
    let asked = SampleRequest::new("GET", &format!("https://h{}.example.com/v1/x", rules - 1))
        .expect("a request");
    bencher.bench_local(|| black_box(policy.decide(black_box(&asked.question()))));
}

/// One path a rule, all on one host: the shape of an API's permissions.
#[divan::bench(args = [10, 100, 1_000, 10_000])]
fn many_paths(bencher: Bencher, rules: usize) {
    let policy = policy(rules, |number| {
        format!("{{host: api.example.com, methods: [GET], paths: ['/repos/org{number}/**']}}")
    });
    let asked =
        SampleRequest::new("GET", &format!("https://api.example.com/repos/org{}/x", rules - 1))
            .expect("a request");
    bencher.bench_local(|| black_box(policy.decide(black_box(&asked.question()))));
}

/// A host that no rule names: the usual refusal.
#[divan::bench(args = [10, 100, 1_000, 10_000])]
fn no_rule(bencher: Bencher, rules: usize) {
    let policy = policy(rules, |number| format!("h{number}.example.com"));
    let asked =
        SampleRequest::new("GET", "https://somewhere.else.example.org/").expect("a request");
    bencher.bench_local(|| black_box(policy.decide(black_box(&asked.question()))));
}

/// Reading the policy itself, as a reload does.
#[divan::bench(args = [10, 100, 1_000, 10_000], sample_count = 5, sample_size = 1)]
fn reading(bencher: Bencher, rules: usize) {
    let source = Source::new(
        "bench",
        text(rules, |number| {
            format!("{{host: h{number}.example.com, methods: [GET], paths: ['/v1/**']}}")
        }),
    );
    bencher.bench_local(|| black_box(read(&source, &NoFiles).expect("a valid policy")));
}

fn policy(rules: usize, rule: impl Fn(usize) -> String) -> Policy {
    read(&Source::new("bench", text(rules, rule)), &NoFiles).expect("a valid policy")
}

fn text(rules: usize, rule: impl Fn(usize) -> String) -> String {
    let mut text = "version: 1\nnet:\n  enabled: true\n  allow:\n".to_owned();
    for number in 0..rules {
        text.push_str(&format!("    - {}\n", rule(number)));
    }
    text
}
