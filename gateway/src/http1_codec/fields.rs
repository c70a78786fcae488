//! Header fields: `Name: value` lines, in the one spelling we accept.
//!
//! Heads and trailers are read here, of requests and of responses. Lines end in
//! CR LF and nothing else; a name is a token that ends at its colon; a value has
//! no control characters; a line that begins with white space continues nothing,
//! because we refuse it. Each of these has been, somewhere, the gap between two
//! servers that a smuggled request went through.

use policies::{Headers, is_gateway_field};

/// Header fields that stand in one block of bytes, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    bytes: Vec<u8>,
    fields: Vec<Field>,
}

/// One field, as places in the block.
#[derive(Clone, Copy, Debug)]
struct Field {
    known: KnownField,
    name: (u32, u32),
    value: (u32, u32),
}

/// Fields that mean something to a proxy. All others are passed on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum KnownField {
    AltSvc,
    Connection,
    ContentLength,
    Expect,
    /// What only we say: `x-sluice-...`.
    Gateway,
    Host,
    Http2Settings,
    KeepAlive,
    Other,
    ProxyAuthenticate,
    ProxyAuthorization,
    ProxyConnection,
    Te,
    TransferEncoding,
    Upgrade,
}

/// Why a block of fields is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum FieldFault {
    #[error("a header line has no colon")]
    Colon,
    #[error("a header line begins with white space")]
    Folded,
    #[error("a header line does not end in CR LF")]
    LineEnd,
    #[error("its Connection header has too many options")]
    Options,
    #[error("a header name has a character that cannot stand in one, or is empty")]
    Name,
    #[error("there are too many headers")]
    TooMany,
    #[error("a header value has a control character")]
    Value,
}

impl Fields {
    /// Makes room for the next block, keeping the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.fields.clear();
    }

    /// Reads a block of complete lines, without the empty line at its end.
    ///
    /// It is copied: what is judged must not change while more is read.
    pub(crate) fn read(&mut self, block: &[u8], most: usize) -> Result<(), FieldFault> {
        self.clear();
        self.bytes.extend_from_slice(block);
        let mut at = 0;
        while let Some(rest) = self.bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if self.fields.len() >= most {
                return Err(FieldFault::TooMany);
            }
            let end = memchr::memchr(b'\n', rest).ok_or(FieldFault::LineEnd)?;
            let line = rest.get(..end).and_then(|line| line.strip_suffix(b"\r"));
            let field = read_line(line.ok_or(FieldFault::LineEnd)?, at)?;
            self.fields.push(field);
            at += end + 1;
        }
        Ok(())
    }

    /// Takes out what is between the sender and us: hop-by-hop fields, fields that
    /// `Connection` nominates, and those that only we say. What is left, but for
    /// what delimits the message or upgrades the connection, is passed on, so it
    /// is what policy judges.
    pub(crate) fn keep_end_to_end(&mut self) -> Result<(), FieldFault> {
        let Self { bytes, fields } = self;
        let text = |(start, end): (u32, u32)| -> &[u8] {
            bytes.get(start as usize..end as usize).unwrap_or_default()
        };
        let mut nominated: Vec<&[u8]> = Vec::new();
        for field in fields.iter().filter(|field| field.known == KnownField::Connection) {
            nominated.extend(tokens(text(field.value)).filter(|option| !is_usual_option(option)));
            if nominated.len() > MAX_CONNECTION_OPTIONS {
                return Err(FieldFault::Options);
            }
        }
        let is_nominated = |name| nominated.iter().any(|option| option.eq_ignore_ascii_case(name));
        fields.retain(|field| match field.known {
            KnownField::AltSvc | KnownField::Expect | KnownField::Other => {
                !is_nominated(text(field.name))
            }
            KnownField::Gateway
            | KnownField::Http2Settings
            | KnownField::KeepAlive
            | KnownField::ProxyAuthenticate
            | KnownField::ProxyAuthorization
            | KnownField::ProxyConnection => false,
            KnownField::Connection
            | KnownField::ContentLength
            | KnownField::Host
            | KnownField::Te
            | KnownField::TransferEncoding
            | KnownField::Upgrade => true,
        });
        Ok(())
    }

    /// Drops the fields whose name is not to be kept.
    pub(crate) fn retain(&mut self, keep: impl Fn(&[u8]) -> bool) {
        let Self { bytes, fields } = self;
        fields.retain(|field| {
            let (start, end) = field.name;
            keep(bytes.get(start as usize..end as usize).unwrap_or_default())
        });
    }

    /// How many bytes they took on the wire.
    pub(crate) fn written(&self) -> usize {
        self.bytes.len()
    }

    /// Every field: what it is to us, its name as written, its value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (KnownField, &[u8], &[u8])> {
        self.fields.iter().map(|field| (field.known, self.text(field.name), self.text(field.value)))
    }

    /// Every value of the fields of one kind.
    pub(crate) fn of(&self, known: KnownField) -> impl Iterator<Item = &[u8]> {
        self.fields
            .iter()
            .filter(move |field| field.known == known)
            .map(|field| self.text(field.value))
    }

    /// Whether some `Connection` field lists `name`.
    pub(crate) fn connection_lists(&self, name: &[u8]) -> bool {
        self.of(KnownField::Connection)
            .any(|value| tokens(value).any(|t| t.eq_ignore_ascii_case(name)))
    }

    /// Whether there is a field of this kind.
    pub(crate) fn has(&self, known: KnownField) -> bool {
        self.fields.iter().any(|field| field.known == known)
    }

    fn text(&self, (start, end): (u32, u32)) -> &[u8] {
        self.bytes.get(start as usize..end as usize).unwrap_or_default()
    }
}

