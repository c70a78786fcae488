//! Wrong uses, as a newcomer types them: what is said, and how it ends.

use std::fmt::Write as _;
use std::path::Path;

use expect_test::expect_file;

use crate::world::World;

/// Each is a slip that somebody made.
const SLIPS: [&[&str]; 21] = [
    &[],
    &["rnu", "--", "true"],
    &["run"],
    &["run", "true"],
    &["run", "echo hi; pwd"],
    &["run", "--memory", "lots", "--", "true"],
    &["run", "--timeout", "0", "--", "true"],
    &["run", "--backend", "vmware", "--", "true"],
    &["run", "--policy", "nosuch.yaml", "--", "true"],
    &["run", "--policy", "wrong.yaml", "--", "true"],
    &["run", "--workspace", "notes.txt", "--", "true"],
    &["run", "--trust", "/nope.pem", "--", "true"],
    &["run", "-e", "BAD NAME=1", "--", "true"],
    &["run", "--mode", "direct", "--allow", "https://a.test/x", "--", "true"],
    &["diff", "nosuch"],
    &["logs", "nosuch"],
    &["audit", "verify", "nosuch"],
    &["session", "start", "--ttl", "0"],
    &["policy", "explain", "good.yaml", "GET", "nosuch"],
    &["policy", "check"],
    &["cp", "a", "b"],
];

#[test]
fn a_slip_is_told_with_what_to_do_instead() {
    let mut world = World::new();
    world.set("COLUMNS", "100");
    world.write("notes.txt", "");
    world.write("good.yaml", "version: 1\n");
    world
        .write("wrong.yaml", "version: \"1\"\nnet: {enabeld: true, allow: [\"https://a.test\"]}\n");
    let mut said = String::new();
    for words in SLIPS {
        let ran = world.sluice(words);
        writeln!(
            said,
            "$ sluice {}\n{}{}=> {}\n",
            words.join(" "),
            ran.stdout,
            ran.stderr,
            ran.code
        )
        .unwrap();
        assert!(matches!(ran.code, 1 | 2), "{words:?} ended with {}", ran.code);
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/wrong-uses.txt");
    expect_file![page].assert_eq(&said);
}
