//! The policy as a file on the gateway's side.
//!
//! `policies` touches no file; this does. What a policy extends is found beside
//! the file that says so. A policy that is read is whole or is not there:
//! missing, unreadable and half right all mean that nothing changes.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use audit::Digest;
use policies::{Beyond, Policy, Problems, Registries, RunOverrides, Source, Sources};

/// Where the policy is read from, and how it is to be taken.
#[derive(Clone, Debug)]
pub(crate) struct PolicyFile {
    path: PathBuf,
    observe: bool,
    registries: Registries,
}

/// A policy that can take effect, and what records call it.
#[derive(Debug)]
pub(crate) struct ReadPolicy {
    pub(crate) policy: Policy,
    /// Digest of its text.
    pub(crate) hash: String,
}

/// Why there is no policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("{}", said(.0))]
    Beyond(Vec<Beyond>),
    #[error(transparent)]
    Problems(#[from] Problems),
    #[error("cannot read the policy {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the policy {} is larger than {MOST_BYTES} bytes", path.display())]
    TooLarge { path: PathBuf },
}

impl PolicyFile {
    /// `observe` asks for observing, which the policy must permit.
    pub(crate) fn new(path: PathBuf, observe: bool) -> Self {
        Self { path, observe, registries: Registries::default() }
    }

    /// What rules mean that name no registry.
    pub(crate) fn with_registries(self, registries: Registries) -> Self {
        Self { registries, ..self }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file as it is now. Blocks on the disk.
    pub(crate) fn read(&self) -> Result<ReadPolicy, PolicyError> {
        let text = read_bounded(&self.path)?;
        self.read_source(&Source::new(self.path.display().to_string(), text))
    }

    /// Reads a policy that came from elsewhere, as if it stood in the file.
    pub(crate) fn read_text(&self, name: &str, text: &str) -> Result<ReadPolicy, PolicyError> {
        self.read_source(&Source::new(name, text))
    }

    fn read_source(&self, source: &Source) -> Result<ReadPolicy, PolicyError> {
        let beside = Beside {
            main: Path::new(&*source.name),
            base: &self.path,
            registries: &self.registries,
        };
        let policy = policies::read(source, &beside)?;
        let wanted = RunOverrides { observe: self.observe, ..RunOverrides::default() };
        let policy = policy.for_run(&wanted).map_err(PolicyError::Beyond)?;
        Ok(ReadPolicy { policy, hash: Digest::of(source.text.as_bytes()).to_string() })
    }
}

/// Files that stand beside the file that names them.
struct Beside<'p> {
    /// The name of the text that is read, which need not be a file.
    main: &'p Path,
    base: &'p Path,
    registries: &'p Registries,
}

impl Sources for Beside<'_> {
    fn load(&self, written: &str, from: &Source) -> Result<Source, String> {
        let from = Path::new(&*from.name);
        let from = if from == self.main { self.base } else { from };
        let path = from.parent().unwrap_or(Path::new("/")).join(written);
        // One name for one file, however it was written, or circles go unseen.
        let path = path.canonicalize().map_err(|err| format!("cannot read `{written}`: {err}"))?;
        let text = read_bounded(&path).map_err(|err| match err {
            PolicyError::Read { source, .. } => format!("cannot read `{written}`: {source}"),
            other => other.to_string(),
        })?;
        Ok(Source::new(path.display().to_string(), text))
    }

    fn registries(&self) -> Registries {
        self.registries.clone()
    }
}

fn read_bounded(path: &Path) -> Result<String, PolicyError> {
    let cannot = |source| PolicyError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    File::open(path)
        .map_err(cannot)?
        .take(MOST_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(cannot)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(PolicyError::TooLarge { path: path.to_owned() });
    }
    Ok(text)
}

fn said(beyond: &[Beyond]) -> String {
    let all: Vec<String> = beyond.iter().map(ToString::to_string).collect();
    all.join("\n")
}

/// More than any person writes or reads.
pub(crate) const MOST_BYTES: u64 = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const NET: &str = "version: 1\nnet: {enabled: true, allow: [a.test]}\n";

    fn written(files: &[(&str, &str)]) -> (tempfile::TempDir, PolicyFile) {
        let directory = tempfile::tempdir().expect("a directory can be made");
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).expect("a file can be written");
        }
        let file = PolicyFile::new(directory.path().join("p.yaml"), false);
        (directory, file)
    }

    #[test]
    fn what_a_policy_extends_is_found_beside_it() {
        let main = "version: 1\nextends: [./base.yaml]\nnet: {enabled: true, allow: [b.test]}\n";
        let (_directory, file) = written(&[("p.yaml", main), ("base.yaml", NET)]);
        let read = file.read().unwrap_or_else(|err| panic!("{err}"));
        assert_eq!(read.policy.rules().count(), 2);
        assert_eq!(read.hash, Digest::of(main.as_bytes()).to_string());

        let sent = file.read_text("the request", main).unwrap_or_else(|err| panic!("{err}"));
        assert_eq!(sent.policy.rules().count(), 2, "also for text that came from elsewhere");
    }

    #[test]
    fn a_policy_that_extends_itself_is_noticed() {
        let around = "version: 1\nextends: [./p.yaml]\n";
        let (_directory, file) = written(&[("p.yaml", around)]);
        let err = file.read().expect_err("it never ends").to_string();
        assert!(err.contains("leads in a circle"), "{err}");
    }

    #[test]
    fn a_missing_policy_is_named_and_never_a_default() {
        let (_directory, file) = written(&[]);
        let err = file.read().expect_err("there is none").to_string();
        assert!(err.starts_with("cannot read the policy /"), "{err}");
    }

    #[test]
    fn a_rule_without_a_registry_means_the_one_we_were_told() {
        let rule = "version: 1\nnet: {enabled: true, allow: [{pip: [six]}]}\n";
        let (_directory, file) = written(&[("p.yaml", rule)]);
        let url = |text| policies::RegistryUrl::parse(text).expect("it is one");
        let told = Registries {
            pip: vec![url("https://index.test/simple")],
            pip_files: vec![url("https://files.test/")],
            ..Registries::default()
        };
        let file = file.with_registries(told);
        let policy = file.read().unwrap_or_else(|err| panic!("{err}")).policy;
        for (asked, answer) in [
            ("https://index.test/simple/six/", "allow: net.allow[0]"),
            ("https://files.test/a/b/six-1.0-py3-none-any.whl", "allow: net.allow[0]"),
            ("https://files.test/a/b/evil-1.0-py3-none-any.whl", "deny: no rule"),
            ("https://index.test/simple/evil/", "deny: no rule"),
        ] {
            let asked = policies::Asked::new("GET", asked).expect("it is a request");
            let decided = policy.decide(&asked.question()).to_string();
            assert!(decided.starts_with(answer), "{decided}");
        }
    }

    #[test]
    fn observing_needs_the_policys_permission() {
        let (directory, _) = written(&[("p.yaml", NET)]);
        let file = PolicyFile::new(directory.path().join("p.yaml"), true);
        assert_eq!(
            file.read().expect_err("it is not permitted").to_string(),
            "observing is not permitted; the policy would need `overrides: {observe: true}`"
        );
        let permitted = format!("{NET}overrides: {{observe: true}}\n");
        let read = file.read_text("p", &permitted).unwrap_or_else(|err| panic!("{err}"));
        assert_eq!(read.policy.net.mode, policies::Mode::Observe);
    }
}
