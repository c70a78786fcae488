//! B15, B18: a rule for WebSockets lets WebSockets through, and nothing that is
//! merely called one.

mod frames;
mod handshake;
mod http2;

use tests::websocket::{Frame, switching};
use tests::{Line, Peer, Plan, Way, World, within};

/// A key, and what a server makes of it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// A world whose policy allows WebSockets to `ws.test`.
async fn world(plan: Plan) -> World {
    World::allowing(&["{host: allowed.test}", "{host: ws.test, websocket: true}"])
        .upstream("ws.test", plan)
        .start()
        .await
}

/// A connection over which a WebSocket can be asked for.
async fn connected(world: &World) -> Line {
    world.sandbox.tls(Way::Proxy, "ws.test", &["http/1.1"]).await.unwrap()
}

/// A request for a WebSocket, with more headers.
fn asking(path: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: ws.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{more}\r\n"
    )
}

/// Which of a list of cases a path names: `/7`.
fn number(path: &str) -> usize {
    path.trim_start_matches('/').parse().unwrap()
}

/// Becomes a WebSocket, then sends what `sends` has for the path.
fn switching_then(sends: impl Fn(usize) -> Vec<u8> + Send + Sync + 'static) -> Plan {
    let sends = std::sync::Arc::new(sends);
    Plan::scripted(move |mut peer: Peer| {
        let sends = sends.clone();
        async move {
            let Some(asked) = peer.request().await else { return };
            let mut head = switching(asked.header("sec-websocket-key").unwrap_or_default());
            if asked.header("sec-websocket-extensions").is_some() {
                let agreed = "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";
                head.truncate(head.len() - 2);
                head.push_str(agreed);
            }
            peer.line.send(head).await;
            peer.line.send(sends(number(&asked.target))).await;
            peer.line.rest().await;
        }
    })
}

/// What a side gets that the gateway hangs up on: a close frame that says
/// "protocol error", and then the end.
async fn assert_closed_for_a_protocol_error(line: &mut Line) -> Result<(), String> {
    match within("a close frame", line.frame()).await {
        Some(Frame { last: true, opcode: tests::websocket::CLOSE, payload })
            if payload == 1002u16.to_be_bytes() => {}
        other => return Err(format!("{other:?}")),
    }
    match line.rest().await {
        rest if rest.is_empty() => Ok(()),
        rest => Err(format!("then {rest:?}")),
    }
}
