//! The promise of the trust kit, judged by the tools it is made for.
//!
//! Three servers on loopback show minted leaves. Each tool gets the kit and the
//! variables a sandbox would get, and must fetch a page from the first: its leaf
//! is good. It must refuse the second, whose leaf is another authority's, and
//! the third, whose leaf is for another host: a tool that accepts everything
//! would prove nothing.
//!
//! A tool that is not installed is skipped in public; see [`tool`].

#![expect(clippy::indexing_slicing, reason = "this whole program is a test")]
#![expect(clippy::unwrap_used, reason = "this whole program is a test")]

mod server;
#[path = "../../../tests/src/skip.rs"]
mod skip;
mod tool;

use std::path::Path;
use std::sync::Arc;

use certs::variables::{self, KitPaths};
use certs::{CertificateAuthority, Lifetime, Roots, TrustKit};
use tempfile::TempDir;

use crate::server::{COMMIT, PAGE, Server};
use crate::skip::is_installed;
use crate::tool::{Outcome, Tool, is_importable};

#[test]
fn curl_trusts_the_gateway_by_its_variables() {
    if !is_installed("curl") {
        return;
    }
    World::new().judge(PAGE, |world, port| {
        world.tool("curl").args(["--silent", "--show-error", &url(port)]).run()
    });
}

#[test]
fn curl_trusts_the_gateway_by_the_authority_alone() {
    if !is_installed("curl") {
        return;
    }
    World::new().judge(PAGE, |world, port| {
        Tool::new("curl", world.home())
            .args(["--silent", "--show-error", "--cacert"])
            .args([&world.kit.ca])
            .args([url(port)])
            .run()
    });
}

