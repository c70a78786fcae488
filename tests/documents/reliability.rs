//! The page of results that `./test --full` writes, and the fuzz targets it runs.

use std::fs;

use crate::pages::{read, root};

/// What stands between a section's markers.
fn section(name: &str) -> String {
    let page = read("docs/reliability.md");
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    assert_eq!(page.matches(&begin).count(), 1, "one line {begin}");
    assert_eq!(page.matches(&end).count(), 1, "one line {end}");
    let (_, rest) = page.split_once(&begin).unwrap();
    rest.split_once(&end).expect("it ends after it begins").0.to_owned()
}

/// The rows of the table in a section, without its two head lines.
fn rows<'t>(text: &'t str) -> Vec<Vec<&'t str>> {
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    let cells = |line: &str| line.replace("\\|", "").matches('|').count();
    for line in &lines {
        assert!(line.ends_with('|') && cells(line) == cells(lines[0]), "malformed: {line}");
    }
    let split = |line: &'t str| line.trim_matches('|').split(" | ").map(str::trim).collect();
    lines.into_iter().skip(2).map(split).collect()
}

#[test]
fn the_reliability_page_says_when_everything_was_run_last() {
    let text = section("last-full-run");
    if text.trim() == "There was none yet." {
        return;
    }
    let said = |what: &str| text.lines().find_map(|line| line.strip_prefix(what)).expect(what);
    let date = said("- date: ");
    let shape: String = date.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00 00:00 UTC");
    let commit = said("- commit: ").split(' ').next().unwrap();
    assert!(commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{commit}");
    let rows = rows(&text);
    assert!(rows.iter().any(|row| row[0] == "`./test`"), "{rows:?}");
    for row in rows {
        assert!(matches!(row[2], "yes" | "**no**"), "{row:?}");
        assert!(!row[1].is_empty() && !row[3].is_empty(), "{row:?}");
    }
}

#[test]
fn the_tables_of_the_reliability_page_are_whole() {
    let tables =
        ["fuzz", "mutants", "surviving-mutants", "floods", "kill-test", "soak", "starts-at-once"];
    for name in tables {
        let text = section(name);
        rows(&text);
    }
    let text = section("mutants");
    for row in rows(&text) {
        let count = |column: usize| row[column].parse::<u32>().expect(row[column]);
        assert!(count(1) >= count(2) && count(2) >= count(3), "{row:?}");
    }
}

#[test]
fn every_step_of_a_full_run_can_be_run() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut steps = 0;
    for step in fs::read_dir(root().join("scripts/full")).unwrap().flatten() {
        let mode = step.metadata().unwrap().permissions().mode();
        assert!(mode & 0o111 != 0, "{:?} is not executable", step.path());
        steps += 1;
    }
    assert!(steps >= 2, "{steps}");
}

/// A target is a line that names a function of a crate's `fuzzing` module; that
/// module's own test replays the corpus through the same function.
#[test]
fn every_fuzz_target_has_a_body_that_ordinary_tests_run() {
    let manifest = read("fuzz/Cargo.toml");
    // A crate's name, and its folder.
    let crates = [
        ("audit", "audit"),
        ("cli", "runner/cli"),
        ("gateway", "gateway"),
        ("inside", "runner/inside"),
        ("policies", "policies"),
    ];
    let bodies = crates.map(|(name, folder)| (name, read(format!("{folder}/src/fuzzing.rs"))));
    let mut targets = 0;
    for file in fs::read_dir(root().join("fuzz/fuzz_targets")).unwrap().flatten() {
        let path = file.path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let is_of = |owner: &str| {
            text == format!(
                "#![no_main]\nlibfuzzer_sys::fuzz_target!(|input: &[u8]| {owner}::fuzzing::{name}(input));\n"
            )
        };
        let owner = bodies.iter().find(|(owner, _)| is_of(owner));
        let (owner, body) = owner.unwrap_or_else(|| panic!("{name} does more than call its body"));
        assert!(body.contains(&format!("(\"{name}\", {name})")), "{owner} does not test {name}");
        assert!(manifest.contains(&format!("name = \"{name}\"\n")), "fuzz/Cargo.toml lacks {name}");
        let page = read("docs/reliability.md");
        assert!(page.contains(&format!("`{name}`")), "docs/reliability.md does not name {name}");
        targets += 1;
    }
    // However the list is laid out.
    let starts = ["    (\"", "[(\"", "), (\""];
    let named_in =
        |body: &str| starts.iter().map(|start| body.matches(start).count()).sum::<usize>();
    let named: usize = bodies.iter().map(|(_, body)| named_in(body)).sum();
    assert_eq!(named, targets, "a body has no target in fuzz/");
}

#[test]
fn the_kept_corpus_is_small() {
    let mut bytes = 0;
    for folder in fs::read_dir(root().join("fuzz/corpus")).unwrap().flatten() {
        for input in fs::read_dir(folder.path()).unwrap().flatten() {
            bytes += input.metadata().unwrap().len();
        }
    }
    assert!(bytes < 1024 * 1024, "{bytes} bytes: see scripts/full/fuzz --keep");
}
