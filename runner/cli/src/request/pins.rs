//! What a person may pin.
//!
//! A pin sends a name to an address of the caller's choice, past the resolver and
//! past the check of what it answers. So a pin to an address that is not public
//! needs the same word as every other way there: `addresses` of the rule that
//! allows the name, or `upstreams` in the user's configuration. Loopback and
//! link-local addresses only the latter can permit, metadata services nothing.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use audit::Digest;
use engine::spec::{TrustedRoot, UpstreamPin};
use policies::{AddressClass, HostName, Policy};

use crate::exit::Failure;

/// Checks every pin; all that may not be is said at once.
pub(super) fn check(
    pins: &[(String, String)],
    upstreams: &[SocketAddr],
    policy: &Policy,
) -> Result<Vec<UpstreamPin>, Failure> {
    let refused: Vec<String> = pins
        .iter()
        .filter_map(|(name, address)| refusal(name, address, upstreams, policy))
        .collect();
    if !refused.is_empty() {
        return Err(Failure::Usage(refused.join("; ")));
    }
    let pin = |(name, address): &(String, String)| UpstreamPin {
        name: name.clone(),
        address: address.clone(),
    };
    Ok(pins.iter().map(pin).collect())
}

fn refusal(name: &str, written: &str, upstreams: &[SocketAddr], policy: &Policy) -> Option<String> {
    let (ip, port) = match written.parse::<SocketAddr>() {
        Ok(with_port) => (with_port.ip().to_canonical(), Some(with_port.port())),
        Err(_) => (written.parse::<IpAddr>().ok()?.to_canonical(), None),
    };
    let class = AddressClass::of(ip);
    if class == AddressClass::Public {
        return None;
    }
    let what = format!("`--pin {name}={written}` leads to a {class} address");
    if class == AddressClass::Metadata {
        return Some(format!("{what}, which nothing permits"));
    }
    // Without a port the pin is to all of them, which the configuration never permits.
    let configured = port.is_some_and(|port| upstreams.contains(&SocketAddr::new(ip, port)));
    if configured || policy_reaches(policy, name, ip) {
        return None;
    }
    let whole = SocketAddr::new(ip, port.unwrap_or(443));
    let port = match port {
        Some(_) => String::new(),
        None => format!("write its port, `--pin {name}={whole}`, and "),
    };
    Some(format!(
        "{what}; {port}permit it in your configuration, `upstreams: [\"{whole}\"]`{}",
        if class.is_never_dialled() { "" } else { ", or name it under `addresses` of the rule" }
    ))
}

/// Whether a rule that lets requests to `name` pass reaches `ip` too.
fn policy_reaches(policy: &Policy, name: &str, ip: IpAddr) -> bool {
    let Ok(name) = HostName::parse(name) else { return false };
    policy.reaches(&name, ip)
}

/// What is believed beside the usual roots, as it is now.
pub(super) fn trusted(files: &[PathBuf]) -> Result<Vec<TrustedRoot>, Failure> {
    let root = |file: &PathBuf| {
        let pem = read_regular(file)
            .map_err(|err| Failure::Usage(format!("cannot trust {}: {err}", file.display())))?;
        if !pem.windows(PEM.len()).any(|bytes| bytes == PEM) {
            return Err(Failure::Usage(format!(
                "cannot trust {}: it holds no PEM certificate",
                file.display()
            )));
        }
        Ok(TrustedRoot { file: file.clone(), sha256: Digest::of(&pem) })
    };
    files.iter().map(root).collect()
}

fn read_regular(file: &Path) -> std::io::Result<Vec<u8>> {
    // Opening a pipe would wait for its other end.
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    std::fs::read(file)
}

const PEM: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// What a person should see of it before the run.
pub(super) fn notes(pins: &[UpstreamPin], trusted: &[TrustedRoot]) -> impl Iterator<Item = String> {
    let pins =
        pins.iter().map(|UpstreamPin { name, address }| format!("{name} is pinned to {address}"));
    let roots = trusted.iter().map(|root| {
        format!("the gateway also believes the authorities in {}", root.file.display())
    });
    pins.chain(roots).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use policies::{NoFiles, Source};

    use super::*;

    fn told(pin: (&str, &str), upstreams: &[&str], policy: &str) -> String {
        let text = format!("version: 1\nnet: {{enabled: true, allow: [{policy}]}}\n");
        let policy = policies::read(&Source::new("p.yaml", text), &NoFiles).unwrap();
        let upstreams: Vec<_> = upstreams.iter().map(|at| at.parse().unwrap()).collect();
        let pins = [(pin.0.to_owned(), pin.1.to_owned())];
        check(&pins, &upstreams, &policy).map_or_else(|err| err.to_string(), |_| "fine".to_owned())
    }

    #[test]
    fn an_address_that_is_not_public_needs_a_word_for_it() {
        assert_eq!(told(("a.test", "93.184.215.14:443"), &[], "a.test"), "fine");
        for address in [
            "127.0.0.1:8443",
            "172.17.0.1:80",
            "[::1]:80",
            "169.254.1.1:80",
            "::ffff:127.0.0.1",
            "10.0.0.1",
        ] {
            let told = told(("a.test", address), &[], "a.test");
            assert!(
                told.contains("permit it in your configuration, `upstreams: ["),
                "{address}: {told}"
            );
        }
    }

    #[test]
    fn the_configuration_permits_one_address_and_port() {
        assert_eq!(told(("a.test", "127.0.0.1:8443"), &["127.0.0.1:8443"], "a.test"), "fine");
        assert_ne!(told(("a.test", "127.0.0.1:8444"), &["127.0.0.1:8443"], "a.test"), "fine");
        assert_ne!(told(("a.test", "127.0.0.2:8443"), &["127.0.0.1:8443"], "a.test"), "fine");
        assert_ne!(told(("a.test", "127.0.0.1"), &["127.0.0.1:443"], "a.test"), "fine");
    }

    #[test]
    fn a_rule_permits_the_addresses_it_names_for_its_own_host() {
        let rule = "{host: a.test, addresses: [10.0.0.0/8]}";
        assert_eq!(told(("a.test", "10.1.2.3:443"), &[], rule), "fine");
        assert_ne!(told(("b.test", "10.1.2.3:443"), &[], rule), "fine");
        assert_ne!(told(("a.test", "192.168.0.1:443"), &[], rule), "fine");
    }

    #[test]
    fn a_metadata_service_nothing_permits() {
        let told = told(("a.test", "169.254.169.254:80"), &["169.254.169.254:80"], "a.test");
        assert!(told.ends_with("which nothing permits"), "{told}");
    }
}