#[test]
fn openssl_trusts_the_gateway_in_strict_mode() {
    if !is_installed("openssl") {
        return;
    }
    World::new().judge(PAGE, |world, port| {
        world
            .tool("openssl")
            .args(["s_client", "-quiet", "-verify_return_error", "-x509_strict"])
            .args(["-verify_hostname", "localhost", "-servername", "localhost"])
            .args(["-connect", &format!("localhost:{port}")])
            .run_with("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    });
}

#[test]
fn python_trusts_the_gateway_in_strict_mode() {
    if !is_installed("python3") {
        return;
    }
    World::new().judge(PAGE, |world, port| {
        let script = "import ssl, sys, urllib.request\n\
            context = ssl.create_default_context()\n\
            context.verify_flags |= ssl.VERIFY_X509_STRICT\n\
            print(urllib.request.urlopen(sys.argv[1], context=context).read().decode())\n";
        world.tool("python3").args(["-c", script, &url(port)]).run()
    });
}

#[test]
fn requests_trusts_the_gateway() {
    python_module_trusts_the_gateway("requests");
}

#[test]
fn httpx_trusts_the_gateway() {
    python_module_trusts_the_gateway("httpx");
}

/// Pip finds no package in a page that is not an index, and says so: it is the
/// request that counts.
#[test]
fn pip_trusts_the_gateway() {
    let world = World::new();
    if !is_importable("pip", world.home()) {
        return;
    }
    let ask = |port: u16| {
        world
            .tool("python3")
            .args(["-m", "pip", "download", "--no-deps", "--retries", "0"])
            .args(["--disable-pip-version-check", "--no-cache-dir", "--index-url", &url(port)])
            .args(["sluice-has-no-such-package"])
            .run()
    };
    let answered = ask(world.good.port());
    assert!(world.good.requests() > 0, "{}", answered.said);
    for server in [&world.foreign, &world.misnamed] {
        let refused = ask(server.port());
        assert!(!refused.success && refused.said.contains("SSL"), "{}", refused.said);
        assert_eq!(server.requests(), 0, "{}", refused.said);
    }
}

#[test]
fn node_trusts_the_gateway() {
    if !is_installed("node") {
        return;
    }
    World::new().judge(PAGE, |world, port| {
        let script = "fetch(process.argv[1]).then(r => r.text()).then(console.log)\
            .catch(e => { console.error(e.cause ?? e); process.exit(1) })";
        world.tool("node").args(["-e", script, &url(port)]).run()
    });
}

#[test]
fn git_trusts_the_gateway() {
    if !is_installed("git") {
        return;
    }
    World::new().judge(COMMIT, |world, port| {
        world.tool("git").args(["ls-remote", &format!("{}repo", url(port))]).run()
    });
}

#[test]
fn java_trusts_the_gateway_by_the_trust_store() {
    if !is_installed("java") {
        return;
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_tools/Fetch.java");
    World::new()
        .judge(PAGE, |world, port| world.tool("java").args([&program]).args([url(port)]).run());
}

#[test]
fn keytool_lists_the_trust_store_and_refuses_another_password() {
    if !is_installed("keytool") {
        return;
    }
    let world = World::new();
    let list = |password: &str| {
        Tool::new("keytool", world.home())
            .args(["-list", "-storetype", "PKCS12", "-storepass", password, "-keystore"])
            .args([&world.kit.truststore])
            .run()
    };
    let listed = list("changeit");
    assert!(listed.success, "{}", listed.said);
    assert!(listed.said.contains("\nsluice, "), "{}", listed.said);
    // Every root of the bundle, each as something Java trusts.
    let entries = listed.said.matches("trustedCertEntry").count();
    assert_eq!(entries, world.bundled(), "{}", listed.said);

    // Java releases differ in how they put it.
    let refused = list("changed");
    let why = ["password was incorrect", "Integrity check failed"];
    assert!(!refused.success, "{}", refused.said);
    assert!(why.iter().any(|why| refused.said.contains(why)), "{}", refused.said);
}

#[test]
fn openssl_reads_the_trust_store_and_refuses_another_password() {
    if !is_installed("openssl") {
        return;
    }
    let world = World::new();
    let read = |password: &str| {
        Tool::new("openssl", world.home())
            .args(["pkcs12", "-nokeys", "-passin", &format!("pass:{password}"), "-in"])
            .args([&world.kit.truststore])
            .run()
    };
    let listed = read("changeit");
    assert!(listed.success, "{}", listed.said);
    assert_eq!(listed.said.matches("BEGIN CERTIFICATE").count(), world.bundled());

    let refused = read("changed");
    assert!(!refused.success && refused.said.contains("Mac verify error"), "{}", refused.said);
}

/// It reads no variable, so a sandbox covers the distribution's bundle; here it
/// is told.
#[test]
fn wget_trusts_the_gateway() {
    if !is_installed("wget") {
        return;
    }
    World::new().judge(PAGE, |world, port| {
        let bundle = format!("--ca-certificate={}", world.kit.bundle.display());
        world.tool("wget").args(["--tries=1", "--quiet", "-O", "-", &bundle, &url(port)]).run()
    });
}

#[test]
fn gnutls_trusts_the_gateway() {
    if !is_installed("gnutls-cli") {
        return;
    }
    World::new().judge(PAGE, |world, port| {
        let bundle = format!("--x509cafile={}", world.kit.bundle.display());
        world
            .tool("gnutls-cli")
            .args([&bundle, &format!("--port={port}"), "localhost"])
            .run_with("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    });
}

fn python_module_trusts_the_gateway(module: &str) {
    let world = World::new();
    if !is_importable(module, world.home()) {
        return;
    }
    world.judge(PAGE, |world, port| {
        let script = format!("import sys, {module}\nprint({module}.get(sys.argv[1]).text)\n");
        world.tool("python3").args(["-c", &script, &url(port)]).run()
    });
}

fn url(port: u16) -> String {
    format!("https://localhost:{port}/")
}

/// A kit, and the servers it should and should not make a tool trust.
struct World {
    home: TempDir,
    kit: TrustKit,
    good: Server,
    foreign: Server,
    misnamed: Server,
}

impl World {
    fn new() -> Self {
        let home = TempDir::new().unwrap();
        let ours =
            Arc::new(CertificateAuthority::in_memory("real-tools", Lifetime::default()).unwrap());
        let other =
            Arc::new(CertificateAuthority::in_memory("other", Lifetime::default()).unwrap());
        let kit = TrustKit::write(&home.path().join("ca"), ours.certificate(), &Roots::default());
        Self {
            kit: kit.unwrap(),
            good: Server::start(&ours, "localhost"),
            foreign: Server::start(&other, "localhost"),
            misnamed: Server::start(&ours, "elsewhere.test"),
            home,
        }
    }

    fn home(&self) -> &Path {
        self.home.path()
    }

    /// A tool in the environment that a sandbox without a proxy gives it.
    fn tool(&self, program: &str) -> Tool {
        let places = KitPaths::under(self.kit.ca.parent().unwrap());
        Tool::new(program, self.home()).envs(&variables::environment(&places, None).set)
    }

    /// How many certificates the bundle has.
    fn bundled(&self) -> usize {
        std::fs::read_to_string(&self.kit.bundle).unwrap().matches("BEGIN CERTIFICATE").count()
    }

    /// `fetch` must print `expected` from the good server, and neither succeed
    /// nor send a request to the others.
    #[track_caller]
    fn judge(&self, expected: &str, fetch: impl Fn(&Self, u16) -> Outcome) {
        let fetched = fetch(self, self.good.port());
        assert!(fetched.success && fetched.said.contains(expected), "{}", fetched.said);
        for (server, fault) in
            [(&self.foreign, "of another authority"), (&self.misnamed, "for another host")]
        {
            let refused = fetch(self, server.port());
            assert!(!refused.success, "accepted a leaf {fault}: {}", refused.said);
            assert_eq!(server.requests(), 0, "sent a request to a leaf {fault}: {}", refused.said);
        }
    }
}
