//! What the reader makes of awkward files.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    name: String,
    #[serde(default)]
    on: bool,
    #[serde(default)]
    mode: Option<SampleMode>,
    #[serde(default)]
    items: Vec<Item>,
    #[serde(default)]
    more: BTreeMap<String, u16>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SampleMode {
    Fast,
    Slow,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    host: String,
    #[serde(default)]
    port: Option<u16>,
}

#[test]
fn what_is_right_is_read() {
    let text =
        "name: x\non: true\nmode: fast\nitems: [{host: a, port: 1}, {host: b}]\nmore: {k: 7}\n";
    let sample: Sample = read(&Source::new("f", text)).unwrap();
    assert_eq!((sample.name.as_str(), sample.on), ("x", true));
    assert!(matches!(sample.mode, Some(SampleMode::Fast)));
    let items: Vec<_> = sample.items.iter().map(|i| (i.host.as_str(), i.port)).collect();
    assert_eq!(items, [("a", Some(1)), ("b", None)]);
    assert_eq!(sample.more["k"], 7);
}

#[test]
fn an_item_knows_its_number_and_whether_it_is_whole() {
    #[derive(Debug, Deserialize)]
    struct SampleList {
        items: Vec<spanned::Item<Item>>,
    }
    let text = "items:\n  - {host: a, port: 70000}\n  - {port: 1}\n  - {host: c, port: 3}\n";
    let (listed, problems) = read_partial::<SampleList>(&Source::new("f", text));
    let items: Vec<_> = listed
        .unwrap()
        .items
        .into_iter()
        .map(|item| (item.index, item.whole, item.at.line, item.value.host))
        .collect();
    assert_eq!(items, [(0, false, 2, "a".to_owned()), (2, true, 4, "c".to_owned())]);
    assert_eq!(problems.len(), 2);
}

