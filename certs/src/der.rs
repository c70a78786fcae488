//! Just enough DER to write a PKCS#12 file.
//!
//! Every function returns one complete element: tag, length, content. The
//! certificates inside come from elsewhere and are copied, never read.

/// `SEQUENCE` of complete elements.
pub(crate) fn sequence(elements: &[&[u8]]) -> Vec<u8> {
    element(0x30, &elements.concat())
}

/// `SET` of complete elements, in the order DER asks for.
pub(crate) fn set(mut elements: Vec<Vec<u8>>) -> Vec<u8> {
    elements.sort();
    element(0x31, &elements.concat())
}

/// `OCTET STRING`.
pub(crate) fn octets(content: &[u8]) -> Vec<u8> {
    element(0x04, content)
}

/// `[number] EXPLICIT` around one complete element.
pub(crate) fn explicit(number: u8, inner: &[u8]) -> Vec<u8> {
    element(0xa0 | number, inner)
}

/// `INTEGER`, not negative.
pub(crate) fn integer(number: u32) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let zeros = bytes.iter().take(bytes.len() - 1).take_while(|byte| **byte == 0).count();
    let mut content = bytes.into_iter().skip(zeros).collect::<Vec<_>>();
    // A leading one bit would make it negative.
    if content.first().is_some_and(|first| first & 0x80 != 0) {
        content.insert(0, 0);
    }
    element(0x02, &content)
}

/// `OBJECT IDENTIFIER`; `first` and `second` share a byte.
pub(crate) fn oid(first: u8, second: u8, rest: &[u32]) -> Vec<u8> {
    let mut content = vec![first * 40 + second];
    for arc in rest {
        let groups = (32 - arc.leading_zeros()).div_ceil(7).max(1);
        for group in (0..groups).rev() {
            let seven = (arc >> (group * 7)) as u8 & 0x7f;
            content.push(if group == 0 { seven } else { seven | 0x80 });
        }
    }
    element(0x06, &content)
}

/// `BMPString`: two bytes a character.
pub(crate) fn bmp(text: &str) -> Vec<u8> {
    element(0x1e, &text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>())
}

/// `NULL`.
pub(crate) fn null() -> Vec<u8> {
    element(0x05, &[])
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut written = Vec::with_capacity(content.len() + 6);
    written.push(tag);
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => written.push(short),
        Ok(_) | Err(_) => {
            let length = content.len().to_be_bytes();
            let zeros = length.iter().take_while(|byte| **byte == 0).count();
            // At most eight, so it always fits beside the flag.
            written.push(0x80 | (length.len() - zeros) as u8);
            written.extend(length.iter().skip(zeros));
        }
    }
    written.extend_from_slice(content);
    written
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use x509_parser::der_parser::der::{parse_der_integer, parse_der_octetstring, parse_der_oid};

    use super::*;

    #[test]
    fn known_bytes() {
        assert_eq!(integer(3), [0x02, 1, 3]);
        assert_eq!(integer(128), [0x02, 2, 0, 128]);
        assert_eq!(bmp("a"), [0x1e, 2, 0, b'a']);
        assert_eq!(null(), [0x05, 0]);
        // 1.2.840.113549, the example of every text on the subject.
        assert_eq!(oid(1, 2, &[840, 113_549]), [0x06, 6, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d]);
        assert_eq!(set(vec![octets(&[2]), octets(&[1])]), [0x31, 6, 4, 1, 1, 4, 1, 2]);
    }

    proptest! {
        #[test]
        fn numbers_read_back(number: u32) {
            let written = integer(number);
            let (rest, read) = parse_der_integer(&written).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!(read.as_u32().unwrap(), number);
        }

        #[test]
        fn identifiers_read_back(second in 0..40_u8, arcs in proptest::collection::vec(any::<u32>(), 1..6)) {
            let written = oid(1, second, &arcs);
            let (rest, read) = parse_der_oid(&written).unwrap();
            prop_assert!(rest.is_empty());
            let all: Vec<u64> = read.as_oid().unwrap().iter().unwrap().collect();
            let meant: Vec<u64> =
                [1, u64::from(second)].into_iter().chain(arcs.into_iter().map(u64::from)).collect();
            prop_assert_eq!(all, meant);
        }

        /// Also across the steps of the length's own length.
        #[test]
        fn strings_of_any_length_read_back(length in prop_oneof![0..300_usize, 65_500..65_600_usize]) {
            let written = octets(&vec![7; length]);
            let (rest, read) = parse_der_octetstring(&written).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!(read.as_slice().unwrap().len(), length);
        }
    }
}
