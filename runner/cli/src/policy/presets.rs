//! `sluice policy presets`: what a policy can extend without a file.

use clap::Args;
use policies::presets;
use serde::Serialize;

use crate::console::{Console, Format};
use crate::exit::{Exit, Failure};

/// List the presets that policies can extend, or print one.
#[derive(Debug, Args)]
pub(super) struct Presets {
    /// The preset to print.
    name: Option<String>,
}

#[derive(Debug, Serialize)]
struct ListedPreset {
    name: &'static str,
    about: String,
}

pub(super) fn run(asked: &Presets, console: &mut Console) -> Result<Exit, Failure> {
    if let Some(name) = &asked.name {
        let Some(source) = presets::find(name) else {
            let known = presets::names().join(", ");
            return Err(Failure::Usage(format!("there is no preset `{name}`; known are {known}")));
        };
        console.raw(source.text.as_bytes())?;
        return Ok(Exit::Success);
    }
    let all: Vec<ListedPreset> = presets::names()
        .into_iter()
        .map(|name| ListedPreset { name, about: about(name) })
        .collect();
    if console.format == Format::Table {
        let width = all.iter().map(|listed| listed.name.len()).max().unwrap_or_default();
        for ListedPreset { name, about } in &all {
            console.line(format_args!("{name:width$}  {about}"))?;
        }
    } else {
        console.json_list(&all)?;
    }
    Ok(Exit::Success)
}

/// The first sentence of the comment that a preset begins with.
fn about(name: &str) -> String {
    let text = presets::find(name).map(|source| source.text).unwrap_or_default();
    let comment: Vec<&str> = text
        .lines()
        .map_while(|line| line.strip_prefix('#'))
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.contains("$schema"))
        .collect();
    let comment = comment.join(" ");
    comment
        .split_once(". ")
        .map_or(comment.as_str(), |(first, _)| first)
        .trim_end_matches('.')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_says_what_it_is_in_a_sentence() {
        for name in presets::names() {
            let about = about(name);
            assert!((10..160).contains(&about.len()), "{name}: {about:?}");
        }
    }
}
