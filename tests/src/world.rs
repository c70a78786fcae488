//! A gateway and everything around it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::mem;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::authority::Authority;
use crate::control::Control;
use crate::evidence::Evidence;
use crate::resolver::Resolver;
use crate::running::{self, Running};
use crate::sandbox::Sandbox;
use crate::upstream::{Plan, Upstream};

/// What the policy of a world allows when a test says nothing else: one host,
/// over both schemes.
pub const ONE_HOST: &str = "\
version: 1
net:
  enabled: true
  allow:
    - {name: allowed, host: allowed.test, methods: [GET, HEAD, POST, PUT]}
    - {name: allowed-plain, host: allowed.test, protocol: http, methods: [GET, HEAD, POST, PUT]}
";

/// A world being put together.
#[derive(Debug)]
#[must_use = "nothing runs before `start`"]
pub struct Setup {
    policy: String,
    upstreams: BTreeMap<String, Plan>,
    pins: Vec<(String, String)>,
    limits: String,
    extra: String,
    upstream_extra: String,
    roots: String,
    /// Files beside the settings.
    files: Vec<(String, String)>,
}

/// A gateway and everything around it.
#[derive(Debug)]
pub struct World {
    pub sandbox: Sandbox,
    pub control: Control,
    pub resolver: Resolver,
    pub audit: Evidence,
    upstreams: BTreeMap<String, Upstream>,
    running: Option<Running>,
    folder: TempDir,
}

impl World {
    /// `allowed.test` answers and is allowed; `evil.test` would answer too.
    #[expect(clippy::new_ret_no_self, reason = "a world begins with what is to be in it")]
    pub fn new() -> Setup {
        Setup {
            policy: ONE_HOST.to_owned(),
            upstreams: BTreeMap::from([
                ("allowed.test".to_owned(), Plan::echoing()),
                ("evil.test".to_owned(), Plan::echoing()),
            ]),
            pins: Vec::new(),
            limits: String::new(),
            extra: String::new(),
            upstream_extra: String::new(),
            roots: String::new(),
            files: Vec::new(),
        }
    }

    /// A world whose policy allows these entries.
    pub fn allowing(entries: &[&str]) -> Setup {
        Self::new().policy(&policy(entries))
    }

    pub fn upstream(&self, name: &str) -> &Upstream {
        &self.upstreams[name]
    }

    /// Where the gateway's files are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process the gateway runs in.
    pub fn pid(&self) -> u32 {
        self.running().pid()
    }

    /// Writes a new policy and has the gateway read it.
    pub async fn reload(&self, policy: &str) -> crate::Reply {
        fs::write(self.folder().join(POLICY), policy).unwrap();
        self.control.post("/reload", "").await
    }

    /// Asserts what "denied" means, for a client that has been told so: nobody
    /// was contacted and no name was asked for; the record says who was refused
    /// and why, once; and whoever is allowed still gets through. Returns the
    /// record.
    pub async fn assert_denied(&self, host: &str, code: &str) -> Value {
        self.assert_nobody_was_contacted();
        let record = self.audit.refused(host, code).await;
        self.assert_still_serves().await;
        record
    }

    /// Asserts that neither the attacker nor the resolver heard of anything.
    #[track_caller]
    pub fn assert_nobody_was_contacted(&self) {
        self.assert_nobody_was_contacted_but(&["allowed.test"]);
    }

    /// The same where a test has contacted others that are allowed.
    #[track_caller]
    pub fn assert_nobody_was_contacted_but(&self, allowed: &[&str]) {
        for (name, upstream) in &self.upstreams {
            if !allowed.contains(&name.as_str()) {
                upstream.assert_never_contacted();
            }
        }
        self.resolver.assert_never_asked();
    }

    /// Asserts that what is allowed still works.
    pub async fn assert_still_serves(&self) {
        let reply = self.sandbox.get("https://allowed.test/still-here").await;
        reply.assert_relayed(200);
    }

    /// Stops the gateway and asserts that its record is whole.
    pub async fn end(mut self) {
        let running = self.running.take().unwrap();
        running.stop().await;
        self.audit.assert_whole();
    }

    /// The same, and returns where its files are.
    pub async fn end_and_keep(mut self) -> TempDir {
        self.running.take().unwrap().stop().await;
        self.audit.assert_whole();
        mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }

    /// Stops the gateway without a look at its record, which the test broke.
    pub async fn end_broken(mut self) {
        self.running.take().unwrap().stop().await;
    }

    /// Stops the gateway while something goes on that it has to cut; its record
    /// must be whole all the same, and is returned.
    pub async fn end_cut(mut self) -> Vec<Value> {
        self.running.take().unwrap().stop().await;
        self.audit.assert_closed_once();
        self.audit.events()
    }

    /// Kills the program, and returns where its files are.
    pub async fn kill(mut self) -> TempDir {
        self.running.take().unwrap().kill().await;
        mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }

    fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.running.is_some() && !std::thread::panicking() {
            panic!("a test must `end` its world, where the record is checked");
        }
    }
}

impl Setup {
    /// The policy's whole text.
    pub fn policy(mut self, text: &str) -> Self {
        text.clone_into(&mut self.policy);
        self
    }

    /// An upstream that the gateway finds under `name`.
    pub fn upstream(mut self, name: &str, plan: Plan) -> Self {
        self.upstreams.insert(name.to_owned(), plan);
        self
    }

