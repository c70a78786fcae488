//! When something happened, and how long it took.
//!
//! Both have one spelling in the log: an instant is RFC 3339 in UTC with
//! exactly six digits of a second, so that sorting lines as text sorts them by
//! time; a length is a number of milliseconds.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

/// The one spelling of an instant.
const INSTANT_FORMAT: DateTimePrinter = DateTimePrinter::new().precision(Some(6));

/// An instant, to the microsecond.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Time(Timestamp);

impl Time {
    /// The wall clock's reading.
    pub fn now() -> Self {
        Timestamp::now().into()
    }

    /// As the time library's own type.
    pub fn timestamp(self) -> Timestamp {
        self.0
    }
}

impl From<Timestamp> for Time {
    /// Drops what the log would not show, so that reading back is exact.
    fn from(at: Timestamp) -> Self {
        Self(Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at))
    }
}

/// Reads RFC 3339 with any offset.
///
/// ```
/// use audit::Time;
///
/// let time: Time = "2026-03-01T10:00:00.5+01:00".parse().unwrap();
/// assert_eq!(time.to_string(), "2026-03-01T09:00:00.500000Z");
/// assert!("yesterday".parse::<Time>().is_err());
/// ```
impl FromStr for Time {
    type Err = jiff::Error;

    fn from_str(written: &str) -> Result<Self, jiff::Error> {
        written.parse::<Timestamp>().map(Self::from)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&INSTANT_FORMAT.timestamp_to_string(&self.0))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&INSTANT_FORMAT.timestamp_to_string(&self.0))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Cow::<'de, str>::deserialize(deserializer)?;
        written.parse().map_err(de::Error::custom)
    }
}

/// A length of time, written as milliseconds with up to three decimals.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Millis {
    micros: u64,
}

/// Beyond this a double no longer counts single microseconds: 285 years.
const MAX_MICROS: u64 = 1 << 53;

impl From<Duration> for Millis {
    fn from(length: Duration) -> Self {
        let micros = u64::try_from(length.as_micros()).unwrap_or(MAX_MICROS);
        Self { micros: micros.min(MAX_MICROS) }
    }
}

impl Millis {
    /// As the standard library's type.
    pub fn duration(self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// As a number of milliseconds.
    pub fn as_f64(self) -> f64 {
        self.micros as f64 / 1000.0
    }
}

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let millis = f64::deserialize(deserializer)?;
        // The cast saturates, also from what is not a number.
        Ok(Self { micros: ((millis * 1000.0).round() as u64).min(MAX_MICROS) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_instant_reads_back_as_written(micros in 0i64..4_102_444_800_000_000) {
            let time = Time(Timestamp::from_microsecond(micros).unwrap());
            prop_assert_eq!(time.to_string().len(), 27);
            prop_assert_eq!(time.to_string().parse::<Time>().unwrap(), time);
        }

        #[test]
        fn a_length_reads_back_as_written(micros in 0u64..100_000_000_000_000) {
            let length = Millis { micros };
            let written = serde_json::to_string(&length).unwrap();
            prop_assert_eq!(serde_json::from_str::<Millis>(&written).unwrap(), length);
        }
    }

    #[test]
    fn nanoseconds_are_dropped_when_taken_not_when_written() {
        let exact: Timestamp = "2026-01-01T00:00:00.123456789Z".parse().unwrap();
        let time = Time::from(exact);
        assert_eq!(time.to_string().parse::<Time>().unwrap(), time);
    }
}
