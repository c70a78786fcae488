//! What came back, over whichever protocol.

use serde_json::Value;

/// One answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    pub status: u16,
    /// What stands beside the status; nothing in HTTP/2.
    pub reason: String,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// The 1xx that came first.
    pub interim: Vec<u16>,
}

impl Reply {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        first(&self.headers, name)
    }

    pub fn trailer(&self, name: &str) -> Option<&str> {
        first(&self.trailers, name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The refusal's document. Panics on anything that is not one.
    pub fn problem(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        serde_json::from_slice(&self.body).unwrap_or_else(|err| panic!("{err} in {}", self.text()))
    }

    /// The refusal's code.
    pub fn code(&self) -> String {
        self.problem()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Asserts a refusal by its status and code, in all the places that say them.
    #[track_caller]
    pub fn assert_refused(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{self:?}\n{}", self.text());
        let problem = self.problem();
        assert_eq!(problem["code"], code, "{}", self.text());
        assert_eq!(problem["status"], status, "{}", self.text());
        assert_eq!(self.header("x-sluice-code"), Some(code), "{self:?}");
        assert!(problem["request_id"].as_str().is_some_and(|id| id.len() == 36), "{self:?}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{self:?}");
    }

    /// Asserts an answer that an upstream gave.
    #[track_caller]
    pub fn assert_relayed(&self, status: u16) {
        assert_eq!(self.status, status, "{self:?}\n{}", self.text());
        assert_eq!(self.header("x-sluice-code"), None, "{}", self.text());
    }
}

/// The first value of a header, in a list with names in lower case.
pub fn first<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}
