//! `get`: one request after the other over a connection that stays.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::sleep;

use super::Load;
use crate::connection::get_request;
use crate::issuer::issuer_names;
use crate::tunnel::OriginConnection;

pub(super) async fn repeat(load: &Load) {
    let request = get_request(&load.args.host, &load.path());
    let mut connection = None;
    let mut was_connected = false;
    while !load.tally.is_stopped() {
        let exchanged = load.within(async {
            let open = match &mut connection {
                Some(open) => open,
                None => {
                    let opened = connect(load).await?;
                    if std::mem::replace(&mut was_connected, true) {
                        load.tally.reconnected();
                    }
                    connection.insert(opened)
                }
            };
            exchange(load, open, &request).await
        });
        match exchanged.await {
            Ok(true) => continue,
            Ok(false) => {}
            Err(err) if load.tally.failed(&err) => sleep(REST_AFTER_ERROR).await,
            Err(_) => break,
        }
        connection = None;
    }
}

async fn connect(load: &Load) -> Result<OriginConnection> {
    let (connection, _) = load.route.open(&load.args.host).await?;
    load.tally.remark(issuer_remark(&connection));
    Ok(connection)
}

/// True if the connection can carry another request.
async fn exchange(load: &Load, connection: &mut OriginConnection, request: &[u8]) -> Result<bool> {
    let begun = Instant::now();
    connection.send(request).await?;
    let received = connection.receive(|_| {}).await?;
    received.expect_bytes(load.args.bytes)?;
    load.tally.operation(begun.elapsed());
    Ok(received.reusable)
}

/// Who signed the certificate that the client was shown: a tunnel must not pass for an
/// interception.
pub(super) fn issuer_remark(connection: &OriginConnection) -> String {
    let tls = connection.stream.get_ref().1;
    let leaf = tls.peer_certificates().and_then(<[_]>::first);
    format!("issuer: {}", issuer_names(leaf))
}

const REST_AFTER_ERROR: Duration = Duration::from_millis(5);
