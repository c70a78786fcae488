//! Where pip's index keeps its files.
//!
//! An index page may lead to files on another host, and which one stands on
//! the page alone. So pip itself is asked what it would download for a package,
//! once a day for each index: no code of the package is run, since only wheels
//! are considered, and nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use policies::{PythonPackage, RegistryUrl};
use serde::Deserialize;

use super::Machine;

/// The other hosts with files of `index`; nothing if pip cannot say.
pub(in crate::policy) fn of(
    index: &RegistryUrl,
    package: &PythonPackage,
    authority: Option<&Path>,
    machine: &Machine<'_>,
    cache: Option<&Path>,
) -> Option<Vec<RegistryUrl>> {
    let kept = cache.map(|cache| cache.join(format!("pip-files-{}", name_of(index))));
    if let Some(known) = kept.as_deref().and_then(recall) {
        return Some(known);
    }
    let (index_url, package) = (index.to_string(), package.to_string());
    let mut words = vec!["-I", "-m", "pip", "install", "--quiet", "--no-input"];
    words.extend(["--disable-pip-version-check", "--dry-run", "--ignore-installed"]);
    // A source archive would be asked for its name by running it.
    words.extend(["--no-deps", "--only-binary", ":all:", "--report", "-"]);
    words.extend(["--index-url", &index_url]);
    let authority = authority.and_then(Path::to_str);
    words.extend(authority.iter().flat_map(|path| ["--cert", path]));
    words.push(&package);
    let found = from_report(&machine.tools.ask_outside("python3", &words)?, index)?;
    if let Some(path) = kept {
        remember(&path, &found);
    }
    Some(found)
}

#[derive(Deserialize)]
struct Report {
    install: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    download_info: Download,
}

#[derive(Deserialize)]
struct Download {
    url: String,
}

/// The hosts of `pip install --report`, without the index's own.
fn from_report(report: &str, index: &RegistryUrl) -> Option<Vec<RegistryUrl>> {
    let report: Report = serde_json::from_str(report).ok()?;
    let mut found = Vec::new();
    for item in report.install {
        let file = super::address(&item.download_info.url)?;
        let root = RegistryUrl { path: policies::RequestPath::parse("/").ok()?, ..file };
        let is_index = (root.scheme, &root.destination) == (index.scheme, &index.destination);
        if !is_index && !found.contains(&root) {
            found.push(root);
        }
    }
    Some(found)
}

/// A name for a file that says nothing and fits every file system.
fn name_of(index: &RegistryUrl) -> String {
    let digest = digest(&SHA256, index.to_string().as_bytes());
    digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn recall(path: &Path) -> Option<Vec<RegistryUrl>> {
    let age = path.metadata().ok()?.modified().ok()?.elapsed().ok()?;
    if age > A_DAY {
        return None;
    }
    let text = fs::read_to_string(path).ok()?;
    text.lines().map(|line| RegistryUrl::parse(line).ok()).collect()
}

/// What cannot be kept is asked again.
fn remember(path: &PathBuf, found: &[RegistryUrl]) {
    let text: String = found.iter().map(|url| format!("{url}\n")).collect();
    if let Some(above) = path.parent() {
        drop(fs::create_dir_all(above));
    }
    drop(fs::write(path, text));
}

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::Tools;
    use super::*;

    const REPORT: &str = r#"{"version": "1", "install": [{"download_info":
        {"url": "https://me:pw@files.example/packages/ab/six-1.0-py3-none-any.whl", "x": 1}}]}"#;

    /// Answers like pip, counts, and checks what it is asked to do.
    struct Pip(Cell<usize>);

    impl Tools for Pip {
        fn ask(&self, program: &str, arguments: &[&str]) -> Option<String> {
            assert_eq!(program, "python3");
            for safe in ["--dry-run", "--only-binary", "--no-deps"] {
                assert!(arguments.contains(&safe), "{arguments:?}");
            }
            assert_eq!(arguments.last(), Some(&"six"));
            self.0.set(self.0.get() + 1);
            Some(REPORT.to_owned())
        }
    }

    fn index() -> RegistryUrl {
        RegistryUrl::parse("https://index.example/simple").unwrap()
    }

    #[test]
    fn pip_is_asked_once_and_its_answer_kept_without_credentials() {
        let cache = tempfile::tempdir().unwrap();
        let pip = Pip(Cell::new(0));
        let machine = Machine {
            variable: &|_| None,
            root: cache.path().to_owned(),
            projects: Vec::new(),
            tools: Box::new(&pip),
        };
        let six = PythonPackage::parse("six").unwrap();
        for _ in 0..2 {
            let found = of(&index(), &six, None, &machine, Some(cache.path())).unwrap();
            let found: Vec<_> = found.iter().map(RegistryUrl::to_string).collect();
            assert_eq!(found, ["https://files.example"]);
        }
        assert_eq!(pip.0.get(), 1);
    }

    #[test]
    fn files_beside_the_index_need_no_host_of_their_own() {
        let report = REPORT.replace("me:pw@files.example", "index.example");
        assert_eq!(from_report(&report, &index()), Some(Vec::new()));
        assert_eq!(from_report("no report", &index()), None);
    }
}
