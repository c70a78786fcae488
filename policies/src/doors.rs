//! Which doors a sandbox needs so that its programs reach what policy names.
//!
//! A program that knows nothing of proxies connects to an address and a port. For
//! ports 80 and 443 there is always a door. Here are the others: a port for each
//! that a rule writes out, where the name is in what the client says (TLS, HTTP);
//! and an address for each host of a `tcp` rule, because a client of such a
//! protocol says no name, so that the address must stand for it.
//!
//! A door allows nothing: whoever comes in there is judged like everyone else.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::HostName;
use crate::host_pattern::HostPattern;
use crate::policy::Policy;
use crate::rule::{Carries, PortSet, Shape};
use crate::verdict::Verdict;

/// The doors that a policy's rules ask for, beside those for ports 80 and 443.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PolicyDoors {
    /// Ports of rules about TLS and HTTP, sorted.
    pub ports: Vec<u16>,
    /// Hosts of `tcp` rules, sorted by name. Each needs an address of its own.
    pub tcp: Vec<NamedHost>,
}

/// A host that a `tcp` rule writes out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NamedHost {
    pub host: HostName,
    /// Sorted; at least one.
    pub ports: Vec<u16>,
}

impl PolicyDoors {
    /// How many sockets that takes.
    pub fn count(&self) -> usize {
        self.ports.len() + self.tcp.iter().map(|named| named.ports.len()).sum::<usize>()
    }
}

impl Policy {
    /// The doors that rules ask for that let something pass, now or once a person
    /// is asked. The same policy gives the same doors in the same order.
    pub fn doors(&self) -> PolicyDoors {
        let mut ports = BTreeSet::new();
        let mut tcp: BTreeMap<&HostName, BTreeSet<u16>> = BTreeMap::new();
        let rules = self.rules().filter(|rule| rule.verdict != Verdict::Deny);
        for shape in rules.flat_map(|rule| &rule.shapes) {
            match (shape.carries, &shape.host) {
                (Carries::Tcp, HostPattern::Exact(name)) => {
                    tcp.entry(name).or_default().extend(written_ports(shape));
                }
                // An address has no name to be looked up, and for a wildcard there is
                // no end of them.
                (Carries::Tcp, HostPattern::Address(_) | HostPattern::Wildcard(_)) => {}
                (Carries::Anything | Carries::Http | Carries::Https | Carries::Passthrough, _) => {
                    ports.extend(written_ports(shape))
                }
            }
        }
        ports.retain(|port| !ALWAYS_THERE.contains(port));
        let named = |(host, ports): (&HostName, BTreeSet<u16>)| NamedHost {
            host: host.clone(),
            ports: ports.into_iter().collect(),
        };
        PolicyDoors {
            ports: ports.into_iter().collect(),
            tcp: tcp.into_iter().map(named).collect(),
        }
    }
}

fn written_ports(shape: &Shape) -> impl Iterator<Item = u16> {
    let ports = match &shape.ports {
        PortSet::Any => [].as_slice(),
        PortSet::Only(ports) => ports,
    };
    ports.iter().copied()
}

const ALWAYS_THERE: [u16; 2] = [80, 443];

#[cfg(test)]
mod tests {
    use crate::{NoFiles, PolicyDoors, Source, read};

    fn doors(net: &str) -> PolicyDoors {
        let text = format!("version: 1\nnet: {{enabled: true, {net}}}\n");
        read(&Source::new("p", text), &NoFiles).unwrap_or_else(|err| panic!("{err}")).doors()
    }

    fn tcp(doors: &PolicyDoors) -> Vec<String> {
        doors.tcp.iter().map(|named| format!("{} {:?}", named.host, named.ports)).collect()
    }

    #[test]
    fn every_port_that_a_rule_writes_out_has_a_door_beside_the_usual_two() {
        let doors = doors(
            "allow: [plain.test, {host: a.test, port: [8443, 443]},
               {host: b.test, protocol: http, port: [80, 8080]},
               {host: '*.c.test', port: 9443, websocket: true},
               {npm: [left-pad], registry: 'https://npm.test:4873/'},
               {pip: [requests], registry: 'https://pip.test:3141/simple', files: ['https://files.test:3142/']},
               {git: git.test/a/b}],
             ask: [{host: asked.test, port: 8444}],
             passthrough: [{host: sealed.test, port: 8445}],
             deny: [{host: denied.test, port: 6666}, {host: all.test}]",
        );
        assert_eq!(doors.ports, [3141, 3142, 4873, 8080, 8443, 8444, 8445, 9443]);
        assert_eq!(tcp(&doors), Vec::<String>::new());
        assert_eq!(doors.count(), 8);
    }

    #[test]
    fn a_host_of_a_tcp_rule_has_a_door_for_each_of_its_ports() {
        let doors = doors(
            "allow: [{host: b.test, port: 5432, protocol: tcp}, {host: a.test, port: [6379, 22], protocol: tcp},
               {host: b.test, port: [5433, 5432], protocol: tcp},
               {host: 93.184.216.34, port: 25, protocol: tcp}],
             ask: [{host: c.test, port: 443, protocol: tcp}],
             deny: [{host: d.test, port: 5432, protocol: tcp}]",
        );
        assert_eq!(tcp(&doors), ["a.test [22, 6379]", "b.test [5432, 5433]", "c.test [443]"]);
        // Their ports are not for whoever else comes there.
        assert_eq!(doors.ports, Vec::<u16>::new());
        assert_eq!(doors.count(), 5);
    }

    #[test]
    fn the_order_of_rules_changes_nothing() {
        let one = doors(
            "allow: [{host: b.test, port: 2, protocol: tcp}, {host: a.test, port: 1, protocol: tcp}, {host: c.test, port: 9}]",
        );
        let other = doors(
            "allow: [{host: c.test, port: 9}, {host: a.test, port: 1, protocol: tcp}, {host: b.test, port: 2, protocol: tcp}]",
        );
        assert_eq!(one, other);
    }

    #[test]
    fn a_policy_that_names_no_other_port_needs_no_further_door() {
        assert_eq!(doors("allow: [docs.test]"), PolicyDoors::default());
    }
}