/// As policy sees them, once only end-to-end fields are left: what delimits the
/// message or upgrades the connection is not among them, because we write our own.
impl Headers for Fields {
    fn each<'h>(&'h self, each: &mut dyn FnMut(&'h [u8], &'h [u8])) {
        for (known, name, value) in self.iter() {
            match known {
                KnownField::Connection
                | KnownField::Te
                | KnownField::TransferEncoding
                | KnownField::Upgrade => {}
                _ => each(name, value),
            }
        }
    }

    fn values(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        for field in &self.fields {
            let (start, end) = field.name;
            if (end - start) as usize == name.len()
                && self.text(field.name).eq_ignore_ascii_case(name.as_bytes())
            {
                each(self.text(field.value));
            }
        }
    }
}

/// Options of `Connection` that nominate no field of the message.
fn is_usual_option(option: &[u8]) -> bool {
    let usual = ["close", "http2-settings", "keep-alive", "te", "upgrade"];
    usual.iter().any(|known| option.eq_ignore_ascii_case(known.as_bytes()))
}

/// Each is compared with each field, so there is a limit; no real client has as many.
const MAX_CONNECTION_OPTIONS: usize = 32;

/// The members of a comma-separated list.
pub(crate) fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}

fn read_line(line: &[u8], at: usize) -> Result<Field, FieldFault> {
    let colon = memchr::memchr(b':', line);
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(FieldFault::Folded);
    }
    let colon = colon.ok_or(FieldFault::Colon)?;
    let (name, value) = line.split_at_checked(colon).ok_or(FieldFault::Colon)?;
    let value = value.get(1..).unwrap_or_default();
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
        return Err(FieldFault::Name);
    }
    if !value.iter().all(|byte| is_text(*byte)) {
        return Err(FieldFault::Value);
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let before = value.iter().take_while(|byte| is_space(byte)).count();
    let after = value.iter().rev().take_while(|byte| is_space(byte)).count();
    let start = at + colon + 1 + before;
    let end = (at + line.len()).saturating_sub(after).max(start);
    Ok(Field { known: known(name), name: span(at, at + colon), value: span(start, end) })
}

/// Heads are bounded far below what 32 bits can count.
fn span(start: usize, end: usize) -> (u32, u32) {
    let place = |at: usize| u32::try_from(at).expect("a head is shorter than 4 GiB");
    (place(start), place(end))
}

/// What may stand in a name or a method (RFC 9110, 5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    TOKEN.get(usize::from(byte)).copied().unwrap_or_default()
}

/// What may stand in a value: anything but control characters. Bytes outside
/// ASCII are passed on as they are; they divide nothing.
pub(crate) fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0u8;
    while byte < 128 {
        #[expect(clippy::indexing_slicing, reason = "a byte is below 256")]
        {
            table[byte as usize] = byte.is_ascii_alphanumeric()
                || matches!(
                    byte,
                    b'!' | b'#'
                        | b'$'
                        | b'%'
                        | b'&'
                        | b'\''
                        | b'*'
                        | b'+'
                        | b'-'
                        | b'.'
                        | b'^'
                        | b'_'
                        | b'`'
                        | b'|'
                        | b'~'
                );
        }
        byte += 1;
    }
    table
};

