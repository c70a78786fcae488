//! What a document names is there: pages, files, tests, fields.

use std::collections::BTreeSet;
use std::path::Path;

use crate::pages::{all, below, quoted, read, root};

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut links = 0;
    for (page, text) in all() {
        for rest in text.split("](").skip(1) {
            let link = rest.split(')').next().unwrap();
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            let (file, part) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let at = root().join(&target);
            assert!(at.exists(), "{}: {link} leads nowhere", page.display());
            if !part.is_empty() {
                let heads: Vec<String> =
                    read(&target).lines().filter_map(|line| anchor(line.trim_end())).collect();
                assert!(heads.contains(&part.to_owned()), "{}: no {link}", page.display());
            }
            links += 1;
        }
    }
    assert!(links > 40, "{links}");
}

/// A heading as links name it.
fn anchor(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
}

#[test]
fn every_requirement_is_done_in_part_or_not_yet() {
    let page = read("docs/requirements.md");
    let states = page.lines().filter(|line| line.starts_with("| ")).skip(1);
    let states: Vec<&str> = states.map(|line| line.split(" | ").nth(2).unwrap_or(line)).collect();
    assert!(states.len() > 40, "{}", states.len());
    for state in states {
        assert!(["done", "part", "not yet"].contains(&state), "{state:?}");
    }
}

#[test]
fn every_test_that_a_document_names_exists() {
    let tests = tests();
    assert!(tests.len() > 500, "{}", tests.len());
    let mut named = 0;
    for page in ["SECURITY.md", "docs/requirements.md", "docs/sandbox.md", "ARCHITECTURE.md"] {
        let text = read(page);
        for word in quoted(&text).into_iter().filter(|word| is_claim(word)) {
            assert!(tests.contains(word), "{page} names `{word}`, and there is no such test");
            named += 1;
        }
    }
    assert!(named > 60, "{named}");
}

/// A sentence in the spelling of a function: what tests are called here.
fn is_claim(word: &str) -> bool {
    let spelling = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    word.chars().all(spelling) && word.matches('_').count() >= 3
}

