//! What a run asks for beyond its policy is in force where the policy permits
//! it, and nothing else is.

use crate::people;

/// Says the status of a CONNECT and of a plain request to each name.
const ASK: &str = r#"
connect() { printf 'CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n' $1 $1; sleep 1; }
get() { printf 'GET http://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' $1 $1; sleep 1; }
for name in $NAMES; do
    for verb in connect get; do
        status=$($verb $name | nc gateway.sluice 3128 | head -n 1 | cut -d ' ' -f 2)
        echo $verb $name $status
    done
done
"#;

/// Nobody answers at that address: what may go there gets 502, what may not 403.
const PINS: [&str; 4] = ["--pin", "a.extra.test=127.0.0.1:9", "--pin", "b.test=127.0.0.1:9"];

#[test]
fn a_host_that_was_added_is_reached_as_the_policy_permits_and_no_other() {
    for person in people() {
        let policy = person
            .policy("version: 1\nnet: {enabled: true}\noverrides: {allow: ['*.extra.test']}\n");
        let mut flags = vec!["--policy", &policy, "-e", "NAMES=a.extra.test b.test"];
        flags.extend(PINS);
        let none = person.shell(&flags, ASK);
        let reached = none.stdout.lines().any(|line| line.ends_with(" 200"));
        assert!(!reached, "{}{}", none.stdout, none.stderr);

        flags.extend(["--allow", "a.extra.test"]);
        let ran = person.shell(&flags, ASK);
        // A bare host is for https alone.
        let expected = "connect a.extra.test 200\nget a.extra.test 403\n\
                        connect b.test 403\nget b.test 403\n";
        assert_eq!(ran.stdout, expected, "{}", ran.stderr);

        let beyond = person.shell(&["--policy", &policy, "--allow", "b.test"], "echo started");
        assert_eq!((beyond.code, beyond.stdout.as_str()), (2, ""), "{}", beyond.stderr);
        assert!(beyond.stderr.contains("`*.extra.test`"), "{}", beyond.stderr);
    }
}

#[test]
fn observing_lets_pass_and_records_what_would_have_been_refused() {
    for person in people() {
        let policy =
            person.policy("version: 1\nnet: {enabled: true}\noverrides: {observe: true}\n");
        let mut flags = vec!["--policy", &policy, "-e", "NAMES=b.test"];
        flags.extend(PINS);
        let refused = person.shell(&flags, ASK);
        assert_eq!(refused.stdout, "connect b.test 403\nget b.test 403\n", "{}", refused.stderr);

        flags.push("--observe");
        let observed = person.shell(&flags, ASK);
        assert_eq!(observed.stdout, "connect b.test 200\nget b.test 502\n", "{}", observed.stderr);
        let log = std::fs::read_to_string(person.evidence().unwrap().join("audit.jsonl")).unwrap();
        assert!(log.contains("would_deny"), "{log}");

        let policy = person.policy("version: 1\nnet: {enabled: true}\n");
        let beyond = person.shell(&["--policy", &policy, "--observe"], "echo started");
        assert_eq!((beyond.code, beyond.stdout.as_str()), (2, ""), "{}", beyond.stderr);
    }
}
