//! Every kind of grant, within bounds and beyond.

use expect_test::{Expect, expect};

use super::*;
use crate::read::{Sources, read};
use crate::units::{Size, Span};

/// A person who permits something, and a project that asks.
struct Person {
    overrides: Overrides,
    secret: (SecretName, Vec<HostPattern>),
    is_enforced: bool,
}

impl Person {
    fn new() -> Self {
        let hosts = ["*.example.org", "b.example"].map(|host| HostPattern::parse(host).unwrap());
        Self {
            overrides: Overrides {
                allow: hosts.to_vec(),
                max: ProcLimits {
                    memory: Size::parse("4GiB").ok(),
                    timeout: Span::parse("1h").ok(),
                    ..ProcLimits::default()
                },
                observe: true,
                no_sandbox: false,
            },
            secret: (SecretName::parse("KEY").unwrap(), hosts.to_vec()),
            is_enforced: true,
        }
    }
}

impl Sources for Person {
    fn load(&self, written: &str, _from: &Source) -> Result<Source, String> {
        Ok(Source::new(written, "version: 1\noverrides: {no_sandbox: true}\n"))
    }

    fn bounds(&self, _source: &Source) -> Option<ProjectBounds<'_>> {
        let (name, hosts) = &self.secret;
        Some(ProjectBounds {
            overrides: &self.overrides,
            secrets: BTreeMap::from([(name, &**hosts)]),
            mount: Box::new(|written, mode| match (written, mode) {
                ("./in", _) | ("/data", MountMode::Ro) => Ok(()),
                _ => Err(format!("`{written}` is outside")),
            }),
            is_enforced: self.is_enforced,
        })
    }
}

fn out_of_bounds(text: &str, expected: &Expect) {
    let policy = read(&Source::new("p", text), &Person::new()).unwrap();
    expected.assert_eq(&policy.out_of_bounds.to_string());
}

#[test]
fn what_is_permitted_is_granted() {
    let text = "version: 1
fs: {mounts: [{source: ./in, target: /in, mode: rw}, {source: /data, target: /data}]}
secrets: {KEY: {hosts: [a.example.org, b.example], header: x}, OTHER: {hosts: [c.example], header: x}}
overrides: {allow: [\"*.a.example.org\"], max: {memory: 4GiB, timeout: 30m}, observe: true, no_sandbox: false}
";
    out_of_bounds(text, &expect![""]);
}

#[test]
fn a_configurations_section_grants_what_it_says() {
    let at = crate::Position::default();
    let section = OverridesSection {
        observe: Some(Spanned { at, value: true }),
        ..OverridesSection::default()
    };
    assert_eq!(section.granted(), Overrides { observe: true, ..Overrides::default() });
}

#[test]
fn everything_beyond_is_said_with_its_place() {
    let text = "version: 1
fs: {mounts: [{source: /data, target: /data, mode: rw}]}
secrets:
  KEY: {from: {env: KEY}, hosts: [b.example, c.example], header: x}
overrides: {allow: [\"*.org.example\"], max: {memory: 8GiB, pids: 9}, no_sandbox: true}
";
    out_of_bounds(
        text,
        &expect![[r#"
        p:2:15: fs.mounts[0]: `/data` is outside
          2 | fs: {mounts: [{source: /data, target: /data, mode: rw}]}
            |               ^
        p:4:8: secrets.KEY.hosts: `c.example` is not among the hosts that your configuration gives `KEY` to, which are `*.example.org`, `b.example`; add it to `secrets.KEY.hosts` there, or drop it here
          4 |   KEY: {from: {env: KEY}, hosts: [b.example, c.example], header: x}
            |        ^
        p:4:15: secrets.KEY.from: a project's policy names a secret and cannot say where its value comes from; if you mean it, write `secrets: {KEY: {from: {env: KEY}, hosts: [b.example, c.example]}}` into your own configuration and leave `from` out here
          4 |   KEY: {from: {env: KEY}, hosts: [b.example, c.example], header: x}
            |               ^
        p:5:20: overrides.allow: a project's policy may let a run add only hosts that your own configuration permits, which are `*.example.org`, `b.example`; `overrides: {allow: ["*.org.example"]}` there permits this
          5 | overrides: {allow: ["*.org.example"], max: {memory: 8GiB, pids: 9}, no_sandbox: true}
            |                    ^
        p:5:44: overrides.max: memory `8GiB` is more than your own configuration lets a project's policy permit, which is `4GiB`; `overrides: {max: {memory: 8GiB}}` there permits this
          5 | overrides: {allow: ["*.org.example"], max: {memory: 8GiB, pids: 9}, no_sandbox: true}
            |                                            ^
        p:5:44: overrides.max: pids `9` is more than your own configuration lets a project's policy permit, which is nothing; `overrides: {max: {pids: 9}}` there permits this
          5 | overrides: {allow: ["*.org.example"], max: {memory: 8GiB, pids: 9}, no_sandbox: true}
            |                                            ^
        p:5:81: overrides.no_sandbox: a project's policy cannot permit this by itself; your own configuration can: `overrides: {no_sandbox: true}`
          5 | overrides: {allow: ["*.org.example"], max: {memory: 8GiB, pids: 9}, no_sandbox: true}
            |                                                                                 ^^^^"#]],
    );
}

#[test]
fn what_is_extended_is_bounded_too_and_presets_are_not() {
    out_of_bounds(
        "version: 1\nextends: [./more.yaml, llm-anthropic]\n",
        &expect![[r#"
        ./more.yaml:2:25: overrides.no_sandbox: a project's policy cannot permit this by itself; your own configuration can: `overrides: {no_sandbox: true}`
          2 | overrides: {no_sandbox: true}
            |                         ^^^^"#]],
    );
}

#[test]
fn other_problems_are_said_together_with_these_where_it_is_to_be_obeyed() {
    let source =
        Source::new("p", "version: 1\noverrides: {no_sandbox: true}\nnet: {enabled: maybe}\n");
    let mut person = Person::new();
    assert_eq!(read(&source, &person).unwrap_err().len(), 2);
    person.is_enforced = false;
    assert_eq!(read(&source, &person).unwrap_err().len(), 1);
}