#[test]
fn every_problem_is_reported_with_its_place() {
    check(
        "nmae: x\non: yes\nmode: fsat\nitems:\n  - {host: a, prot: 1}\n  - {port: 70000, host: b}\n  - {port: 1}\nmore: {k: -1}\n",
        expect![[r#"
            f:1:1: `name` is missing
              1 | nmae: x
                | ^
            f:1:1: nmae: there is no field `nmae`; did you mean `name`?
              1 | nmae: x
                | ^^^^
            f:2:5: on: expected `true` or `false`, found `yes`; write `true`
              2 | on: yes
                |     ^^^
            f:3:7: mode: `fsat` is not one of `fast`, `slow`; did you mean `fast`?
              3 | mode: fsat
                |       ^^^^
            f:5:15: items[0].prot: there is no field `prot`; did you mean `port`?
              5 |   - {host: a, prot: 1}
                |               ^^^^
            f:6:12: items[1].port: expected a whole number from 0 to 65535, found the number 70000
              6 |   - {port: 70000, host: b}
                |            ^^^^^
            f:7:5: items[2]: `host` is missing
              7 |   - {port: 1}
                |     ^
            f:8:11: more.k: expected a whole number from 0 to 65535, found the number -1
              8 | more: {k: -1}
                |           ^^"#]],
    );
}

#[test]
fn a_value_with_a_problem_does_not_also_count_as_missing() {
    check(
        "name: [1]\n",
        expect![[r#"
            f:1:7: name: expected text, found a list
              1 | name: [1]
                |       ^"#]],
    );
}

#[test]
fn a_doubled_key_is_an_error_and_both_places_are_named() {
    check(
        "name: a\non: true\nname: b\n",
        expect![[r#"
            f:3:1: `name` stands twice; the first is on line 1
              3 | name: b
                | ^^^^"#]],
    );
}

#[test]
fn surprises_of_yaml_are_refused() {
    check(
        "name: &a x\nitems: [*a, !evil {host: a}]\nmore:\n  <<: {k: 1}\n  1: 2\n",
        expect![[r#"
            f:1:10: name: anchors (`&name`) are not read; write the value out where it is used
              1 | name: &a x
                |          ^
            f:2:9: items[0]: aliases (`*name`) are not read; write the value out
              2 | items: [*a, !evil {host: a}]
                |         ^^
            f:2:19: items[1]: tags (`!name`) are not read; write the plain value
              2 | items: [*a, !evil {host: a}]
                |                   ^
            f:4:3: more: merge keys (`<<`) are not read; write the fields out
              4 |   <<: {k: 1}
                |   ^^
            f:5:3: more: a key must be text; put it in quotes if it looks like a number
              5 |   1: 2
                |   ^"#]],
    );
}

#[test]
fn a_second_document_an_empty_file_and_broken_syntax_are_refused() {
    check(
        "name: a\n---\nname: b\n",
        expect![[r#"
        f:2:1: a second document starts here; write one document per file
          2 | ---
            | ^^^"#]],
    );
    check("# nothing\n", expect!["f: the file is empty"]);
    check(
        "name: [a\n",
        expect![[r#"
        f:1:7: not YAML: unclosed bracket '['
          1 | name: [a
            |       ^"#]],
    );
}

#[test]
fn no_key_is_dropped_silently() {
    check(
        "name: a\n\"\\0\": 1\n",
        expect![[r#"
        f:2:1: \u{0}: there is no field `\u{0}`; known here: `name`, `on`, `mode`, `items`, `more`
          2 | "\0": 1
            | ^^^^"#]],
    );
}

#[test]
fn nesting_is_bounded() {
    let deep = format!("name: {}{}\n", "[".repeat(100), "]".repeat(100));
    let problems = read::<Sample>(&Source::new("f", deep)).unwrap_err();
    assert!(problems.to_string().contains("nested deeper than 24 levels"), "{problems}");
}

/// What is expected is said in words for people, whatever serde calls it.
#[test]
fn what_is_expected_is_said_in_plain_words() {
    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Typed {
        #[serde(rename = "list")]
        _list: Vec<String>,
        #[serde(rename = "medium")]
        _medium: u32,
        #[serde(rename = "large")]
        _large: u64,
        #[serde(rename = "size")]
        _size: usize,
        #[serde(rename = "map")]
        _map: BTreeMap<String, u16>,
        #[serde(rename = "item")]
        _item: Option<Item>,
        #[serde(rename = "text")]
        _text: String,
        #[serde(rename = "mode")]
        mode: Option<SampleMode>,
    }
    for (text, message) in [
        ("list: x", "expected a list, found `x`"),
        ("medium: -1", "expected a whole number from 0 to 4294967295, found the number -1"),
        ("medium: yes", "expected a whole number from 0 to 4294967295, found `yes`"),
        ("large: -1", "expected a whole number, not negative, found the number -1"),
        ("size: x", "expected a whole number, not negative, found `x`"),
        ("map: x", "expected a mapping of fields, found `x`"),
        ("item: x", "expected a mapping of fields, found `x`"),
        ("text: {a: b}", "expected text, found a mapping"),
        ("text: 1.5", "expected text, found the number 1.5"),
        ("text: .5", "expected text, found the number 0.5"),
        ("text: -3", "expected text, found the number -3"),
        ("text:", "expected text, found nothing; give it a value or remove the line"),
        ("mode: true", "`true` is not one of `fast`, `slow`"),
        ("mode: 7", "expected one of `fast`, `slow`"),
        ("mode: {fast: 1}", "`fast` takes no value"),
        ("mode: {fast: 1, slow: 2}", "expected exactly one of `fast`, `slow`"),
    ] {
        let problems = read::<Typed>(&Source::new("f", text)).unwrap_err();
        let messages: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(messages, [message], "{text}");
    }
    let nothing: Typed = read(&Source::new("f", "mode: ~\n")).unwrap();
    assert!(nothing.mode.is_none());
}

#[test]
fn a_place_is_told_by_our_reader_alone() {
    use serde::de::IntoDeserializer;
    let from_elsewhere: serde::de::value::U32Deserializer<serde::de::value::Error> =
        5u32.into_deserializer();
    let err = spanned::Spanned::<u32>::deserialize(from_elsewhere).unwrap_err().to_string();
    assert!(err.contains("a value with its place"), "{err}");
}

#[test]
fn what_was_refused_is_not_judged_as_well() {
    check(
        "name: a\non: &a maybe\n",
        expect![[r#"
        f:2:8: on: anchors (`&name`) are not read; write the value out where it is used
          2 | on: &a maybe
            |        ^^^^^"#]],
    );
    check(
        "name: a\non: !a maybe\n",
        expect![[r#"
        f:2:8: on: tags (`!name`) are not read; write the plain value
          2 | on: !a maybe
            |        ^^^^^"#]],
    );
    check(
        "name: a\n&a on: maybe\n",
        expect![[r#"
        f:2:4: anchors (`&name`) are not read; write the value out where it is used
          2 | &a on: maybe
            |    ^^"#]],
    );
    check(
        "name: a\nmore: {~: 1}\n",
        expect![[r#"
        f:2:8: more: a key is missing before `:`
          2 | more: {~: 1}
            |        ^"#]],
    );
}

#[test]
fn a_word_for_yes_or_no_is_told_from_another() {
    for (word, hint) in [
        ("yes", "true"),
        ("ON", "true"),
        ("no", "false"),
        ("Off", "false"),
        ("n", "false"),
        ("flase", "false"),
    ] {
        let problems =
            read::<Sample>(&Source::new("f", format!("name: a\non: {word}\n"))).unwrap_err();
        let said = problems.iter().next().unwrap().message.clone();
        assert!(said.ends_with(&format!("; write `{hint}`")), "{said}");
    }
}

#[test]
fn a_file_may_be_as_long_as_it_may_be() {
    let of = |length: usize| {
        let text = "name: a\n#";
        read::<Sample>(&Source::new("f", format!("{text}{}", "x".repeat(length - text.len()))))
    };
    const LONGEST: usize = 4 << 20;
    assert!(of(LONGEST).is_ok());
    for length in [LONGEST + 1, LONGEST + 9] {
        let problems = of(length).unwrap_err().to_string();
        assert!(problems.contains("at most 4194304 are read"), "{problems}");
    }
}

#[test]
fn nesting_is_permitted_to_its_bound() {
    let deep = |levels: usize| format!("name: {}{}\n", "[".repeat(levels), "]".repeat(levels));
    let told = |levels| read::<Sample>(&Source::new("f", deep(levels))).unwrap_err().to_string();
    // The file itself is the first level.
    assert!(!told(23).contains("nested deeper"), "{}", told(23));
    assert!(told(24).contains("nested deeper than 24 levels"), "{}", told(24));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        drop(read::<Sample>(&Source::new("f", text)));
    }

    /// Made of YAML's own pieces, so that more than the first line is reached.
    #[test]
    fn no_arrangement_of_yaml_makes_the_reader_panic(
        pieces in proptest::collection::vec(
            proptest::sample::select(vec![
                "name", ": ", "- ", "\n", "  ", "{", "}", "[", "]", ", ", "&a ", "*a", "!t ", "|", ">",
                "\"", "'", "---\n", "...\n", "<<", "? ", "~", "true", "1", "host", "items", "#", "\t", "%",
            ]),
            0..40,
        )
    ) {
        drop(read::<Sample>(&Source::new("f", pieces.concat())));
    }
}

/// The only function here that knows the reader's API.
#[track_caller]
fn check(text: &str, expected: Expect) {
    let problems = read::<Sample>(&Source::new("f", text)).unwrap_err();
    expected.assert_eq(&problems.to_string());
}

#[test]
fn a_number_in_quotes_is_told_from_a_number() {
    let source = crate::Source::new("p", "version: \"1\"\n");
    let told = crate::read(&source, &crate::NoFiles).unwrap_err().to_string();
    assert!(told.contains("in quotes, which is text; leave the quotes out"), "{told}");
}
