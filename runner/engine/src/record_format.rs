//! How records write what serde has no usual form for.

use serde::Serializer;

/// As a list of what stands in the policy.
pub(crate) fn as_written<C, S>(items: &C, serializer: S) -> Result<S::Ok, S::Error>
where
    for<'c> &'c C: IntoIterator<Item: ToString>,
    S: Serializer,
{
    serializer.collect_seq(items.into_iter().map(|item| item.to_string()))
}

/// A span of time: seconds, with a fraction.
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::de::{Deserialize as _, Deserializer, Error as _};
    use serde::ser::Serializer;

    pub(crate) fn serialize<S: Serializer>(
        span: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(span.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds).map_err(D::Error::custom)
    }
}
