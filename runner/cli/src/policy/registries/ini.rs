//! The lines of `pip.conf` and `.npmrc`.
//!
//! Both are `key = value` under optional `[section]` headings with `#` and `;`
//! comments. They differ in indented lines: pip's continue the value above,
//! npm's stand for themselves.

/// One setting. The key is in lower case with `-` for `_`, as both compare it.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct IniSetting {
    pub(super) section: String,
    pub(super) key: String,
    pub(super) value: String,
}

/// What an indented line is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Indented {
    Continues,
    StandsAlone,
}

/// Every setting, in the order of the file.
pub(super) fn settings(text: &str, indented: Indented) -> Vec<IniSetting> {
    let mut section = String::new();
    let mut found: Vec<IniSetting> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        let continues = indented == Indented::Continues && line.starts_with([' ', '\t']);
        if let (true, Some(last)) = (continues, found.last_mut()) {
            last.value.push('\n');
            last.value.push_str(trimmed);
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim().to_owned();
            continue;
        }
        // A `:` separates too, for pip; for npm it is part of a scope's key.
        let separators: &[char] = match indented {
            Indented::Continues => &['=', ':'],
            Indented::StandsAlone => &['='],
        };
        if let Some((key, value)) = trimmed.split_once(separators) {
            let key = key.trim().trim_start_matches("--").to_ascii_lowercase().replace('_', "-");
            let value = value.trim().trim_matches(['"', '\'']).to_owned();
            found.push(IniSetting { section: section.clone(), key, value });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spelled(text: &str, indented: Indented) -> Vec<String> {
        let spell = |setting: &IniSetting| {
            format!("{}|{}|{}", setting.section, setting.key, setting.value.replace('\n', "+"))
        };
        settings(text, indented).iter().map(spell).collect()
    }

    #[test]
    fn pip_continues_values_on_indented_lines() {
        let text = "# c\n[global]\nindex_url = https://a.example/\nextra-index-url =\n    https://b.example/\n    https://c.example/\n[install]\nno-index: true\n";
        assert_eq!(
            spelled(text, Indented::Continues),
            [
                "global|index-url|https://a.example/",
                "global|extra-index-url|+https://b.example/+https://c.example/",
                "install|no-index|true",
            ]
        );
    }

    #[test]
    fn npm_quotes_values_and_puts_scopes_into_keys() {
        let text = "  registry=\"https://a.example/\"\n@Acme:registry = https://b.example/\n;x=y\n";
        assert_eq!(
            spelled(text, Indented::StandsAlone),
            ["|registry|https://a.example/", "|@acme:registry|https://b.example/"]
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text: String) {
            settings(&text, Indented::Continues);
            settings(&text, Indented::StandsAlone);
        }
    }
}
