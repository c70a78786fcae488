//! What the log holds of a request before it leaves, and what its record says.

use audit::{ClientRecord, WayIn};
use policies::{Destination, HostName, Scheme};

use super::*;
use crate::admit::admit;
use crate::http1_codec::fields::Fields;
use crate::record::ConnectionRecord;
use crate::testing::Stage;

const POLICY: &str = "version: 1
net:
  enabled: true
  allow:
    - {host: allowed.test, methods: [GET, POST], addresses: [10.1.0.0/16]}
    - {host: other.test}
";

/// A connection to `host`, and its record.
fn connection(stage: &Stage, host: &str) -> (ConnectionContext, ConnectionRecord) {
    let client = ClientRecord::new(([192, 0, 2, 7], 4711).into(), WayIn::Proxy);
    let record = ConnectionRecord::begin(&stage.gateway, client).unwrap();
    let to = Destination { host: HostName::parse(host).unwrap().into(), port: 443 };
    let admitted = admit(&stage.gateway.policy, &stage.gateway.limits, &to).unwrap();
    let (gateway, scheme) = (&stage.gateway, Scheme::Https);
    (ConnectionContext::new(Ok(&admitted), gateway, scheme, to, &record), record)
}

async fn ask(context: &ConnectionContext, method: &str, path: &str) {
    let mut headers = Fields::default();
    let host = format!("Host: {}\r\n", context.authority);
    headers.read(host.as_bytes(), 16).unwrap();
    let asked = RawRequest {
        method: method.as_bytes(),
        target: path.as_bytes(),
        authority: None,
        headers: &headers,
        version: HttpVersion::Http11,
        websocket: false,
    };
    let Ok(authorized) = context.authorize(asked).await else { panic!("{method} {path}") };
    // It may go where its rule says, and nowhere else.
    let ranges: Vec<_> =
        authorized.permit.reach().ranges().iter().map(ToString::to_string).collect();
    let named = if context.authority == "allowed.test" { vec!["10.1.0.0/16"] } else { Vec::new() };
    assert_eq!(ranges, named);
}

fn paths(events: &[serde_json::Value]) -> Vec<&str> {
    events.iter().map(|event| event["url.path"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_first_request_to_a_destination_and_every_one_that_may_change_it_is_opened() {
    let stage = Stage::new(POLICY);
    let (one, record) = connection(&stage, "allowed.test");
    ask(&one, "GET", "/first").await;
    ask(&one, "GET", "/second").await;
    ask(&one, "POST", "/change").await;
    ask(&one, "GET", "/third").await;
    // The destination is known, on whichever connection.
    let (again, record_again) = connection(&stage, "allowed.test");
    ask(&again, "GET", "/fourth").await;
    ask(&again, "GET", "/fifth").await;
    let (other, other_record) = connection(&stage, "other.test");
    ask(&other, "GET", "/other").await;
    drop((one, record, again, record_again, other, other_record));
    let opened = stage.events_of("opened").await;
    assert_eq!(paths(&opened), ["/first", "/change", "/other"]);
}

#[tokio::test]
async fn a_record_says_who_asked_whom_on_which_connection() {
    let stage = Stage::new(POLICY);
    let (context, record) = connection(&stage, "allowed.test");
    let id = record.id().to_string();
    ask(&context, "GET", "/first").await;
    drop((context, record));
    let requests = stage.events_of("request").await;
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!(request["sluice.connection"], id);
    assert_eq!(request["client.address"], "192.0.2.7");
    assert_eq!(request["client.port"], 4711);
    assert_eq!(request["server.address"], "allowed.test");
    assert_eq!(request["server.port"], 443);
}

#[tokio::test]
async fn a_request_that_nobody_got_to_see_has_a_record() {
    let stage = Stage::new(POLICY);
    let (context, record) = connection(&stage, "allowed.test");
    context.record_unread(&Refusal::ClientGone("it was reset".to_owned()));
    drop((context, record));
    let requests = stage.events_of("request").await;
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!(request["network.protocol.version"], "2");
    assert_eq!(request["sluice.outcome"], "failed");
}
