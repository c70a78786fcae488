//! Values of the command line for `${NAME}` in the settings.
//!
//! The addresses of a container's networks are not known when the settings are
//! written: with `${inside}:3128` in the file and `--set inside=10.89.0.2` one file
//! serves every sandbox. Values come from the command line alone, never from the
//! environment, and cannot hold what would change the meaning of the file.

use std::collections::BTreeMap;
use std::str::FromStr;

/// `NAME=VALUE`, as `--set` takes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SettingValue {
    name: String,
    value: String,
}

/// Why `--set` is refused.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{written}` gives no value; write NAME=VALUE, with letters, digits and any of `.:_/-`")]
pub struct SettingValueError {
    written: String,
}

impl FromStr for SettingValue {
    type Err = SettingValueError;

    fn from_str(written: &str) -> Result<Self, SettingValueError> {
        let wrong = || SettingValueError { written: written.to_owned() };
        let (name, value) = written.split_once('=').ok_or_else(wrong)?;
        let harmless = |c: char| c.is_ascii_alphanumeric() || ".:_/-".contains(c);
        if is_name(name) && !value.is_empty() && value.chars().all(harmless) {
            Ok(Self { name: name.to_owned(), value: value.to_owned() })
        } else {
            Err(wrong())
        }
    }
}

/// `text` with every `${NAME}` filled in; or the first name that nobody gave.
pub(super) fn fill(text: &str, given: &[SettingValue]) -> Result<String, String> {
    let given: BTreeMap<&str, &str> =
        given.iter().map(|given| (given.name.as_str(), given.value.as_str())).collect();
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        filled.push_str(before);
        // What is not a name stays as it is written.
        let named = after.split_once('}').filter(|(name, _)| is_name(name));
        let Some((name, after)) = named else {
            filled.push_str("${");
            rest = after;
            continue;
        };
        filled.push_str(given.get(name).ok_or_else(|| name.to_owned())?);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(written: &[&str]) -> Vec<SettingValue> {
        written.iter().map(|written| written.parse().unwrap()).collect()
    }

    #[test]
    fn every_name_is_filled_in_and_nothing_else_changes() {
        let given = given(&["inside=10.0.0.2", "port=53"]);
        let filled = fill("dns: ${inside}:${port} # $x ${ ${a b} }", &given).unwrap();
        assert_eq!(filled, "dns: 10.0.0.2:53 # $x ${ ${a b} }");
    }

    #[test]
    fn a_name_that_nobody_gave_is_named_not_left_empty() {
        assert_eq!(fill("${inside}:1", &[]), Err("inside".to_owned()));
    }

    #[test]
    fn a_value_cannot_change_the_file_around_it() {
        for written in
            ["a", "a=", "=b", "a=b c", "a=b\nc", "a=}", "a=${b}", "a b=c", "a='b'", "a=#"]
        {
            assert!(written.parse::<SettingValue>().is_err(), "{written:?}");
        }
        // And what is filled in is not filled again.
        assert_eq!(fill("${a}", &given(&["a=b"])).unwrap(), "b");
    }
}
