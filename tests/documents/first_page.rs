//! What the first page shows is typed, in order, by everybody whom it is for, and
//! what they read is compared.

use tests::CommandDeadline as _;
use tests::boxes::Person;

use crate::pages::read;
use crate::programs;
use crate::runbook::fits;

/// What is typed, the lines that must come of it, and the exit code.
struct Step<'p> {
    typed: &'p str,
    wanted: Vec<&'p str>,
    code: i32,
}

#[test]
fn every_command_of_the_first_page_does_what_it_says() {
    let (readme, expected) = (read("README.md"), read("tests/documents/first-page.txt"));
    let steps: Vec<Step<'_>> = expected.trim_end().split("\n\n").map(step).collect();
    let shown = readme.lines().filter_map(|line| line.strip_prefix("./sluice "));
    let shown: Vec<&str> = shown.map(|line| line.split("  #").next().unwrap().trim()).collect();
    let typed: Vec<&str> = steps.iter().map(|step| step.typed).collect();
    assert_eq!(shown, typed, "what README shows is not what is compared");

    for (who, person) in people() {
        let Some(person) = person else { continue };
        // The run that the page speaks of is its first.
        let mut first = None;
        for step in &steps {
            let line = step.typed.replace("RUN", first.as_deref().unwrap_or_default());
            let output = person.typing(&format!("sluice {line} 2>&1")).output_in_time().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            let mut lines = said.lines();
            for wanted in &step.wanted {
                let is_there = lines.any(|line| fits(line.trim(), wanted.trim()));
                assert!(is_there, "{who}: sluice {line}: no {wanted:?} in\n{said}");
            }
            assert_eq!(output.status.code(), Some(step.code), "{who}: sluice {line}\n{said}");
            first = first.or_else(|| person.every_run().pop());
        }
    }
}

/// As root and as a plain user, with an engine and without one.
fn people() -> [(&'static str, Option<Person>); 4] {
    [
        ("root on Docker", Person::with_docker(programs())),
        ("a member of Docker's group", Person::in_dockers_group(programs())),
        ("root on namespaces", Person::with_namespaces(programs())),
        ("a plain user on namespaces", Person::unprivileged(programs())),
    ]
}

fn step(block: &str) -> Step<'_> {
    let mut lines = block.lines();
    let typed = lines.next().and_then(|line| line.strip_prefix("$ sluice ")).expect(block);
    let code = lines.next_back().and_then(|line| line.strip_prefix("=> ")).expect(block);
    Step { typed, wanted: lines.collect(), code: code.parse().expect(block) }
}
