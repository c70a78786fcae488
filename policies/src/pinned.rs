//! Whether a rule reaches an address that somebody pinned its host to.

use std::net::{IpAddr, SocketAddr};

use crate::authority::Host;
use crate::host::HostName;
use crate::policy::Policy;
use crate::verdict::Verdict;

impl Policy {
    /// Whether some rule that lets requests to `name` pass may dial `address`.
    pub fn reaches(&self, name: &HostName, address: IpAddr) -> bool {
        let host = Host::Name(name.clone());
        self.rules().filter(|rule| rule.verdict != Verdict::Deny).any(|rule| {
            rule.shapes.iter().any(|shape| shape.host.matches(&host))
                && rule.reach().check(SocketAddr::new(address, 443)).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{HostName, NoFiles, Source, read};

    #[test]
    fn an_address_is_reached_by_a_rule_for_the_name_that_may_dial_it() {
        let text = "version: 1
net:
  allow: [{host: inner.test, addresses: [10.1.0.0/16]}, public.test]
  ask: [{host: '*.asked.test', addresses: [10.2.0.0/16]}]
  deny: [denied.test]
";
        let policy = read(&Source::new("p", text), &NoFiles).unwrap();
        for (name, address, reached) in [
            ("inner.test", "10.1.0.1", true),
            ("inner.test", "10.2.0.1", false),
            ("a.asked.test", "10.2.0.1", true),
            ("public.test", "10.1.0.1", false),
            ("public.test", "203.0.114.9", true),
            ("denied.test", "203.0.114.9", false),
            ("other.test", "203.0.114.9", false),
        ] {
            let name = HostName::parse(name).unwrap();
            assert_eq!(
                policy.reaches(&name, address.parse().unwrap()),
                reached,
                "{name} {address}"
            );
        }
    }
}
