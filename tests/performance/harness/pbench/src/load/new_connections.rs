//! `conn`: a new connection for every request, to one host or to a new one each time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Result;
use rustls::HandshakeKind;
use tokio::io::AsyncWriteExt as _;

use super::Load;
use super::get::issuer_remark;
use crate::tunnel::OriginConnection;

pub(super) async fn repeat(load: &Load) {
    while load.tally.begin(load.args.count) {
        let exchanged = load.within(exchange(load, &host(load))).await;
        if let Err(err) = exchanged
            && !load.tally.failed(&err)
        {
            break;
        }
    }
}

fn host(load: &Load) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    match &load.args.many {
        Some(prefix) => {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            format!("{prefix}{number:06}.{}", load.args.zone)
        }
        None => load.args.host.clone(),
    }
}

async fn exchange(load: &Load, host: &str) -> Result<()> {
    let begun = Instant::now();
    let (mut connection, times) = load.route.open(host).await?;
    connection.get(host, &load.path()).await?.expect_bytes(load.args.bytes)?;
    load.tally.operation(begun.elapsed());
    if load.tally.is_measuring() {
        load.tally.delay("tunnel", times.tunnel);
        load.tally.delay("tls", times.tls);
        let tls = connection.stream.get_ref().1;
        if tls.handshake_kind() == Some(HandshakeKind::Resumed) {
            load.tally.remark("client side resumed".to_owned());
        }
    }
    if load.tally.is_first_operation() {
        load.tally.remark(issuer_remark(&connection));
        load.tally.remark(negotiated(&connection));
    }
    // The answer is there; how the connection ends does not matter.
    connection.stream.shutdown().await.ok();
    Ok(())
}

/// What client and proxy agreed on.
fn negotiated(connection: &OriginConnection) -> String {
    let tls = connection.stream.get_ref().1;
    let (Some(version), Some(suite)) = (tls.protocol_version(), tls.negotiated_cipher_suite())
    else {
        return "client side: nothing was negotiated".to_owned();
    };
    let group = tls.negotiated_key_exchange_group().map(|group| group.name());
    format!("client side: {version:?} {:?} {group:?}", suite.suite())
}
