//! JSON in printable ASCII alone, written fast.
//!
//! The bytes are those that `serde_json` writes with the formatter [`Ascii`]. It
//! looks at every byte of every name and text on its own, though, and nearly all
//! of them need no escape: that was most of what a line costs, and the answer to
//! a request waits for its line. Here such a text is looked at eight bytes at a
//! time and copied whole, the names of fields are copied unseen, and only what is odd is
//! left to `serde_json`.

use std::io::{self, Write};

use serde::Serialize;
use serde::ser::{self, Serializer as _};
use serde_json::Error;
use serde_json::ser::{Formatter, Serializer};

use super::{is_printable, put};

/// Appends a value to some bytes.
pub(super) struct Json<'a>(pub(super) &'a mut Vec<u8>);

impl Json<'_> {
    fn text(self, text: &str) {
        if is_plain(text.as_bytes()) {
            self.plain(text);
        } else {
            Serializer::with_formatter(self.0, Ascii)
                .serialize_str(text)
                .expect("a Vec takes every byte");
        }
    }

    /// A text that needs no escape.
    fn plain(self, text: &str) {
        self.0.reserve(text.len() + 2);
        self.0.push(b'"');
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(b'"');
    }

    /// `{"variant":`, to be closed by whoever asks for it.
    fn variant(&mut self, variant: &'static str) {
        self.0.push(b'{');
        Json(self.0).text(variant);
        self.0.push(b':');
    }
}

/// Printable, and neither a quote nor a backslash.
fn is_plain(bytes: &[u8]) -> bool {
    let odd = |word: &[u8; 8]| odd_bytes(u64::from_ne_bytes(*word));
    let (words, rest) = bytes.as_chunks::<8>();
    // The last word may overlap the one before it, which is cheaper than a short one.
    let last = bytes.last_chunk::<8>().copied().unwrap_or_else(|| {
        let mut last = [b' '; 8];
        for (last, byte) in last.iter_mut().zip(rest) {
            *last = *byte;
        }
        last
    });
    words.iter().fold(odd(&last), |all, word| all | odd(word)) == 0
}

/// Not zero if one of these eight bytes is not plain.
fn odd_bytes(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // The highest bit of a byte that is less than `limit`. One above it may be
    // taken for one too, by the borrow; by then the answer is known.
    let below = |word: u64, limit: u8| word.wrapping_sub(EACH * u64::from(limit)) & !word;
    let is = |byte: u8| below(word ^ (EACH * u64::from(byte)), 1);
    (word | below(word, b' ') | is(b'"') | is(b'\\') | is(0x7f)) & (EACH * 0x80)
}

/// Has `serde_json` write what it writes well.
macro_rules! left_to_serde_json {
    ($($method:ident $type:ty,)*) => {
        $(fn $method(self, value: $type) -> Result<(), Error> {
            Serializer::with_formatter(self.0, Ascii).$method(value)
        })*
    };
}

impl<'a> ser::Serializer for Json<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Members<'a>;
    type SerializeTuple = Members<'a>;
    type SerializeTupleStruct = Members<'a>;
    type SerializeTupleVariant = Members<'a>;
    type SerializeMap = Members<'a>;
    type SerializeStruct = Members<'a>;
    type SerializeStructVariant = Members<'a>;

    left_to_serde_json! {
        serialize_bool bool,
        serialize_i8 i8,
        serialize_i16 i16,
        serialize_i32 i32,
        serialize_i64 i64,
        serialize_i128 i128,
        serialize_u8 u8,
        serialize_u16 u16,
        serialize_u32 u32,
        serialize_u64 u64,
        serialize_u128 u128,
        serialize_f32 f32,
        serialize_f64 f64,
        serialize_char char,
        serialize_bytes &[u8],
    }

    fn serialize_str(self, text: &str) -> Result<(), Error> {
        self.text(text);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.0.extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Error> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        mut self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.variant(variant);
        value.serialize(Json(self.0))?;
        self.0.push(b'}');
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Members<'a>, Error> {
        Ok(Members::begin(self, b'[', b"]"))
    }

    fn serialize_tuple(self, _: usize) -> Result<Members<'a>, Error> {
        Ok(Members::begin(self, b'[', b"]"))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Members<'a>, Error> {
        Ok(Members::begin(self, b'[', b"]"))
    }

    fn serialize_tuple_variant(
        mut self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Members<'a>, Error> {
        self.variant(variant);
        Ok(Members::begin(self, b'[', b"]}"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Members<'a>, Error> {
        Ok(Members::begin(self, b'{', b"}"))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Members<'a>, Error> {
        Ok(Members::begin(self, b'{', b"}"))
    }

    fn serialize_struct_variant(
        mut self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Members<'a>, Error> {
        self.variant(variant);
        Ok(Members::begin(self, b'{', b"}}"))
    }
}

/// What stands in brackets or braces, with commas between.
pub(super) struct Members<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
    end: &'static [u8],
}

