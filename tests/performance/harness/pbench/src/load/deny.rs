//! `deny`: how long until a client knows that a host is refused, and how it learns.

use std::time::Instant;

use anyhow::{Result, bail};
use tokio::net::TcpStream;

use super::Load;
use super::tally::shortened;
use crate::connection::HttpConnection;
use crate::tunnel::ConnectOutcome;

pub(super) async fn repeat(load: &Load) {
    while load.tally.begin(load.args.count) {
        let attempt = async {
            let begun = Instant::now();
            let how = refusal(load).await?;
            load.tally.operation(begun.elapsed());
            load.tally.remark(how);
            Ok(())
        };
        if let Err(err) = load.within(attempt).await
            && !load.tally.failed(&err)
        {
            break;
        }
    }
}

/// Goes as far as the proxy lets it.
async fn refusal(load: &Load) -> Result<String> {
    match load.route.tunnel(&load.args.host).await? {
        ConnectOutcome::Open(socket) => refusal_in_tunnel(load, socket).await,
        ConnectOutcome::Refused(Some(status)) => Ok(format!("refused at CONNECT with {status}")),
        ConnectOutcome::Refused(None) => Ok("refused at CONNECT: Reset".to_owned()),
    }
}

async fn refusal_in_tunnel(load: &Load, socket: TcpStream) -> Result<String> {
    let stream = match load.route.handshake(&load.args.host, socket).await {
        Ok(stream) => stream,
        Err(err) => return Ok(shortened(format!("refused in TLS: {err:#}"), MAX_REASON_BYTES)),
    };
    match HttpConnection::new(stream).get(&load.args.host, "/bytes/1").await {
        Ok(received) if received.status == 200 => bail!("NOT refused"),
        Ok(received) => Ok(format!("refused inside TLS with {}", received.status)),
        Err(err) => Ok(format!("closed inside TLS: {err:#}")),
    }
}

const MAX_REASON_BYTES: usize = 80;
