//! Session tickets that are good for one host.
//!
//! The tickets of an authority are sealed by one key, so that clients resume
//! whichever of our configurations they meet. The library compares the name the
//! client sent; a client that connects to an address sends none, and then a
//! ticket from one address would resume a session for another. So the host that
//! policy admitted is sealed into the ticket, and a ticket that names another
//! host is no ticket: the client gets a full handshake and the right leaf.

use std::sync::Arc;

use rustls::server::ProducesTickets;

use crate::subject::Subject;

/// Tickets of an authority, for the connections to one host.
#[derive(Debug)]
pub(crate) struct HostTickets {
    sealed: Arc<dyn ProducesTickets>,
    /// Length and host: what every ticket begins with.
    heading: Vec<u8>,
}

impl HostTickets {
    pub(crate) fn new(sealed: Arc<dyn ProducesTickets>, subject: &Subject) -> Self {
        let host = subject.to_string();
        // The length in front keeps `a` + `b.test` and `ab` + `.test` apart.
        let mut heading = Vec::with_capacity(2 + host.len());
        heading.extend_from_slice(&u16::try_from(host.len()).unwrap_or(u16::MAX).to_be_bytes());
        heading.extend_from_slice(host.as_bytes());
        Self { sealed, heading }
    }
}

impl ProducesTickets for HostTickets {
    fn enabled(&self) -> bool {
        self.sealed.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.sealed.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.sealed.encrypt(&[self.heading.as_slice(), plain].concat())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let plain = self.sealed.decrypt(cipher)?;
        plain.strip_prefix(self.heading.as_slice()).map(<[u8]>::to_vec)
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::Ticketer;

    use super::*;

    fn of(sealed: &Arc<dyn ProducesTickets>, host: &str) -> HostTickets {
        HostTickets::new(Arc::clone(sealed), &Subject::parse(host).unwrap())
    }

    #[test]
    fn a_ticket_opens_for_its_own_host_only() {
        let sealed = Ticketer::new().unwrap();
        let ticket = of(&sealed, "10.0.0.1").encrypt(b"session").unwrap();
        assert_eq!(of(&sealed, "10.0.0.1").decrypt(&ticket).unwrap(), b"session");
        assert_eq!(of(&sealed, "10.0.0.2").decrypt(&ticket), None);
        assert_eq!(of(&sealed, "10.0.0.11").decrypt(&ticket), None);
    }

    #[test]
    fn a_ticket_of_another_authority_does_not_open() {
        let ticket = of(&Ticketer::new().unwrap(), "a.test").encrypt(b"session").unwrap();
        assert_eq!(of(&Ticketer::new().unwrap(), "a.test").decrypt(&ticket), None);
    }
}
