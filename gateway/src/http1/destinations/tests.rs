use audit::{ClientRecord, WayIn};

use super::*;
use crate::http_version::HttpVersion;
use crate::http1_codec::fields::Fields;
use crate::testing::Stage;

const POLICY: &str = "version: 1
net:
  enabled: true
  allow:
    - {host: plain.test, protocol: http, port: [80, 81]}
    - {host: plain.test, port: 80}
    - {host: other.test, protocol: http}
";

fn asked<'h>(target: &'h str, headers: &'h Fields) -> RawRequest<'h> {
    RawRequest {
        method: b"GET",
        target: target.as_bytes(),
        authority: None,
        headers,
        version: HttpVersion::Http11,
        websocket: false,
    }
}

/// Whether the second of two requests is judged in the context of the first.
fn shares_context(gateway: &Arc<Gateway>, first: &str, second: &str) -> bool {
    let client = ClientRecord::new(([127, 0, 0, 1], 9).into(), WayIn::Proxy);
    let mut record = ConnectionRecord::begin(gateway, client).unwrap();
    let mut origin = Destinations::per_request(gateway, &mut record, ClearDoor::Proxy);
    let headers = Fields::default();
    let [one, two] =
        [first, second].map(|target| origin.context(&asked(target, &headers)).unwrap());
    for (context, target) in [(&one, first), (&two, second)] {
        let url = format!("{}://{}/", context.scheme, context.destination);
        let scheme_and_host = target.trim_end_matches('/');
        assert!(url.starts_with(scheme_and_host), "{target} is judged as {url}");
    }
    Arc::ptr_eq(&one, &two)
}

#[tokio::test]
async fn a_context_is_for_one_scheme_and_one_destination() {
    let stage = Stage::new(POLICY);
    let shares = |first, second| shares_context(&stage.gateway, first, second);
    assert!(shares("http://plain.test/", "http://plain.test/"));
    assert!(!shares("http://plain.test/", "http://other.test/"));
    assert!(!shares("http://plain.test:80/", "http://plain.test:81/"));
    assert!(!shares("http://plain.test:80/", "https://plain.test:80/"));
}

#[tokio::test]
async fn a_context_is_for_one_policy() {
    let stage = Stage::new(POLICY);
    let client = ClientRecord::new(([127, 0, 0, 1], 9).into(), WayIn::Proxy);
    let mut record = ConnectionRecord::begin(&stage.gateway, client).unwrap();
    let mut origin = Destinations::per_request(&stage.gateway, &mut record, ClearDoor::Proxy);
    let headers = Fields::default();
    let mut context = || origin.context(&asked("http://plain.test/", &headers)).unwrap();
    let before = context();
    assert!(Arc::ptr_eq(&before, &context()));
    let source = policies::Source::new("p", "version: 1\nnet: {enabled: true}\n");
    let policy = policies::read(&source, &policies::NoFiles).unwrap();
    stage.gateway.load_policy(policy, "other");
    assert!(!Arc::ptr_eq(&before, &context()), "another policy is in force");
}
