//! C17: what servers make of a path is judged, not only how it is spelt.

use expect_test::{Expect, expect};

use crate::{Method, NoFiles, Policy, PolicyQuestion, SampleRequest, Source, Verdict, read};

#[test]
fn a_deny_holds_for_every_reading_of_a_path() {
    let policy = policy(
        "allow: [h.example], deny: [{host: h.example, paths: ['/admin/**', /gists, /c++, '/caf%C3%A9']}]",
    );
    for path in [
        "/admin%2Fusers",
        "/ADMIN%2fusers",
        "/admin;x/users",
        "/admin%3Bx/users",
        "/admin;/;/users",
        "/%20admin/users",
        "/admin%20/users",
        "/admin+/users",
        "/admin./users",
        "/admin%2F%20users",
        "/admin:$i30:$INDEX_ALLOCATION/users",
        "/%EF%BD%81dmin/users",
        "/admin%EF%BC%8Fusers",
        "/admin%E2%81%84users",
        "/admin%E2%88%95users",
        "/ad%E2%80%8Bmin/users",
        "/adm%C4%B1n/users",
        "/gists%3Fx",
        "/gists%23x",
        "/gists;/x",
        "/gi%C5%BFts",
        "/gists::$DATA",
        "/gists%2F",
        "/c%2B%2B",
        "/CAF%C3%89",
        "/cafe%CC%81",
    ] {
        let asked = format!("https://h.example{path}");
        // Refused before any rule is asked is as good.
        let Ok(asked) = SampleRequest::new("GET", &asked) else { continue };
        assert_eq!(policy.decide(&asked.question()).to_string(), "deny: net.deny[0]", "{path}");
    }
    for path in ["/administer%2Fx", "/gist%2Fs", "/x;admin/users", "/cafe"] {
        let asked = SampleRequest::new("GET", &format!("https://h.example{path}")).unwrap();
        assert_eq!(policy.decide(&asked.question()).to_string(), "allow: net.allow[0]", "{path}");
    }
}

