//! A WebSocket that sends every message back (RFC 6455), over HTTP/1.1.

use std::io;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Agrees to switch, if that is what `request` asks for.
pub(super) fn accept(request: &mut Request<Incoming>) -> Option<Response<Empty<Bytes>>> {
    let key = request.headers().get(SEC_WEBSOCKET_KEY)?.as_bytes();
    let digest =
        digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID.as_bytes()].concat());
    let accept = HeaderValue::try_from(STANDARD.encode(digest)).ok()?;
    let upgrade = hyper::upgrade::on(request);
    tokio::spawn(async move {
        if let Ok(stream) = upgrade.await {
            // Whoever breaks it off is not worth a word.
            echo(TokioIo::new(stream)).await.ok();
        }
    });
    let mut answer = Response::new(Empty::new());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Some(answer)
}

/// Sends frames back unmasked, as a server does; the first `close` is the last.
async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    loop {
        let first = stream.read_u8().await?;
        let second = stream.read_u8().await?;
        let length = match second & 0x7f {
            126 => stream.read_u16().await?.into(),
            127 => stream.read_u64().await?,
            short => short.into(),
        };
        // A client that does not mask is none.
        if second & 0x80 == 0 || length > MAX_MESSAGE_BYTES {
            return Ok(());
        }
        let mut mask = [0; 4];
        stream.read_exact(&mut mask).await?;
        let mut payload = Vec::new();
        (&mut stream).take(length).read_to_end(&mut payload).await?;
        for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
        let opcode = if first & 0x0f == PING { first & 0xf0 | PONG } else { first };
        let mut frame = vec![opcode];
        match payload.len() {
            length @ ..126 => frame.push(u8::try_from(length).unwrap_or_default()),
            length @ ..65536 => {
                frame.push(126);
                frame.extend(u16::try_from(length).unwrap_or_default().to_be_bytes());
            }
            length => {
                frame.push(127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(payload);
        stream.write_all(&frame).await?;
        stream.flush().await?;
        if first & 0x0f == CLOSE {
            return Ok(());
        }
    }
}

const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const MAX_MESSAGE_BYTES: u64 = 1 << 20;
