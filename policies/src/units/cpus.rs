//! Shares of processors.

use std::fmt;

use super::{UnitError, UnitFault, amount_in_documents};

/// A number of processors, in thousandths, at least one of those.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Cpus {
    millis: u32,
}

impl Cpus {
    /// Reads a decimal number with at most three places.
    ///
    /// ```
    /// use policies::Cpus;
    ///
    /// assert_eq!(Cpus::parse("0.5")?.millis(), 500);
    ///
    /// let err = Cpus::parse("500m").unwrap_err();
    /// assert_eq!(
    ///     err.to_string(),
    ///     "`500m` is not a number of processors: write a number such as `2` or `0.5`",
    /// );
    /// # Ok::<(), policies::UnitError>(())
    /// ```
    pub fn parse(written: &str) -> Result<Self, UnitError> {
        read(written).map_err(|why| UnitError::new(written, WHAT, why))
    }

    /// Thousandths of a processor.
    pub const fn millis(self) -> u32 {
        self.millis
    }
}

const WHAT: &str = "number of processors";
const SYNTAX: &str = "a number such as `2` or `0.5`";
const MAX_DECIMAL_PLACES: usize = 3;

fn read(written: &str) -> Result<Cpus, UnitFault> {
    let (whole, places) = match written.split_once('.') {
        None => (written, ""),
        Some((_, "")) => return Err(UnitFault::Syntax(SYNTAX)),
        Some((whole, places)) => (whole, places),
    };
    let is_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(places) {
        return Err(UnitFault::Syntax(SYNTAX));
    }
    if places.len() > MAX_DECIMAL_PLACES {
        return Err(UnitFault::Syntax("at most three places after the point"));
    }
    match format!("{whole}{places:0<MAX_DECIMAL_PLACES$}").parse() {
        Ok(0) => Err(UnitFault::Zero),
        Ok(millis) => Ok(Cpus { millis }),
        Err(_) => Err(UnitFault::TooLarge),
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, places) = (self.millis / 1000, self.millis % 1000);
        match places {
            0 => write!(f, "{whole}"),
            _ => write!(f, "{whole}.{}", format!("{places:03}").trim_end_matches('0')),
        }
    }
}

amount_in_documents!(Cpus, fractions: true, schema: {
    "description": "A number of processors, such as `2` or `0.5`.",
    "anyOf": [
        { "type": "number", "exclusiveMinimum": 0 },
        { "type": "string", "pattern": "^[0-9]+([.][0-9]{1,3})?$" },
    ],
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    macro_rules! cpus {
        ($claim:ident, $written:expr, $expected:expr) => {
            #[test]
            fn $claim() {
                let shown = match Cpus::parse($written) {
                    Ok(cpus) => format!("{} = {cpus}", cpus.millis()),
                    Err(err) => err.fault().to_string(),
                };
                assert_eq!(shown, $expected);
            }
        };
    }

    cpus!(whole, "2", "2000 = 2");
    cpus!(half, "0.5", "500 = 0.5");
    cpus!(the_least, "0.001", "1 = 0.001");
    cpus!(trailing_zeros, "1.250", "1250 = 1.25");
    cpus!(zero, "0.000", "it must be more than zero");
    cpus!(too_fine, "0.0001", "write at most three places after the point");
    cpus!(too_large, "4294968", "it is too large");
    cpus!(negative, "-1", "write a number such as `2` or `0.5`");
    cpus!(no_whole_part, ".5", "write a number such as `2` or `0.5`");
    cpus!(no_places, "1.", "write a number such as `2` or `0.5`");
    cpus!(two_points, "1.2.3", "write a number such as `2` or `0.5`");
    cpus!(not_a_number, "NaN", "write a number such as `2` or `0.5`");
    cpus!(nothing, "", "write a number such as `2` or `0.5`");

    #[test]
    fn a_document_may_give_a_number_or_text() {
        for written in ["1.5", r#""1.5""#, "1.50"] {
            assert_eq!(serde_json::from_str::<Cpus>(written).unwrap().millis(), 1500, "{written}");
        }
        for wrong in ["0", "-1", "1e300", "true", "0.0005"] {
            assert!(serde_json::from_str::<Cpus>(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn cpus_read_back_as_themselves(millis in 1u32..) {
            let cpus = Cpus { millis };
            prop_assert_eq!(Cpus::parse(&cpus.to_string()), Ok(cpus));
        }

        #[test]
        fn any_text_is_read_or_refused_harmlessly(written in "[0-9]{0,300}\\PC{0,300}") {
            if let Err(err) = Cpus::parse(&written) {
                prop_assert!(crate::quoted_input::is_harmless(&err.to_string()));
            }
        }
    }
}
