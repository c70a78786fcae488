//! Lengths of time.

use std::fmt;
use std::time::Duration;

use super::{UnitError, UnitFault, amount_in_documents, leading_number};
use crate::quoted_input::QuotedInput;

/// A length of time in whole milliseconds, at least one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Span(Duration);

impl Span {
    /// Reads whole numbers with units, largest unit first.
    ///
    /// ```
    /// use policies::Span;
    /// use std::time::Duration;
    ///
    /// assert_eq!(Span::parse("1h30m")?.get(), Duration::from_secs(90 * 60));
    ///
    /// let err = Span::parse("30").unwrap_err();
    /// assert_eq!(err.to_string(), "`30` is not a length of time: write `30s`");
    /// # Ok::<(), policies::UnitError>(())
    /// ```
    pub fn parse(written: &str) -> Result<Self, UnitError> {
        read(written).map_err(|why| UnitError::new(written, WHAT, why))
    }

    /// Nothing for zero milliseconds: there is no such span.
    pub const fn from_millis(millis: u64) -> Option<Self> {
        if millis == 0 { None } else { Some(Self(Duration::from_millis(millis))) }
    }

    pub const fn get(self) -> Duration {
        self.0
    }
}

const WHAT: &str = "length of time";
const SYNTAX: &str = "a whole number and a unit, such as `500ms`, `30s`, `5m`, `2h` or `1h30m`";

/// Milliseconds in each unit, largest first: the order they are written in.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A century. It keeps a deadline far from where clocks overflow.
const MAX_MILLIS: u64 = 36_500 * 86_400_000;

fn read(written: &str) -> Result<Span, UnitFault> {
    if written.is_empty() {
        return Err(UnitFault::Syntax(SYNTAX));
    }
    let mut millis: u64 = 0;
    let mut units = UNITS.iter();
    let mut rest = written;
    while !rest.is_empty() {
        let (digits, after) = leading_number(rest);
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() && rest == written && digits.bytes().any(|digit| digit != b'0') {
            return Err(UnitFault::Instead(format!("{}s", QuotedInput::of(digits))));
        }
        if unit.is_empty() && rest == written && !digits.is_empty() {
            return Err(UnitFault::Zero);
        }
        // Taking units as they come makes one that repeats or comes after a
        // smaller one unknown.
        let Some((_, each)) = units.find(|(name, _)| *name == unit) else {
            return Err(UnitFault::Syntax(SYNTAX));
        };
        if digits.is_empty() {
            return Err(UnitFault::Syntax(SYNTAX));
        }
        let Ok(number) = digits.parse::<u64>() else { return Err(UnitFault::TooLarge) };
        millis = number
            .checked_mul(*each)
            .and_then(|more| millis.checked_add(more))
            .filter(|sum| *sum <= MAX_MILLIS)
            .ok_or(UnitFault::TooLarge)?;
        rest = after;
    }
    Span::from_millis(millis).ok_or(UnitFault::Zero)
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0.as_millis();
        for (name, each) in UNITS {
            let each = u128::from(each);
            if left >= each {
                write!(f, "{}{name}", left / each)?;
                left %= each;
            }
        }
        Ok(())
    }
}

amount_in_documents!(Span, fractions: false, schema: {
    "description": "A length of time, such as `500ms`, `30s`, `5m`, `2h` or `1h30m`.",
    "type": "string",
    "pattern": "^(?=.)([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    macro_rules! span {
        ($claim:ident, $written:expr, $expected:expr) => {
            #[test]
            fn $claim() {
                let shown = match Span::parse($written) {
                    Ok(span) => format!("{:?} = {span}", span.get()),
                    Err(err) => err.to_string(),
                };
                assert_eq!(shown, $expected);
            }
        };
    }

    span!(milliseconds, "500ms", "500ms = 500ms");
    span!(seconds, "30s", "30s = 30s");
    span!(minutes, "5m", "300s = 5m");
    span!(hours, "2h", "7200s = 2h");
    span!(days, "1d", "86400s = 1d");
    span!(several_units, "1h30m", "5400s = 1h30m");
    span!(all_units, "1d2h3m4s5ms", "93784.005s = 1d2h3m4s5ms");
    span!(more_than_the_next_unit, "90m", "5400s = 1h30m");
    span!(zero, "0s", "`0s` is not a length of time: it must be more than zero");
    span!(no_unit, "30", "`30` is not a length of time: write `30s`");
    span!(no_unit_and_no_zero, "45", "`45` is not a length of time: write `45s`");
    span!(zero_without_a_unit, "0", "`0` is not a length of time: it must be more than zero");
    span!(too_large, "36501d", "`36501d` is not a length of time: it is too large");
    span!(
        far_too_large,
        "99999999999999999999d",
        "`99999999999999999999d` is not a length of time: it is too large"
    );

    macro_rules! unreadable {
        ($claim:ident, $written:expr) => {
            #[test]
            fn $claim() {
                assert_eq!(Span::parse($written).unwrap_err().fault(), &UnitFault::Syntax(SYNTAX));
            }
        };
    }

    unreadable!(nothing, "");
    unreadable!(a_unit_alone, "m");
    unreadable!(a_fraction, "1.5h");
    unreadable!(a_space, "5 m");
    unreadable!(negative, "-5m");
    unreadable!(a_long_unit, "5min");
    unreadable!(upper_case, "5M");
    unreadable!(units_in_the_wrong_order, "30m1h");
    unreadable!(a_unit_twice, "1h1h");
    unreadable!(a_second_number_without_a_unit, "1h30");

    #[test]
    fn a_document_may_give_text_only() {
        assert_eq!(serde_json::from_str::<Span>(r#""5m""#).unwrap().to_string(), "5m");
        let err = serde_json::from_str::<Span>("30").unwrap_err();
        assert!(err.to_string().starts_with("`30` is not a length of time: write `30s`"), "{err}");
    }

    proptest! {
        #[test]
        fn a_span_reads_back_as_itself(millis in 1..=MAX_MILLIS) {
            let span = Span::from_millis(millis).unwrap();
            prop_assert_eq!(Span::parse(&span.to_string()), Ok(span));
        }

        #[test]
        fn any_text_is_read_or_refused_harmlessly(written in "[0-9]{0,300}\\PC{0,300}") {
            if let Err(err) = Span::parse(&written) {
                prop_assert!(crate::quoted_input::is_harmless(&err.to_string()));
            }
        }
    }
}
