//! What the attacks aim at: things that only the host knows of.
//!
//! Every target answers with a token when it is reached, so that reaching it is
//! told from reaching something else that happens to listen there.

use std::net::SocketAddr;

use super::Attack;

/// As they stand on the command line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Targets {
    /// Only this attack, in this process.
    pub one: Option<String>,
    /// Only these, by name or id; everything if empty.
    pub only: Vec<String>,
    /// What every target of this test says.
    pub token: String,
    /// Where an allowed host is, to show that there is a network at all.
    pub allowed: Option<String>,
    /// Services of the host, by its addresses.
    pub host: Vec<SocketAddr>,
    /// The same over UDP.
    pub host_udp: Vec<SocketAddr>,
    /// A service on the host's loopback.
    pub loopback: Vec<SocketAddr>,
    /// Services in other sandboxes, and their gateways.
    pub others: Vec<SocketAddr>,
    /// An abstract Unix socket of the host.
    pub abstract_socket: Option<String>,
    /// Files of the host that hold the token.
    pub secrets: Vec<String>,
}

impl Targets {
    /// Reads the command line; nothing if there is a word that is not known.
    pub fn parse(arguments: &[String]) -> Option<Self> {
        let mut targets = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let value = words.next()?;
            match word.as_str() {
                "--abstract" => targets.abstract_socket = Some(value.clone()),
                "--allowed" => targets.allowed = Some(value.clone()),
                "--host" => targets.host.push(value.parse().ok()?),
                "--host-udp" => targets.host_udp.push(value.parse().ok()?),
                "--loopback" => targets.loopback.push(value.parse().ok()?),
                "--one" => targets.one = Some(value.clone()),
                "--only" => targets.only.push(value.clone()),
                "--other" => targets.others.push(value.parse().ok()?),
                "--secret" => targets.secrets.push(value.clone()),
                "--token" => targets.token.clone_from(value),
                _ => return None,
            }
        }
        Some(targets)
    }

    /// The words that read back as these targets.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut add = |word: &str, value: String| words.extend([word.to_owned(), value]);
        self.abstract_socket.iter().for_each(|name| add("--abstract", name.clone()));
        self.allowed.iter().for_each(|url| add("--allowed", url.clone()));
        self.host.iter().for_each(|at| add("--host", at.to_string()));
        self.host_udp.iter().for_each(|at| add("--host-udp", at.to_string()));
        self.loopback.iter().for_each(|at| add("--loopback", at.to_string()));
        self.one.iter().for_each(|name| add("--one", name.clone()));
        self.only.iter().for_each(|name| add("--only", name.clone()));
        self.others.iter().for_each(|at| add("--other", at.to_string()));
        self.secrets.iter().for_each(|path| add("--secret", path.clone()));
        if !self.token.is_empty() {
            add("--token", self.token.clone());
        }
        words
    }

    pub(super) fn wants(&self, attack: &Attack) -> bool {
        let named = |name: &String| name == attack.name || name == attack.id;
        self.only.is_empty() || self.only.iter().any(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_back_as_themselves() {
        let targets = Targets {
            token: "t".into(),
            host: vec!["192.0.2.1:80".parse().unwrap()],
            others: vec!["[2001:db8::1]:80".parse().unwrap()],
            abstract_socket: Some("a b".into()),
            secrets: vec!["/x".into()],
            ..Targets::default()
        };
        assert_eq!(Targets::parse(&targets.words()), Some(targets));
    }

    #[test]
    fn a_word_that_is_not_known_is_an_error_not_a_default() {
        assert_eq!(Targets::parse(&["--hosts".into(), "192.0.2.1:80".into()]), None);
        assert_eq!(Targets::parse(&["--host".into(), "example.com:80".into()]), None);
        assert_eq!(Targets::parse(&["--token".into()]), None);
    }
}
