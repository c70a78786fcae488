//! `--env`: variables for a command, and what is recorded of their values.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use engine::environment::Environment;
use engine::evidence::ValueKey;
use engine::state_folder;

use crate::exit::Failure;

/// `NAME=VALUE`, or `NAME` for what it is here.
pub(crate) fn environment(
    written: &[String],
    variables: &Environment,
) -> Result<Vec<(String, String)>, Failure> {
    let mut set: Vec<(String, String)> = Vec::new();
    // The variable that stands for the flag has one a line; a flag's value may have lines.
    let twin = text(variables, "SLUICE_ENV").filter(|twin| written == [twin.as_str()]);
    let lines: Vec<String> = match &twin {
        Some(twin) => twin.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect(),
        None => written.to_vec(),
    };
    for entry in &lines {
        let (name, value) = match entry.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let ours = text(variables, entry).ok_or_else(|| {
                    Failure::Usage(format!("`{entry}` is not set here; write {entry}=VALUE"))
                })?;
                (entry.as_str(), ours)
            }
        };
        if !is_variable_name(name) || value.contains('\0') {
            let why =
                "a name has letters, digits, `_`, `.` and `-`, and begins with a letter or `_`";
            return Err(Failure::Usage(format!("`{entry}` is not NAME=VALUE: {why}")));
        }
        set.retain(|(known, _)| known != name);
        set.push((name.to_owned(), value));
    }
    Ok(set)
}

fn is_variable_name(name: &str) -> bool {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

/// A variable that is text.
pub(super) fn text(variables: &Environment, name: &str) -> Option<String> {
    variables.variable(name)?.into_string().ok()
}

/// What is recorded of values that a person gave. The key is made for the first.
pub(super) fn hashes<'v>(
    state: &Path,
    given: impl Iterator<Item = &'v (String, String)>,
) -> io::Result<BTreeMap<String, String>> {
    let mut given = given.peekable();
    if given.peek().is_none() {
        return Ok(BTreeMap::new());
    }
    let key = ValueKey::load_or_create(&state_folder::value_key(state))?;
    Ok(given.map(|(name, value)| (name.clone(), key.hash(name, value))).collect())
}
