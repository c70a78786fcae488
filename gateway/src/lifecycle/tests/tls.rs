//! What is recorded of a client's TLS.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use tokio_rustls::TlsConnector;

use super::world::{World, ask, read_head, send};
use crate::listen::ListenerKind;

#[tokio::test]
async fn a_connection_says_which_tls_it_spoke_and_whether_it_resumed() {
    for (version, name) in [(&TLS12, "1.2"), (&TLS13, "1.3")] {
        let world = World::new("allowed.test").await;
        let mut config = world.client_config(&[version]);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        for _ in 0..2 {
            let (mut stream, serving) = world.connect_task(ListenerKind::Proxy).await;
            send(&mut stream, "CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
                .await;
            read_head(&mut stream).await;
            let to = ServerName::try_from("allowed.test").unwrap();
            let mut stream = connector.connect(to, stream).await.unwrap();
            // The tickets of TLS 1.3 come before the answer.
            let get = "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n";
            assert_eq!(ask(&mut stream, get).await.status(), 200);
            drop(stream);
            serving.await.unwrap();
        }
        let connections = world.connections().await;
        let resumed: Vec<_> = connections.iter().map(|c| c.get("tls.resumed")).collect();
        assert_eq!(resumed, ["false", "true"], "{name}");
        for connection in connections {
            assert_eq!(connection.get("tls.protocol.version"), name);
            assert!(!connection.get("tls.cipher").is_empty());
            assert_eq!(connection.get("tls.client.server_name"), "allowed.test");
            assert_eq!(connection.get("tls.next_protocol"), "http/1.1");
        }
    }
}
