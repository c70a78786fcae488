//! The variables that point a sandbox's tools at the gateway and the trust kit.
//!
//! Capture works without them; they are a courtesy to tools that would rather
//! ask a proxy, and a necessity for tools that carry their own roots. No tool
//! reads all of them and none can be left out: `requests` ignores
//! `SSL_CERT_FILE`, `httpx` ignores `REQUESTS_CA_BUNDLE`, Node ignores both.
//!
//! The distinction that matters is [`VariableKind`]. A variable that *replaces* what a
//! tool trusts gets the full bundle, one that *appends* gets our authority
//! alone. Given the wrong one, the tool either trusts too little or reads two
//! hundred roots it has already.
//!
//! The trust variables do not depend on the proxy: a sandbox without a proxy
//! variable is still behind the gateway and must still trust it.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::pkcs12::PASSWORD;
use crate::trust_kit::TrustKit;

/// The environment for a sandbox that has none of these set.
pub fn environment(places: &KitPaths, proxy: Option<&Proxy>) -> TrustVariables {
    environment_beside(places, proxy, |_| false)
}

/// The same, beside variables that a person has `chosen` for the sandbox.
///
/// Those are left alone and reported: overwriting what somebody wrote is worse
/// than a tool that fails for a reason we can name.
pub fn environment_beside(
    places: &KitPaths,
    proxy: Option<&Proxy>,
    chosen: impl Fn(&str) -> bool,
) -> TrustVariables {
    let mut environment = TrustVariables::default();
    for variable in TABLE {
        let Some(ours) = variable.template.fill(places, proxy) else { continue };
        if chosen(variable.name) {
            environment.keep(variable, ours);
        } else {
            environment.add(variable.name, ours);
        }
    }
    environment.unset = UNSET.iter().copied().filter(|name| !chosen(name)).collect();
    environment
}

/// What to do to a sandbox's environment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TrustVariables {
    pub set: Vec<(&'static str, String)>,
    /// To be removed where the image sets them.
    pub unset: Vec<&'static str>,
    /// Left as somebody chose them; to be reported.
    pub kept: Vec<KeptVariable>,
}

impl TrustVariables {
    /// A name may have several lines in the table; what they say is joined.
    fn add(&mut self, name: &'static str, value: String) {
        match self.set.iter_mut().find(|(set, _)| *set == name) {
            Some((_, before)) => *before = format!("{before} {value}"),
            None => self.set.push((name, value)),
        }
    }

    fn keep(&mut self, variable: &ToolVariable, ours: String) {
        match self.kept.iter_mut().find(|kept| kept.name == variable.name) {
            Some(kept) => kept.ours = format!("{} {ours}", kept.ours),
            None => {
                let ToolVariable { name, read_by, .. } = variable;
                self.kept.push(KeptVariable { name, read_by, ours });
            }
        }
    }
}

/// A variable that was chosen by somebody else.
///
/// It prints what we would have set and not what was found: a proxy's address
/// may have a password in it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "`{name}` is already set and was left alone; if {read_by} cannot connect, set it to `{ours}`"
)]
pub struct KeptVariable {
    pub name: &'static str,
    pub read_by: &'static str,
    pub ours: String,
}

/// One line of the table: a variable, what we put there, and who reads it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ToolVariable {
    pub name: &'static str,
    pub kind: VariableKind,
    pub template: Template,
    pub read_by: &'static str,
}

/// What a variable does to the tool that reads it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VariableKind {
    /// Adds to what the tool trusts: our authority alone.
    Append,
    /// Says where the proxy is, or where not to use it.
    Proxy,
    /// Replaces what the tool trusts: the full bundle.
    Replace,
    /// Names a trust store that is not a PEM file.
    Store,
    /// Turns on something the tool has and does not use by itself.
    Switch,
}

/// What a variable's value is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Template {
    BundlePath,
    CaPath,
    JavaProxy,
    JavaTrust,
    Literal(&'static str),
    /// A literal that makes sense only with a proxy.
    ProxyLiteral(&'static str),
    ProxyUrl,
}

impl Template {
    fn fill(self, places: &KitPaths, proxy: Option<&Proxy>) -> Option<String> {
        match self {
            Self::BundlePath => Some(places.bundle.display().to_string()),
            Self::CaPath => Some(places.ca.display().to_string()),
            Self::JavaProxy => proxy.map(Proxy::java_options),
            Self::JavaTrust => Some(places.java_options()),
            Self::Literal(text) => Some(text.to_owned()),
            Self::ProxyLiteral(text) => proxy.map(|_| text.to_owned()),
            Self::ProxyUrl => proxy.map(Proxy::to_string),
        }
    }
}

/// Where the kit's files are, as the sandbox sees them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KitPaths {
    pub ca: PathBuf,
    pub bundle: PathBuf,
    pub truststore: PathBuf,
}

impl KitPaths {
    /// A kit mounted at `directory`.
    pub fn under(directory: impl AsRef<Path>) -> Self {
        let directory = directory.as_ref();
        Self {
            ca: directory.join(TrustKit::CA),
            bundle: directory.join(TrustKit::BUNDLE),
            truststore: directory.join(TrustKit::TRUSTSTORE),
        }
    }

