//! A real package from a real registry, through the gateway. It needs the
//! outside, so somebody has to ask for it: `SLUICE_TEST_OUTSIDE=1`.
//!
//! No registry's name stands here. Rules name none, and what that meant on this
//! machine is read from the evidence.

use std::fs;
use std::net::ToSocketAddrs as _;

use tests::available::skip;
use tests::boxes::BackendKind;

use crate::people;

#[test]
#[expect(clippy::disallowed_methods, reason = "the rule names what this machine's names mean")]
fn pip_installs_what_the_policy_names_and_nothing_else() {
    if std::env::var_os("SLUICE_TEST_OUTSIDE").is_none() {
        return skip("the outside, which SLUICE_TEST_OUTSIDE=1 asks for,");
    }
    // The image with pip in it is Docker's.
    for person in people().into_iter().filter(|person| person.backend() == BackendKind::Docker) {
        let evidence =
            |name: &str| fs::read_to_string(person.evidence().unwrap().join(name)).unwrap();
        let policy = person.policy("version: 1\nnet: {enabled: true, allow: [{pip: [six]}]}\n");
        assert_eq!(person.shell(&["--policy", &policy], "true").code, 0);
        let hosts = hosts(&evidence("policy.yaml"));
        assert!(!hosts.is_empty(), "pip has an index, if only its own");

        // Where this machine's way out uses addresses of its own.
        let ranges = hosts.iter().flat_map(|host| (host.as_str(), 443).to_socket_addrs().unwrap());
        let ranges: Vec<_> = ranges.map(|found| format!("\"{}/32\"", found.ip())).collect();
        let rule = format!("{{pip: [six], addresses: [{}]}}", ranges.join(", "));
        let policy =
            person.policy(&format!("version: 1\nnet: {{enabled: true, allow: [{rule}]}}\n"));
        let pip = "pip install --quiet --no-cache-dir --retries 0 --target /tmp/there";
        let script = format!(
            "{pip} six && cd /tmp/there && python3 -c 'import six; print(six.__name__)'
             {pip} idna || echo refused; curl -sS https://elsewhere.example/ || echo refused"
        );
        let arguments =
            ["run", "--mode", "none", "--image", "sluice/agent", "--policy", &policy, "--"];
        let ran = person.sluice(&[&arguments[..], &["sh", "-c", &script]].concat());
        assert_eq!(ran.stdout, "six\nrefused\nrefused\n", "{}", ran.stderr);

        let log = evidence("audit.jsonl");
        for refused in ["idna", "elsewhere.example"] {
            let line = |line: &&str| line.contains(refused) && line.contains("\"deny\"");
            assert!(log.lines().any(|l| line(&l)), "{refused}: {log}");
        }
    }
}

/// The hosts that the evidence says rules without a registry meant.
fn hosts(policy: &str) -> Vec<String> {
    let urls =
        policy.lines().filter_map(|line| line.strip_prefix("# pip rules ")?.split_once("://"));
    urls.map(|(_, rest)| rest.split(['/', ',', ':']).next().unwrap().to_owned()).collect()
}
