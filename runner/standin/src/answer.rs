//! What a stand-in says.
//!
//! | path | answer |
//! |---|---|
//! | `/bytes/N` | N bytes, at most 64 MiB |
//! | `/repository.git` | a repository with one branch, for `git ls-remote` |
//! | `/requirements.txt` | requirements that pip finds fulfilled |
//! | `/status/N` | a response with that status |
//! | `/stream` | five events, a tenth of a second apart |
//! | `/websocket` | a WebSocket that sends every message back |
//! | anything else | the request itself, as JSON |

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use jiff::Timestamp;
use tokio::time;

use super::received::{ConnectionInfo, ReceivedRequest, RequestLog};
use super::websocket;

pub(super) type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Reads a request to its end, keeps it, and answers.
pub(super) async fn answer(
    mut request: Request<Incoming>,
    connection: &ConnectionInfo,
    log: &RequestLog,
) -> Result<Answer, Infallible> {
    let path = request.uri().path().to_owned();
    let upgraded = (path == "/websocket").then(|| websocket::accept(&mut request)).flatten();
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY_BYTES).collect().await;
    let body = body.map(|collected| collected.to_bytes().len());
    let seen = ReceivedRequest {
        time: Timestamp::now(),
        tls: connection.tls,
        name: connection.name.clone(),
        version: format!("{:?}", head.version),
        method: head.method.to_string(),
        host: host(&head.headers, &head.uri, head.version),
        path: head.uri.path_and_query().map_or(path.clone(), ToString::to_string),
        headers: head.headers.iter().map(pair).collect(),
        body: body.as_ref().map_or(0, |length| *length as u64),
    };
    let said = if body.is_err() {
        plain(StatusCode::PAYLOAD_TOO_LARGE, "that is more than a stand-in reads\n")
    } else if let Some(upgraded) = upgraded {
        upgraded.map(BoxBody::new)
    } else {
        by_path(&path, &seen)
    };
    log.keep(seen);
    Ok(said)
}

fn by_path(path: &str, seen: &ReceivedRequest) -> Answer {
    let mut parts = path.trim_start_matches('/').splitn(2, '/');
    match (parts.next(), parts.next()) {
        (Some("bytes"), Some(number)) => match number.parse() {
            Ok(length) if length <= MAX_BODY_BYTES => bytes(length),
            _ => plain(StatusCode::BAD_REQUEST, "write /bytes/N, with N up to 67108864\n"),
        },
        (Some("status"), Some(number)) => {
            let status = number.parse().ok().and_then(|number| StatusCode::from_u16(number).ok());
            // Those below are no whole answer.
            match status.filter(|status| status.as_u16() >= 200) {
                Some(status) => plain(status, ""),
                None => plain(StatusCode::BAD_REQUEST, "write /status/N, with N from 200 to 999\n"),
            }
        }
        (Some("stream"), None) => events(),
        (Some("websocket"), None) => {
            plain(StatusCode::UPGRADE_REQUIRED, "this is for WebSockets over HTTP/1.1\n")
        }
        (Some("repository.git"), Some("info/refs")) => plain(StatusCode::OK, REFERENCES),
        (Some("repository.git"), Some("HEAD")) => plain(StatusCode::OK, "ref: refs/heads/main\n"),
        (Some("requirements.txt"), None) => plain(StatusCode::OK, "pip\n"),
        _ => echo(seen),
    }
}

/// One branch, as a plain file server has it.
const REFERENCES: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904\trefs/heads/main\n";

/// The request itself, so that whoever asked sees what the gateway made of it.
fn echo(seen: &ReceivedRequest) -> Answer {
    let mut text = serde_json::to_string_pretty(seen).unwrap_or_default();
    text.push('\n');
    whole(StatusCode::OK, "application/json", text.into())
}

fn bytes(length: usize) -> Answer {
    whole(StatusCode::OK, "application/octet-stream", vec![b'.'; length].into())
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    whole(status, "text/plain", text.into())
}

fn events() -> Answer {
    let events = stream::unfold(1, |number| async move {
        if number > EVENTS {
            return None;
        }
        if number > 1 {
            time::sleep(BETWEEN_EVENTS).await;
        }
        let event = Bytes::from(format!("data: {number}\n\n"));
        Some((Ok(Frame::data(event)), number + 1))
    });
    with_type("text/event-stream", Response::new(BoxBody::new(StreamBody::new(events))))
}

fn whole(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(BoxBody::new(Full::new(body)));
    *answer.status_mut() = status;
    with_type(kind, answer)
}

fn with_type(kind: &'static str, mut answer: Answer) -> Answer {
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn host(headers: &HeaderMap, uri: &http::Uri, version: Version) -> Option<String> {
    let written = headers.get(HOST).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let authority = || uri.authority().map(ToString::to_string);
    match version {
        Version::HTTP_2 => authority().or(written.map(Into::into)),
        _ => written.map(Into::into).or_else(authority),
    }
}

fn pair((name, value): (&http::HeaderName, &HeaderValue)) -> (String, String) {
    (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
}

const EVENTS: u32 = 5;
const BETWEEN_EVENTS: Duration = Duration::from_millis(100);
const MAX_BODY_BYTES: usize = 64 << 20;
