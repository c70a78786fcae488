//! A policy's own tests: a request, and the answer it must get.

use std::fmt;

use crate::decide::Question;
use crate::document::{Expectation, TestSection};
use crate::fields::{Headers, check_fields};
use crate::method::Method;
use crate::names::HeaderName;
use crate::overridden::{Overridden, Sent};
use crate::policy::{Policy, PolicyTest};
use crate::target::Scheme;
use crate::target::Target;
use crate::verdict::{Decision, Verdict};

/// A request that somebody wrote down as `METHOD URL`.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: Method,
    pub target: Target,
    pub websocket: bool,
    headers: Vec<(HeaderName, String)>,
    overridden: Overridden,
}

impl Asked {
    /// Reads a method and a URL. `ws://` and `wss://` ask for a WebSocket.
    ///
    /// ```
    /// # use policies::Asked;
    /// let asked = Asked::new("GET", "https://api.example.com/v1?x=1").unwrap();
    /// assert_eq!(asked.target.destination.to_string(), "api.example.com:443");
    /// assert!(Asked::new("get", "https://api.example.com/").unwrap_err().contains("`GET`"));
    /// ```
    pub fn new(method: &str, url: &str) -> Result<Self, String> {
        let method = Method::parse(method).map_err(|err| err.to_string())?;
        let (url, websocket) = match url.split_once("://") {
            Some(("ws", rest)) => (format!("http://{rest}"), true),
            Some(("wss", rest)) => (format!("https://{rest}"), true),
            _ => (url.to_owned(), false),
        };
        let target = Target::parse_url(&url).map_err(|err| err.to_string())?;
        let (headers, overridden) = (Vec::new(), Overridden::default());
        Self { method, target, websocket, headers, overridden }.with_headers([])
    }

    /// The same request with these headers besides; an error if the gateway would
    /// refuse them before it asks the policy.
    pub fn with_headers(
        mut self,
        headers: impl IntoIterator<Item = (HeaderName, String)>,
    ) -> Result<Self, String> {
        self.headers.extend(headers);
        check_fields(&self).map_err(|err| err.to_string())?;
        let sent = Sent {
            scheme: self.target.scheme,
            to: &self.target.destination,
            method: self.method,
            query: self.target.query.as_ref(),
            headers: &self,
        };
        self.overridden = Overridden::read(&sent).map_err(|err| err.to_string())?;
        Ok(self)
    }

    pub(crate) fn parse(written: &TestSection) -> Result<Self, String> {
        let words: Vec<&str> = written.request.split_ascii_whitespace().collect();
        let [method, url] = words.as_slice() else {
            return Err(format!(
                "`{}` is not a request: write a method and a URL, as in `GET https://example.com/`",
                written.request
            ));
        };
        let mut asked = Self::new(method, url)?;
        asked.websocket |= written.websocket;
        asked.with_headers(written.headers.clone())
    }

    pub fn question(&self) -> Question<'_> {
        Question {
            scheme: self.target.scheme,
            to: &self.target.destination,
            method: self.method,
            overridden: self.overridden.method,
            further: &self.overridden.paths,
            path: &self.target.path,
            query: self.target.query.as_ref(),
            headers: self,
            websocket: self.websocket,
        }
    }

    /// The URL as policy reads it.
    pub fn url(&self) -> String {
        let Target { scheme, destination, path, query } = &self.target;
        let mut url = match (scheme, self.websocket) {
            (Scheme::Http, false) => "http://",
            (Scheme::Http, true) => "ws://",
            (Scheme::Https, false) => "https://",
            (Scheme::Https, true) => "wss://",
        }
        .to_owned();
        url.push_str(&destination.host.to_string());
        if destination.port != scheme.default_port() {
            url.push_str(&format!(":{}", destination.port));
        }
        url.push_str(path.as_str());
        if let Some(query) = query {
            url.push_str(&format!("?{}", query.as_str()));
        }
        url
    }
}

impl Headers for Asked {
    fn each<'h>(&'h self, each: &mut dyn FnMut(&'h [u8], &'h [u8])) {
        for (name, value) in &self.headers {
            each(name.as_str().as_bytes(), value.as_bytes());
        }
    }
}

/// How one test ended.
#[derive(Debug)]
pub struct TestResult<'p> {
    pub test: &'p PolicyTest,
    pub decision: Decision<'p>,
    pub passed: bool,
}

impl fmt::Display for TestResult<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { test, decision, passed } = self;
        let word = if *passed { "ok" } else { "FAILED" };
        write!(f, "{word}: line {}: {}: {decision}", test.line, test.request)?;
        if !passed {
            write!(f, "; expected {}", test.expect)?;
            if let Some(rule) = &test.rule {
                write!(f, ": {rule}")?;
            }
        }
        Ok(())
    }
}

impl Policy {
    /// Asks the policy every question of its own tests.
    pub fn run_tests(&self) -> Vec<TestResult<'_>> {
        let run = |test| {
            let decision = self.decide(&PolicyTest::question(test));
            let expected = match test.expect {
                Expectation::Allow => Verdict::Allow,
                Expectation::Ask => Verdict::Ask,
                Expectation::Deny => Verdict::Deny,
            };
            let by_rule = test.rule.is_none() || test.rule.as_deref() == decision.rule_id();
            TestResult { test, decision, passed: decision.verdict == expected && by_rule }
        };
        self.tests.iter().map(run).collect()
    }
}

impl PolicyTest {
    fn question(&self) -> Question<'_> {
        self.asked.question()
    }
}
