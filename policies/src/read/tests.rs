//! Extending: presets, files, circles, and what is told when it goes wrong.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::{NoFiles, RegistryKind, RegistryUrl, SampleRequest};

/// Files that exist only here, by the name they are written with.
pub(crate) struct Files(pub(crate) Vec<(&'static str, String)>);

impl Sources for Files {
    fn load(&self, written: &str, _from: &Source) -> Result<Source, String> {
        let file = self.0.iter().find(|(name, _)| *name == written);
        file.map(|(name, text)| Source::new(*name, text.as_str()))
            .ok_or_else(|| format!("there is no file `{written}`"))
    }
}

#[test]
fn rules_are_named_after_where_they_stand() {
    let files = Files(vec![(
        "./team.yaml",
        "version: 1\nnet: {allow: [team.example, {name: wiki, host: wiki.example}]}\n".to_owned(),
    )]);
    let text = "version: 1\nextends: [./team.yaml, github-read]\nnet: {enabled: true, allow: [own.example]}\n";
    let policy = read(&Source::new("p", text), &files).unwrap();
    let by = |url: &str| {
        let asked = SampleRequest::new("GET", url).unwrap();
        policy.decide(&asked.question()).to_string()
    };
    assert_eq!(by("https://own.example/"), "allow: net.allow[0]");
    assert_eq!(by("https://team.example/"), "allow: ./team.yaml:net.allow[0]");
    assert_eq!(by("https://wiki.example/"), "allow: wiki");
    assert_eq!(by("https://gist.github.com/"), "deny: github-read:net.deny[0]");
    let sources: Vec<&str> = policy.sources.iter().map(AsRef::as_ref).collect();
    assert_eq!(sources, ["p", "./team.yaml", "github-read"]);
}

#[test]
fn a_name_given_twice_is_told_at_every_rule_but_the_first() {
    check(
        "version: 1
net:
  deny: [{name: wiki, host: a.example}]
  allow:
    - {name: wiki, host: b.example}
    - c.example
    - {name: wiki, host: d.example}
",
        &NoFiles,
        expect![[r#"
            p:5:7: net.allow[0]: `wiki` names two rules; the first is on line 3
              5 |     - {name: wiki, host: b.example}
                |       ^
            p:7:7: net.allow[2]: `wiki` names two rules; the first is on line 3
              7 |     - {name: wiki, host: d.example}
                |       ^"#]],
    );
}

#[test]
fn a_circle_is_named_in_full() {
    let files = Files(vec![
        ("./a.yaml", "version: 1\nextends: [./b.yaml]\n".to_owned()),
        ("./b.yaml", "version: 1\nextends: [./a.yaml]\n".to_owned()),
    ]);
    check(
        "version: 1\nextends: [./a.yaml]\n",
        &files,
        expect![[r#"
        ./b.yaml:2:11: extends: `./a.yaml` leads in a circle: p -> ./a.yaml -> ./b.yaml -> ./a.yaml
          2 | extends: [./a.yaml]
            |           ^^^^^^^^"#]],
    );
}

#[test]
fn what_cannot_be_found_is_said_where_it_is_written() {
    check(
        "version: 1\nextends: [github-raed, nonsense, ./missing.yaml]\n",
        &Files(Vec::new()),
        expect![[r#"
            p:2:11: extends: there is no preset `github-raed`; did you mean `github-read`?
              2 | extends: [github-raed, nonsense, ./missing.yaml]
                |           ^^^^^^^^^^^
            p:2:24: extends: there is no preset `nonsense`; known are `deny-all`, `github-read`, `github-write`, `llm-anthropic`, `llm-openai`, `no-exfiltration`, `node-dev`, `python-dev`; a file is written as `./nonsense.yaml`
              2 | extends: [github-raed, nonsense, ./missing.yaml]
                |                        ^^^^^^^^
            p:2:34: extends: there is no file `./missing.yaml`
              2 | extends: [github-raed, nonsense, ./missing.yaml]
                |                                  ^^^^^^^^^^^^^^"#]],
    );
}

#[test]
fn problems_of_an_extended_file_are_told_with_its_own_lines() {
    let files =
        Files(vec![("./a.yaml", "version: 1\nnet: {allow: [a.example], alow: []}\n".to_owned())]);
    check(
        "version: 1\nextends: [./a.yaml]\nproc: {pids: 0}\n",
        &files,
        expect![[r#"
        p:3:14: proc.pids: must be at least 1; leave it out for the default
          3 | proc: {pids: 0}
            |              ^
        ./a.yaml:2:27: net.alow: there is no field `alow`; did you mean `allow`?
          2 | net: {allow: [a.example], alow: []}
            |                           ^^^^"#]],
    );
}

#[test]
fn too_long_a_chain_is_refused() {
    let files: Vec<(&'static str, String)> = (0..20)
        .map(|number| {
            let name: &'static str = Box::leak(format!("./{number}.yaml").into_boxed_str());
            (name, format!("version: 1\nextends: [./{}.yaml]\n", number + 1))
        })
        .collect();
    let problems =
        read(&Source::new("p", "version: 1\nextends: [./0.yaml]\n"), &Files(files)).unwrap_err();
    assert!(problems.to_string().contains("through more than 8 files"), "{problems}");
}

/// `p` extends the first, each the next, and the last nothing.
fn chain(length: usize) -> Files {
    let name = |number: usize| format!("./{number}.yaml").leak() as &'static str;
    let file = |number: usize| {
        let next = if number < length {
            format!("extends: [{}]\n", name(number + 1))
        } else {
            String::new()
        };
        (name(number), format!("version: 1\n{next}"))
    };
    Files((1..=length).map(file).collect())
}

#[test]
fn a_chain_of_eight_files_is_read_and_one_of_nine_is_not() {
    let read =
        |length| read(&Source::new("p", "version: 1\nextends: [./1.yaml]\n"), &chain(length));
    assert_eq!(read(8).unwrap().sources.len(), 9);
    let problems = read(9).unwrap_err();
    assert!(problems.to_string().contains("through more than 8 files"), "{problems}");
}

#[test]
fn sixty_four_files_are_extended_in_all_and_no_more() {
    let name = |number: usize| format!("./{number}.yaml").leak() as &'static str;
    let read = |count: usize| {
        let files = Files((0..count).map(|n| (name(n), "version: 1\n".to_owned())).collect());
        let names: Vec<_> = (0..count).map(name).collect();
        let text = format!("version: 1\nextends: [{}]\n", names.join(", "));
        super::read(&Source::new("p", text), &files)
    };
    assert_eq!(read(64).unwrap().sources.len(), 65);
    let problems = read(65).unwrap_err();
    assert!(problems.to_string().contains("more than 64 files"), "{problems}");
}

#[test]
fn what_ends_like_a_file_or_has_a_folder_is_a_file() {
    for (written, file) in [
        ("a.yaml", true),
        ("a.yml", true),
        ("./a", true),
        ("dir/a", true),
        ("github-read", false),
        ("yaml", false),
    ] {
        assert_eq!(is_file(written), file, "{written}");
    }
}

#[test]
fn the_registries_of_this_machine_are_used_where_a_rule_names_none() {
    struct Machine;
    impl Sources for Machine {
        fn load(&self, written: &str, from: &Source) -> Result<Source, String> {
            NoFiles.load(written, from)
        }

        fn registries(&self, kind: RegistryKind) -> Vec<RegistryUrl> {
            assert_eq!(kind, RegistryKind::Npm, "nothing else is left to this machine");
            vec![RegistryUrl::parse("https://npm.example/").unwrap()]
        }
    }
    let text = "version: 1\nnet: {enabled: true, allow: [{npm: [left-pad]}, {pip: [six], registry: \"https://p.example/\"}]}\n";
    let asked = SampleRequest::new("GET", "https://npm.example/left-pad").unwrap();
    let policy = read(&Source::new("p", text), &Machine).unwrap();
    assert_eq!(policy.decide(&asked.question()).to_string(), "allow: net.allow[0]");
    let policy = read(&Source::new("p", text), &NoFiles).unwrap();
    assert_eq!(policy.decide(&asked.question()).to_string(), "deny: no rule matches");
    assert_eq!(NoFiles.registries(RegistryKind::Pip), []);
    let why = NoFiles.load("./x.yaml", &Source::new("p", "")).unwrap_err();
    assert_eq!(why, "`./x.yaml` is a file, and files cannot be read here");
}

#[test]
fn a_rule_is_told_everything_that_is_wrong_with_it() {
    check(
        "version: 1
net:
  enabled: true
  allow:
    - {host: db.example, protocol: tcp, methods: [GET], access: push}
    - {git: git.example/a/b, host: h.example}
    - {host: '169.254.169.254'}
    - {host: '10.0.0.5'}
    - {host: h.example, secret: NOPE}
    - {host: other.example, secret: KEY}
    - {host: h.example, protocol: http, secret: KEY}
    - {paths: [/x]}
  deny:
    - {host: h.example, secret: KEY, addresses: [10.0.0.0/8]}
    - {pip: [evil]}
  passthrough:
    - {host: h.example, methods: [GET]}
secrets:
  KEY: {from: {env: KEY}, hosts: [h.example], header: x-key}
",
        &NoFiles,
        expect![[r#"
            p:5:7: net.allow[0]: `protocol: tcp` relays bytes unseen: `methods`, `paths`, `query`, `headers` and `websocket` cannot be judged
              5 |     - {host: db.example, protocol: tcp, methods: [GET], access: push}
                |       ^
            p:5:7: net.allow[0]: `protocol: tcp` needs a `port`
              5 |     - {host: db.example, protocol: tcp, methods: [GET], access: push}
                |       ^
            p:5:7: net.allow[0]: `access` goes with `git`
              5 |     - {host: db.example, protocol: tcp, methods: [GET], access: push}
                |       ^
            p:6:7: net.allow[1]: `host`, `git`, `pip` and `npm` exclude each other; write one rule for each
              6 |     - {git: git.example/a/b, host: h.example}
                |       ^
            p:7:7: net.allow[2]: `169.254.169.254` is a metadata address; no rule can reach it
              7 |     - {host: '169.254.169.254'}
                |       ^
            p:8:7: net.allow[3]: `10.0.0.5` is a private address; a rule reaches it only if its `addresses` name it
              8 |     - {host: '10.0.0.5'}
                |       ^
            p:9:7: net.allow[4]: no secret is named `NOPE`; declare it under `secrets:`
              9 |     - {host: h.example, secret: NOPE}
                |       ^
            p:10:7: net.allow[5]: secret `KEY` is not meant for `other.example`; add the host to `secrets.KEY.hosts` or drop it here
              10 |     - {host: other.example, secret: KEY}
                 |       ^
            p:11:7: net.allow[6]: secret `KEY` needs https; it is never sent in the clear
              11 |     - {host: h.example, protocol: http, secret: KEY}
                 |       ^
            p:12:7: net.allow[7]: `port`, `protocol`, `methods`, `paths`, `query`, `headers` and `websocket` go with `host`; `git`, `pip` and `npm` set them
              12 |     - {paths: [/x]}
                 |       ^
            p:12:7: net.allow[7]: say what the rule is about: `host`, `git`, `pip` or `npm`
              12 |     - {paths: [/x]}
                 |       ^
            p:14:7: net.deny[0]: `secret` goes with rules that let requests pass
              14 |     - {host: h.example, secret: KEY, addresses: [10.0.0.0/8]}
                 |       ^
            p:14:7: net.deny[0]: `addresses` says what may be dialled; a deny dials nothing
              14 |     - {host: h.example, secret: KEY, addresses: [10.0.0.0/8]}
                 |       ^
            p:15:7: net.deny[1]: pip names no registry on this machine; write `registry: https://...` in the rule
              15 |     - {pip: [evil]}
                 |       ^
            p:17:7: net.passthrough[0]: `passthrough` entries have `host`, `port`, `addresses`, `name` and `reason` alone: nothing inside is seen
              17 |     - {host: h.example, methods: [GET]}
                 |       ^"#]],
    );
}

#[test]
fn a_secret_says_where_it_is_where_it_goes_and_how() {
    check(
        "version: 1
secrets:
  A: {from: {env: A}, hosts: [], header: x}
  B: {from: {env: B}, hosts: [h.example]}
  C: {from: {env: C}, hosts: [h.example], header: x, basic: u}
  D: {from: {env: D}, hosts: [h.example], header: x, format: Bearer}
  E: {from: {inline: hunter2}, hosts: [h.example], header: x}
  f: {from: {env: F}, hosts: [h.example], header: x}
",
        &NoFiles,
        expect![[r#"
            p:3:6: secrets.A: `hosts` is empty, so the secret could go nowhere; name its hosts
              3 |   A: {from: {env: A}, hosts: [], header: x}
                |      ^
            p:4:6: secrets.B: say how requests carry it: `header: x-api-key`, or `basic: user`
              4 |   B: {from: {env: B}, hosts: [h.example]}
                |      ^
            p:5:6: secrets.C: `header` and `basic` exclude each other; keep one
              5 |   C: {from: {env: C}, hosts: [h.example], header: x, basic: u}
                |      ^
            p:6:6: secrets.D: `format: Bearer` must contain `{secret}` once, as in `Bearer {secret}`
              6 |   D: {from: {env: D}, hosts: [h.example], header: x, format: Bearer}
                |      ^
            p:7:13: secrets.E.from: `inline` is not one of `env`, `file`
              7 |   E: {from: {inline: hunter2}, hosts: [h.example], header: x}
                |             ^
            p:8:3: secrets.f: `f` is not a secret's name: write it in capitals, such as `API_KEY`
              8 |   f: {from: {env: F}, hosts: [h.example], header: x}
                |   ^"#]],
    );
}

#[test]
fn a_secret_bound_anew_must_still_fit_the_rules_that_carry_it() {
    check(
        "version: 1
extends: [llm-anthropic]
secrets: {ANTHROPIC_API_KEY: {from: {file: /k}, hosts: [proxy.example], header: x-api-key}}
",
        &NoFiles,
        expect![[r#"
            p: `anthropic-messages` sends secret `ANTHROPIC_API_KEY` to `api.anthropic.com`, which `secrets.ANTHROPIC_API_KEY.hosts` does not name
            p: `anthropic-models` sends secret `ANTHROPIC_API_KEY` to `api.anthropic.com`, which `secrets.ANTHROPIC_API_KEY.hosts` does not name"#]],
    );
}

proptest! {
    /// Nothing that stands in a file makes reading panic, and reading the same
    /// text twice gives the same answer.
    #[test]
    fn reading_never_panics_and_is_repeatable(
        pieces in proptest::collection::vec(
            proptest::sample::select(vec![
                "version: 1\n", "net:\n", "  allow:\n", "    - ", "{host: a.example}", "{host: '*.example.com', methods: [GET, PUT]}",
                "{git: g.example/a/b, access: push}", "{pip: [x], registry: 'https://p.example/'}", "\n", "  deny: [x.example]\n",
                "proc: {memory: 1GiB}\n", "secrets: {A: {from: {env: A}, hosts: [h.example], header: x}}\n", "extends: [no-exfiltration]\n",
                "tests: [{request: GET https://a.example/, expect: allow}]\n", "fs: {workspace: none}\n", "}", "[", "'", "  enabled: true\n",
            ]),
            0..20,
        )
    ) {
        let text = pieces.concat();
        let told = || {
            let policy = read(&Source::new("p", text.as_str()), &NoFiles);
            let rules = |policy: Policy| policy.rules().map(ToString::to_string).collect::<Vec<_>>();
            policy.map(rules).map_err(|problems| problems.to_string())
        };
        prop_assert_eq!(told(), told());
    }

    #[test]
    fn no_text_makes_reading_panic(text in "\\PC{0,300}") {
        drop(read(&Source::new("p", text), &NoFiles));
    }
}

#[track_caller]
fn check(text: &str, sources: &dyn Sources, expected: Expect) {
    let problems = read(&Source::new("p", text), sources).unwrap_err();
    expected.assert_eq(&problems.to_string());
}

#[test]
fn what_a_field_takes_is_said_where_it_gets_something_else() {
    for (text, message) in [
        (
            "net: {allow: [[1]]}",
            "expected a host such as `example.com`, or fields such as `{host: example.com}`, found a list",
        ),
        (
            "net: {allow: [{host: h.example, port: {a: 1}}]}",
            "expected one value or a list of them, found a mapping",
        ),
        (
            "net: {allow: [{host: h.example, port: []}]}",
            "an empty list matches nothing; name at least one",
        ),
        (
            "net: {allow: [{host: h.example, port: 0}]}",
            "port 0 cannot be dialled; write 1 to 65535",
        ),
        ("proc: {cpus: [1]}", "expected a number of processors"),
        ("proc: {memory: [1]}", "expected a size: "),
        ("proc: {timeout: [1]}", "expected a length of time"),
    ] {
        let source = Source::new("p", format!("version: 1\n{text}\n"));
        let problems = read(&source, &NoFiles).unwrap_err();
        let messages: Vec<_> = problems.iter().map(|problem| &problem.message).collect();
        assert!(messages.len() == 1 && messages[0].starts_with(message), "{messages:?}");
    }
}

#[test]
fn a_test_that_fails_says_what_was_expected() {
    let text = "version: 1
net: {enabled: true, allow: [a.example], ask: [{host: b.example}]}
tests:
  - {request: GET https://a.example/, expect: allow}
  - {request: GET https://a.example/, expect: ask}
  - {request: GET https://b.example/, expect: deny, rule: 'net.deny[0]'}
  - {request: GET https://c.example/, expect: allow}
";
    let policy = read(&Source::new("p", text), &NoFiles).unwrap();
    let results: Vec<_> = policy.run_tests().iter().map(ToString::to_string).collect();
    expect![[r#"
        ok: line 4: GET https://a.example/: allow: net.allow[0]
        FAILED: line 5: GET https://a.example/: allow: net.allow[0]; expected ask
        FAILED: line 6: GET https://b.example/: ask: net.ask[0]; expected deny: net.deny[0]
        FAILED: line 7: GET https://c.example/: deny: no rule matches; expected allow"#]]
    .assert_eq(&results.join("\n"));
}
