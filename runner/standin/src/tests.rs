use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

async fn standin() -> Standin {
    let at = ([127, 0, 0, 1], 0).into();
    Setup::new(at, &["api.pilot.test", "127.0.0.1"]).start().await.unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a test asks")]
async fn plain(standin: &Standin) -> TcpStream {
    TcpStream::connect(standin.addresses()[0]).await.unwrap()
}

/// TLS as `name`, believing nobody but the stand-in's own authority.
async fn tls(standin: &Standin, name: &str, alpn: &str) -> io::Result<Box<dyn Stream>> {
    use rustls_pki_types::pem::PemObject as _;

    let mut roots = rustls::RootCertStore::empty();
    let pem = standin.certificate().as_bytes();
    roots.add(rustls_pki_types::CertificateDer::from_pem_slice(pem).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.into()];
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = name.to_owned().try_into().unwrap();
    Ok(Box::new(connector.connect(name, plain(standin).await).await?))
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn ask(mut stream: impl Stream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_request_comes_back_as_it_arrived_and_is_remembered() {
    let standin = standin().await;
    let said = ask(
        plain(&standin).await,
        "POST /a?b=c HTTP/1.1\r\nhost: x.test\r\nx-word: seen\r\ncontent-length: 3\r\n\
         connection: close\r\n\r\nabc",
    )
    .await;
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
    assert!(said.contains(r#""path": "/a?b=c""#) && said.contains(r#""body": 3"#), "{said}");

    let seen = standin.requests();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].method.as_str(), seen[0].host.as_deref()), ("POST", Some("x.test")));
    assert_eq!((seen[0].header("x-word"), seen[0].tls), (Some("seen"), false));
}

#[tokio::test]
async fn each_of_its_names_is_believed_and_no_other() {
    let standin = standin().await;
    for name in ["api.pilot.test", "127.0.0.1"] {
        let stream = tls(&standin, name, "http/1.1").await.unwrap();
        let said = ask(stream, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
        assert!(said.contains(r#""tls": true"#), "{said}");
    }
    assert!(tls(&standin, "other.test", "http/1.1").await.is_err());
    assert_eq!((standin.connections(), standin.requests().len()), (3, 2));
}

#[tokio::test]
async fn http2_is_spoken_where_it_is_agreed_upon() {
    let standin = standin().await;
    let stream = TokioIo::new(tls(&standin, "api.pilot.test", "h2").await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let body = http_body_util::Empty::<bytes::Bytes>::new();
    let asked = http::Request::get("https://api.pilot.test/status/418").body(body).unwrap();
    assert_eq!(sender.send_request(asked).await.unwrap().status(), 418);
    let seen = &standin.requests()[0];
    assert_eq!((seen.version.as_str(), seen.name.as_deref()), ("HTTP/2.0", Some("api.pilot.test")));
}

#[tokio::test]
async fn a_stream_arrives_piece_by_piece() {
    let standin = standin().await;
    let said =
        ask(plain(&standin).await, "GET /stream HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await;
    assert_eq!(said.matches("data: ").count(), 5, "{said}");
}

#[tokio::test]
async fn a_websocket_sends_every_message_back() {
    let standin = standin().await;
    let mut stream = plain(&standin).await;
    let asked = "GET /websocket HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\n\
                 upgrade: websocket\r\nsec-websocket-version: 13\r\n\
                 sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(asked.as_bytes()).await.unwrap();
    // The example of RFC 6455, and "hi" masked with zeroes.
    stream.write_all(b"\x81\x82\0\0\0\0hi\x88\x80\0\0\0\0").await.unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.unwrap();
    let head = String::from_utf8_lossy(&said);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    assert!(said.ends_with(b"\x81\x02hi\x88\x00"), "{said:?}");
}

#[tokio::test]
async fn whoever_is_dropped_no_longer_answers() {
    let standin = standin().await;
    let mut open = plain(&standin).await;
    drop(standin);
    // The connection that was open ends too.
    let mut rest = Vec::new();
    assert!(time::timeout(OPENING_TIMEOUT / 2, open.read_to_end(&mut rest)).await.is_ok());
}

#[tokio::test]
async fn a_stand_in_for_nobody_is_refused() {
    let at = ([127, 0, 0, 1], 0).into();
    assert!(matches!(Setup::new(at, &[]).start().await, Err(StandinError::Nobody)));
    assert!(matches!(Setup::new(at, &["*.x"]).start().await, Err(StandinError::Name(_))));
}
