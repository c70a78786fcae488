//! The operator's side: the control socket.

use std::path::PathBuf;

use tokio::net::UnixStream;

use crate::deadline::within;
use crate::line::Line;
use crate::reply::Reply;

/// The control socket of one gateway.
#[derive(Clone, Debug)]
pub struct Control {
    pub socket: PathBuf,
}

impl Control {
    pub async fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, "").await
    }

    pub async fn post(&self, path: &str, body: &str) -> Reply {
        self.ask("POST", path, body).await
    }

    /// Tells the gateway to stop, if it is still there to be told.
    pub async fn drain(&self) {
        if let Ok(stream) = UnixStream::connect(&self.socket).await {
            let mut line = Line::new(stream);
            line.send("POST /drain HTTP/1.1\r\nHost: control\r\nContent-Length: 0\r\n\r\n").await;
            line.reply_or_end().await;
        }
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> Reply {
        let stream = within("the control socket", UnixStream::connect(&self.socket)).await;
        let mut line = Line::new(stream.unwrap());
        let length = body.len();
        line.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: control\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        ))
        .await;
        line.reply().await
    }
}