    /// Where the operator says that a name lives.
    pub fn pin(mut self, name: &str, at: impl ToString) -> Self {
        self.pins.push((name.to_owned(), at.to_string()));
        self
    }

    /// The settings' `limits`, in flow style without its braces.
    pub fn limits(mut self, limits: &str) -> Self {
        limits.clone_into(&mut self.limits);
        self
    }

    /// More settings.
    pub fn settings(mut self, yaml: &str) -> Self {
        writeln!(self.extra, "{yaml}").unwrap();
        self
    }

    /// More of the settings' `upstream`, each line indented by two.
    pub fn upstream_settings(mut self, yaml: &str) -> Self {
        writeln!(self.upstream_extra, "{yaml}").unwrap();
        self
    }

    /// One more file with authorities that vouch for upstreams.
    pub fn root(mut self, file: &str) -> Self {
        self.roots.push_str(", ");
        self.roots.push_str(file);
        self
    }

    /// A file beside the settings.
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Starts everything, the gateway in this process.
    pub async fn start(self) -> World {
        self.start_as(Running::in_process).await
    }

    /// Starts everything, the gateway as the program that ships.
    pub async fn start_program(self) -> World {
        self.start_as(Running::program).await
    }

    /// The same, begun by a shell after `before`.
    pub async fn start_program_after(self, before: &str) -> World {
        let before = before.to_owned();
        self.start_as(|settings, control| Running::program_after(before, settings, control)).await
    }

    /// Starts the program with this text for a policy, or with none, and returns
    /// what it said when it ended.
    pub async fn start_without_policy(self, policy: Option<&str>) -> String {
        let owner_only = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().permissions(owner_only).tempdir().unwrap();
        let nobody = ([127, 0, 0, 1], 9).into();
        let settings = self.write(folder.path(), &Authority::new(), nobody, &BTreeMap::default());
        match policy {
            Some(text) => fs::write(folder.path().join(POLICY), text).unwrap(),
            None => fs::remove_file(folder.path().join(POLICY)).unwrap(),
        }
        running::refuses_to_start(&settings).await
    }

    async fn start_as<F>(self, start: impl FnOnce(PathBuf, Control) -> F) -> World
    where
        F: Future<Output = Running>,
    {
        // The gateway wants its control socket where nobody else can enter.
        let owner_only = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().permissions(owner_only).tempdir().unwrap();
        let authority = Authority::new();
        let resolver = Resolver::start().await;
        let mut upstreams = BTreeMap::new();
        for (name, plan) in &self.upstreams {
            let upstream = plan.clone().start(name, &authority).await;
            upstreams.insert(name.clone(), upstream);
        }
        let settings = self.write(folder.path(), &authority, resolver.at, &upstreams);
        let control = Control { socket: folder.path().join("control.sock") };
        let running = start(settings, control.clone()).await;
        let ca = control.get("/ca.pem").await;
        assert_eq!(ca.status, 200, "{}", ca.text());
        World {
            sandbox: Sandbox::new(running.doors().clone(), &ca.text()),
            control,
            resolver,
            audit: Evidence::new(folder.path().join("audit")),
            upstreams,
            running: Some(running),
            folder,
        }
    }

    /// Writes the gateway's files and returns where its settings are.
    fn write(
        &self,
        folder: &Path,
        authority: &Authority,
        resolver: SocketAddr,
        upstreams: &BTreeMap<String, Upstream>,
    ) -> PathBuf {
        let Self { policy, pins, limits, extra, upstream_extra, roots, .. } = self;
        // Nobody waits long for what a test left open.
        let drain = if limits.contains("drain") { "" } else { "drain: 2s, " };
        let mut hosts = String::from("  hosts:\n    nobody.test: 127.0.0.1:9\n");
        for upstream in upstreams.values() {
            writeln!(hosts, "    {}: {}", upstream.name, upstream.at).unwrap();
        }
        for (name, at) in pins {
            writeln!(hosts, "    {name}: \"{at}\"").unwrap();
        }
        let yaml = format!(
            "run: world\npolicy: {POLICY}\ncontrol: control.sock\naudit: audit\n\
             listen:\n  proxy: 127.0.0.1:0\n  socks: 127.0.0.1:0\n  http: 127.0.0.1:0\n  \
             https: 127.0.0.1:0\n  dns: 127.0.0.1:0\n\
             limits: {{{drain}{limits}}}\n{extra}\
             upstream:\n  roots: {{bundled: false, system: false, files: [upstreams.pem{roots}]}}\n  \
             resolver: [\"{resolver}\"]\n{upstream_extra}{hosts}"
        );
        for (name, text) in &self.files {
            fs::write(folder.join(name), text).unwrap();
        }
        fs::write(folder.join("upstreams.pem"), authority.pem()).unwrap();
        fs::write(folder.join(POLICY), policy).unwrap();
        let settings = folder.join("gateway.yaml");
        fs::write(&settings, yaml).unwrap();
        settings
    }
}

/// A policy that allows these entries.
pub fn policy(entries: &[&str]) -> String {
    let mut text = "version: 1\nnet:\n  enabled: true\n  allow:\n".to_owned();
    for entry in entries {
        writeln!(text, "    - {entry}").unwrap();
    }
    text
}

const POLICY: &str = "sandbox.policy.yaml";
