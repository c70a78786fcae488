//! What reached a stand-in.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde::{Serialize, Serializer};

/// One request, as it arrived.
#[derive(Clone, Debug, Serialize)]
pub struct ReceivedRequest {
    pub time: Timestamp,
    pub tls: bool,
    /// The server name of the TLS handshake.
    pub name: Option<String>,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub version: String,
    pub method: String,
    /// `Host`, or `:authority`.
    pub host: Option<String>,
    /// With its query.
    pub path: String,
    /// Names in lower case, in the order of arrival.
    #[serde(serialize_with = "as_lines")]
    pub headers: Vec<(String, String)>,
    /// How many bytes of a body came with it.
    pub body: u64,
}

impl ReceivedRequest {
    /// The first value of a header, named in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// As people read headers.
fn as_lines<S: Serializer>(headers: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(headers.iter().map(|(name, value)| format!("{name}: {value}")))
}

/// Who is told of every request as it comes; nobody by default.
#[derive(Clone, Default)]
pub struct RequestSink(Option<Arc<Listener>>);

type Listener = dyn Fn(&ReceivedRequest) + Send + Sync;

impl RequestSink {
    pub fn to(listener: impl Fn(&ReceivedRequest) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }
}

impl fmt::Debug for RequestSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "RequestSink(set)" } else { "RequestSink(none)" })
    }
}

/// How a connection was opened.
#[derive(Clone, Debug)]
pub(super) struct ConnectionInfo {
    pub(super) name: Option<String>,
    pub(super) tls: bool,
}

/// Everything that arrived, up to a bound.
#[derive(Debug)]
pub(super) struct RequestLog {
    requests: Mutex<VecDeque<ReceivedRequest>>,
    connections: AtomicU64,
    sink: RequestSink,
}

impl RequestLog {
    pub(super) fn new(sink: RequestSink) -> Self {
        Self { requests: Mutex::default(), connections: AtomicU64::new(0), sink }
    }

    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn keep(&self, seen: ReceivedRequest) {
        if let RequestSink(Some(listener)) = &self.sink {
            listener(&seen);
        }
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.len() == MAX_KEPT_REQUESTS {
            requests.pop_front();
        }
        requests.push_back(seen);
    }

    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.iter().cloned().collect()
    }
}

const MAX_KEPT_REQUESTS: usize = 1000;
