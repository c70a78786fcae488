//! `get --h2`: requests over many streams of one HTTP/2 connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request, StatusCode, Uri};
use tokio::task;
use tokio::time::sleep;

use super::Load;
use super::get::issuer_remark;

pub(super) async fn repeat(load: &Arc<Load>) {
    if let Err(err) = connect_and_repeat(load).await {
        load.tally.error(err);
    }
}

async fn connect_and_repeat(load: &Arc<Load>) -> Result<()> {
    let sender = connect(load).await?;
    let uri: Uri = format!("https://{}{}", load.args.host, load.path()).parse()?;
    let streams: Vec<_> = (0..load.args.streams)
        .map(|_| task::spawn_local(stream(Arc::clone(load), sender.clone(), uri.clone())))
        .collect();
    for stream in streams {
        stream.await?;
    }
    Ok(())
}

async fn connect(load: &Load) -> Result<SendRequest<Bytes>> {
    let (connection, _) = load.within(load.route.open(&load.args.host)).await?;
    load.tally.remark(issuer_remark(&connection));
    let alpn = connection.stream.get_ref().1.alpn_protocol();
    if alpn != Some(b"h2") {
        let alpn = alpn.map(String::from_utf8_lossy);
        bail!("no h2 towards the client (ALPN {alpn:?})");
    }
    let (sender, driver) = h2::client::Builder::new()
        .initial_window_size(1 << 20)
        .initial_connection_window_size(16 << 20)
        .handshake(connection.stream)
        .await?;
    // If it fails, so do the requests.
    task::spawn_local(async move { driver.await.ok() });
    Ok(sender)
}

async fn stream(load: Arc<Load>, sender: SendRequest<Bytes>, uri: Uri) {
    while !load.tally.is_stopped() {
        let exchanged = load.within(exchange(&load, sender.clone(), &uri)).await;
        if let Err(err) = exchanged {
            if !load.tally.failed(&err) {
                break;
            }
            sleep(REST_AFTER_ERROR).await;
        }
    }
}

async fn exchange(load: &Load, sender: SendRequest<Bytes>, uri: &Uri) -> Result<()> {
    let begun = Instant::now();
    let mut sender = sender.ready().await?;
    let request = Request::get(uri.clone()).header("user-agent", "pbench").body(())?;
    let (response, _) = sender.send_request(request, true)?;
    let response = response.await?;
    let status = response.status();
    let mut body = response.into_body();
    let mut length = 0;
    while let Some(data) = body.data().await {
        let data = data?;
        length += data.len() as u64;
        body.flow_control().release_capacity(data.len())?;
    }
    if status != StatusCode::OK || length != load.args.bytes {
        bail!("status {status} body {length}");
    }
    load.tally.operation(begun.elapsed());
    Ok(())
}

const REST_AFTER_ERROR: Duration = Duration::from_millis(50);
