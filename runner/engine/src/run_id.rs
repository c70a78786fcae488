//! The name of one run: sorted by time, short enough to type, unlike any other.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// `20261116-031045-7f3a2b`: when it began (UTC), and six digits of chance.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RunId(String);

/// Not the name of a run.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "`{written}` is not a run; they look like `20261116-031045-7f3a2b`, and `sluice ls` lists them"
)]
pub struct NotARun {
    written: String,
}

impl RunId {
    /// A new name for a run that begins now.
    pub fn now() -> Self {
        Self::at(Timestamp::now(), Uuid::now_v7())
    }

    fn at(begun: Timestamp, chance: Uuid) -> Self {
        // The part of the second comes first, so that runs sort by when they began.
        let fraction = u64::from(begun.subsec_nanosecond().unsigned_abs()) * 65_536 / 1_000_000_000;
        let [.., chance] = chance.into_bytes();
        Self(format!("{}-{fraction:04x}{chance:02x}", begun.strftime("%Y%m%d-%H%M%S")))
    }

    /// Reads a name as a person wrote it, or as a label holds it.
    ///
    /// ```
    /// use engine::run_id::RunId;
    ///
    /// assert_eq!(RunId::parse("20261116-031045-7f3a2b")?.short(), "7f3a2b");
    /// assert!(RunId::parse("../../etc").is_err());
    /// # Ok::<(), engine::run_id::NotARun>(())
    /// ```
    pub fn parse(written: &str) -> Result<Self, NotARun> {
        let shape = "########-######-xxxxxx";
        let fits = written.len() == shape.len()
            && written.bytes().zip(shape.bytes()).all(|(byte, wanted)| match wanted {
                b'#' => byte.is_ascii_digit(),
                b'x' => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
                other => byte == other,
            });
        if fits {
            return Ok(Self(written.to_owned()));
        }
        let written = written.chars().filter(|c| !c.is_control()).take(60).collect();
        Err(NotARun { written })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part that differs within a second; names of network devices have no room
    /// for more.
    pub fn short(&self) -> &str {
        self.0.rsplit('-').next().unwrap_or_default()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        Self::parse(&written).map_err(serde::de::Error::custom)
    }
}

impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_run_reads_back_as_itself() {
        let run = RunId::now();
        assert_eq!(RunId::parse(run.as_str()), Ok(run));
    }

    #[test]
    fn runs_of_one_second_sort_by_when_they_began() {
        let at = |moment: &str| RunId::at(moment.parse().unwrap(), Uuid::now_v7());
        let moments =
            ["10:00:00.000Z", "10:00:00.001Z", "10:00:00.5Z", "10:00:00.999999Z", "10:00:01Z"];
        let runs: Vec<RunId> =
            moments.iter().map(|moment| at(&format!("2026-11-16T{moment}"))).collect();
        assert!(runs.is_sorted(), "{runs:?}");
        assert!(runs.iter().all(|run| RunId::parse(run.as_str()).as_ref() == Ok(run)));
    }

    #[test]
    fn what_is_no_run_never_becomes_a_path() {
        for written in ["", "..", "20261116-031045-7F3A2B", "20261116-031045-7f3a2b/", "a"] {
            assert!(RunId::parse(written).is_err(), "{written}");
        }
    }
}
