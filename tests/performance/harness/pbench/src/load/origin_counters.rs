//! The origin's counters, as they were before and after.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Null if there is no address to ask.
pub(super) async fn read(address: &str) -> Result<Value> {
    if address.is_empty() {
        return Ok(Value::Null);
    }
    #[expect(clippy::disallowed_methods, reason = "the origin of the same measurement")]
    let connecting = TcpStream::connect(address);
    let mut socket = connecting.await.with_context(|| format!("no counters at {address}"))?;
    socket.write_all(b"GET / HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").context("the counters have no body")?;
    Ok(serde_json::from_str(body)?)
}

/// By how much each counter grew.
pub(super) fn since(before: &Value, after: &Value) -> Value {
    let Value::Object(counters) = after else { return Value::Null };
    let number = |value: Option<&Value>| value.and_then(Value::as_i64).unwrap_or(0);
    let grown = counters
        .iter()
        .map(|(name, value)| (name.clone(), json!(number(Some(value)) - number(before.get(name)))));
    Value::Object(grown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grew_is_told_and_what_shrank_is_negative() {
        let (before, after) =
            (json!({"tcp": 3, "open": 5}), json!({"tcp": 10, "open": 1, "new": 2}));
        assert_eq!(since(&before, &after), json!({"tcp": 7, "open": -4, "new": 2}));
        assert_eq!(since(&Value::Null, &Value::Null), Value::Null);
    }
}
