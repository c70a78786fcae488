//! Amounts of memory, disk and traffic.

use std::fmt;

use super::{UnitError, UnitFault, amount_in_documents, leading_number};
use crate::quoted_input::QuotedInput;

/// A number of bytes, at least one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Size(u64);

impl Size {
    /// Reads a whole number with a unit, or of bytes.
    ///
    /// `KiB` is 1024 bytes and `KB` is 1000; the two are so often confused that
    /// a bare `K` is refused.
    ///
    /// ```
    /// use policies::Size;
    ///
    /// assert_eq!(Size::parse("2GiB")?.bytes(), 2 * 1024 * 1024 * 1024);
    ///
    /// let err = Size::parse("64M").unwrap_err();
    /// assert_eq!(err.to_string(), "`64M` is not a size: write `64MiB`");
    /// # Ok::<(), policies::UnitError>(())
    /// ```
    pub fn parse(written: &str) -> Result<Self, UnitError> {
        read(written).map_err(|why| UnitError::new(written, WHAT, why))
    }

    /// Nothing for zero bytes: there is no such size.
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        if bytes == 0 { None } else { Some(Self(bytes)) }
    }

    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// Largest first, so that the first that divides a size is the one to show.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

const WHAT: &str = "size";
const SYNTAX: &str = "a whole number and a unit, such as `512KiB`, `2GiB` or `64MB`";

fn read(written: &str) -> Result<Size, UnitFault> {
    let (digits, unit) = leading_number(written);
    if digits.is_empty() {
        return Err(UnitFault::Syntax(SYNTAX));
    }
    let bytes_in_unit = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, bytes)) => *bytes,
        None if unit.is_empty() => 1,
        None => return Err(meant(digits, unit)),
    };
    // All digits, so the only fault left is too many of them.
    let Ok(number) = digits.parse::<u64>() else { return Err(UnitFault::TooLarge) };
    let bytes = number.checked_mul(bytes_in_unit).ok_or(UnitFault::TooLarge)?;
    Size::from_bytes(bytes).ok_or(UnitFault::Zero)
}

/// What a misspelt unit was probably meant to be.
fn meant(digits: &str, unit: &str) -> UnitFault {
    let unit = unit.trim();
    let known = UNITS.iter().map(|(name, _)| *name).find(|name| {
        name.eq_ignore_ascii_case(unit) || name.trim_end_matches("iB").eq_ignore_ascii_case(unit)
    });
    match known {
        Some(name) => UnitFault::Instead(format!("{}{name}", QuotedInput::of(digits))),
        None => UnitFault::Syntax(SYNTAX),
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, bytes)| self.0.is_multiple_of(*bytes)) {
            Some((name, bytes)) => write!(f, "{}{name}", self.0 / bytes),
            None => write!(f, "{}B", self.0),
        }
    }
}

amount_in_documents!(Size, fractions: false, schema: {
    "description": "A number of bytes, such as `512KiB`, `2GiB` or `64MB`.",
    "anyOf": [
        { "type": "string", "pattern": "^[0-9]+([KMGT]i?B|B)?$" },
        { "type": "integer", "minimum": 1 },
    ],
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    macro_rules! size {
        ($claim:ident, $written:expr, $expected:expr) => {
            #[test]
            fn $claim() {
                let shown = match Size::parse($written) {
                    Ok(size) => format!("{} = {size}", size.bytes()),
                    Err(err) => err.to_string(),
                };
                assert_eq!(shown, $expected);
            }
        };
    }

    size!(binary, "512KiB", "524288 = 512KiB");
    size!(decimal, "64MB", "64000000 = 64MB");
    size!(bytes, "1000", "1000 = 1KB");
    size!(bytes_with_a_unit, "7B", "7 = 7B");
    size!(the_largest_unit_that_fits_is_shown, "1048576", "1048576 = 1MiB");
    size!(the_largest, "18446744073709551615", "18446744073709551615 = 18446744073709551615B");
    size!(zero, "0MiB", "`0MiB` is not a size: it must be more than zero");
    size!(
        one_too_large,
        "18446744073709551616",
        "`18446744073709551616` is not a size: it is too large"
    );
    size!(too_large_in_its_unit, "99999999TiB", "`99999999TiB` is not a size: it is too large");
    size!(lower_case, "2gib", "`2gib` is not a size: write `2GiB`");
    size!(a_bare_letter, "64M", "`64M` is not a size: write `64MiB`");
    size!(a_space, "64 MiB", "`64 MiB` is not a size: write `64MiB`");
    size!(
        a_fraction,
        "1.5GiB",
        "`1.5GiB` is not a size: write a whole number and a unit, such as `512KiB`, `2GiB` or `64MB`"
    );
    size!(
        negative,
        "-1",
        "`-1` is not a size: write a whole number and a unit, such as `512KiB`, `2GiB` or `64MB`"
    );

    #[test]
    fn a_document_may_give_a_number_or_text() {
        assert_eq!(serde_json::from_str::<Size>("1024").unwrap(), Size(1024));
        assert_eq!(serde_json::from_str::<Size>(r#""1KiB""#).unwrap(), Size(1024));
        for wrong in ["0", "-1", "1.5", "true", "null"] {
            assert!(serde_json::from_str::<Size>(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_size_reads_back_as_itself(bytes in 1u64.., shift in 0u32..63) {
            for bytes in [bytes, (bytes >> shift).max(1), 1 << shift] {
                prop_assert_eq!(Size::parse(&Size(bytes).to_string()), Ok(Size(bytes)));
            }
        }

        #[test]
        fn any_text_is_read_or_refused_harmlessly(written in "[0-9]{0,300}\\PC{0,300}") {
            if let Err(err) = Size::parse(&written) {
                prop_assert!(crate::quoted_input::is_harmless(&err.to_string()));
            }
        }
    }
}
