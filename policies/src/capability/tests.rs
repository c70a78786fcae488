//! Which repositories, packages and registries there are, and what rules about them match.

use crate::sample_request::SampleRequest;
use crate::{
    GitRepository, NoFiles, NpmPackage, Policy, PythonPackage, Registries, RegistryUrl, Source,
    read,
};

#[test]
fn a_repository_is_a_host_and_a_plain_path() {
    let why = |text: &str| GitRepository::parse(text).unwrap_err().to_string();
    for url in ["https://git.example/acme/widgets", "git@git.example/acme/widgets", "git://x@y/z"] {
        assert!(why(url).contains("host and path alone"), "{url}");
    }
    assert!(why("widgets").contains("write host and path,"));
    assert!(why("10.0.0.1/acme").contains("start with a host name"));
    for path in ["", "/", "acme/wid*", "acme//widgets", "acme/../widgets", "a?b", "acme/*x/y"] {
        let text = format!("git.example/{path}");
        assert!(why(&text).contains("write the path plainly"), "{text}");
    }
}

#[test]
fn a_repository_is_shown_without_its_suffix() {
    for (written, shown) in [
        ("Git.Example/acme/widgets.git", "git.example/acme/widgets"),
        ("git.example/acme/*/", "git.example/acme/*"),
    ] {
        let repository = GitRepository::parse(written).unwrap();
        assert_eq!(repository.to_string(), shown);
        assert_eq!(repository.host().as_str(), "git.example");
    }
}

#[test]
fn a_git_rule_is_about_https_on_443_and_the_methods_of_the_protocol() {
    let policy = policy("allow: [{git: git.example/acme/widgets, access: push}]");
    let refs = "git.example/acme/widgets.git/info/refs?service=git-receive-pack";
    let pack = "git.example/acme/widgets.git/git-receive-pack";
    assert!(allows(&policy, "GET", &format!("https://{refs}")));
    assert!(allows(&policy, "POST", &format!("https://{pack}")));
    assert!(!allows(&policy, "POST", &format!("https://{refs}")));
    assert!(!allows(&policy, "GET", &format!("https://{pack}")));
    assert!(!allows(&policy, "GET", &format!("http://{refs}")));
    assert!(!allows(&policy, "GET", &format!("http://{}", refs.replace("/acme", ":443/acme"))));
    assert!(!allows(&policy, "GET", &format!("https://{}", refs.replace("/acme", ":8443/acme"))));
}

#[test]
fn a_push_that_is_denied_leaves_the_fetch_and_a_fetch_that_is_denied_the_push() {
    let fetch = "https://git.example/a/b/git-upload-pack";
    let push = "https://git.example/a/b/git-receive-pack";
    let with = |access: &str| {
        policy(&format!(
            "allow: [{{git: git.example/a/b, access: push}}]\n  deny: [{{git: git.example/a/b{access}}}]"
        ))
    };
    for (access, fetches, pushes) in
        [(", access: push", true, false), (", access: fetch", false, true), ("", false, false)]
    {
        let policy = with(access);
        assert_eq!(allows(&policy, "POST", fetch), fetches, "fetch with {access:?} denied");
        assert_eq!(allows(&policy, "POST", push), pushes, "push with {access:?} denied");
    }
}

#[test]
fn an_npm_package_has_a_plain_name_and_perhaps_a_scope() {
    for (written, shown) in [("left-pad", "left-pad"), ("@acme/ui", "@acme/ui"), ("a.b_c", "a.b_c")]
    {
        assert_eq!(NpmPackage::parse(written).unwrap().to_string(), shown);
    }
    for bad in ["", "-x", ".x", "a b", "a/b", "left-pad@1.0", "@acme", "@/x", "@acme/", "@a b/c"] {
        assert!(NpmPackage::parse(bad).is_err(), "{bad:?}");
    }
    let of = |length: usize| NpmPackage::parse(&"a".repeat(length));
    assert!(of(214).is_ok() && of(215).is_err() && of(300).is_err());
}

#[test]
fn a_python_package_is_compared_in_its_normal_form() {
    for (written, normal) in
        [("Zope.Interface", "zope-interface"), ("a-_.b", "a-b"), ("a--b__c", "a-b-c")]
    {
        assert_eq!(PythonPackage::parse(written).unwrap().to_string(), normal);
    }
    for bad in ["", "-a", "a-", ".a", "a.", "a b", "requests==2.0", "a/b"] {
        assert!(PythonPackage::parse(bad).is_err(), "{bad:?}");
    }
    let of = |length: usize| PythonPackage::parse(&"a".repeat(length));
    assert!(of(128).is_ok() && of(129).is_err() && of(300).is_err());
}

#[test]
fn a_package_rule_is_about_the_registrys_scheme_and_port() {
    let policy = policy(
        "allow: [{pip: [requests], registry: 'https://pip.example:8443/simple', files: ['http://files.example/p']},
                 {npm: [left-pad], registry: 'http://npm.example/'}]",
    );
    assert!(allows(&policy, "GET", "https://pip.example:8443/simple/requests/"));
    assert!(!allows(&policy, "GET", "https://pip.example/simple/requests/"));
    assert!(!allows(&policy, "GET", "http://pip.example:8443/simple/requests/"));
    assert!(allows(&policy, "GET", "http://files.example/p/requests-1.0.tar.gz"));
    assert!(!allows(&policy, "GET", "https://files.example/p/requests-1.0.tar.gz"));
    assert!(!allows(&policy, "GET", "http://files.example:81/p/requests-1.0.tar.gz"));
    assert!(allows(&policy, "GET", "http://npm.example/left-pad"));
    assert!(!allows(&policy, "GET", "http://npm.example:81/left-pad"));
    assert!(!allows(&policy, "GET", "https://npm.example/left-pad"));
}

#[test]
fn a_registry_is_shown_as_it_would_be_written() {
    for (written, shown) in [
        ("https://npm.example/r/", "https://npm.example/r"),
        ("https://npm.example:443", "https://npm.example"),
        ("https://npm.example:8443/", "https://npm.example:8443"),
        ("http://10.0.0.7:4873/npm/", "http://10.0.0.7:4873/npm"),
    ] {
        assert_eq!(RegistryUrl::parse(written).unwrap().to_string(), shown);
    }
    assert!(RegistryUrl::parse("https://npm.example/?q=1").is_err());
}

#[test]
fn a_machine_without_package_managers_has_no_registries() {
    let url = || vec![RegistryUrl::parse("https://r.example/").unwrap()];
    let none = Registries::default();
    assert!(none.is_empty());
    assert!(!Registries { npm: url(), ..none.clone() }.is_empty());
    assert!(!Registries { pip: url(), ..none }.is_empty());
}

fn policy(net: &str) -> Policy {
    let text = format!("version: 1\nnet:\n  enabled: true\n  {net}\n");
    read(&Source::new("p", text), &NoFiles).unwrap_or_else(|err| panic!("{err}"))
}

fn allows(policy: &Policy, method: &str, url: &str) -> bool {
    let asked = SampleRequest::new(method, url).unwrap();
    policy.decide(&asked.question()).verdict == crate::Verdict::Allow
}
