//! A rule in one line, as a person would say it.

use std::fmt::Write as _;

use crate::capability::Access;
use crate::document::{OneOrMany, RuleFields, RuleProtocol, Unless};

/// The rule's conditions, in the order in which a request meets them.
pub(crate) fn summary(fields: &RuleFields) -> String {
    let mut line = String::new();
    if let Some(methods) = &fields.methods {
        let methods: Vec<_> = methods.iter().map(|method| method.as_str()).collect();
        line.push_str(&methods.join("|"));
        line.push(' ');
    }
    match fields.protocol {
        Some(RuleProtocol::Http) => line.push_str("http://"),
        Some(RuleProtocol::Tcp) => line.push_str("tcp://"),
        Some(RuleProtocol::Https) | None => {}
    }
    let mut add = |text: String| line.push_str(&text);
    if let Some(host) = &fields.host {
        add(host.to_string());
    }
    if let Some(OneOrMany(ports)) = &fields.port {
        let ports: Vec<_> = ports.iter().map(|port| port.get().to_string()).collect();
        add(format!(":{}", ports.join("|")));
    }
    if let Some(git) = &fields.git {
        let access = if fields.access == Some(Access::Push) { "push to" } else { "fetch from" };
        add(format!("{access} {git}"));
    }
    if let Some(refs) = &fields.refs {
        add(format!(" refs {}", listed(refs)));
    }
    if let Some(packages) = &fields.pip {
        add(format!("pip {}", listed(packages)));
    }
    if let Some(packages) = &fields.npm {
        add(format!("npm {}", listed(packages)));
    }
    if let Some(paths) = &fields.paths {
        add(format!(" {}", listed(paths)));
    }
    for (name, value) in &fields.query {
        add(format!(" ?{name}={value}"));
    }
    for (name, value) in &fields.headers {
        add(format!(" {name}: {value}"));
    }
    if fields.websocket == Some(true) {
        add(" websocket".to_owned());
    }
    if let Some(secret) = &fields.secret {
        add(format!(" with {secret}"));
    }
    if fields.unless == Some(Unless::Secret) {
        add(" unless with a bound secret".to_owned());
    }
    line
}

/// The first few; a rule of two hundred packages is still one line.
fn listed<T: std::fmt::Display>(items: &[T]) -> String {
    let mut line = String::new();
    for (number, item) in items.iter().take(MAX_LISTED_ITEMS).enumerate() {
        let comma = if number == 0 { "" } else { ", " };
        write!(line, "{comma}{item}").expect("writing to a string cannot fail");
    }
    if let Some(more) = items.len().checked_sub(MAX_LISTED_ITEMS).filter(|more| *more > 0) {
        write!(line, " and {more} more").expect("writing to a string cannot fail");
    }
    line
}

const MAX_LISTED_ITEMS: usize = 5;

#[cfg(test)]
mod tests {
    use crate::{NoFiles, Source, read};

    fn shown(rule: &str) -> String {
        let text = format!(
            "version: 1\nnet: {{allow: [{rule}]}}\nsecrets: {{KEY: {{from: {{env: K}}, hosts: [h.example], header: x}}}}\n"
        );
        let policy = read(&Source::new("p", text), &NoFiles).unwrap_or_else(|err| panic!("{err}"));
        policy.rules().next().unwrap().summary().to_owned()
    }

    #[test]
    fn a_rule_is_said_in_one_line() {
        for (rule, line) in [
            ("h.example", "h.example"),
            (
                "{host: h.example, methods: [PUT, POST], protocol: http, port: [80, 81], paths: [/a]}",
                "PUT|POST http://h.example:80|81 /a",
            ),
            ("{host: h.example, protocol: tcp, port: 5432}", "tcp://h.example:5432"),
            ("{host: h.example, websocket: true, secret: KEY}", "h.example websocket with KEY"),
            ("{host: h.example, query: {k: v}, headers: {x-a: b}}", "h.example ?k=v x-a: b"),
            ("{git: g.example/a/b}", "fetch from g.example/a/b"),
            ("{git: g.example/a/b, access: fetch}", "fetch from g.example/a/b"),
            (
                "{git: g.example/a/b, access: push, refs: [refs/heads/x]}",
                "push to g.example/a/b refs refs/heads/x",
            ),
            (
                "{npm: [left-pad, '@acme/ui'], registry: 'https://r.example/'}",
                "npm left-pad, @acme/ui",
            ),
        ] {
            assert_eq!(shown(rule), line);
        }
    }

    #[test]
    fn five_packages_are_named_and_the_others_counted() {
        let of = |count: usize| {
            let names: Vec<_> = (0..count).map(|n| format!("p{n}")).collect();
            shown(&format!("{{pip: [{}], registry: 'https://r.example/'}}", names.join(", ")))
        };
        assert_eq!(of(4), "pip p0, p1, p2, p3");
        assert_eq!(of(5), "pip p0, p1, p2, p3, p4");
        assert_eq!(of(6), "pip p0, p1, p2, p3, p4 and 1 more");
        assert_eq!(of(8), "pip p0, p1, p2, p3, p4 and 3 more");
    }
}
