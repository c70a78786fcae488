//! A request as a person writes it: for policy tests, `explain` and hints.

use crate::document::TestSection;
use crate::header_fields::{Headers, check_fields};
use crate::method::Method;
use crate::names::HeaderName;
use crate::question::PolicyQuestion;
use crate::request_overrides::{RequestOverrides, SentRequest};
use crate::target::Target;

/// A request that somebody wrote down as `METHOD URL`.
#[derive(Clone, Debug)]
pub struct SampleRequest {
    pub method: Method,
    pub target: Target,
    pub websocket: bool,
    headers: Vec<(HeaderName, String)>,
    overrides: RequestOverrides,
}

impl SampleRequest {
    /// Reads a method and a URL. `ws://` and `wss://` ask for a WebSocket.
    ///
    /// ```
    /// # use policies::SampleRequest;
    /// let sample = SampleRequest::new("GET", "https://api.example.com/v1?x=1").unwrap();
    /// assert_eq!(sample.target.destination.to_string(), "api.example.com:443");
    /// assert!(SampleRequest::new("get", "https://api.example.com/").unwrap_err().contains("`GET`"));
    /// ```
    pub fn new(method: &str, url: &str) -> Result<Self, String> {
        let method = Method::parse(method).map_err(|err| err.to_string())?;
        let (url, websocket) = match url.split_once("://") {
            Some(("ws", rest)) => (format!("http://{rest}"), true),
            Some(("wss", rest)) => (format!("https://{rest}"), true),
            _ => (url.to_owned(), false),
        };
        let target = Target::parse_url(&url).map_err(|err| err.to_string())?;
        let (headers, overrides) = (Vec::new(), RequestOverrides::default());
        Self { method, target, websocket, headers, overrides }.with_headers([])
    }

    /// The same request with these headers besides; an error if the gateway would
    /// refuse them before it asks the policy.
    pub fn with_headers(
        mut self,
        headers: impl IntoIterator<Item = (HeaderName, String)>,
    ) -> Result<Self, String> {
        self.headers.extend(headers);
        check_fields(&self).map_err(|err| err.to_string())?;
        let sent = SentRequest {
            scheme: self.target.scheme,
            to: &self.target.destination,
            method: self.method,
            query: self.target.query.as_ref(),
            headers: &self,
        };
        self.overrides = RequestOverrides::read(&sent).map_err(|err| err.to_string())?;
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
        let mut sample = Self::new(method, url)?;
        sample.websocket |= written.websocket;
        sample.with_headers(written.headers.clone())
    }

    pub fn question(&self) -> PolicyQuestion<'_> {
        PolicyQuestion {
            scheme: self.target.scheme,
            to: &self.target.destination,
            method: self.method,
            override_method: self.overrides.method,
            alternate_paths: &self.overrides.paths,
            path: &self.target.path,
            query: self.target.query.as_ref(),
            headers: self,
            websocket: self.websocket,
        }
    }

    /// The URL as policy reads it.
    pub fn url(&self) -> String {
        let url = self.target.to_string();
        match url.strip_prefix("http") {
            Some(rest) if self.websocket => format!("ws{rest}"),
            _ => url,
        }
    }
}

impl Headers for SampleRequest {
    fn each<'h>(&'h self, each: &mut dyn FnMut(&'h [u8], &'h [u8])) {
        for (name, value) in &self.headers {
            each(name.as_str().as_bytes(), value.as_bytes());
        }
    }
}