/// Every function of the tree that is marked as a test, and what macros make.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in below("", "rs") {
        let text = read(&file);
        let mut marked = false;
        let mut drawn = false;
        for line in text.lines().map(str::trim) {
            marked |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            drawn |= line.starts_with("proptest!");
            let name = line.trim_start_matches("async ").strip_prefix("fn ");
            if let Some(name) = name {
                if marked || drawn {
                    found.insert(name.split(['(', '<']).next().unwrap().to_owned());
                }
                marked = false;
            }
            // `outcome!(a_code_is_the_commands, ...)`, also with the name on its own line.
            let first = line.split_once("!(").map_or(line, |(_, inside)| inside);
            if let Some(name) = first.strip_suffix(',').or_else(|| first.split(',').next())
                && is_claim(name)
            {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

#[test]
fn every_file_that_a_document_names_exists() {
    let folders = [
        "audit/",
        "certs/",
        "compose/",
        "docs/",
        "fuzz/",
        "gateway/",
        "policies/",
        "protocol/",
        "runner/",
        "scripts/",
        "tests/",
    ];
    for (page, text) in all() {
        for word in quoted(&text) {
            let is_path = folders.iter().any(|folder| word.starts_with(folder))
                && !word.contains(['*', ' ', '<', '$', ':'])
                && !page.ends_with("comparison.md");
            if !is_path {
                continue;
            }
            for path in spelt_out(word) {
                // `gateway/src/dns` is `gateway/src/dns.rs` to a reader.
                let is_there =
                    root().join(&path).exists() || root().join(format!("{path}.rs")).exists();
                assert!(is_there, "{} names `{path}`, which is not there", page.display());
            }
        }
    }
}

/// `src/{a,b}.rs` as the two it stands for.
fn spelt_out(word: &str) -> Vec<String> {
    match (word.split_once('{'), word.rsplit_once('}')) {
        (Some((before, rest)), Some((_, after))) => {
            let inside = rest.split('}').next().unwrap();
            inside.split(',').map(|one| format!("{before}{one}{after}")).collect()
        }
        _ => vec![word.to_owned()],
    }
}

#[test]
fn every_decision_says_why_what_it_costs_and_what_would_change_it() {
    let pages = below("docs/decisions", "md");
    let list = read("docs/decisions/README.md");
    for (number, page) in pages.iter().filter(|page| !page.ends_with("README.md")).enumerate() {
        let text = read(page);
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with(&format!("{:04}-", number + 1)), "{name} is out of order");
        assert!(text.starts_with(&format!("# {}. ", &name[..4])), "{name}");
        for part in ["Context", "Decision", "What it costs", "What would change our mind"] {
            let after = text.split(&format!("\n## {part}\n\n")).nth(1);
            assert!(after.is_some_and(|text| text.len() > 20), "{name} has no {part:?}");
        }
        let title = text.lines().next().unwrap().split_once(". ").unwrap().1;
        assert!(list.contains(&format!("({name}) {title}")), "{name} is not in the list");
    }
    assert!(pages.len() > 15);
}

#[test]
fn every_field_of_a_run_has_its_place_in_a_cluster() {
    let page = read("docs/kubernetes-migration.md");
    for (file, of, prefix) in [
        ("runner/engine/src/plan.rs", "pub struct Plan {", ""),
        ("runner/engine/src/plan/limits.rs", "pub struct Limits {", "limits."),
        ("runner/engine/src/record.rs", "pub struct Record {", ""),
    ] {
        let source = read(file);
        let (_, body) = source.split_once(of).unwrap_or_else(|| panic!("{of} in {file}"));
        let body = body.split("\n}").next().unwrap();
        let mut renamed = None;
        for line in body.lines().map(str::trim) {
            if let Some(name) = line.split("rename = \"").nth(1) {
                renamed = name.split('"').next();
            }
            let Some(field) = line.strip_prefix("pub ").and_then(|rest| rest.split(':').next())
            else {
                continue;
            };
            // Each of them has a row of its own.
            if field == "limits" {
                continue;
            }
            let field = format!("{prefix}{}", renamed.take().unwrap_or(field));
            assert!(
                page.contains(&format!("`{field}`")),
                "docs/kubernetes-migration.md does not say what `{field}` of {file} becomes"
            );
        }
    }
}

#[test]
fn no_document_names_a_registry() {
    // Spelt in pieces, so that this file does not either.
    let hosts = [
        ["registry.np", "mjs.org"],
        ["py", "pi.org"],
        ["crates", ".io"],
        ["ghcr", ".io"],
        ["docker", ".io"],
    ];
    for (page, text) in all() {
        for host in hosts.map(|parts| parts.concat()) {
            assert!(!text.contains(&host), "{} names {host}", page.display());
        }
    }
}

#[test]
fn every_page_is_in_the_index() {
    let index = read("docs/README.md");
    for page in below("docs", "md") {
        let name = page.strip_prefix("docs").unwrap();
        if name.components().count() == 1 && name != Path::new("README.md") {
            assert!(index.contains(&format!("({})", name.display())), "{}", page.display());
        }
    }
}
#[test]
fn every_command_that_a_document_shows_exists() {
    let cli = read("docs/cli.md");
    let mut seen = 0;
    for (page, text) in all().iter().filter(|(page, _)| !page.ends_with("comparison.md")) {
        let typed = text.lines().map(|line| line.trim_start().trim_start_matches("./"));
        let said = quoted(text).into_iter().chain(typed);
        for said in said.filter_map(|said| said.strip_prefix("sluice ")) {
            let words: Vec<&str> = said.split(' ').take_while(|word| is_word(word)).collect();
            let is_there = |count: usize| {
                let name = words[..count].join(" ");
                ["`", " "].iter().any(|end| cli.contains(&format!("## `sluice {name}{end}")))
            };
            let is_flag = said.starts_with("--");
            assert!(
                is_flag || (1..=words.len()).any(is_there),
                "{}: `sluice {said}` is not in docs/cli.md",
                page.display()
            );
            seen += 1;
        }
    }
    assert!(seen > 60, "{seen}");
}

fn is_word(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase())
}
