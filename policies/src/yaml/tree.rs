//! A YAML document as a tree that knows where everything stands.
//!
//! Built from the parser's events, because only there is everything still
//! visible: both places of a doubled key, a tag, an alias.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};

use granit_parser::{Event, Marker, Parser, ScalarStyle, Span};

use super::MOST_PROBLEMS;
use crate::problems::{At, Problem, Problems, Source, did_you_mean};

#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: At,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    Bool(bool),
    Float(f64),
    Integer(i64),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
    Null,
    /// A value with a problem, reported already; as if it were not there.
    SetAside,
    Text(String),
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) at: At,
    pub(super) text: String,
}

/// One step from a node to a value in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Step {
    Index(usize),
    Key(String),
}

impl Node {
    /// Whether nothing in it was set aside.
    pub(super) fn is_whole(&self) -> bool {
        match &self.value {
            Value::List(items) => items.iter().all(Self::is_whole),
            Value::Map(entries) => entries.iter().all(|(_, node)| node.is_whole()),
            Value::SetAside => false,
            Value::Bool(_) | Value::Float(_) | Value::Integer(_) | Value::Null | Value::Text(_) => {
                true
            }
        }
    }

    /// Removes the value at the end of `steps` from what is read. Says whether
    /// it was there to be removed.
    pub(super) fn set_aside(&mut self, steps: &[Step]) -> bool {
        let Some((step, rest)) = steps.split_first() else {
            let first_time = !matches!(self.value, Value::SetAside);
            self.value = Value::SetAside;
            return first_time;
        };
        let next = match (&mut self.value, step) {
            (Value::List(items), Step::Index(index)) => items.get_mut(*index),
            (Value::Map(entries), Step::Key(name)) => {
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
pub(super) fn grow(source: &Source) -> (Option<Node>, Problems) {
    let mut builder =
        Builder { source, problems: Problems::default(), open: Vec::new(), root: None };
    if source.text.len() > LONGEST_TEXT {
        let size = source.text.len();
        builder.problems.push(
            source.whole(format!("the file has {size} bytes; at most {LONGEST_TEXT} are read")),
        );
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
    let root = builder.root.unwrap_or(Node { at: START, value: Value::Null });
    if matches!(root.value, Value::Null) {
        builder.problems.push(source.whole("the file is empty"));
        return (None, builder.problems);
    }
    (Some(root), builder.problems)
}

struct Builder<'s> {
    source: &'s Source,
    problems: Problems,
    open: Vec<Open>,
    root: Option<Node>,
}

/// A list or a mapping whose end has not been seen.
enum Open {
    List {
        at: At,
        items: Vec<Node>,
        refused: bool,
    },
    Map {
        at: At,
        entries: Vec<(Key, Node)>,
        /// The line of each key so far.
        seen: HashMap<String, usize>,
        key: Option<Pending>,
        refused: bool,
    },
}

/// A key whose value has not been seen.
enum Pending {
    Key(Key),
    /// Reported already, or not worth a report of its own.
    Unusable,
}

impl Builder<'_> {
    /// Takes one event. False when reading must stop.
    fn take(&mut self, event: Event<'_>, span: Span) -> bool {
        let at = place(&span.start, &span.end);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let refused = self.refuse_extras(at, anchor != 0, tag.is_some());
                let value = if refused {
                    Value::SetAside
                } else if style == ScalarStyle::Plain {
                    plain(&text)
                } else {
                    Value::Text(text.into_owned())
                };
                self.place_node(Node { at, value });
            }
            Event::SequenceStart(_, anchor, tag) => {
                let refused = self.refuse_extras(at, anchor != 0, tag.is_some());
                self.open.push(Open::List { at, items: Vec::new(), refused });
            }
            Event::MappingStart(_, anchor, tag) => {
                let refused = self.refuse_extras(at, anchor != 0, tag.is_some());
                self.open.push(Open::Map {
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
                self.place_node(Node { at, value: Value::SetAside });
            }
            Event::DocumentStart(..) if self.root.is_some() => {
                self.problem(at, "a second document starts here; write one document per file");
                return false;
            }
            // Everything else is the frame around the document.
            _ => {}
        }
        if self.problems.len() >= MOST_PROBLEMS {
            return false;
        }
        if self.open.len() > DEEPEST {
            self.problem(at, &format!("nested deeper than {DEEPEST} levels"));
            return false;
        }
        true
    }

    fn close(&mut self) {
        let node = match self.open.pop() {
            Some(Open::List { at, items, refused: false }) => {
                Node { at, value: Value::List(items) }
            }
            Some(Open::Map { at, entries, refused: false, .. }) => {
                Node { at, value: Value::Map(entries) }
            }
            Some(Open::List { at, .. } | Open::Map { at, .. }) => {
                Node { at, value: Value::SetAside }
            }
            None => return,
        };
        self.place_node(node);
    }

    /// Puts a finished node where it belongs: key or value of a mapping, item
    /// of a list, or the root.
    fn place_node(&mut self, node: Node) {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { entries, seen, key, .. }) => match key.take() {
                None => {
                    let (pending, fault) = as_key(node);
                    *key = Some(pending);
                    if let Some((at, fault)) = fault {
                        self.problem(at, fault);
                    }
                }
                // The value goes with its key.
                Some(Pending::Unusable) => {}
                Some(Pending::Key(key)) => match seen.entry(key.text.clone()) {
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

    fn refuse_extras(&mut self, at: At, anchored: bool, tagged: bool) -> bool {
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

    fn problem(&mut self, at: At, message: &str) {
        let path = self.path();
        let problem: Problem = self.source.problem(at, path, message);
        self.problems.push(problem);
    }

    fn path(&self) -> String {
        let steps: Vec<Step> = self
            .open
            .iter()
            .filter_map(|open| match open {
                Open::List { items, .. } => Some(Step::Index(items.len())),
                Open::Map { key: Some(Pending::Key(key)), .. } => Some(Step::Key(key.text.clone())),
                Open::Map { .. } => None,
            })
            .collect();
        written(&steps)
    }
}

/// A node where a key stands, and what is wrong with it as a key.
fn as_key(node: Node) -> (Pending, Option<(At, &'static str)>) {
    let at = node.at;
    let fault = match node.value {
        Value::Text(text) if text != "<<" => return (Pending::Key(Key { at, text }), None),
        Value::SetAside => return (Pending::Unusable, None),
        Value::Text(_) => "merge keys (`<<`) are not read; write the fields out",
        Value::Null => "a key is missing before `:`",
        _ => "a key must be text; put it in quotes if it looks like a number",
    };
    (Pending::Unusable, Some((at, fault)))
}

/// Steps as people write them: `net.allow[2].host`.
pub(super) fn written(steps: &[Step]) -> String {
    let mut path = String::new();
    for step in steps {
        match step {
            Step::Index(index) => path.push_str(&format!("[{index}]")),
            Step::Key(key) if path.is_empty() => path.push_str(key),
            Step::Key(key) => path.push_str(&format!(".{key}")),
        }
    }
    path
}

/// What a plain scalar means in YAML's core schema, less its other booleans
/// and numbers in bases that look like something else.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" => return Value::Bool(true),
        "false" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let numeric = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'-' | b'+'));
    if numeric {
        if let Ok(number) = text.parse::<i64>() {
            return Value::Integer(number);
        }
        if let Ok(number) = text.parse::<f64>()
            && number.is_finite()
        {
            return Value::Float(number);
        }
    }
    Value::Text(text.to_owned())
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

fn place(start: &Marker, end: &Marker) -> At {
    let width = if end.line() == start.line() { end.col().saturating_sub(start.col()) } else { 1 };
    At { line: start.line(), column: start.col() + 1, width: width.max(1) }
}

const START: At = At { line: 1, column: 1, width: 1 };

/// A policy of five thousand rules takes about half a mebibyte.
const LONGEST_TEXT: usize = 4 << 20;

/// No document of ours is deeper than eight.
const DEEPEST: usize = 24;
