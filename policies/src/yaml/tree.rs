//! A YAML document as a tree that knows where everything stands.
//!
//! Built from the parser's events, because only there is everything still
//! visible: both places of a doubled key, a tag, an alias.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};

use granit_parser::{Event, Marker, Parser, ScalarStyle, Span};

use super::MAX_PROBLEMS;
use crate::problems::{Position, Problem, Problems, Source, did_you_mean};

#[derive(Debug)]
pub(super) struct YamlNode {
    pub(super) at: Position,
    pub(super) value: YamlValue,
}

#[derive(Debug)]
pub(super) enum YamlValue {
    Bool(bool),
    Float(f64),
    Integer(i64),
    List(Vec<YamlNode>),
    Map(Vec<(MapKey, YamlNode)>),
    Null,
    /// A value with a problem, reported already; as if it were not there.
    SetAside,
    Text(String),
}

#[derive(Debug)]
pub(super) struct MapKey {
    pub(super) at: Position,
    pub(super) text: String,
}

/// One step from a node to a value in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum PathStep {
    Index(usize),
    Key(String),
}

impl YamlNode {
    /// Whether nothing in it was set aside.
    pub(super) fn is_whole(&self) -> bool {
        match &self.value {
            YamlValue::List(items) => items.iter().all(Self::is_whole),
            YamlValue::Map(entries) => entries.iter().all(|(_, node)| node.is_whole()),
            YamlValue::SetAside => false,
            YamlValue::Bool(_)
            | YamlValue::Float(_)
            | YamlValue::Integer(_)
            | YamlValue::Null
            | YamlValue::Text(_) => true,
        }
    }

    /// Removes the value at the end of `steps` from what is read. Says whether
    /// it was there to be removed.
    pub(super) fn set_aside(&mut self, steps: &[PathStep]) -> bool {
        let Some((step, rest)) = steps.split_first() else {
            let first_time = !matches!(self.value, YamlValue::SetAside);
            self.value = YamlValue::SetAside;
            return first_time;
        };
        let next = match (&mut self.value, step) {
            (YamlValue::List(items), PathStep::Index(index)) => items.get_mut(*index),
            (YamlValue::Map(entries), PathStep::Key(name)) => {
                entries.iter_mut().find(|(key, _)| key.text == *name).map(|(_, node)| node)
            }
            _ => None,
        };
        next.is_some_and(|node| node.set_aside(rest))
    }
}

/// Builds the tree of the only document in `source`.
///
/// There is no tree when the text is not YAML at all; otherwise there is one,
/// beside the problems that were found while building it.
pub(super) fn build(source: &Source) -> (Option<YamlNode>, Problems) {
    let mut builder =
        TreeBuilder { source, problems: Problems::default(), open: Vec::new(), root: None };
    if source.text.len() > MAX_DOCUMENT_BYTES {
        let size = source.text.len();
        builder
            .problems
            .push(source.whole(format!(
                "the file has {size} bytes; at most {MAX_DOCUMENT_BYTES} are read"
            )));
        return (None, builder.problems);
    }
    // The parser skips a byte order mark where it may stand; elsewhere it is text.
    for next in Parser::new_from_str(&source.text) {
        match next {
            Ok((event, span)) => {
                if !builder.take(event, span) {
                    return (None, builder.problems);
                }
            }
            Err(err) => {
                let at = place(err.marker(), err.marker());
                builder.problems.push(source.problem(at, "", format!("not YAML: {}", err.info())));
                return (None, builder.problems);
            }
        }
    }
    let root = builder.root.unwrap_or(YamlNode { at: START, value: YamlValue::Null });
    if matches!(root.value, YamlValue::Null) {
        builder.problems.push(source.whole("the file is empty"));
        return (None, builder.problems);
    }
    (Some(root), builder.problems)
}

struct TreeBuilder<'s> {
    source: &'s Source,
    problems: Problems,
    open: Vec<OpenCollection>,
    root: Option<YamlNode>,
}

/// A list or a mapping whose end has not been seen.
enum OpenCollection {
    List {
        at: Position,
        items: Vec<YamlNode>,
        refused: bool,
    },
    Map {
        at: Position,
        entries: Vec<(MapKey, YamlNode)>,
        /// The line of each key so far.
        seen: HashMap<String, usize>,
        key: Option<PendingKey>,
        refused: bool,
    },
}

/// A key whose value has not been seen.
enum PendingKey {
    Key(MapKey),
    /// Reported already, or not worth a report of its own.
    Unusable,
}

