//! IPv4 addresses in every spelling some parser accepts.
//!
//! `2130706433`, `0x7f.1`, `0177.0.0.1` and `127.1` are names to a naive check
//! and 127.0.0.1 to the C library, to browsers and to curl. We read them by the
//! WHATWG URL rules, which are the widest of the readings in use: whatever could
//! be an address is one here, and never a name.

use std::net::Ipv4Addr;

/// Whether a host with this text must be read as an IPv4 address.
///
/// Only the last label counts, as in the WHATWG rules: no top-level domain is a
/// number, so what ends in one is an address or a mistake.
pub(crate) fn ends_in_number(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or(host);
    !last.is_empty() && (last.bytes().all(|b| b.is_ascii_digit()) || number(last).is_some())
}

/// Reads one to four numbers, each decimal, octal or hexadecimal; the last one
/// fills all the bytes that are left.
pub(crate) fn parse_ipv4(host: &str) -> Option<Ipv4Addr> {
    let mut numbers = Vec::with_capacity(4);
    for part in host.split('.') {
        if numbers.len() == 4 {
            return None;
        }
        numbers.push(number(part)?);
    }
    let last = numbers.pop()?;
    let mut address: u32 = 0;
    for (place, part) in numbers.iter().enumerate() {
        let byte = u8::try_from(*part).ok()?;
        address |= u32::from(byte) << (24 - 8 * place);
    }
    let bits_left = 32 - 8 * numbers.len();
    if last >> bits_left != 0 {
        return None;
    }
    Some(Ipv4Addr::from(address | u32::try_from(last).ok()?))
}

/// A number, however large: one that is too large for an address is still no
/// name.
fn number(part: &str) -> Option<u64> {
    if part.is_empty() {
        return None;
    }
    let hex = part.strip_prefix("0x").or_else(|| part.strip_prefix("0X"));
    let (digits, radix) = match (hex, part.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) => (digits, 8),
        (None, None) => (part, 10),
    };
    // `0x` and `0` alone are zero.
    if digits.is_empty() {
        return Some(0);
    }
    if !digits.bytes().all(|b| char::from(b).is_digit(radix)) {
        return None;
    }
    Some(u64::from_str_radix(digits, radix).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! reads {
        ($name:ident, $written:expr, $address:expr) => {
            #[test]
            fn $name() {
                assert!(ends_in_number($written));
                assert_eq!(parse_ipv4($written).map(|a| a.to_string()).as_deref(), $address);
            }
        };
    }

    reads!(dotted, "1.2.3.4", Some("1.2.3.4"));
    reads!(one_decimal_number, "2130706433", Some("127.0.0.1"));
    reads!(one_hexadecimal_number, "0x7f000001", Some("127.0.0.1"));
    reads!(hexadecimal_and_short, "0x7f.1", Some("127.0.0.1"));
    reads!(octal, "0177.0.0.1", Some("127.0.0.1"));
    reads!(two_numbers, "127.1", Some("127.0.0.1"));
    reads!(three_numbers, "10.1.258", Some("10.1.1.2"));
    reads!(zero, "0", Some("0.0.0.0"));
    reads!(an_empty_hexadecimal_number_is_zero, "0x", Some("0.0.0.0"));
    reads!(the_largest, "4294967295", Some("255.255.255.255"));
    reads!(one_too_large, "4294967296", None);
    reads!(one_too_large_in_hexadecimal, "0x100000000", None);
    reads!(one_too_large_in_octal, "040000000000", None);
    reads!(the_largest_in_hexadecimal, "0xffffffff", Some("255.255.255.255"));
    reads!(far_too_large, "0xffffffffffffffffffffffffffff", None);
    reads!(far_too_large_in_capitals, "0XFFFFFFFFFFFFFFFFF", None);
    reads!(a_last_hexadecimal_part_too_large, "0x1.0x100000000", None);
    reads!(a_first_part_far_too_large, "0x100000000.1", None);
    reads!(two_numbers_the_last_too_large, "1.0x1000000", None);
    reads!(two_numbers_the_last_the_largest, "1.0xffffff", Some("1.255.255.255"));
    reads!(every_part_too_large, "256.256.256.256", None);
    reads!(a_hexadecimal_number_after_a_name, "example.0x100000000", None);
    reads!(a_byte_too_large, "256.0.0.1", None);
    reads!(a_last_part_too_large, "1.2.3.256", None);
    reads!(an_octal_digit_too_large, "127.0.0.08", None);
    reads!(five_numbers, "1.2.3.4.5", None);
    reads!(a_name_before_a_number, "example.1", None);
    reads!(an_empty_part, "1..1", None);

    #[test]
    fn a_name_with_numbers_inside_is_a_name() {
        for name in [
            "1.2.3.4.nip.test",
            "10-0-0-1.nip.test",
            "0x7f.test",
            "1.0xg",
            "0xg",
            "0x1g",
            "3com",
            "1.2.3.0y4",
        ] {
            assert!(!ends_in_number(name), "{name}");
        }
    }
}