#[test]
fn a_deny_that_names_an_escape_holds_for_what_it_spells() {
    check(
        "allow: [h.example], deny: [{host: h.example, paths: ['/@evil%2F*', '/a%2Bb']}]",
        &["/@evil%2Fx", "/@evil/x", "/@EVIL/x", "/a+b", "/a%2bb", "/@good/x"],
        expect![[r#"
            /@evil%2Fx -> deny: net.deny[0]
            /@evil/x -> deny: net.deny[0]
            /@EVIL/x -> deny: net.deny[0]
            /a+b -> deny: net.deny[0]
            /a%2bb -> deny: net.deny[0]
            /@good/x -> allow: net.allow[0]
        "#]],
    );
}

#[test]
fn an_allow_holds_for_every_reading_or_not_at_all() {
    check(
        "allow: [{host: h.example, paths: [/v1/*, '/pub/**']}]",
        &[
            "/v1/a",
            "/v1/a%2Fadmin",
            "/v1/a%EF%BC%8Fadmin",
            "/v1/a%E2%84%85b",
            "/v1/a;x",
            "/v1;x/a",
            "/v1/a%20",
            "/v1/a%3Fb",
            "/pub/a%2Fb;c",
            "/pub%2Fa/b",
            "/pub/caf%C3%A9+au+lait",
        ],
        expect![[r#"
            /v1/a -> allow: net.allow[0]
            /v1/a%2Fadmin -> deny: no rule matches
            /v1/a%EF%BC%8Fadmin -> deny: no rule matches
            /v1/a%E2%84%85b -> deny: no rule matches
            /v1/a;x -> allow: net.allow[0]
            /v1;x/a -> deny: no rule matches
            /v1/a%20 -> allow: net.allow[0]
            /v1/a%3Fb -> allow: net.allow[0]
            /pub/a%2Fb;c -> allow: net.allow[0]
            /pub%2Fa/b -> deny: no rule matches
            /pub/caf%C3%A9+au+lait -> allow: net.allow[0]
        "#]],
    );
}

#[test]
fn a_pattern_that_names_an_escape_admits_that_spelling_and_no_other() {
    check(
        "allow: [{host: h.example, paths: ['/@scope%2Fname', '/projects/*%2Fissues', '/m;v=1/x', /c++, '/a%20', '/x%E2%80%8By']}]",
        &[
            "/@scope%2fname",
            "/@scope/name",
            "/@scope%2Fname%2Fx",
            "/@scope%2Fname;x",
            "/projects/a%2Fissues",
            "/projects/42/issues",
            "/projects/a%2Fb%2Fissues",
            "/projects/a;%2Fissues",
            "/m;v=1/x",
            "/m/x",
            "/m;v=2/x",
            "/c++",
            "/c%2B%2B",
            "/c",
            "/a%20",
            "/a",
            "/x%E2%80%8By",
            "/xy",
        ],
        expect![[r#"
            /@scope%2fname -> allow: net.allow[0]
            /@scope/name -> deny: no rule matches
            /@scope%2Fname%2Fx -> deny: no rule matches
            /@scope%2Fname;x -> deny: no rule matches
            /projects/a%2Fissues -> allow: net.allow[0]
            /projects/42/issues -> deny: no rule matches
            /projects/a%2Fb%2Fissues -> deny: no rule matches
            /projects/a;%2Fissues -> deny: no rule matches
            /m;v=1/x -> allow: net.allow[0]
            /m/x -> deny: no rule matches
            /m;v=2/x -> deny: no rule matches
            /c++ -> allow: net.allow[0]
            /c%2B%2B -> deny: no rule matches
            /c -> deny: no rule matches
            /a%20 -> allow: net.allow[0]
            /a -> deny: no rule matches
            /x%E2%80%8By -> allow: net.allow[0]
            /xy -> deny: no rule matches
        "#]],
    );
}

/// `*` on both sides of what servers drop must not become `**`, nor a
/// look-alike of `*` a wildcard.
#[test]
fn a_reading_of_a_pattern_has_no_wildcards_of_its_own() {
    check(
        "allow: [h.example], deny: [{host: h.example, paths: ['/a/*%E2%80%8B*', '/b%EF%BC%8A']}]",
        &["/a/x%E2%80%8By", "/a/x/y", "/a/x", "/b%EF%BC%8A", "/bx"],
        expect![[r#"
            /a/x%E2%80%8By -> deny: net.deny[0]
            /a/x/y -> allow: net.allow[0]
            /a/x -> allow: net.allow[0]
            /b%EF%BC%8A -> deny: net.deny[0]
            /bx -> allow: net.allow[0]
        "#]],
    );
}

#[test]
fn an_ask_is_no_more_to_be_dodged_than_a_deny() {
    check(
        "allow: [h.example], ask: [{host: h.example, paths: ['/admin/**']}, {host: h.example, query: {mode: write}}]",
        &[
            "/admin/users",
            "/admin%2Fusers",
            "/ADMIN/users",
            "/admin;x/users",
            "/x?mode=write&mode=read",
            "/x?mode=read",
        ],
        expect![[r#"
            /admin/users -> ask: net.ask[0]
            /admin%2Fusers -> ask: net.ask[0]
            /ADMIN/users -> ask: net.ask[0]
            /admin;x/users -> ask: net.ask[0]
            /x?mode=write&mode=read -> ask: net.ask[1]
            /x?mode=read -> allow: net.allow[0]
        "#]],
    );
    // Where it is the ask that lets a request pass, it is as exact as an allow.
    check(
        "ask: [{host: h.example, paths: [/v1/*]}]",
        &["/v1/a", "/V1/a", "/v1/a%2Fb"],
        expect![[r#"
            /v1/a -> ask: net.ask[0]
            /V1/a -> deny: no rule matches
            /v1/a%2Fb -> deny: no rule matches
        "#]],
    );
}

#[test]
fn readings_may_be_allowed_by_several_rules_that_ask_for_the_same() {
    check(
        "allow: [{host: h.example, paths: [/v1/*]}, {host: h.example, paths: [/v1/*/*]}]",
        &["/v1/a%2Fb", "/v1/a%2Fb%2Fc"],
        expect![[r#"
            /v1/a%2Fb -> allow: net.allow[0]
            /v1/a%2Fb%2Fc -> deny: no rule matches
        "#]],
    );
    // One rule for all of them goes before several.
    check(
        "allow: [{host: h.example, paths: [/v1/*], addresses: [10.0.0.0/8]}, {host: h.example, paths: ['/**']}]",
        &["/v1/a", "/v1/a%2Fb"],
        expect![[r#"
            /v1/a -> allow: net.allow[0]
            /v1/a%2Fb -> allow: net.allow[1]
        "#]],
    );
    for differing in [
        "allow: [{host: h.example, paths: [/v1/*], addresses: [10.0.0.0/8]}, {host: h.example, paths: [/v1/*/*]}]",
        "allow: [{host: h.example, paths: [/v1/*]}, {host: h.example, paths: [/v1/*/*], addresses: [10.0.0.0/8]}]",
    ] {
        check(
            differing,
            &["/v1/a%2Fb"],
            expect![[r#"
                /v1/a%2Fb -> deny: rules allow it on different terms
            "#]],
        );
    }
}

#[test]
fn a_secret_goes_out_only_if_every_reading_is_to_carry_it() {
    let text = |rules: &str| {
        format!(
            "version: 1
net: {{enabled: true, {rules}}}
secrets: {{KEY: {{from: {{env: KEY}}, hosts: [h.example], header: x-api-key}}}}
"
        )
    };
    let decide = |rules: &str, path: &str| {
        let policy = read(&Source::new("p", text(rules)), &NoFiles).unwrap();
        let asked = SampleRequest::new("GET", &format!("https://h.example{path}")).unwrap();
        policy.decide(&asked.question()).to_string()
    };
    let two = "allow: [{host: h.example, paths: [/v1/*], secret: KEY}, {host: h.example, paths: [/v1/*/*]}]";
    assert_eq!(decide(two, "/v1/a%2Fb"), "deny: rules allow it on different terms");
    // A rule without the secret does not stand in for the one with it.
    let beside = "allow: [{host: h.example}, {host: h.example, paths: [/v1/a], secret: KEY}]";
    assert_eq!(decide(beside, "/v1/b"), "allow: net.allow[0]");
    assert_eq!(decide(beside, "/v1/a;b"), "deny: rules allow it on different terms");
    let before = "allow: [{host: h.example}, {host: h.example, paths: [/v1/*, '/w/**'], secret: KEY}], deny: [{host: h.example, unless: secret}]";
    assert_eq!(decide(before, "/v1/a"), "allow: net.allow[1]");
    assert_eq!(decide(before, "/w/a%2Fb"), "allow: net.allow[1]");
    assert_eq!(decide(before, "/x"), "deny: net.deny[0]");
    let spared = "allow: [{host: h.example, paths: [/v1/*], secret: KEY}, {host: h.example}], deny: [{host: h.example, unless: secret}]";
    assert_eq!(decide(spared, "/v1/a"), "allow: net.allow[0]");
    assert_eq!(decide(spared, "/v1/a;b"), "allow: net.allow[0]");
    assert_eq!(decide(spared, "/v1/a%2Fb"), "deny: net.deny[0]");
}

#[test]
fn capabilities_hold_for_every_reading_as_well() {
    check(
        "allow: [{git: h.example/acme/*}, {npm: ['@acme/ui'], registry: 'https://h.example/npm/'},
                 {pip: [requests], registry: 'https://h.example/simple/'}],
         deny: [{git: h.example/acme/secret}, {pip: [evil], registry: 'https://h.example/Simple/', files: ['https://h.example/Files/']}]",
        &[
            "/acme/a/info/refs?service=git-upload-pack",
            "/acme/a%2Fb/info/refs?service=git-upload-pack",
            "/acme/secret%3Bx/info/refs?service=git-upload-pack",
            "/acme%2Fsecret/info/refs?service=git-upload-pack",
            "/acme/secret.git%20/info/refs?service=git-upload-pack",
            "/npm/@acme%2Fui",
            "/npm/@acme/ui",
            "/npm/@acme%2Fui%2Fx",
            "/npm/@acme%2Fui/-/ui-1.0.tgz",
            "/npm/@acme%2Fui/x%2Fy",
            "/files/requests-2.31.0-py3-none-any.whl",
            "/files/requests-%2Fother-1.0-py3-none-any.whl",
            "/files/requests-1.0.tar.gz;x",
            "/files/x%2Frequests-1.0.tar.gz",
            "/simple%2Frequests/",
            "/files/evil-1.0.tar.gz",
            "/FILES/Evil-1.0.TAR.GZ",
            "/files/x%2Fevil-1.0.tar.gz",
            "/files/evil-1.0.tar.gz%20",
        ],
        expect![[r#"
            /acme/a/info/refs?service=git-upload-pack -> allow: net.allow[0]
            /acme/a%2Fb/info/refs?service=git-upload-pack -> deny: no rule matches
            /acme/secret%3Bx/info/refs?service=git-upload-pack -> deny: net.deny[0]
            /acme%2Fsecret/info/refs?service=git-upload-pack -> deny: net.deny[0]
            /acme/secret.git%20/info/refs?service=git-upload-pack -> deny: net.deny[0]
            /npm/@acme%2Fui -> allow: net.allow[1]
            /npm/@acme/ui -> allow: net.allow[1]
            /npm/@acme%2Fui%2Fx -> deny: no rule matches
            /npm/@acme%2Fui/-/ui-1.0.tgz -> allow: net.allow[1]
            /npm/@acme%2Fui/x%2Fy -> deny: no rule matches
            /files/requests-2.31.0-py3-none-any.whl -> allow: net.allow[2]
            /files/requests-%2Fother-1.0-py3-none-any.whl -> deny: no rule matches
            /files/requests-1.0.tar.gz;x -> deny: no rule matches
            /files/x%2Frequests-1.0.tar.gz -> deny: no rule matches
            /simple%2Frequests/ -> deny: no rule matches
            /files/evil-1.0.tar.gz -> deny: net.deny[1]
            /FILES/Evil-1.0.TAR.GZ -> deny: net.deny[1]
            /files/x%2Fevil-1.0.tar.gz -> deny: net.deny[1]
            /files/evil-1.0.tar.gz%20 -> deny: net.deny[1]
        "#]],
    );
}

#[test]
fn observing_lets_pass_only_what_no_reading_denies_or_asks_about() {
    let policy = policy(
        "allow: [{host: h.example, paths: [/v1/*]}], ask: [{host: h.example, paths: ['/ask/**']}],
         deny: [{host: h.example, paths: ['/admin/**']}, {host: h.example, methods: [DELETE]}]",
    );
    let yields = |path: &str, override_method| {
        let asked = SampleRequest::new("POST", &format!("https://h.example{path}")).unwrap();
        let decision = policy.decide(&PolicyQuestion { override_method, ..asked.question() });
        assert_eq!(decision.verdict, Verdict::Deny, "{path}");
        decision.is_unmatched()
    };
    assert!(yields("/x", None));
    assert!(yields("/x%2Fy", None));
    assert!(!yields("/admin%2Fy", None), "denied in one reading, unknown in the other");
    assert!(!yields("/x", Some(Method::Delete)), "denied by the method that is meant");
    let asked = SampleRequest::new("GET", "https://h.example/ask%2Fy").unwrap();
    let decision = policy.decide(&asked.question());
    assert_eq!(decision.to_string(), "deny: no rule matches");
    assert!(!decision.is_unmatched(), "a person is to be asked about one of the readings");
}

fn policy(rules: &str) -> Policy {
    let text = format!("version: 1\nnet: {{enabled: true, {rules}}}\n");
    read(&Source::new("p", text), &NoFiles).unwrap_or_else(|err| panic!("{err}"))
}

#[track_caller]
fn check(rules: &str, paths: &[&str], expected: Expect) {
    let policy = policy(rules);
    let mut answers = String::new();
    for path in paths {
        let asked = SampleRequest::new("GET", &format!("https://h.example{path}"))
            .unwrap_or_else(|err| panic!("{err}"));
        answers.push_str(&format!("{path} -> {}\n", policy.decide(&asked.question())));
    }
    expected.assert_eq(&answers);
}
