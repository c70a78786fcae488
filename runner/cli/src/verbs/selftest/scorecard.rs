//! What came of everything, for people, programs and CI.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use files::printable::Printable;
use inside::probe::attack::{AttackOutcome, Attempt};
use serde::Serialize;

use crate::console::{Console, Tone};
use crate::exit::Failure;

/// The whole result on one backend.
#[derive(Debug, Serialize)]
pub struct Scorecard {
    pub backend: String,
    pub seconds: u64,
    pub held: usize,
    pub broken: usize,
    /// Not started, since a limit cannot be kept here. Nothing was held there.
    pub refused: usize,
    pub untried: usize,
    pub attempts: Vec<Attempt>,
}

impl Scorecard {
    pub(super) fn new(backend: &str, seconds: u64, mut attempts: Vec<Attempt>) -> Self {
        attempts.sort_by(|a, b| place_of(&a.id).cmp(&place_of(&b.id)).then(a.name.cmp(&b.name)));
        let count = |result| attempts.iter().filter(|attempt| attempt.result == result).count();
        Self {
            backend: backend.to_owned(),
            seconds,
            held: count(AttackOutcome::Held),
            broken: count(AttackOutcome::Broken),
            refused: count(AttackOutcome::Refused),
            untried: count(AttackOutcome::Untried),
            attempts,
        }
    }

    /// One line a family, then everything that is not as it should be.
    pub(super) fn table(&self, console: &mut Console, all: bool) -> Result<(), Failure> {
        let mut families: BTreeMap<(char, u32), Vec<&Attempt>> = BTreeMap::new();
        for attempt in &self.attempts {
            families.entry(place_of(&attempt.id)).or_default().push(attempt);
        }
        console.line(format_args!(
            "{:<8} {:>5} {:>7} {:>8} {:>8}  {}",
            "", "HELD", "BROKEN", "REFUSED", "UNTRIED", "WHAT"
        ))?;
        for attempts in families.values() {
            let Some(id) = attempts.first().map(|attempt| attempt.id.as_str()) else { continue };
            let count = |result| attempts.iter().filter(|row| row.result == result).count();
            let broken = count(AttackOutcome::Broken);
            let tone = if broken > 0 { Tone::Bad } else { Tone::Good };
            let word = console.toned(tone, format_args!("{broken:>7}"));
            console.line(format_args!(
                "{id:<8} {:>5} {word} {:>8} {:>8}  {}",
                count(AttackOutcome::Held),
                count(AttackOutcome::Refused),
                count(AttackOutcome::Untried),
                family(id)
            ))?;
        }
        let shown = |attempt: &&Attempt| all || attempt.result != AttackOutcome::Held;
        for attempt in self.attempts.iter().filter(shown) {
            let tone = match attempt.result {
                AttackOutcome::Broken => Tone::Bad,
                AttackOutcome::Held => Tone::Good,
                AttackOutcome::Refused | AttackOutcome::Untried => Tone::Warn,
            };
            let result = console.toned(tone, attempt.result);
            console.line(format_args!(
                "{:<8} {result}: {} ({}): {}",
                Printable(&attempt.id).to_string(),
                Printable(&attempt.tried),
                Printable(&attempt.name),
                Printable(&attempt.detail)
            ))?;
        }
        let Self { backend, seconds, held, broken, refused, untried, .. } = self;
        console.line(format_args!(
            "{backend}: {held} held, {broken} broken, {refused} refused to start, {untried} could \
             not be tried, in {seconds} s"
        ))
    }

