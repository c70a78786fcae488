//! The registry that a package manager uses where nobody configured one.
//!
//! Only the package manager knows it, and it stands in the files that it is made
//! of. Those are read, not run: one line of pip's `models/index.py`, one setting of
//! npm's `definitions.js`. They are looked for beside the programs of `PATH`, never
//! in a project.

use std::fs;
use std::path::{Path, PathBuf};

use super::LookupScope;

/// pip's own index.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct PipDefault {
    pub(super) index: String,
    /// The other host that has its files.
    pub(super) files: Option<String>,
}

/// The default of the first pip in `PATH`.
pub(super) fn pip(machine: &LookupScope) -> Option<PipDefault> {
    machine.prefixes().iter().flat_map(|prefix| pythons(prefix)).find_map(|python| {
        let packages = ["site-packages", "dist-packages"].map(|name| python.join(name));
        let mut texts = packages
            .iter()
            .filter_map(|packages| machine.read(&packages.join("pip/_internal/models/index.py")));
        texts.find_map(|text| pip_default(&text))
    })
}

/// The default of the first npm in `PATH`.
pub(super) fn npm(machine: &LookupScope) -> Option<String> {
    // npm's own package, and where Debian takes it apart.
    let folders =
        ["lib/node_modules/npm/node_modules", "share/nodejs", "share/nodejs/npm/node_modules"];
    let prefixes = machine.prefixes();
    let mut files = prefixes.iter().flat_map(|prefix| folders.map(|folder| prefix.join(folder)));
    files.find_map(|folder| {
        let text = machine.read(&folder.join("@npmcli/config/lib/definitions/definitions.js"))?;
        npm_default(&text)
    })
}

/// The folders of Python libraries below `prefix`, and below those that pyenv made.
fn pythons(prefix: &Path) -> Vec<PathBuf> {
    let mut libraries = vec![prefix.join("lib")];
    libraries.extend(sorted(&prefix.join("versions")).iter().map(|version| version.join("lib")));
    let is_python = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|it| it.starts_with("python3"))
    };
    libraries.iter().flat_map(|library| sorted(library)).filter(is_python).collect()
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// From `PyPI = PackageIndex("https://...", file_storage_domain="...")`.
fn pip_default(text: &str) -> Option<PipDefault> {
    let (_, rest) = text.split_once("\nPyPI = PackageIndex(")?;
    let (arguments, _) = rest.split_once(')')?;
    let base = quoted(arguments)?;
    let files = arguments.split_once("file_storage_domain").and_then(|(_, rest)| quoted(rest));
    Some(PipDefault {
        index: format!("{}/simple", base.trim_end_matches('/')),
        files: files.map(|host| format!("https://{host}/")),
    })
}

/// From `new Definition('registry', { default: 'https://...', ...`.
fn npm_default(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("('registry', {")?;
    let (setting, _) = rest.split_once('}')?;
    let (_, default) = setting.split_once("default:")?;
    quoted(default).map(str::to_owned)
}

/// The first text in quotation marks.
fn quoted(code: &str) -> Option<&str> {
    let mark = code.find(['"', '\''])?;
    let (mark, rest) = code.get(mark..)?.split_at_checked(1)?;
    rest.split_once(mark).map(|(text, _)| text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fake::Fake;
    use super::*;

    const INDEX: &str = "import urllib.parse\n\nclass PackageIndex:\n    pass\n\n\
        PyPI = PackageIndex(\"https://default.example/\", file_storage_domain=\"files.example\")\n\
        TestPyPI = PackageIndex(\n    \"https://test.example/\"\n)\n";
    const DEFINITIONS: &str = "  'replace-registry-host': new Definition('replace-registry-host', {\n    default: 'npmjs',\n  }),\n  registry: new Definition('registry', {\n    default: 'https://npm.example/',\n    type: url,\n  }),\n";

    fn index(machine: &Fake) -> Option<String> {
        pip(&machine.machine()).map(|found| found.index)
    }

    #[test]
    fn the_defaults_are_read_from_what_is_installed() {
        for place in
            ["usr/lib/python3/dist-packages", "usr/versions/3.1/lib/python3.1/site-packages"]
        {
            let fake = Fake::new()
                .file(&format!("{place}/pip/_internal/models/index.py"), INDEX)
                .with("PATH", "relative/bin:@/sbin:@/usr/bin");
            let found = pip(&fake.machine()).unwrap();
            assert_eq!(found.index, "https://default.example/simple");
            assert_eq!(found.files.as_deref(), Some("https://files.example/"));
        }
        for place in ["lib/node_modules/npm/node_modules", "share/nodejs"] {
            let file = format!("usr/{place}/@npmcli/config/lib/definitions/definitions.js");
            let fake = Fake::new().file(&file, DEFINITIONS).with("PATH", "@/usr/bin");
            assert_eq!(npm(&fake.machine()).as_deref(), Some("https://npm.example/"));
        }
    }

    #[test]
    fn what_a_project_has_installed_is_not_read() {
        let path = ".venv/lib/python3.1/site-packages/pip/_internal/models/index.py";
        let fake = Fake::new().file(&format!("work/{path}"), INDEX);
        let fake = fake.with("PATH", "@/work/.venv/bin");
        assert_eq!(index(&fake), None);
        let fake = Fake::new().file(&format!("home/{path}"), INDEX);
        let fake = fake.with("PATH", "@/home/.venv/bin");
        assert!(index(&fake).is_some());
    }

    #[test]
    fn a_file_that_says_something_else_says_nothing() {
        assert_eq!(pip_default("PyPI = None\n"), None);
        assert_eq!(pip_default("\nPyPI = PackageIndex()\n"), None);
        assert_eq!(npm_default("('registry', { default: null }"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(rest: String) {
            pip_default(&format!("\nPyPI = PackageIndex({rest}"));
            npm_default(&format!("('registry', {{{rest}"));
        }
    }
}
