//! Requests and answers of one client, one after the other.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::server::TlsStream;

use crate::access_log::{AccessEntry, AccessLog};
use crate::body::{self, BodyFraming};
use crate::buffer::PendingBytes;
use crate::read_ahead::LargeReads;
use crate::upstream::UpstreamConnection;

pub(crate) struct Relay {
    downstream: TlsStream<LargeReads>,
    upstream: UpstreamConnection,
    from_client: PendingBytes,
    from_upstream: PendingBytes,
}

/// As much of a request as the answer and the log need.
struct ForwardedRequest {
    method: String,
    path: String,
}

impl Relay {
    pub(crate) fn new(downstream: TlsStream<LargeReads>, upstream: UpstreamConnection) -> Self {
        let (from_client, from_upstream) = Default::default();
        Self { downstream, upstream, from_client, from_upstream }
    }

    pub(crate) fn into_upstream(self) -> UpstreamConnection {
        self.upstream
    }

    /// Until the client leaves; true if the upstream connection is good for another one.
    pub(crate) async fn run(
        &mut self,
        host: &str,
        client: SocketAddr,
        log: &AccessLog,
    ) -> Result<bool> {
        while let Some(request) = self.send_request(host).await? {
            let (status, framing) = self.send_answer_head(&request.method).await?;
            let body_bytes = body::copy(
                framing,
                &mut self.from_upstream,
                &mut self.upstream,
                &mut self.downstream,
            )
            .await?;
            log.record(
                client,
                &AccessEntry {
                    verdict: "allow",
                    method: &request.method,
                    host,
                    path: &request.path,
                    status,
                    body_bytes,
                },
            );
            if framing == BodyFraming::UntilClose {
                self.downstream.shutdown().await.ok();
                return Ok(false);
            }
        }
        Ok(self.from_client.is_empty() && self.from_upstream.is_empty())
    }

    /// Reads a request and sends it on; nothing if the client has left.
    async fn send_request(&mut self, host: &str) -> Result<Option<ForwardedRequest>> {
        let (request, framing, head_bytes) = loop {
            if self.from_client.is_empty() {
                self.from_client.release();
                self.from_upstream.release();
            } else if let Some(request) = parse_request(self.from_client.get(), host)? {
                break request;
            }
            if self.from_client.fill(&mut self.downstream, HEAD_BYTES).await.unwrap_or(0) == 0 {
                return Ok(None);
            }
        };
        let rest = self.send_head(head_bytes, framing, Direction::ToUpstream).await?;
        body::copy(rest, &mut self.from_client, &mut self.downstream, &mut self.upstream).await?;
        Ok(Some(request))
    }

    /// Informational answers, then the one that counts: its status, and its body's rest.
    async fn send_answer_head(&mut self, method: &str) -> Result<(u16, BodyFraming)> {
        loop {
            if !self.from_upstream.is_empty()
                && let Some((status, framing, head_bytes)) =
                    parse_answer(self.from_upstream.get(), method)?
            {
                let rest = self.send_head(head_bytes, framing, Direction::ToClient).await?;
                if !(100..200).contains(&status) {
                    return Ok((status, rest));
                }
            } else if self.from_upstream.fill(&mut self.upstream, HEAD_BYTES).await? == 0 {
                bail!("the upstream closed");
            }
        }
    }

    /// A head and the part of the body that came with it leave in one record; what is
    /// left of the body.
    async fn send_head(
        &mut self,
        head_bytes: usize,
        framing: BodyFraming,
        direction: Direction,
    ) -> Result<BodyFraming> {
        let pending = match direction {
            Direction::ToClient => &mut self.from_upstream,
            Direction::ToUpstream => &mut self.from_client,
        };
        let (part, rest) = framing.split(pending.get().len() - head_bytes);
        let bytes = pending.first((head_bytes + part) as u64);
        match direction {
            Direction::ToClient => {
                self.downstream.write_all(bytes).await?;
                self.downstream.flush().await?;
            }
            Direction::ToUpstream => {
                self.upstream.write_all(bytes).await?;
                self.upstream.flush().await?;
            }
        }
        pending.sent(head_bytes + part);
        Ok(rest)
    }
}

#[derive(Clone, Copy)]
enum Direction {
    ToClient,
    ToUpstream,
}

/// A whole head, with its length.
fn parse_request(
    bytes: &[u8],
    host: &str,
) -> Result<Option<(ForwardedRequest, BodyFraming, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = request.parse(bytes)? else { return Ok(None) };
    let named = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("host"));
    if named.map(|header| header.value) != Some(host.as_bytes()) {
        bail!("Host is not that of the tunnel");
    }
    let framing = BodyFraming::of(request.headers, BodyFraming::Absent)?;
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let sent = ForwardedRequest { method: text(request.method), path: text(request.path) };
    Ok(Some((sent, framing, length)))
}

fn parse_answer(bytes: &[u8], method: &str) -> Result<Option<(u16, BodyFraming, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut answer = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = answer.parse(bytes)? else { return Ok(None) };
    let status = answer.code.unwrap_or(0);
    let framing = match status {
        100..200 | 204 | 304 => BodyFraming::Absent,
        _ if method == "HEAD" => BodyFraming::Absent,
        _ => BodyFraming::of(answer.headers, BodyFraming::UntilClose)?,
    };
    Ok(Some((status, framing, length)))
}

const HEAD_BYTES: usize = 4096;
