//! The only way out is the gateway, and what it does is written down.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use crate::people;

#[test]
fn an_allowed_name_is_reached_and_another_refused_and_both_are_recorded() {
    for person in people() {
        let host = person.host();
        let policy = person.policy(
            "version: 1\nnet: {enabled: true, allow: [{host: up.test, protocol: http, port: 80}]}\n",
        );
        let upstream = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = upstream.local_addr().unwrap().port();
        let serving = thread::spawn(move || {
            let (mut stream, _) = upstream.accept().unwrap();
            let mut head = [0; 1024];
            let length = stream.read(&mut head).unwrap();
            let answer =
                "HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nupstream";
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&head[..length]).into_owned()
        });

        let pin = format!("up.test={host}:{port}");
        let script = "wget -q -O - http://up.test/a; wget -O - http://evil.test/b; \
                      unset http_proxy; wget -q -O - http://evil.test/c; true";
        let ran = person.shell(&["--policy", &policy, "--pin", &pin], script);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "upstream"), "{}", ran.stderr);
        assert!(ran.stderr.contains("403"), "{}", ran.stderr);
        assert!(serving.join().unwrap().starts_with("GET /a HTTP/1.1\r\n"));

        let log = std::fs::read_to_string(person.evidence().unwrap().join("audit.jsonl")).unwrap();
        for path in ["/a", "/b", "/c"] {
            assert!(log.contains(&format!(r#""url.path":"{path}""#)), "{path}: {log}");
        }
    }
}

#[test]
fn the_gateways_certificate_is_where_tools_look_for_it() {
    for person in people() {
        let policy = person.policy("version: 1\nnet: {enabled: true}\n");
        let script = "cat $NODE_EXTRA_CA_CERTS | head -1
                      grep -c BEGIN $SSL_CERT_FILE >/dev/null && cmp $SSL_CERT_FILE $CURL_CA_BUNDLE
                      cmp $SSL_CERT_FILE /etc/ssl/certs/ca-certificates.crt && echo same";
        let ran = person.shell(&["--policy", &policy], script);
        assert_eq!(ran.stdout, "-----BEGIN CERTIFICATE-----\nsame\n", "{}", ran.stderr);
    }
}
