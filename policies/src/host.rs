//! Host names, in the one form the rest of the program compares.
//!
//! A [`HostName`] is a lower-case ASCII name of A-labels with no trailing dot,
//! so two names are equal exactly when their bytes are equal. Everything that
//! reaches policy has passed through [`HostName::parse`], and nothing normalises
//! a second time: two normalisers that disagree are how allow-lists get
//! bypassed.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

use crate::ipv4_literal;
use crate::quoted_input::QuotedInput;

/// A DNS name, ready to compare, log and store. Cheap to clone.
///
/// It is never an address in disguise: what any common parser would read as an
/// IPv4 address is not a name here.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HostName(Arc<str>);

impl HostName {
    /// Reads a name as a sandbox or a policy author wrote it.
    ///
    /// ```
    /// use policies::HostName;
    ///
    /// let host = HostName::parse("API.GitHub.com.")?;
    /// assert_eq!(host.as_str(), "api.github.com");
    ///
    /// let host = HostName::parse("bücher.example")?;
    /// assert_eq!(host.as_str(), "xn--bcher-kva.example");
    ///
    /// let err = HostName::parse("10.0.0.7").unwrap_err();
    /// assert_eq!(err.to_string(), "`10.0.0.7` is not a host name: it is an IP address");
    /// # Ok::<(), policies::HostError>(())
    /// ```
    pub fn parse(written: &str) -> Result<Self, HostError> {
        Self::read(written).map_err(|why| HostError { written: QuotedInput::of(written), why })
    }

    /// Reads a name from the wire.
    pub fn parse_bytes(written: &[u8]) -> Result<Self, HostError> {
        match std::str::from_utf8(written) {
            Ok(text) => Self::parse(text),
            Err(_) => {
                Err(HostError { written: QuotedInput::of_bytes(written), why: HostFault::Encoding })
            }
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The names above this one, nearest first: `b.c` and `c` for `a.b.c`.
    ///
    /// A wildcard on any of them covers this name.
    pub fn parents(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(self.as_str()), |name| {
            name.split_once('.').map(|(_, parent)| parent)
        })
        .skip(1)
    }

    /// Whether this name is set aside for the machine itself (RFC 6761).
    ///
    /// It stays a name: what forbids it is the address it resolves to. A rule
    /// for it can never take effect, which is worth a warning.
    pub fn is_loopback(&self) -> bool {
        self.as_str() == "localhost" || self.as_str().ends_with(".localhost")
    }

    fn read(written: &str) -> Result<Self, HostFault> {
        if written.parse::<Ipv6Addr>().is_ok() {
            return Err(HostFault::Address);
        }
        let name = canonical(written)?;
        if ipv4_literal::ends_in_number(&name) {
            return Err(match ipv4_literal::parse_ipv4(&name) {
                Some(_) => HostFault::Address,
                None => HostFault::Number,
            });
        }
        Ok(Self::of_canonical(&name))
    }

    /// For text that came out of [`canonical`] and is no address.
    pub(crate) fn of_canonical(name: &str) -> Self {
        Self(Arc::from(name))
    }
}

/// A name we refuse to reason about, and why.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{written}` is not a host name: {why}")]
pub struct HostError {
    written: QuotedInput,
    why: HostFault,
}

impl HostError {
    pub(crate) fn new(written: QuotedInput, why: HostFault) -> Self {
        Self { written, why }
    }

    pub fn fault(&self) -> HostFault {
        self.why
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HostFault {
    #[error("it is an IP address")]
    Address,
    #[error("an IPv6 address must stand in brackets, as in `[2001:db8::1]`")]
    Brackets,
    #[error("{} cannot stand in one; use letters, digits, `-`, `_` and `.`", PrintableChar(*.0))]
    Character(char),
    #[error("it is empty")]
    Empty,
    #[error("it is not UTF-8; write it in punycode (`xn--…`)")]
    Encoding,
    #[error("a label starts or ends with `-`")]
    Hyphen,
    #[error("it is not a valid international name (UTS 46)")]
    International,
    #[error("a label is empty or longer than 63 bytes")]
    Label,
    #[error("it is longer than 253 bytes")]
    Length,
    #[error("it ends in a number but is no IPv4 address; write an address as `192.0.2.1`")]
    Number,
    #[error("a zone such as `%eth0` has no meaning here; leave it out")]
    Zone,
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

// Sound because `HostName` compares and hashes exactly as its text does. It
// lets a table keyed by names be asked about a parent without building one.
impl Borrow<str> for HostName {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for HostName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

/// The canonical text of a host, which may still spell an IPv4 address.
///
/// Mapping comes first and every check after it: full-width digits, ideographic
/// full stops and compatibility characters turn into ASCII on the way, and what
/// they turn into must pass the same checks as what was ASCII to begin with.
pub(crate) fn canonical(written: &str) -> Result<Cow<'_, str>, HostFault> {
    if written.is_empty() {
        return Err(HostFault::Empty);
    }
    // Mapping can shorten a name, but not from here; and its cost is bounded.
    if written.len() > 4 * MAX_HOST_BYTES {
        return Err(HostFault::Length);
    }
    if let Some(c) = written.chars().find(|c| c.is_ascii() && !is_name_char(*c)) {
        return Err(HostFault::Character(c));
    }
    let mapped = if !written.is_ascii() || has_a_label(written) {
        match Uts46::new().to_ascii(
            written.as_bytes(),
            NOT_IN_A_HOST,
            Hyphens::Allow,
            DnsLength::Ignore,
        ) {
            Ok(mapped) => mapped,
            Err(_) => return Err(HostFault::International),
        }
    } else if written.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(written.to_ascii_lowercase())
    } else {
        Cow::Borrowed(written)
    };
    let name = without_root_dot(mapped);
    check_labels(&name)?;
    Ok(name)
}

/// One trailing dot names the DNS root and changes nothing; a second one is an
/// empty label, and is refused as such.
fn without_root_dot(name: Cow<'_, str>) -> Cow<'_, str> {
    match name {
        Cow::Borrowed(name) => Cow::Borrowed(name.strip_suffix('.').unwrap_or(name)),
        Cow::Owned(mut name) => {
            if name.ends_with('.') {
                name.pop();
            }
            Cow::Owned(name)
        }
    }
}

fn check_labels(name: &str) -> Result<(), HostFault> {
    if name.len() > MAX_HOST_BYTES {
        return Err(HostFault::Length);
    }
    for label in name.split('.') {
        if label.is_empty() || label.len() > MAX_LABEL_BYTES {
            return Err(HostFault::Label);
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err(HostFault::Hyphen);
        }
        if let Some(c) = label.chars().find(|c| !is_name_char(*c)) {
            return Err(HostFault::Character(c));
        }
    }
    Ok(())
}

/// Whether some label claims to be punycode, and so has to be proven valid.
fn has_a_label(name: &str) -> bool {
    name.split('.')
        .any(|label| label.get(..4).is_some_and(|prefix| prefix.eq_ignore_ascii_case("xn--")))
}

/// The underscore is no letter of host names, but of many names in real use.
fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Shows a character so that it can neither hide nor break the line.
struct PrintableChar(char);

impl fmt::Display for PrintableChar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ' ' => f.write_str("a space"),
            c => write!(f, "`{}`", QuotedInput::of(c.encode_utf8(&mut [0; 4]))),
        }
    }
}

const MAX_HOST_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// All of ASCII but letters, digits, `-`, `.` and `_`.
const NOT_IN_A_HOST: AsciiDenyList = AsciiDenyList::new(true, "!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~");

#[cfg(test)]
mod tests;
