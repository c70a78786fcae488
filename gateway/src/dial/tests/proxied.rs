//! Through the operator's proxy.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use policies::Scheme;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::resolve::Resolver;
use super::super::upstream_proxy::ProxyError;
use super::super::{Credentials, UpstreamProxy};
use super::*;

/// A proxy that remembers what it was asked, answers as told, and then is the
/// upstream itself: it says `hi`.
async fn proxy(answer: &'static str) -> (TestServer, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let remembered = Arc::clone(&asked);
    let server = TestServer::tcp(move |stream| {
        let remembered = Arc::clone(&remembered);
        async move {
            serve(stream, answer, &remembered).await.ok();
        }
    })
    .await;
    (server, asked)
}

async fn serve(
    mut stream: TcpStream,
    answer: &str,
    remembered: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    remembered.lock().push(String::from_utf8(head).unwrap());
    // In one write, so that reading a byte too many would be seen.
    stream.write_all(format!("{answer}hi").as_bytes()).await?;
    stream.read_u8().await?;
    Ok(())
}

fn dialer(script: &Arc<Script>, at: SocketAddr, credentials: Option<&str>) -> Dialer {
    let credentials = credentials.map(|text| Credentials::new(text.into()));
    let proxy = UpstreamProxy { at: to(&at.to_string()), credentials };
    let resolver: Arc<dyn Resolver> = Arc::<Script>::clone(script);
    let settings = UpstreamSettings { proxy: Some(proxy), ..UpstreamSettings::default() };
    Dialer::asking(resolver, settings).unwrap()
}

#[tokio::test]
async fn a_name_goes_to_the_proxy_as_it_is_and_is_not_looked_up_here() {
    let (server, asked) = proxy("HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n").await;
    let script = Script::new();
    let dialer = dialer(&script, server.at, Some("alice:hunter2"));

    let place = to("allowed.test:80");
    let mut upstream = dialer.http1(&public(), Scheme::Http, &place, false).await.unwrap();
    let mut said = [0; 2];
    upstream.io().read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"hi");
    assert!(upstream.facts().proxied);
    assert_eq!(upstream.facts().address, server.at.into());
    assert_eq!(script.asked(), [""; 0]);
    assert_eq!(
        *asked.lock(),
        ["CONNECT allowed.test:80 HTTP/1.1\r\nHost: allowed.test:80\r\n\
          Proxy-Authorization: Basic YWxpY2U6aHVudGVyMg==\r\n\r\n"],
    );
}

#[tokio::test]
async fn a_literal_on_our_own_side_is_refused_before_the_proxy_is_asked() {
    let (server, asked) = proxy("HTTP/1.1 200 OK\r\n\r\n").await;
    let dialer = dialer(&Script::new(), server.at, None);
    for literal in ["10.0.0.1:80", "169.254.169.254:80", "[::1]:80"] {
        let err = dialer.http1(&public(), Scheme::Http, &to(literal), false).await.unwrap_err();
        assert_eq!((err.status(), err.code()), (403, "destination_forbidden"), "{literal}");
    }
    assert_eq!((server.accepted(), asked.lock().len()), (0, 0));
}

#[tokio::test]
async fn a_proxy_that_says_no_is_an_upstream_failure_that_says_what_it_said() {
    for (answer, expected) in [
        ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "it wants other credentials"),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", "it answered 403"),
        ("HTTP/1.1 302 Found\r\nLocation: http://evil.test/\r\n\r\n", "it answered 302"),
        ("220 mail ready\r\n\r\n", "its answer is not HTTP"),
    ] {
        let (server, _) = proxy(answer).await;
        let dialer = dialer(&Script::new(), server.at, None);
        let place = to("allowed.test:443");
        let err = dialer.http1(&public(), Scheme::Https, &place, false).await.unwrap_err();
        assert_eq!((err.status(), err.code()), (502, "upstream_proxy_failed"), "{answer}");
        let DialError::UpstreamProxy { source, .. } = err else { panic!("{err}") };
        assert_eq!(source.to_string(), expected);
    }
}

#[tokio::test]
async fn a_proxy_whose_head_never_ends_is_cut_off() {
    let server = TestServer::tcp(|mut stream| async move {
        while stream.write_all(&[b'a'; 1024]).await.is_ok() {}
    })
    .await;
    let dialer = dialer(&Script::new(), server.at, None);
    let err =
        dialer.http1(&public(), Scheme::Http, &to("allowed.test:80"), false).await.unwrap_err();
    assert!(
        matches!(err, DialError::UpstreamProxy { source: ProxyError::NotHttp(_), .. }),
        "{err}"
    );
}

#[tokio::test]
async fn the_name_of_the_proxy_never_leads_to_a_metadata_address() {
    let script = Script::new().then("proxy.test", &["169.254.169.254"]);
    let proxy = UpstreamProxy { at: to("proxy.test:3128"), credentials: None };
    let settings = UpstreamSettings { proxy: Some(proxy), ..UpstreamSettings::default() };
    let resolver: Arc<dyn Resolver> = Arc::<Script>::clone(&script);
    let dialer = Dialer::asking(resolver, settings).unwrap();
    let err =
        dialer.http1(&public(), Scheme::Http, &to("allowed.test:80"), false).await.unwrap_err();
    assert!(matches!(err, DialError::UpstreamProxy { source: ProxyError::Forbidden, .. }), "{err}");
    assert_eq!(script.asked(), ["proxy.test"]);
}
