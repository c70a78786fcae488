//! One request, whatever way it takes.

use super::{Sandbox, Way};
use crate::reply::Reply;

/// A request being put together.
#[derive(Debug)]
#[must_use = "nothing is sent before `send`"]
pub struct Ask<'s> {
    sandbox: &'s Sandbox,
    method: String,
    scheme: String,
    host: String,
    port: u16,
    /// Path and query, never changed.
    target: String,
    way: Way,
    http2: bool,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl<'s> Ask<'s> {
    pub(super) fn new(sandbox: &'s Sandbox, method: &str, url: &str) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap();
        let (authority, target) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, "/"),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap()),
            _ => (authority, if scheme == "http" { 80 } else { 443 }),
        };
        Self {
            sandbox,
            method: method.to_owned(),
            scheme: scheme.to_owned(),
            host: host.to_owned(),
            port,
            target: target.to_owned(),
            way: Way::Proxy,
            http2: false,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub fn by(mut self, way: Way) -> Self {
        self.way = way;
        self
    }

    pub fn over_http2(mut self) -> Self {
        self.http2 = true;
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    /// Sends it, and returns whatever answers: the upstream, the gateway inside
    /// the connection, or the gateway instead of it.
    pub async fn send(self) -> Reply {
        let alpn = if self.http2 { ["h2"] } else { ["http/1.1"] };
        match (self.scheme.as_str(), self.way) {
            ("http", Way::Proxy) => {
                let mut line = self.sandbox.proxy().await;
                let target = format!("http://{}{}", self.authority(), self.target);
                line.send(self.http1(&target)).await;
                line.reply_to(&self.method).await
            }
            ("http", way) => {
                let mut line = match self.sandbox.tunnel(way, &self.host, self.port).await {
                    Ok(line) => line,
                    Err(refused) => return refused,
                };
                line.send(self.http1(&self.target)).await;
                line.reply_to(&self.method).await
            }
            (_, way) => {
                let line = match self.sandbox.tunnel(way, &self.host, self.port).await {
                    Ok(line) => line,
                    Err(refused) => return refused,
                };
                let mut line = self.sandbox.handshake(line, &self.host, &alpn).await.unwrap();
                if self.http2 {
                    let url = format!("https://{}{}", self.authority(), self.target);
                    let mut session = super::Http2::open(line).await;
                    return session.ask(&self.method, &url, &self.headers, self.body).await;
                }
                line.send(self.http1(&self.target)).await;
                line.reply_to(&self.method).await
            }
        }
    }

    fn authority(&self) -> String {
        match (self.scheme.as_str(), self.port) {
            ("http", 80) | ("https", 443) => self.host.clone(),
            (_, port) => format!("{}:{port}", self.host),
        }
    }

    fn http1(&self, target: &str) -> Vec<u8> {
        let mut head =
            format!("{} {target} HTTP/1.1\r\nHost: {}\r\n", self.method, self.authority());
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.body.is_empty() {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        [head.as_bytes(), &self.body].concat()
    }
}