impl TreeBuilder<'_> {
    /// Takes one event. False when reading must stop.
    fn take(&mut self, event: Event<'_>, span: Span) -> bool {
        let at = place(&span.start, &span.end);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let refused = self.refuse_extras(at, anchor != 0, tag.is_some());
                let value = if refused {
                    YamlValue::SetAside
                } else if style == ScalarStyle::Plain {
                    plain(&text)
                } else {
                    YamlValue::Text(text.into_owned())
                };
                self.place_node(YamlNode { at, value });
            }
            Event::SequenceStart(_, anchor, tag) => {
                let refused = self.refuse_extras(at, anchor != 0, tag.is_some());
                self.open.push(OpenCollection::List { at, items: Vec::new(), refused });
            }
            Event::MappingStart(_, anchor, tag) => {
                let refused = self.refuse_extras(at, anchor != 0, tag.is_some());
                self.open.push(OpenCollection::Map {
                    at,
                    entries: Vec::new(),
                    seen: HashMap::new(),
                    key: None,
                    refused,
                });
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(_) => {
                self.problem(at, "aliases (`*name`) are not read; write the value out");
                self.place_node(YamlNode { at, value: YamlValue::SetAside });
            }
            Event::DocumentStart(..) if self.root.is_some() => {
                self.problem(at, "a second document starts here; write one document per file");
                return false;
            }
            // Everything else is the frame around the document.
            _ => {}
        }
        if self.problems.len() >= MAX_PROBLEMS {
            return false;
        }
        if self.open.len() > MAX_NESTING {
            self.problem(at, &format!("nested deeper than {MAX_NESTING} levels"));
            return false;
        }
        true
    }

    fn close(&mut self) {
        let node = match self.open.pop() {
            Some(OpenCollection::List { at, items, refused: false }) => {
                YamlNode { at, value: YamlValue::List(items) }
            }
            Some(OpenCollection::Map { at, entries, refused: false, .. }) => {
                YamlNode { at, value: YamlValue::Map(entries) }
            }
            Some(OpenCollection::List { at, .. } | OpenCollection::Map { at, .. }) => {
                YamlNode { at, value: YamlValue::SetAside }
            }
            None => return,
        };
        self.place_node(node);
    }

    /// Puts a finished node where it belongs: key or value of a mapping, item
    /// of a list, or the root.
    fn place_node(&mut self, node: YamlNode) {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(OpenCollection::List { items, .. }) => items.push(node),
            Some(OpenCollection::Map { entries, seen, key, .. }) => match key.take() {
                None => {
                    let (pending, fault) = as_key(node);
                    *key = Some(pending);
                    if let Some((at, fault)) = fault {
                        self.problem(at, fault);
                    }
                }
                // The value goes with its key.
                Some(PendingKey::Unusable) => {}
                Some(PendingKey::Key(key)) => match seen.entry(key.text.clone()) {
                    Vacant(place) => {
                        place.insert(key.at.line);
                        entries.push((key, node));
                    }
                    Occupied(first) => {
                        let message = format!(
                            "`{}` stands twice; the first is on line {}",
                            key.text,
                            first.get()
                        );
                        self.problem(key.at, &message);
                    }
                },
            },
        }
    }

    fn refuse_extras(&mut self, at: Position, anchored: bool, tagged: bool) -> bool {
        if anchored {
            self.problem(
                at,
                "anchors (`&name`) are not read; write the value out where it is used",
            );
        }
        if tagged {
            self.problem(at, "tags (`!name`) are not read; write the plain value");
        }
        anchored || tagged
    }

    fn problem(&mut self, at: Position, message: &str) {
        let path = self.path();
        let problem: Problem = self.source.problem(at, path, message);
        self.problems.push(problem);
    }

    fn path(&self) -> String {
        let steps: Vec<PathStep> = self
            .open
            .iter()
            .filter_map(|open| match open {
                OpenCollection::List { items, .. } => Some(PathStep::Index(items.len())),
                OpenCollection::Map { key: Some(PendingKey::Key(key)), .. } => {
                    Some(PathStep::Key(key.text.clone()))
                }
                OpenCollection::Map { .. } => None,
            })
            .collect();
        written(&steps)
    }
}

/// A node where a key stands, and what is wrong with it as a key.
fn as_key(node: YamlNode) -> (PendingKey, Option<(Position, &'static str)>) {
    let at = node.at;
    let fault = match node.value {
        YamlValue::Text(text) if text != "<<" => {
            return (PendingKey::Key(MapKey { at, text }), None);
        }
        YamlValue::SetAside => return (PendingKey::Unusable, None),
        YamlValue::Text(_) => "merge keys (`<<`) are not read; write the fields out",
        YamlValue::Null => "a key is missing before `:`",
        _ => "a key must be text; put it in quotes if it looks like a number",
    };
    (PendingKey::Unusable, Some((at, fault)))
}

/// Steps as people write them: `net.allow[2].host`.
pub(super) fn written(steps: &[PathStep]) -> String {
    let mut path = String::new();
    for step in steps {
        match step {
            PathStep::Index(index) => path.push_str(&format!("[{index}]")),
            PathStep::Key(key) if path.is_empty() => path.push_str(key),
            PathStep::Key(key) => path.push_str(&format!(".{key}")),
        }
    }
    path
}

/// What a plain scalar means in YAML's core schema, less its other booleans
/// and numbers in bases that look like something else.
fn plain(text: &str) -> YamlValue {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return YamlValue::Null,
        "true" => return YamlValue::Bool(true),
        "false" => return YamlValue::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let numeric = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'-' | b'+'));
    if numeric {
        if let Ok(number) = text.parse::<i64>() {
            return YamlValue::Integer(number);
        }
        if let Ok(number) = text.parse::<f64>()
            && number.is_finite()
        {
            return YamlValue::Float(number);
        }
    }
    YamlValue::Text(text.to_owned())
}

/// What to say of a word that stands where a boolean should.
pub(super) fn boolean_hint(text: &str) -> Option<&'static str> {
    let lower = text.to_ascii_lowercase();
    match lower.as_str() {
        "yes" | "on" | "y" | "1" => Some("true"),
        "no" | "off" | "n" | "0" => Some("false"),
        _ => did_you_mean(&lower, ["true", "false"]),
    }
}

fn place(start: &Marker, end: &Marker) -> Position {
    let width = if end.line() == start.line() { end.col().saturating_sub(start.col()) } else { 1 };
    Position { line: start.line(), column: start.col() + 1, width: width.max(1) }
}

const START: Position = Position { line: 1, column: 1, width: 1 };

/// A policy of five thousand rules takes about half a mebibyte.
const MAX_DOCUMENT_BYTES: usize = 4 << 20;

/// No document of ours is deeper than eight.
const MAX_NESTING: usize = 24;
