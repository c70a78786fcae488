//! The policy as a file on the gateway's side.
//!
//! `policies` touches no file; this does. What a policy extends is found beside
//! the file that says so. A policy that is missing, unreadable or half right
//! never takes effect: at the start nothing is served, on a reload the one before stays.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use audit::{Digest, Name, PolicyLoaded, Text};
use policies::{
    NotPermitted, Policy, Problems, Registries, RegistryKind, RegistryUrl, RunOverrides, Source,
    Sources,
};

use crate::config::Config;

/// Where the policy is read from, and how it is to be taken.
#[derive(Clone, Debug)]
pub(crate) struct PolicyFile {
    /// As its author knows it.
    path: PathBuf,
    /// What stands in for `/`, if policies are read below a folder.
    root: Option<PathBuf>,
    /// What is asked for beside the policy, which must permit it.
    wanted: RunOverrides,
    registries: Registries,
}

/// A policy that can take effect, and what records call it.
#[derive(Debug)]
pub(crate) struct ReadPolicy {
    pub(crate) policy: Policy,
    /// Digest of its text.
    pub(crate) hash: String,
}

impl ReadPolicy {
    /// The record that it took effect.
    pub(crate) fn loaded(&self, file: Text, replaced: Option<Name>) -> PolicyLoaded {
        PolicyLoaded {
            hash: self.hash.as_str().into(),
            name: Some((&*self.policy.name).into()),
            file: Some(file),
            rules: self.policy.rules().count() as u64,
            replaced,
        }
    }
}

/// Why there is no policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("{}", lines(.0))]
    Beyond(Vec<NotPermitted>),
    #[error(transparent)]
    Problems(#[from] Problems),
    #[error("cannot read the policy {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the policy {} is larger than {MAX_POLICY_BYTES} bytes", path.display())]
    TooLarge { path: PathBuf },
}

impl PolicyFile {
    pub(crate) fn new(config: &Config) -> Self {
        let (allow, observe) = (config.allow.clone(), config.observe);
        Self {
            root: config.policy_root.clone(),
            wanted: RunOverrides { allow, observe, ..RunOverrides::default() },
            registries: config.registries.clone(),
            ..Self::at(config.policy.clone())
        }
    }

    /// A policy that is taken as it is written.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self {
            path,
            root: None,
            wanted: RunOverrides::default(),
            registries: Registries::default(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the policy that its author knows as `path` is kept.
    fn on_disk(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        }
    }

    /// The other way round.
    fn as_known(&self, on_disk: &Path) -> io::Result<PathBuf> {
        let Some(root) = &self.root else { return Ok(on_disk.to_owned()) };
        match on_disk.strip_prefix(root.canonicalize()?) {
            Ok(path) => Ok(Path::new("/").join(path)),
            Err(_) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Reads the file as it is now. Blocks on the disk.
    pub(crate) fn read(&self) -> Result<ReadPolicy, PolicyError> {
        let text = read_bounded(&self.path, &self.on_disk(&self.path))?;
        self.read_source(&Source::new(self.path.display().to_string(), text))
    }

    /// Reads a policy that came from elsewhere, as if it stood in the file.
    pub(crate) fn read_text(&self, name: &str, text: &str) -> Result<ReadPolicy, PolicyError> {
        self.read_source(&Source::new(name, text))
    }

    fn read_source(&self, source: &Source) -> Result<ReadPolicy, PolicyError> {
        let beside = PolicySources { main: Path::new(&*source.name), file: self };
        let policy = policies::read(source, &beside)?;
        let policy = policy.for_run(&self.wanted).map_err(PolicyError::Beyond)?;
        Ok(ReadPolicy { policy, hash: Digest::of(source.text.as_bytes()).to_string() })
    }
}

/// Files that stand beside the file that names them.
struct PolicySources<'p> {
    /// The name of the text that is read, which need not be a file.
    main: &'p Path,
    file: &'p PolicyFile,
}

impl Sources for PolicySources<'_> {
    fn load(&self, written: &str, from: &Source) -> Result<Source, String> {
        let cannot = |err: io::Error| format!("cannot read `{written}`: {err}");
        let from = Path::new(&*from.name);
        let from = if from == self.main { &self.file.path } else { from };
        let path = from.parent().unwrap_or(Path::new("/")).join(written);
        // One name for one file, however it was written, or circles go unseen.
        let on_disk = self.file.on_disk(&path).canonicalize().map_err(cannot)?;
        let path = self.file.as_known(&on_disk).map_err(cannot)?;
        let text = read_bounded(&path, &on_disk).map_err(|err| match err {
            PolicyError::Read { source, .. } => cannot(source),
            other => other.to_string(),
        })?;
        Ok(Source::new(path.display().to_string(), text))
    }

