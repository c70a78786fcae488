//! The presets we ship: small policies to extend.
//!
//! Each is an ordinary policy file in `policies/presets`, read by the same
//! code as everybody else's and carrying its own tests.

use crate::problems::Source;

/// The preset of this name.
pub fn find(name: &str) -> Option<Source> {
    let (name, text) = PRESETS.iter().find(|(known, _)| *known == name)?;
    Some(Source::new(*name, *text))
}

/// The names of all presets, sorted.
pub fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|(name, _)| *name).collect()
}

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../presets/", $name, ".policy.yaml")))),*]
    };
}

const PRESETS: &[(&str, &str)] = presets![
    "deny-all",
    "github-read",
    "github-write",
    "llm-anthropic",
    "llm-openai",
    "no-exfiltration",
    "node-dev",
    "python-dev",
];

#[cfg(test)]
mod tests;