impl<'a> Members<'a> {
    fn begin(Json(out): Json<'a>, begin: u8, end: &'static [u8]) -> Self {
        out.push(begin);
        Self { out, is_first: true, end }
    }

    fn next(&mut self) -> Json<'_> {
        if !std::mem::replace(&mut self.is_first, false) {
            self.out.push(b',');
        }
        Json(self.out)
    }

    fn finish(self) -> Result<(), Error> {
        self.out.extend_from_slice(self.end);
        Ok(())
    }
}

macro_rules! elements {
    ($($kind:ident $method:ident,)*) => {
        $(impl ser::$kind for Members<'_> {
            type Ok = ();
            type Error = Error;

            fn $method<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), Error> {
                value.serialize(self.next())
            }

            fn end(self) -> Result<(), Error> {
                self.finish()
            }
        })*
    };
}

elements! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field,
}

macro_rules! fields {
    ($($kind:ident,)*) => {
        $(impl ser::$kind for Members<'_> {
            type Ok = ();
            type Error = Error;

            fn serialize_field<T: ?Sized + Serialize>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Error> {
                debug_assert!(is_plain(name.as_bytes()), "our own names need no escape: {name}");
                self.next().plain(name);
                self.out.push(b':');
                value.serialize(Json(self.out))
            }

            fn end(self) -> Result<(), Error> {
                self.finish()
            }
        })*
    };
}

fields! {
    SerializeStruct,
    SerializeStructVariant,
}

impl ser::SerializeMap for Members<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> Result<(), Error> {
        key.serialize(self.next())?;
        debug_assert!(self.out.ends_with(b"\""), "our types have only strings as keys");
        Ok(())
    }

    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), Error> {
        self.out.push(b':');
        value.serialize(Json(self.out))
    }

    fn end(self) -> Result<(), Error> {
        self.finish()
    }
}

/// Has `serde_json` escape all that is not printable ASCII.
pub(super) struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + Write,
    {
        if is_printable(fragment.as_bytes()) {
            return writer.write_all(fragment.as_bytes());
        }
        fragment.chars().try_for_each(|character| put(character, writer))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::event::EventKind;
    use crate::event::golden::sample;

    /// Every shape that a value can have.
    #[derive(Serialize)]
    struct Shapes {
        none: Option<u8>,
        some: Option<&'static str>,
        unit: (),
        marker: Marker,
        wrapped: Wrapped,
        numbers: (i8, u64, i128, f32, f64, f64),
        flags: Vec<bool>,
        nothing: Vec<u8>,
        letter: char,
        pair: Pair,
        map: BTreeMap<String, Vec<JsonShape>>,
    }

    #[derive(Serialize)]
    struct Marker;

    #[derive(Serialize)]
    struct Wrapped(u16);

    #[derive(Serialize)]
    struct Pair(u16, &'static str);

    #[derive(Serialize)]
    enum JsonShape {
        Unit,
        Newtype(u8),
        Tuple(u8, u8),
        Struct { a: u8, b: () },
    }

    fn both(value: &impl Serialize) -> (String, String) {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        value.serialize(Json(&mut ours)).unwrap();
        value.serialize(&mut Serializer::with_formatter(&mut theirs, Ascii)).unwrap();
        (String::from_utf8(ours).unwrap(), String::from_utf8(theirs).unwrap())
    }

    #[test]
    fn every_shape_is_written_as_serde_json_writes_it() {
        let shapes = vec![
            JsonShape::Unit,
            JsonShape::Newtype(1),
            JsonShape::Tuple(2, 3),
            JsonShape::Struct { a: 4, b: () },
        ];
        let map = [("a\"\u{1f600}".to_owned(), shapes), (String::new(), vec![])];
        let (ours, theirs) = both(&Shapes {
            none: None,
            some: Some("\u{7f}"),
            unit: (),
            marker: Marker,
            wrapped: Wrapped(7),
            numbers: (-1, u64::MAX, i128::MIN, 0.1, f64::NAN, 1e300),
            flags: vec![true, false],
            nothing: vec![],
            letter: '\n',
            pair: Pair(1, "two"),
            map: map.into(),
        });
        assert_eq!(ours, theirs);
        for kind in EventKind::ALL {
            let (ours, theirs) = both(&sample(*kind));
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn a_byte_that_needs_an_escape_is_seen_wherever_it_stands() {
        for byte in 0..=u8::MAX {
            let plain = matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
            for length in 1..=17 {
                for at in 0..length {
                    let mut bytes = vec![b'~'; length];
                    bytes[at] = byte;
                    assert_eq!(is_plain(&bytes), plain, "{byte:#x} at {at} of {length}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_text_is_written_as_serde_json_writes_it(
            text in prop_oneof![any::<String>(), "[ -~]{0,70}", "[a-z/]{0,40}[\"\\\\\u{7f}\u{1}é]?"],
        ) {
            let (ours, theirs) = both(&text);
            prop_assert_eq!(ours, theirs);
            let (ours, theirs) = both(&BTreeMap::from([(&text, 1)]));
            prop_assert_eq!(ours, theirs);
        }
    }
}