    /// As CI systems read it.
    pub(super) fn junit(&self) -> String {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let Self { backend, seconds, broken, .. } = self;
        let skipped = self.refused + self.untried;
        let mut line = |text: std::fmt::Arguments<'_>| {
            writeln!(xml, "{text}").expect("writing to a string");
        };
        line(format_args!(
            "<testsuite name=\"sluice selftest {}\" tests=\"{}\" failures=\"{broken}\" \
             skipped=\"{skipped}\" time=\"{seconds}\">",
            escaped(backend),
            self.attempts.len()
        ));
        for attempt in &self.attempts {
            let (id, name) = (escaped(&attempt.id), escaped(&attempt.name));
            let detail = escaped(&attempt.detail);
            let tried = escaped(&attempt.tried);
            line(format_args!(
                "  <testcase classname=\"{}.{id}\" name=\"{name}\">",
                escaped(backend)
            ));
            match attempt.result {
                AttackOutcome::Broken => {
                    line(format_args!("    <failure message=\"{detail}\">tried: {tried}</failure>"))
                }
                AttackOutcome::Refused | AttackOutcome::Untried => {
                    let result = attempt.result;
                    line(format_args!("    <skipped message=\"{result}: {detail}\"/>"));
                }
                AttackOutcome::Held => {
                    line(format_args!("    <system-out>tried: {tried}; {detail}</system-out>"));
                }
            }
            line(format_args!("  </testcase>"));
        }
        line(format_args!("</testsuite>"));
        xml
    }
}

/// Letters in order, numbers as numbers.
fn place_of(id: &str) -> (char, u32) {
    let letter = id.chars().next().unwrap_or('?');
    (letter, id.get(letter.len_utf8()..).and_then(|rest| rest.parse().ok()).unwrap_or_default())
}

fn family(id: &str) -> &'static str {
    match id {
        "C0" => "what is allowed works",
        "D1" => "secrets in names",
        "D3" => "other ways to ask for names",
        "D7" => "metadata services",
        "D8" => "the host, other sandboxes, the gateway itself",
        "D9" => "IPv6",
        "D10" => "UDP, ICMP, raw sockets",
        "D11" => "past the proxy",
        "G1" => "the gateway's control",
        "H1" => "system calls and privileges",
        "H2" => "the kernel's files and devices",
        "H3" => "engines, agents, other processes",
        "H4" => "files of the host",
        "H6" => "more than its share",
        "H8" => "what is left behind",
        "H15" => "what the machine has for everybody",
        _ => "",
    }
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // XML has no way to say most of these.
            control if control.is_control() => safe.push(' '),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use inside::probe::attack::AttackVerdict;

    fn card() -> Scorecard {
        let row = |id, name, verdict| Attempt::new(id, name, "tried <it>", verdict);
        Scorecard::new(
            "docker",
            7,
            vec![
                row("H10", "b", AttackVerdict::Held("EPERM".into())),
                row("H2", "a", AttackVerdict::Broken("\"it\" & more\u{1b}".into())),
                row("D1", "c", AttackVerdict::Untried("no target".into())),
                row("H6", "d", AttackVerdict::Refused("no controller".into())),
            ],
        )
    }

    #[test]
    fn ids_are_in_order_of_their_numbers() {
        let card = card();
        let ids: Vec<_> = card.attempts.iter().map(|attempt| attempt.id.as_str()).collect();
        assert_eq!(ids, ["D1", "H2", "H6", "H10"]);
        assert_eq!((card.held, card.refused, card.untried), (1, 1, 1), "a refusal holds nothing");
    }

    #[test]
    fn a_broken_wall_is_a_failure_for_ci() {
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <testsuite name="sluice selftest docker" tests="4" failures="1" skipped="2" time="7">
              <testcase classname="docker.D1" name="c">
                <skipped message="could not be tried: no target"/>
              </testcase>
              <testcase classname="docker.H2" name="a">
                <failure message="&quot;it&quot; &amp; more ">tried: tried &lt;it&gt;</failure>
              </testcase>
              <testcase classname="docker.H6" name="d">
                <skipped message="refused to start: no controller"/>
              </testcase>
              <testcase classname="docker.H10" name="b">
                <system-out>tried: tried &lt;it&gt;; EPERM</system-out>
              </testcase>
            </testsuite>
        "#]]
        .assert_eq(&card().junit());
    }

    #[test]
    fn every_family_of_attacks_has_a_name() {
        for attack in inside::probe::attack::all() {
            assert_ne!(family(attack.id), "", "{}", attack.id);
        }
    }
}