    fn java_options(&self) -> String {
        format!(
            "-Djavax.net.ssl.trustStore={} -Djavax.net.ssl.trustStoreType=PKCS12 \
             -Djavax.net.ssl.trustStorePassword={PASSWORD}",
            self.truststore.display()
        )
    }
}

/// The gateway's explicit proxy, as the sandbox sees it. Prints as its URL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Proxy {
    pub host: String,
    pub port: u16,
}

impl Proxy {
    fn java_options(&self) -> String {
        let Self { host, port } = self;
        format!(
            "-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} -Dhttps.proxyHost={host} \
             -Dhttps.proxyPort={port} -Dhttp.nonProxyHosts=localhost|127.*"
        )
    }
}

impl fmt::Display for Proxy {
    /// `http`, also for what carries `https`: the hop to the proxy is plain.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match host.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => write!(f, "http://[{address}]:{port}"),
            Ok(IpAddr::V4(_)) | Err(_) => write!(f, "http://{host}:{port}"),
        }
    }
}

/// Both spellings of the proxy variables are there because curl reads only the
/// lower-case `http_proxy` and several tools read only the upper-case ones.
pub const TABLE: &[ToolVariable] = &[
    proxy("http_proxy", "curl, wget, Go, Python, Ruby, git and apt"),
    proxy("HTTP_PROXY", "curl, wget, Go, Python, Ruby, git and apt"),
    proxy("https_proxy", "curl, wget, Go, Python, Ruby, git and apt"),
    proxy("HTTPS_PROXY", "curl, wget, Go, Python, Ruby, git and apt"),
    proxy("all_proxy", "curl and some Rust and Go tools"),
    proxy("ALL_PROXY", "curl and some Rust and Go tools"),
    line("no_proxy", VariableKind::Proxy, Template::ProxyLiteral(NO_PROXY), "all of these"),
    line("NO_PROXY", VariableKind::Proxy, Template::ProxyLiteral(NO_PROXY), "all of these"),
    proxy("npm_config_proxy", "npm"),
    proxy("npm_config_https_proxy", "npm"),
    // Without it corepack and pnpm find no network at all.
    line(
        "NODE_USE_ENV_PROXY",
        VariableKind::Switch,
        Template::ProxyLiteral("1"),
        "Node 24, corepack and pnpm",
    ),
    line(
        "JAVA_TOOL_OPTIONS",
        VariableKind::Proxy,
        Template::JavaProxy,
        "the JVM, Maven and Gradle",
    ),
    line(
        "JAVA_TOOL_OPTIONS",
        VariableKind::Store,
        Template::JavaTrust,
        "the JVM, Maven and Gradle",
    ),
    append("CODEX_CA_CERTIFICATE", "Codex CLI"),
    append("DENO_CERT", "Deno"),
    append("NODE_EXTRA_CA_CERTS", "Node, npm, pnpm, yarn, Bun and Deno 2.8"),
    line("DENO_TLS_CA_STORE", VariableKind::Store, Template::Literal("system,mozilla"), "Deno"),
    line("NODE_USE_SYSTEM_CA", VariableKind::Switch, Template::Literal("1"), "Node 22 and Bun"),
    line("UV_SYSTEM_CERTS", VariableKind::Switch, Template::Literal("true"), "uv 0.11"),
    replace("AWS_CA_BUNDLE", "the AWS CLI and SDKs"),
    replace("BUNDLE_SSL_CA_CERT", "Bundler"),
    replace("CARGO_HTTP_CAINFO", "cargo"),
    replace("CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "gcloud"),
    replace("COMPOSER_CAFILE", "Composer"),
    replace("CONDA_SSL_VERIFY", "conda"),
    replace("CURL_CA_BUNDLE", "curl and Python requests"),
    replace("GIT_SSL_CAINFO", "git"),
    replace("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "gRPC in C++, Python and Ruby"),
    replace("HEX_CACERTS_PATH", "Mix and Hex"),
    replace("NIX_SSL_CERT_FILE", "Nix"),
    replace("PIP_CERT", "pip"),
    replace("REQUESTS_CA_BUNDLE", "Python requests, pip and the Azure CLI"),
    replace("SSL_CERT_FILE", "OpenSSL, Go, Ruby, .NET, uv, httpx and rustls programs"),
    replace("YARN_HTTPS_CA_FILE_PATH", "Yarn"),
    replace("npm_config_cafile", "npm"),
];

/// With `SSL_CERT_FILE` set, a directory would bring back what it replaces.
pub const UNSET: &[&str] = &["SSL_CERT_DIR"];

/// Every further entry would be a direct route, which there is not. No spaces,
/// ranges or stars: tools disagree about them.
const NO_PROXY: &str = "localhost,127.0.0.1,::1";

const fn line(
    name: &'static str,
    kind: VariableKind,
    template: Template,
    read_by: &'static str,
) -> ToolVariable {
    ToolVariable { name, kind, template, read_by }
}

const fn append(name: &'static str, read_by: &'static str) -> ToolVariable {
    line(name, VariableKind::Append, Template::CaPath, read_by)
}

const fn proxy(name: &'static str, read_by: &'static str) -> ToolVariable {
    line(name, VariableKind::Proxy, Template::ProxyUrl, read_by)
}

const fn replace(name: &'static str, read_by: &'static str) -> ToolVariable {
    line(name, VariableKind::Replace, Template::BundlePath, read_by)
}

#[cfg(test)]
mod tests;
