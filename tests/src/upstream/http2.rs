//! Upstreams that speak HTTP/2.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, server};
use http::{HeaderMap, Request, Response};

use super::{Peer, Plan, Received};
use crate::reply::Reply;

/// One request on one stream, and the way to answer it.
#[derive(Debug)]
pub struct Http2Request {
    pub request: Request<RecvStream>,
    pub respond: SendResponse<Bytes>,
}

/// Gives every stream to `script`.
///
/// `extended_connect` advertises WebSocket over HTTP/2.
pub fn speaking_http2<F>(
    extended_connect: bool,
    script: impl Fn(Http2Request) -> F + Send + Sync + 'static,
) -> Plan
where
    F: Future<Output = ()> + Send + 'static,
{
    let script = Arc::new(script);
    Plan::scripted(move |peer| {
        let script = Arc::clone(&script);
        async move { serve(peer, extended_connect, &*script).await }
    })
    .alpn(&["h2"])
}

/// Answers every stream with a reply, trailers included, once its body is read.
pub fn answering_http2(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Plan {
    let answer = Arc::new(answer);
    speaking_http2(false, move |asked| {
        let answer = Arc::clone(&answer);
        async move { asked.answer(&*answer).await }
    })
}

async fn serve<F>(
    peer: Peer,
    extended_connect: bool,
    script: &(dyn Fn(Http2Request) -> F + Send + Sync),
) where
    F: Future<Output = ()> + Send + 'static,
{
    let Peer { line, seen, .. } = peer;
    let mut builder = server::Builder::new();
    // It bears what a gateway should not pass on; tests count it.
    builder.max_pending_accept_reset_streams(100_000).max_concurrent_reset_streams(100_000);
    if extended_connect {
        builder.enable_connect_protocol();
    }
    let Ok(mut connection) = builder.handshake(line.into_stream()).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        seen.remember(Received {
            method: request.method().to_string(),
            target: request.uri().to_string(),
            headers: listed(request.headers()),
            ..Received::default()
        });
        tokio::spawn(script(Http2Request { request, respond }));
    }
}

impl Http2Request {
    /// The rest of the body and its trailers.
    pub async fn body(&mut self) -> Option<(Vec<u8>, HeaderMap)> {
        let stream = self.request.body_mut();
        let mut body = Vec::new();
        while let Some(piece) = stream.data().await {
            let piece = piece.ok()?;
            stream.flow_control().release_capacity(piece.len()).ok()?;
            body.extend_from_slice(&piece);
        }
        let trailers = stream.trailers().await.ok()?.unwrap_or_default();
        Some((body, trailers))
    }

    async fn answer(mut self, answer: &(dyn Fn(&Received) -> Reply + Send + Sync)) {
        let Some((body, trailers)) = self.body().await else { return };
        let reply = answer(&Received {
            method: self.request.method().to_string(),
            target: self.request.uri().to_string(),
            headers: listed(self.request.headers()),
            body,
            trailers: listed(&trailers),
            head: Vec::new(),
        });
        let mut response = Response::builder().status(reply.status);
        for (name, value) in &reply.headers {
            response = response.header(name, value);
        }
        let response = response.body(()).unwrap();
        let ends = reply.body.is_empty() && reply.trailers.is_empty();
        let Ok(mut stream) = self.respond.send_response(response, ends) else { return };
        if ends {
            return;
        }
        let no_trailers = reply.trailers.is_empty();
        stream.send_data(reply.body.into(), no_trailers).ok();
        if !no_trailers {
            let mut trailers = HeaderMap::new();
            for (name, value) in reply.trailers {
                let name = http::HeaderName::try_from(name).unwrap();
                trailers.append(name, value.try_into().unwrap());
            }
            stream.send_trailers(trailers).ok();
        }
    }
}

/// Headers in order, as text.
pub(crate) fn listed(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}
