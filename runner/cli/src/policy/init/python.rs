//! The packages a Python project names.
//!
//! `requirements*.txt` is a line format. `pyproject.toml` is read for lists of
//! requirements alone, which look the same in every tool that writes them; what
//! is spelt in another way is not found, and the policy's comment says that
//! packages may have to be added.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use policies::PythonPackage;

use super::project_scan::{self, Packages};

/// Python, if there are signs of it.
pub(super) fn look(dir: &Path) -> Option<Packages> {
    let mut names = BTreeSet::new();
    let mut told_by = None;
    if let Some(text) = project_scan::text(&dir.join("pyproject.toml")) {
        told_by = Some("pyproject.toml".to_owned());
        names.extend(in_pyproject(&text));
    }
    for file in requirements_files(dir) {
        names.extend(in_requirements(&project_scan::text(&dir.join(&file)).unwrap_or_default()));
        told_by.get_or_insert(file);
    }
    for file in ["setup.py", "setup.cfg", "Pipfile"] {
        if project_scan::is_file(&dir.join(file)) {
            told_by.get_or_insert(file.to_owned());
        }
    }
    told_by.map(|told_by| Packages::new(&told_by, names))
}

/// `requirements.txt` and its kin, sorted.
fn requirements_files(dir: &Path) -> Vec<String> {
    let mut files: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("requirements") && name.ends_with(".txt"))
        .filter(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)))
        .filter(|name| project_scan::is_file(&dir.join(name)))
        .collect();
    files.sort();
    files
}

fn in_requirements(text: &str) -> Vec<String> {
    text.lines().filter_map(requirement).collect()
}

/// The name that a requirement such as `requests[socks] >= 2 ; os_name` begins
/// with.
fn requirement(written: &str) -> Option<String> {
    let written = written.trim();
    let end = written.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
    let (name, rest) = written.split_at(end.unwrap_or(written.len()));
    // `./wheel.whl`, `https:...` and `name = ...` are no requirements.
    let follows = rest.trim_start().chars().next();
    if follows.is_some_and(|c| !"[<>=!~;@(#,".contains(c) || rest.trim_start().starts_with("= ")) {
        return None;
    }
    PythonPackage::parse(name).ok().map(|package| package.to_string())
}

/// The requirements in the lists of `[project]`, `[build-system]` and the
/// optional and group tables.
fn in_pyproject(text: &str) -> Vec<String> {
    let mut table = String::new();
    let mut in_list = false;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if !in_list {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                table = name.0.trim().to_owned();
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            let wanted = matches!(
                (table.as_str(), key.trim()),
                ("project", "dependencies")
                    | ("build-system", "requires")
                    | ("project.optional-dependencies" | "dependency-groups", _)
            );
            if !wanted || !value.trim_start().starts_with('[') {
                continue;
            }
        }
        found.extend(quoted(line).filter_map(requirement));
        // The last bracket outside of quotes: `"uvicorn[standard]",` goes on.
        in_list = !outside_quotes(line).contains(']');
    }
    found
}

/// The strings in a line of TOML.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    let quote = if line.contains('"') { '"' } else { '\'' };
    line.split(quote).skip(1).step_by(2)
}

fn outside_quotes(line: &str) -> String {
    let quote = if line.contains('"') { '"' } else { '\'' };
    let outside: String = line.split(quote).step_by(2).collect();
    outside.split('#').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requirements_are_names_without_what_follows() {
        let text = "# c\nRequests[socks] >= 2.0 ; python_version > '3'\nnumpy==1.0 # pinned\n-r other.txt\n--index-url https://evil.example/\n./local.whl\nhttps://evil.example/x.whl\ntyping_extensions\nfoo @ https://example.com/foo.whl\nbad name here\n";
        assert_eq!(in_requirements(text), ["requests", "numpy", "typing-extensions", "foo"]);
    }

    #[test]
    fn pyproject_lists_are_found_and_other_lists_are_not() {
        let text = "[build-system]\nrequires = [\"hatchling\"]\n[project]\nname = \"x\"\nclassifiers = [\n  \"Topic\",\n]\ndependencies = [\n  \"httpx[http2]>=0.2\",\n  'attrs',  # comment ]\n]\nkeywords = [\"evil\"]\n[project.optional-dependencies]\ndev = [\"tox\", \"nox\"]\n[tool.other]\ndependencies = [\"nope\"]\n[dependency-groups]\ntest = [\"pytest\", {include-group = \"x\"}]\n";
        assert_eq!(
            in_pyproject(text),
            ["hatchling", "httpx", "attrs", "tox", "nox", "pytest", "x"]
        );
    }

    proptest! {
        #[test]
        fn only_names_that_the_language_accepts_are_found(text: String) {
            for name in in_requirements(&text).into_iter().chain(in_pyproject(&text)) {
                prop_assert!(PythonPackage::parse(&name).is_ok());
            }
        }
    }
}
