//! What would run, without running it: `--check`.

use std::fmt;

use policies::{Mode, Policy};

use crate::config::{Ca, Config, Door};
use crate::dial::{Dialer, NameServers};
use crate::policy_file::{PolicyFile, ReadPolicy};
use crate::selfcheck;
use crate::server::StartError;

/// Settings and policy that can be served, for a person to read.
#[derive(Debug)]
pub struct CheckReport(Vec<(&'static str, String)>);

/// Checks everything that can be without opening a socket or writing a file.
pub fn check(config: &Config) -> Result<CheckReport, StartError> {
    selfcheck::check(config.topology)?;
    let file = PolicyFile::new(config);
    let ReadPolicy { policy, hash } = file.read()?;
    // Reads the roots and the resolver's configuration.
    Dialer::new(config.upstream.clone())?;

    let mut lines = vec![
        ("run", config.run.clone()),
        ("policy", format!("{} ({})", policy.name, config.policy.display())),
        ("", format!("{}, sha256 {hash}", rules(&policy))),
        ("topology", config.topology.to_string()),
    ];
    let listen = &config.listen;
    for (way, doors) in [
        ("proxy", &listen.proxy),
        ("socks", &listen.socks),
        ("http", &listen.http),
        ("https", &listen.https),
        ("dns", &listen.dns),
    ] {
        if !doors.is_empty() {
            let doors: Vec<String> = doors.iter().map(Door::to_string).collect();
            lines.push((way, doors.join(", ")));
        }
    }
    lines.push(("control", config.control.display().to_string()));
    lines.push(("audit", config.audit.display().to_string()));
    lines.push(("ca", ca(&config.ca)));
    if let Some(kit) = &config.trust_kit {
        lines.push(("trust kit", kit.display().to_string()));
    }
    lines.extend(upstream(config));
    if !policy.net.enabled {
        lines.push(("note", "the policy turns the network off: everything is refused".to_owned()));
    }
    Ok(CheckReport(lines))
}

fn rules(policy: &Policy) -> String {
    let count = match policy.rules().count() {
        1 => "1 rule".to_owned(),
        count => format!("{count} rules"),
    };
    match policy.net.mode {
        Mode::Enforce => count,
        Mode::Observe => format!("{count}, observing"),
    }
}

fn ca(ca: &Ca) -> String {
    match ca {
        Ca::Directory { path, .. } => path.display().to_string(),
        Ca::Memory { .. } => "in memory".to_owned(),
    }
}

fn upstream(config: &Config) -> Vec<(&'static str, String)> {
    let settings = &config.upstream;
    let mut roots = Vec::new();
    if settings.roots.bundled {
        roots.push("bundled".to_owned());
    }
    if settings.roots.system {
        roots.push("system".to_owned());
    }
    roots.extend(settings.roots.files.iter().map(|file| file.display().to_string()));
    let mut lines = vec![("roots", roots.join(", "))];
    let resolver = match &settings.resolver {
        NameServers::System => "system".to_owned(),
        NameServers::These(servers) => {
            let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
            servers.join(", ")
        }
    };
    lines.push(("resolver", resolver));
    let hosts = settings.hosts.names();
    if !hosts.is_empty() {
        lines.push(("pinned", hosts.join(", ")));
    }
    if let Some(proxy) = &settings.proxy {
        lines.push(("proxied", proxy.at.to_string()));
    }
    lines
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{name:<9} {value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies::Source;

    #[test]
    fn what_would_run_is_said_in_one_screen() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let policy = "version: 1\nname: agent\nnet: {enabled: true, allow: [a.test]}\n";
        std::fs::write(directory.path().join("p.yaml"), policy).expect("a file can be written");
        let text = "run: r\npolicy: p.yaml\nlisten: {proxy: 127.0.0.1:3128, dns: fd:3}\n\
                    control: c.sock\naudit: a\nupstream: {hosts: {a.test: 127.0.0.1}}\n";
        let config = crate::config::read(&Source::new("g.yaml", text), directory.path());
        let config = config.unwrap_or_else(|problems| panic!("{problems}"));
        let checked = check(&config).unwrap_or_else(|err| panic!("{err}")).to_string();
        let shown = checked.replace(&directory.path().display().to_string(), "DIR");
        expect_test::expect![[r#"
            run       r
            policy    agent (DIR/p.yaml)
                      1 rule, sha256 c56c01633e577dc731b944ca494d3559df00489f48a72c66854d0043032902c1
            topology  host
            proxy     127.0.0.1:3128
            dns       fd:3
            control   DIR/c.sock
            audit     DIR/a
            ca        in memory
            roots     bundled
            resolver  system
            pinned    a.test"#]].assert_eq(&shown);
        let left: Vec<_> = std::fs::read_dir(directory.path()).expect("it is there").collect();
        assert_eq!(left.len(), 1, "checking leaves nothing behind");
    }
}
