//! What the origin answers.
//!
//! - `GET /bytes/N`: N bytes, with their length
//! - `POST /upload`: reads the body, and answers with its length
//! - `GET /sse?n=N&ms=M`: N events, M milliseconds apart; each carries the moment at
//!   which it was made, on the clock that the client has too

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use tokio::time::{MissedTickBehavior, interval};

use super::counters::OriginCounters;
use crate::clock::monotonic_ns;

pub(super) type OriginBody = UnsyncBoxBody<Bytes, Infallible>;

pub(super) async fn answer(
    request: Request<Incoming>,
    counters: &OriginCounters,
) -> Result<Response<OriginBody>, Infallible> {
    OriginCounters::count(match request.version() {
        Version::HTTP_2 => &counters.h2_requests,
        _ => &counters.h1_requests,
    });
    let path = request.uri().path();
    if let Some(length) = path.strip_prefix("/bytes/").and_then(|text| text.parse().ok()) {
        return Ok(download(length));
    }
    Ok(match path {
        "/sse" => {
            let query = request.uri().query().unwrap_or_default();
            let every = Duration::from_millis(number(query, "ms", 20).max(1));
            events(number(query, "n", 100), every)
        }
        "/upload" => text(uploaded(request.into_body()).await.to_string()),
        _ => {
            let mut response = text("not found");
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    })
}

pub(super) fn text(text: impl Into<Bytes>) -> Response<OriginBody> {
    Response::new(Full::new(text.into()).boxed_unsync())
}

fn download(length: u64) -> Response<OriginBody> {
    let mut response = Response::new(zeroes(length));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_LENGTH, length.into());
    response
}

/// So many bytes, in pieces that are never copied.
fn zeroes(length: u64) -> OriginBody {
    static BLOCK: [u8; 64 << 10] = [b'x'; 64 << 10];
    let piece = |left: u64| {
        let piece = BLOCK.get(..usize::try_from(left).unwrap_or(usize::MAX)).unwrap_or(&BLOCK);
        Bytes::from_static(piece)
    };
    if length <= BLOCK.len() as u64 {
        return Full::new(piece(length)).boxed_unsync();
    }
    let pieces = stream::unfold(length, move |left| async move {
        let piece = piece(left);
        let rest = left - piece.len() as u64;
        (!piece.is_empty()).then_some((Ok(Frame::data(piece)), rest))
    });
    StreamBody::new(pieces).boxed_unsync()
}

fn events(count: u64, every: Duration) -> Response<OriginBody> {
    let mut tick = interval(every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = stream::unfold((0, tick), move |(number, mut tick)| async move {
        if number == count {
            return None;
        }
        tick.tick().await;
        let event = format!("id: {number}\ndata: {}\n\n", monotonic_ns());
        Some((Ok(Frame::data(Bytes::from(event))), (number + 1, tick)))
    });
    let mut response = Response::new(StreamBody::new(events).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn uploaded(mut body: Incoming) -> u64 {
    let mut length = 0;
    while let Some(Ok(frame)) = body.frame().await {
        length += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
    length
}

fn number(query: &str, key: &str, default: u64) -> u64 {
    let values = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut known = values.filter(|(name, _)| *name == key).flat_map(|(_, value)| value.parse());
    known.next().unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_download_has_exactly_the_bytes_that_were_asked_for() {
        for length in [0, 1, 64 << 10, (64 << 10) + 1, 200_000] {
            let body = download(length).into_body().collect().await.unwrap();
            assert_eq!(body.to_bytes().len() as u64, length);
        }
    }

    #[tokio::test]
    async fn events_are_numbered_and_carry_a_time() {
        let body = events(3, Duration::from_millis(1)).into_body().collect().await.unwrap();
        let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
        assert_eq!(text.matches("\ndata: ").count(), 3);
        assert!(text.contains("id: 2\n") && text.ends_with("\n\n"), "{text}");
    }

    #[test]
    fn a_number_is_found_by_its_whole_name() {
        assert_eq!(number("an=1&n=7&ms=x", "n", 3), 7);
        assert_eq!(number("an=1&n=7&ms=x", "ms", 3), 3);
    }
}
