//! This very program, run again as a person would run it.
//!
//! What `doctor`, `selftest` and `demo` say about `sluice run` is what `sluice
//! run` did: they start it, with nothing of the caller's settings but where the
//! programs are, and read the evidence it left.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use engine::backend::Backend;
use engine::plan::RunId;
use policies::Attachment;
use serde_json::Value;
use standin::{Setup, Standin};

use crate::{config, environment};

/// Our configuration, which is not the person's.
const CONFIG: &str = "config.yaml";

/// A place to run from, which goes when this is dropped.
#[derive(Debug)]
pub struct SelfInvocation {
    program: PathBuf,
    folder: PathBuf,
    state: PathBuf,
    backend: &'static str,
    /// As the person's own configuration says it.
    attach: Option<Attachment>,
    image: Option<String>,
}

/// A `sluice run` that has ended.
#[derive(Clone, Debug)]
pub struct Ran {
    pub code: i32,
    /// `run.json`; null if there was no run.
    pub record: Value,
    /// What the command printed, and what Sluice said beside it.
    pub said: String,
    /// The folder of evidence.
    pub evidence: Option<PathBuf>,
}

impl SelfInvocation {
    /// For `purpose`, on `backend`; evidence goes with the rest.
    pub fn new(
        purpose: &str,
        backend: &'static str,
        image: Option<String>,
    ) -> anyhow::Result<Self> {
        let kept = environment::of_this_process()
            .state()
            .context("neither XDG_STATE_HOME nor HOME says where evidence is kept")?;
        // Beside real evidence, so that it is on the same file system.
        let folder = kept.join(format!("{purpose}-{}", RunId::now()));
        let state = folder.join("state");
        for path in [&folder, &folder.join("project"), &state] {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        fs::write(folder.join(CONFIG), "")?;
        let program = env::current_exe().context("cannot find our own program")?;
        let attach = config::load(environment::of_this_process()).ok().and_then(|own| own.attach);
        Ok(Self { program, folder, state, backend, attach, image })
    }

    /// The same, with evidence where a person keeps it.
    pub fn keeping_evidence(mut self) -> anyhow::Result<Self> {
        let kept = environment::of_this_process().state().context("there is no state directory")?;
        self.state = kept.parent().map(Path::to_owned).unwrap_or(kept);
        Ok(self)
    }

    /// The project that runs work on.
    pub fn project(&self) -> PathBuf {
        self.folder.join("project")
    }

    /// A file beside it, of which sandboxes see nothing.
    pub fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    /// The flags of a run under the policy `policy`, for which `standin` is `host`. A
    /// pin to it is permitted as a person's configuration would; nothing of the
    /// person's own is touched.
    pub fn flags(
        &self,
        policy: &Path,
        host: &str,
        standin: &Standin,
    ) -> anyhow::Result<Vec<String>> {
        let at = standin.addresses().first().context("the stand-in listens nowhere")?;
        self.write(CONFIG, &format!("upstreams: [\"{at}\"]\n"))?;
        let authority = self.write("authority.pem", standin.certificate())?;
        let (policy, authority) = (policy.display().to_string(), authority.display().to_string());
        let pin = format!("{host}={at}");
        let flags = ["--policy", &policy, "--pin", &pin, "--trust", &authority];
        Ok(flags.map(str::to_owned).to_vec())
    }

    /// `sluice` with these words.
    pub fn command<'w>(&self, words: impl IntoIterator<Item = &'w str>) -> Command {
        let mut command = Command::new(&self.program);
        let ours = |name: &str| name.starts_with("SLUICE_") && !name.ends_with("_PROGRAM");
        for (name, _) in env::vars().filter(|(name, _)| ours(name)) {
            command.env_remove(name);
        }
        command
            .args(words)
            .current_dir(self.project())
            .env("XDG_STATE_HOME", &self.state)
            // Engines have their own settings where ours are, and keep them.
            .env("SLUICE_CONFIG", self.folder.join(CONFIG))
            .envs(self.attach.map(|attach| ("SLUICE_ATTACH", attach.name())))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A server that is `host`, where gateways of `backend` see this machine.
    pub async fn stand_in(&self, backend: &dyn Backend, host: &str) -> anyhow::Result<Standin> {
        let usual = || backend.abilities().usual_attachment();
        let here = backend.host_address(self.attach.unwrap_or_else(usual)).await?;
        let standin = Setup::new(SocketAddr::new(here, 0), &[host]).start().await;
        let cannot = || format!("cannot serve at {here}, where the gateway sees this machine");
        standin.with_context(cannot)
    }

    /// The runs that were started by us, whatever came of them.
    pub fn runs(&self) -> Vec<RunId> {
        let runs = fs::read_dir(self.state.join("sluice/runs")).into_iter().flatten().flatten();
        runs.filter_map(|run| RunId::parse(run.file_name().to_str()?).ok()).collect()
    }

    /// `sluice run` of `inside`, ready to be started.
    pub fn run_command(&self, flags: &[String], inside: &[String]) -> Command {
        let mut words = vec!["run", "-o", "json", "--probe", "--backend", self.backend];
        if let Some(image) = &self.image {
            words.extend(["--image", image]);
        }
        words.extend(flags.iter().map(String::as_str));
        words.push("--");
        words.extend(inside.iter().map(String::as_str));
        self.command(words)
    }

    /// `sluice run` of `inside`, to its end.
    pub fn run(&self, flags: &[String], inside: &[String]) -> anyhow::Result<Ran> {
        let output = self.run_command(flags, inside).output().context("cannot start `sluice`")?;
        let record: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let run = record.get("run").and_then(Value::as_str);
        Ok(Ran {
            code: output.status.code().unwrap_or(-1),
            evidence: run.map(|run| self.state.join("sluice/runs").join(run)),
            said: String::from_utf8_lossy(&output.stderr).into_owned(),
            record,
        })
    }
}

impl Drop for SelfInvocation {
    fn drop(&mut self) {
        // What a sandbox wrote into an overlay may be another user's; then it
        // stays for root, as the evidence of any run does.
        drop(fs::remove_dir_all(&self.folder));
    }
}

impl Ran {
    /// The kind of the outcome; nothing if there was no whole run.
    pub fn outcome(&self) -> Option<&str> {
        self.record.get("outcome")?.get("kind")?.as_str()
    }

    /// The lines that are JSON of this kind.
    pub fn lines<T: serde::de::DeserializeOwned>(&self) -> Vec<T> {
        let lines = self.said.lines().filter(|line| line.starts_with('{'));
        lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Why it did not work, as Sluice said it.
    pub fn why(&self) -> String {
        let recorded = self.record.get("error").and_then(Value::as_str);
        // Without a run there is no record: then the last that was said is the error.
        let said = || self.said.lines().rfind(|line| !line.starts_with('{'));
        recorded.or_else(said).unwrap_or("it said nothing").trim().to_owned()
    }
}

/// The program that tries a sandbox, with these words.
pub fn probe(words: &[&str]) -> Vec<String> {
    let program = std::iter::once("/run/sluice/probe");
    program.chain(words.iter().copied()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engines_own_settings_are_left_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let invocation = SelfInvocation {
            program: "sluice".into(),
            folder: folder.path().join("gone with it"),
            state: folder.path().into(),
            backend: "podman",
            attach: None,
            image: None,
        };
        let command = invocation.command(["run"]);
        let set: Vec<_> =
            command.get_envs().filter_map(|(name, to)| to.and(name.to_str())).collect();
        assert_eq!(set, ["SLUICE_CONFIG", "XDG_STATE_HOME"]);
    }
}