fn known(name: &[u8]) -> KnownField {
    let is = |text: &str| name.eq_ignore_ascii_case(text.as_bytes());
    // By length first: most names are of no interest, and their length shows it.
    match name.len() {
        2 if is("te") => KnownField::Te,
        4 if is("host") => KnownField::Host,
        6 if is("expect") => KnownField::Expect,
        7 if is("upgrade") => KnownField::Upgrade,
        7 if is("alt-svc") => KnownField::AltSvc,
        10 if is("connection") => KnownField::Connection,
        10 if is("keep-alive") => KnownField::KeepAlive,
        14 if is("content-length") => KnownField::ContentLength,
        14 if is("http2-settings") => KnownField::Http2Settings,
        16 if is("proxy-connection") => KnownField::ProxyConnection,
        17 if is("transfer-encoding") => KnownField::TransferEncoding,
        18 if is("proxy-authenticate") => KnownField::ProxyAuthenticate,
        19 if is("proxy-authorization") => KnownField::ProxyAuthorization,
        10.. if is_gateway_field(name) => KnownField::Gateway,
        _ => KnownField::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(block: &str) -> Result<Vec<(String, String)>, FieldFault> {
        let mut fields = Fields::default();
        fields.read(block.as_bytes(), 8)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(fields.iter().map(|(_, name, value)| (text(name), text(value))).collect())
    }

    macro_rules! refused {
        ($claim:ident, $block:expr, $fault:expr) => {
            #[test]
            fn $claim() {
                assert_eq!(read($block), Err($fault));
            }
        };
    }

    refused!(space_before_the_colon, "Transfer-Encoding : chunked\r\n", FieldFault::Name);
    refused!(a_folded_line, "A: 1\r\n 2\r\n", FieldFault::Folded);
    refused!(a_line_folded_with_a_tab, "A: 1\r\n\tb: 2\r\n", FieldFault::Folded);
    refused!(a_bare_line_feed, "A: 1\nB: 2\r\n", FieldFault::LineEnd);
    refused!(a_bare_carriage_return, "A: 1\rB: 2\r\n", FieldFault::Value);
    refused!(a_nul, "A: 1\0\r\n", FieldFault::Value);
    refused!(a_delete, "A: \x7f\r\n", FieldFault::Value);
    refused!(no_colon, "A\r\n", FieldFault::Colon);
    refused!(no_name, ": 1\r\n", FieldFault::Name);
    refused!(a_name_with_a_space, "A b: 1\r\n", FieldFault::Name);
    refused!(an_unfinished_line, "A: 1", FieldFault::LineEnd);
    refused!(a_ninth_header, "A:\r\n".repeat(9).as_str(), FieldFault::TooMany);

    #[test]
    fn order_case_and_inner_spaces_survive() {
        let fields = read("b: \t x  y \t\r\nA:\r\nB: \u{e9}\r\n").unwrap();
        let expected = [("b", "x  y"), ("A", ""), ("B", "\u{e9}")];
        assert_eq!(fields, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }

    #[test]
    fn every_value_of_a_name_is_seen_however_it_is_spelt() {
        let mut fields = Fields::default();
        fields.read(b"X-A: 1\r\nx-a: 2\r\nX-AB: 3\r\nX-B: 4\r\n", 8).unwrap();
        let mut seen = Vec::new();
        fields.values("x-a", &mut |value| seen.push(value.to_vec()));
        assert_eq!(seen, [b"1", b"2"]);
    }

    #[test]
    fn what_is_between_two_hops_is_taken_out_whatever_its_case() {
        for (name, kept) in [
            ("connection", true),
            ("keep-alive", false),
            ("http2-settings", false),
            ("proxy-authenticate", false),
            ("proxy-authorization", false),
            ("proxy-connection", false),
            ("x-sluice-code", false),
            ("X_Sluice_Rule", false),
            ("te", true),
            ("transfer-encoding", true),
            ("upgrade", true),
            ("content-length", true),
            ("host", true),
            ("expect", true),
            ("alt-svc", true),
            ("keep-alives", true),
            ("x-mode", true),
        ] {
            for name in [name.to_owned(), name.to_uppercase()] {
                let mut fields = Fields::default();
                fields.read(format!("{name}: 1\r\n").as_bytes(), 8).unwrap();
                fields.keep_end_to_end().unwrap();
                assert_eq!(fields.iter().count() == 1, kept, "{name}");
            }
        }
    }

    #[test]
    fn each_field_that_means_something_to_us_is_known_by_its_name() {
        for (name, expected) in [
            ("TE", KnownField::Te),
            ("Host", KnownField::Host),
            ("Expect", KnownField::Expect),
            ("Upgrade", KnownField::Upgrade),
            ("Alt-Svc", KnownField::AltSvc),
            ("Connection", KnownField::Connection),
            ("Keep-Alive", KnownField::KeepAlive),
            ("Content-Length", KnownField::ContentLength),
            ("HTTP2-Settings", KnownField::Http2Settings),
            ("Proxy-Connection", KnownField::ProxyConnection),
            ("Transfer-Encoding", KnownField::TransferEncoding),
            ("Proxy-Authenticate", KnownField::ProxyAuthenticate),
            ("Proxy-Authorization", KnownField::ProxyAuthorization),
            ("X-Sluice-Code", KnownField::Gateway),
        ] {
            assert_eq!(known(name.as_bytes()), expected, "{name}");
            assert_eq!(known(name.to_lowercase().as_bytes()), expected, "{name}");
            let mut other = name.as_bytes().to_vec();
            other[0] = b'q';
            assert_eq!(known(&other), KnownField::Other, "{name}");
        }
    }

    #[test]
    fn a_nominated_field_is_taken_out_and_what_delimits_is_not() {
        let mut fields = Fields::default();
        let block = "Connection: close, X-Mode\r\nx-mode: 1\r\nX_Mode: 2\r\nX-Kept: 3\r\n\
                     connection: content-length,expect\r\nContent-Length: 5\r\nExpect: x\r\n";
        fields.read(block.as_bytes(), 16).unwrap();
        fields.keep_end_to_end().unwrap();
        let mut seen = Vec::new();
        fields.each(&mut |name, _| seen.push(String::from_utf8_lossy(name).into_owned()));
        assert_eq!(seen, ["X_Mode", "X-Kept", "Content-Length"]);
    }

    #[test]
    fn options_without_end_are_refused() {
        let mut fields = Fields::default();
        let block = format!("Connection: close, {}\r\n", "a,".repeat(MAX_CONNECTION_OPTIONS + 1));
        fields.read(block.as_bytes(), 8).unwrap();
        assert_eq!(fields.keep_end_to_end(), Err(FieldFault::Options));
    }

    #[test]
    fn a_connection_list_is_read_without_regard_to_case_and_spaces() {
        let mut fields = Fields::default();
        fields.read(b"Connection: close , X-Secret\r\n", 8).unwrap();
        assert!(fields.connection_lists(b"x-secret"));
        assert!(!fields.connection_lists(b"x-secre"));
    }

    #[test]
    fn so_many_options_are_read_and_the_usual_ones_are_none() {
        let options = |option: &str, count: usize| {
            let mut fields = Fields::default();
            let list = vec![option; count].join(", ");
            let block = format!("Connection: {list}\r\nclose: 1\r\nx-kept: 2\r\n");
            fields.read(block.as_bytes(), 8).unwrap();
            fields.keep_end_to_end().map(|()| fields.iter().count())
        };
        assert_eq!(options("a", MAX_CONNECTION_OPTIONS), Ok(3));
        assert_eq!(options("a", MAX_CONNECTION_OPTIONS + 1), Err(FieldFault::Options));
        assert_eq!(options("close", MAX_CONNECTION_OPTIONS * 2), Ok(3), "it nominates no field");
        assert_eq!(options("x-kept", 1), Ok(2));
    }

    #[test]
    fn fields_are_found_and_dropped_by_what_they_are() {
        let mut fields = Fields::default();
        fields.read(b"Host: a\r\nX-A: 1\r\n", 8).unwrap();
        assert!(fields.has(KnownField::Host) && !fields.has(KnownField::Te));
        fields.retain(|name| !name.eq_ignore_ascii_case(b"host"));
        assert!(!fields.has(KnownField::Host));
        assert_eq!(fields.iter().map(|(_, name, _)| name).collect::<Vec<_>>(), [b"X-A"]);
    }
}