    fn registries(&self, kind: RegistryKind) -> Vec<RegistryUrl> {
        self.file.registries.of(kind).to_vec()
    }
}

/// The text of the policy `path`, which is kept at `on_disk`.
fn read_bounded(path: &Path, on_disk: &Path) -> Result<String, PolicyError> {
    let cannot = |source| PolicyError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    File::open(on_disk)
        .map_err(cannot)?
        .take(MAX_POLICY_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(cannot)?;
    if text.len() as u64 > MAX_POLICY_BYTES {
        return Err(PolicyError::TooLarge { path: path.to_owned() });
    }
    Ok(text)
}

fn lines(beyond: &[NotPermitted]) -> String {
    let all: Vec<String> = beyond.iter().map(ToString::to_string).collect();
    all.join("\n")
}

/// More than any person writes or reads.
pub(crate) const MAX_POLICY_BYTES: u64 = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const NET: &str = "version: 1\nnet: {enabled: true, allow: [a.test]}\n";

    fn written(files: &[(&str, &str)]) -> (tempfile::TempDir, PolicyFile) {
        let directory = tempfile::tempdir().expect("a directory can be made");
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).expect("a file can be written");
        }
        let file = PolicyFile::at(directory.path().join("p.yaml"));
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
    fn below_a_root_policies_keep_the_names_their_author_knows() {
        let main = "version: 1\nextends: [../base.yaml]\nnet: {enabled: true, allow: [b.test]}\n\
                    overrides: {allow: [c.test]}\n";
        let directory = tempfile::tempdir().expect("a directory can be made");
        let root = directory.path().join("files");
        std::fs::create_dir_all(root.join("home/ann/work")).unwrap();
        std::fs::write(root.join("home/ann/work/p.yaml"), main).unwrap();
        std::fs::write(root.join("home/ann/base.yaml"), NET).unwrap();
        std::fs::write(directory.path().join("outside.yaml"), NET).unwrap();
        let allow = vec![policies::HostPattern::parse("c.test").expect("it is a host")];
        let file = PolicyFile {
            root: Some(root.clone()),
            wanted: RunOverrides { allow, ..RunOverrides::default() },
            ..PolicyFile::at("/home/ann/work/p.yaml".into())
        };
        let policy = file.read().unwrap_or_else(|err| panic!("{err}")).policy;
        let ids: Vec<_> = policy.rules().map(|rule| rule.id().to_string()).collect();
        assert_eq!(ids, ["net.allow[0]", "../base.yaml:net.allow[0]", "run.allow[0]"]);

        let told = |text: &str| {
            std::fs::write(root.join("home/ann/work/p.yaml"), text).unwrap();
            file.read().expect_err("it is wrong").to_string()
        };
        let wrong = told("version: 2\n");
        assert!(wrong.starts_with("/home/ann/work/p.yaml:1:"), "{wrong}");
        let out = told("version: 1\nextends: [../../../../outside.yaml]\n");
        assert!(out.contains("cannot read `../../../../outside.yaml`"), "{out}");
        let beyond = told(NET);
        assert!(beyond.contains("`c.test` is not among the hosts"), "{beyond}");
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
        let file = PolicyFile { registries: told, ..file };
        let policy = file.read().unwrap_or_else(|err| panic!("{err}")).policy;
        for (asked, answer) in [
            ("https://index.test/simple/six/", "allow: net.allow[0]"),
            ("https://files.test/a/b/six-1.0-py3-none-any.whl", "allow: net.allow[0]"),
            ("https://files.test/a/b/evil-1.0-py3-none-any.whl", "deny: no rule"),
            ("https://index.test/simple/evil/", "deny: no rule"),
        ] {
            let asked = policies::SampleRequest::new("GET", asked).expect("it is a request");
            let decided = policy.decide(&asked.question()).to_string();
            assert!(decided.starts_with(answer), "{decided}");
        }
    }

    #[test]
    fn observing_needs_the_policys_permission() {
        let (_directory, file) = written(&[("p.yaml", NET)]);
        let wanted = RunOverrides { observe: true, ..RunOverrides::default() };
        let file = PolicyFile { wanted, ..file };
        assert_eq!(
            file.read().expect_err("it is not permitted").to_string(),
            "observing is not permitted; the policy would need `overrides: {observe: true}`"
        );
        let permitted = format!("{NET}overrides: {{observe: true}}\n");
        let read = file.read_text("p", &permitted).unwrap_or_else(|err| panic!("{err}"));
        assert_eq!(read.policy.net.mode, policies::Mode::Observe);
    }
}
