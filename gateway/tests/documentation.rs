//! The gateway's pages are true: every code a client can be told is in the table,
//! and the command line is the program's own.

use std::collections::BTreeSet;
use std::process::Command;
use std::{env, fs};

const PAGE: &str = include_str!("../../docs/refusals.md");

/// Where codes are made.
const MAKERS: [&str; 3] = [
    include_str!("../src/refuse.rs"),
    include_str!("../src/dial/error.rs"),
    include_str!("../../policies/src/decision.rs"),
];

#[test]
fn every_code_is_described() {
    let codes: BTreeSet<&str> = MAKERS.iter().flat_map(|source| codes(source)).collect();
    assert!(codes.len() > 20, "{codes:?}");
    let missing: Vec<&&str> =
        codes.iter().filter(|code| !PAGE.contains(&format!("`{code}`"))).collect();
    assert!(missing.is_empty(), "docs/refusals.md does not describe {missing:?}");
}

#[test]
fn every_described_code_exists() {
    let table = PAGE.split("| code | status |").nth(1).expect("the table of codes");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    for row in rows {
        let first = row.split('|').nth(1).expect("a first cell");
        for code in first.split(',').map(|code| code.trim().trim_matches('`')) {
            let made = MAKERS.iter().any(|source| source.contains(&format!("\"{code}\"")));
            assert!(made, "docs/refusals.md describes `{code}`, which nothing says");
        }
    }
}

#[test]
fn the_command_line_is_the_programs_own() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/gateway.md");
    let text = fs::read_to_string(page).unwrap();
    let (before, rest) = text.split_once("```text\n").expect("the block");
    let (written, after) = rest.split_once("```\n").expect("the end of the block");
    let help = Command::new(env!("CARGO_BIN_EXE_sluice-gateway"))
        .arg("--help")
        .env_clear()
        .env("COLUMNS", "100")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let help: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(page, format!("{before}```text\n{help}```\n{after}")).unwrap();
    } else {
        assert_eq!(written, help, "UPDATE_EXPECT=1 writes it anew");
    }
}

/// String literals behind `=>`, alone or as the second of a pair, that look like
/// codes: the tables are written so.
fn codes(source: &'static str) -> Vec<&'static str> {
    let arms = source.lines().filter_map(|line| line.split_once("=> "));
    let code = |arm: &'static str| {
        let rest = match arm.strip_prefix('(') {
            Some(pair) => pair.split_once(", ")?.1,
            None => arm,
        };
        let word = rest.strip_prefix('"')?.split('"').next()?;
        let plain = word.len() > 4 && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        (plain && !["allow", "allowed"].contains(&word)).then_some(word)
    };
    arms.filter_map(|(_, arm)| code(arm)).collect()
}
