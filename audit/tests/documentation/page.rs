//! The page, taken apart.

use std::collections::BTreeSet;

use audit::EventKind;

pub(crate) const PAGE: &str = include_str!("../../../docs/audit-format.md");

/// One row of a table of fields.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) field: &'static str,
    /// Its type.
    pub(crate) of: &'static str,
    present: &'static str,
    pub(crate) meaning: &'static str,
}

impl Row {
    /// `always`, or `always in` some kinds.
    pub(crate) fn is_always_in(&self, kind: EventKind) -> bool {
        match self.present.strip_prefix("always") {
            None => false,
            Some("") => true,
            Some(kinds) => kinds.contains(&format!("`{kind}`")),
        }
    }
}

/// The kinds that the table of kinds lists.
pub(crate) fn kinds() -> BTreeSet<&'static str> {
    let rows = section("## Kinds\n").lines().filter_map(cells::<2>);
    rows.filter_map(|[kind, _]| unquoted(kind)).collect()
}

/// The rows that are about lines of this kind.
pub(crate) fn rows(kind: EventKind) -> Vec<Row> {
    let rows: Vec<Row> = section("## Fields\n")
        .split("\n### ")
        .skip(1)
        .filter(|section| is_about(section, kind))
        .flat_map(|section| section.lines().filter_map(row))
        .collect();
    assert!(rows.len() >= 7, "`{kind}` has no rows");
    rows
}

/// A section is about the kind it is named after, or those after `In:`.
fn is_about(section: &str, kind: EventKind) -> bool {
    let mut lines = section.lines();
    let heading = lines.next().unwrap_or_default();
    if let Some(named) = unquoted(heading) {
        return named == kind.as_str();
    }
    let listed = lines.find_map(|line| line.strip_prefix("In: "));
    let listed = listed.unwrap_or_else(|| panic!("`{heading}` does not say what it is in"));
    let (listed, _) = listed.split_once('.').expect("the list ends with a dot");
    listed == "every kind" || listed.contains(&format!("`{kind}`"))
}

fn row(line: &'static str) -> Option<Row> {
    let [field, of, present, meaning] = cells(line)?;
    Some(Row { field: unquoted(field)?, of, present, meaning })
}

fn cells<const N: usize>(line: &'static str) -> Option<[&'static str; N]> {
    let inner = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let cells: Vec<&str> = inner.split(" | ").collect();
    Some(cells.try_into().unwrap_or_else(|cells| panic!("{N} cells are wanted: {cells:?}")))
}

fn unquoted(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`')
}

/// What stands below a heading, up to the next one of its level.
pub(crate) fn section(heading: &str) -> &'static str {
    let (_, below) = PAGE.split_once(heading).unwrap_or_else(|| panic!("no {heading}"));
    below.split("\n## ").next().unwrap_or(below)
}

/// The block that begins like this, without its fences.
pub(crate) fn block(begins: &str) -> &'static str {
    let (_, inside) = PAGE.split_once(begins).unwrap_or_else(|| panic!("no {begins}"));
    inside.split("```").next().unwrap_or(inside)
}
