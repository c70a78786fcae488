//! A policy's own tests: a request, and the answer it must get.

use std::fmt;

use crate::decision::Decision;
use crate::document::Expectation;
use crate::policy::{Policy, PolicyTest};
use crate::verdict::Verdict;

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
    /// Runs the policy's own tests.
    pub fn run_tests(&self) -> Vec<TestResult<'_>> {
        let tests = self.tests.iter().map(|test| {
            let decision = self.decide(&test.sample.question());
            let expected = match test.expect {
                Expectation::Allow => Verdict::Allow,
                Expectation::Ask => Verdict::Ask,
                Expectation::Deny => Verdict::Deny,
            };
            let by_rule = test.rule.is_none() || test.rule.as_deref() == decision.rule_id();
            TestResult { test, decision, passed: decision.verdict == expected && by_rule }
        });
        tests.collect()
    }
}
