//! The crates, and the modules in each, use one another in one direction only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::pages::root;

/// Our crates, and the folder of each. One uses only those that stand before it.
const CRATES: [(&str, &str); 13] = [
    ("sluice-policies", "policies"),
    ("sluice-certs", "certs"),
    ("sluice-audit", "audit"),
    ("sluice-protocol", "protocol"),
    ("sluice-gateway", "gateway"),
    ("sluice-files", "runner/files"),
    ("sluice-inside", "runner/inside"),
    ("sluice-standin", "runner/standin"),
    ("sluice-engine", "runner/engine"),
    ("sluice-cli", "runner/cli"),
    ("sluice-tests", "tests"),
    ("sluice-pbench", "tests/performance/harness/pbench"),
    ("sluice-floor-proxy", "tests/performance/harness/floor"),
];

#[test]
fn a_crate_uses_only_crates_before_it() {
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let asked = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let told = Command::new(cargo).args(asked).current_dir(root()).output().unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let place = |name: &str| CRATES.iter().position(|(known, _)| *known == name);
    let mut wrong = Vec::new();
    for package in told["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let Some(at) = place(name) else {
            wrong.push(format!("{name} is not in the list of crates"));
            continue;
        };
        let used = package["dependencies"].as_array().unwrap().iter();
        for used in used.filter(|used| used["path"].is_string()) {
            let used = used["name"].as_str().unwrap();
            if place(used).is_none_or(|used| used >= at) {
                wrong.push(format!("{name} uses {used}, which does not stand before it"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A crate that a list of folders forgets is missing in an image, or not built
/// again when it changed.
#[test]
fn every_crate_is_sent_to_a_builder_and_built_when_it_changed() {
    let ignored = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let script = fs::read_to_string(root().join("sluice")).unwrap();
    for (name, folder) in CRATES {
        let top = folder.split('/').next().unwrap();
        assert!(ignored.lines().any(|line| line == format!("!{top}")), "{name}: .dockerignore");
        let is_watched = script.contains(&format!("\"$root/{top}\""));
        assert!(is_watched || top == "tests", "{name}: ./sluice");
    }
}

#[test]
fn modules_use_each_other_in_one_direction() {
    let mut wrong = Vec::new();
    for (name, folder) in CRATES {
        for tangle in tangles(&Modules::read(&root().join(folder).join("src")).used) {
            wrong.push(format!("{name}: these use each other: {}", tangle.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_name_means_one_thing_in_all_crates() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, folder) in CRATES.iter().filter(|(name, _)| *name != "sluice-tests") {
        for (path, text) in product_sources(&root().join(folder).join("src")) {
            // Not of what is declared within a function.
            for line in text.lines().filter(|line| !line.starts_with("  ")) {
                let mut words = words(line).skip_while(|word| !["enum", "struct"].contains(word));
                if let (Some(_), Some(name)) = (words.next(), words.next()) {
                    places.entry(name.to_owned()).or_default().push(path.display().to_string());
                }
            }
        }
    }
    assert!(places.len() > 500, "{} types", places.len());
    // Every program has its arguments.
    places.remove("Args");
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "{places:#?}");
}

#[test]
fn the_engine_neither_prints_nor_asks_its_own_process() {
    let mut wrong = Vec::new();
    for (path, text) in product_sources(&root().join("runner/engine/src")) {
        let found = NOT_IN_THE_ENGINE.iter().filter(|word| text.contains(*word));
        wrong.extend(found.map(|word| format!("{}: {word}", path.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every file below `folder` but those of tests, as [`product`] has it.
fn product_sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    sources(folder, "", &mut files);
    let tests: Vec<PathBuf> = files.iter().flat_map(|(_, path)| tests_of(path)).collect();
    let kept = files.into_iter().map(|(_, path)| path);
    let kept = kept.filter(|path| !tests.iter().any(|test| path.starts_with(test)));
    kept.map(|path| (path.clone(), product(&fs::read_to_string(&path).unwrap()))).collect()
}

/// Its caller's variables, terminal and signals are not this process's.
const NOT_IN_THE_ENGINE: [&str; 10] = [
    "env::args",
    "env::current_dir",
    "env::current_exe",
    "env::var",
    "io::stderr",
    "io::stdin",
    "io::stdout",
    "print!(",
    "println!(",
    "tokio::signal",
];

/// Which top-level modules of a crate use which others. Tests do not count.
#[derive(Default)]
struct Modules {
    used: BTreeMap<String, BTreeSet<String>>,
    /// Names that the crate's root has from a module.
    exported: BTreeMap<String, String>,
}

impl Modules {
    fn read(src: &Path) -> Self {
        let mut modules = Self::default();
        let mut files = Vec::new();
        for entry in fs::read_dir(src).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && name != "bin" || !["lib", "main", "bin"].contains(&&*name) {
                sources(&path, &name, &mut files);
                modules.used.entry(name).or_default();
            }
        }
        // A program alone has no library.
        let library = fs::read_to_string(src.join("lib.rs")).unwrap_or_default();
        for statement in product(&library).split(';') {
            let Some((_, path)) = statement.split_once("use ") else { continue };
            let Some((module, names)) = path.trim().split_once("::") else { continue };
            for name in words(names).filter(|name| !modules.used.contains_key(*name)) {
                modules.exported.insert(name.to_owned(), module.to_owned());
            }
        }
        let tests: Vec<PathBuf> = files.iter().flat_map(|(_, path)| tests_of(path)).collect();
        for (module, path) in files {
            if tests.iter().any(|test| path.starts_with(test)) {
                continue;
            }
            let depth = path.strip_prefix(src).unwrap().components().count()
                - usize::from(path.ends_with("mod.rs"));
            let text = product(&fs::read_to_string(&path).unwrap());
            // Only where it stands at the beginning of a line is it known whose
            // parent is meant.
            let text = text.replace(&format!("\nuse {}", "super::".repeat(depth)), "\nuse crate::");
            for used in modules.named_in(&text) {
                if used != module {
                    modules.used.entry(module.clone()).or_default().insert(used);
                }
            }
        }
        modules
    }

    /// The modules that stand after `crate::`.
    fn named_in(&self, text: &str) -> Vec<String> {
        let module = |name: &str| match self.used.contains_key(name) {
            true => Some(name.to_owned()),
            false => self.exported.get(name).cloned(),
        };
        let after = text.split("crate::").skip(1);
        let names = after.flat_map(|after| match after.strip_prefix('{') {
            Some(group) => outermost(group),
            None => words(after).take(1).map(str::to_owned).collect(),
        });
        names.filter_map(|name| module(&name)).collect()
    }
}

/// The files of a module.
fn sources(path: &Path, module: &str, found: &mut Vec<(String, PathBuf)>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            sources(&entry.unwrap().path(), module, found);
        }
    } else if path.extension().is_some_and(|ending| ending == "rs") {
        found.push((module.to_owned(), path.to_owned()));
    }
}

/// A source without its comments and without what is compiled for tests alone,
/// which stands last.
fn product(source: &str) -> String {
    let lines: Vec<&str> = source.lines().collect();
    let inline = lines.windows(2).position(|pair| {
        pair[0] == "#[cfg(test)]" && pair[1].contains("mod ") && pair[1].ends_with('{')
    });
    let kept = lines.iter().take(inline.unwrap_or(lines.len()));
    let kept = kept.filter(|line| !line.trim_start().starts_with("//"));
    kept.fold(String::from("\n"), |text, line| text + line + "\n")
}

/// The files and folders of modules that `path` declares for tests alone.
fn tests_of(path: &Path) -> Vec<PathBuf> {
    let folder = match path.ends_with("mod.rs") {
        true => path.parent().unwrap().to_owned(),
        false => path.with_extension(""),
    };
    let text = fs::read_to_string(path).unwrap();
    let declared = text.split("#[cfg(test)]\n").skip(1).filter_map(|after| {
        let line = after.lines().find(|line| !line.starts_with("#["))?;
        let (_, name) = line.strip_suffix(';')?.split_once("mod ")?;
        Some(folder.join(name))
    });
    declared.flat_map(|module| [module.with_extension("rs"), module]).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// What begins each path of a group, up to its closing brace.
fn outermost(group: &str) -> Vec<String> {
    let (mut depth, mut names, mut fresh) = (0, vec![String::new()], true);
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(String::new());
                fresh = true;
            }
            c if depth == 0 && fresh && (c.is_alphanumeric() || c == '_') => {
                names.last_mut().unwrap().push(c);
            }
            _ if depth == 0 => fresh &= names.last().unwrap().is_empty(),
            _ => {}
        }
    }
    names
}

/// The groups of modules that lead to one another.
fn tangles(used: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        used.keys().map(|from| (from.as_str(), reached(used, from))).collect();
    let mut found = BTreeSet::new();
    for (from, to) in &reach {
        let tangle = to.iter().filter(|to| reach.get(**to).is_some_and(|back| back.contains(from)));
        let tangle: Vec<String> = tangle.map(|name| (*name).to_owned()).collect();
        if tangle.len() > 1 {
            found.insert(tangle);
        }
    }
    found.into_iter().collect()
}

fn reached<'u>(used: &'u BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<&'u str> {
    let mut found = BTreeSet::new();
    let mut left: Vec<&str> = used.get(from).into_iter().flatten().map(String::as_str).collect();
    while let Some(next) = left.pop() {
        if found.insert(next) {
            left.extend(used.get(next).into_iter().flatten().map(String::as_str));
        }
    }
    found
}

#[test]
fn a_tangle_is_noticed_however_it_is_written() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = home.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\nmod e;\npub use a::{One, Two};\n");
    write("a.rs", "use crate::{\n    d::{Some, Thing},\n    e as other,\n    b,\n};\n");
    write("b/mod.rs", "mod inner;\n");
    write("b/inner.rs", "fn f() -> Option<crate::Two> { None }\n");
    write("c.rs", "use super::d::It;\n");
    write("d.rs", "/// [`crate::c`]\n#[cfg(test)]\nmod tests {\n    use crate::c;\n}\n");
    write("e.rs", "#[cfg(test)]\nmod tests;\n");
    write("e/tests.rs", "use crate::a;\n");
    let found = tangles(&Modules::read(home.path()).used);
    assert_eq!(found, [["a", "b"]]);
    write("d.rs", "use crate::c::Other;\n");
    assert_eq!(tangles(&Modules::read(home.path()).used), [["a", "b"], ["c", "d"]]);
}
