//! gRPC and WebSocket with the libraries that programs really use.

use std::path::Path;

use tests::authority::Authority;
use tests::tool::{Server, run};
use tests::{World, available};

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/functional/python");

/// A scripted server's program, and what vouches for it.
async fn serve(python: &Path, script: &str, name: &str, folder: &Path) -> (Server, Authority) {
    let authority = Authority::new();
    let (certificate, key) = authority.pem_pair(name);
    let (at, keyed) = (folder.join("server.pem"), folder.join("server.key"));
    std::fs::write(&at, certificate).unwrap();
    std::fs::write(&keyed, key).unwrap();
    let script = format!("{SCRIPTS}/{script}");
    let args = [script.as_str(), at.to_str().unwrap(), keyed.to_str().unwrap()];
    (Server::start(python, &args).await, authority)
}

#[tokio::test]
async fn grpc_calls_of_every_kind_go_through_and_refusals_are_statuses() {
    let Some(python) = available::python(&["grpc"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (server, authority) = serve(&python, "grpc_server.py", "grpc.test", folder.path()).await;
    let allowed =
        "paths: [/test.Echo/Unary, /test.Echo/Counting, /test.Echo/Conversing, /test.Echo/Failing]";
    let world = World::allowing(&[
        "{host: allowed.test}",
        &format!("{{name: echo, host: grpc.test, methods: [POST], {allowed}}}"),
    ])
    .pin("grpc.test", format!("127.0.0.1:{}", server.port))
    .file("grpc.pem", authority.pem())
    .root("grpc.pem")
    .start()
    .await;
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, world.control.get("/ca.pem").await.body).unwrap();
    let script = format!("{SCRIPTS}/grpc_client.py");
    let ca = ca.to_str().unwrap();

    let captured = world.sandbox.doors.https.to_string();
    let proxy = format!("http://{}", world.sandbox.doors.proxy);
    for (args, env) in [
        (vec![&*script, "grpc.test:443", ca], vec![("https_proxy", &*proxy)]),
        (vec![&*script, &*captured, ca, "grpc.test"], vec![]),
    ] {
        let said = run(&python, &args, &env).await;
        let lines: Vec<&str> = said.lines().collect();
        let expected = [
            "unary: unary hello kept",
            "large: 1000006",
            "counting: 0 1 2 3 4",
            "conversing: heard one",
            "conversing: heard two",
            "conversing: heard three",
            "conversing: []",
            "Failing: RESOURCE_EXHAUSTED not today: \u{fc}",
        ];
        assert_eq!(lines.get(..8), Some(&expected[..]), "{said}");
        let refused = lines[8];
        assert!(refused.starts_with("Forbidden: PERMISSION_DENIED"), "{said}");
        assert!(refused.contains("no_rule") && refused.contains("/test.Echo/Forbidden"), "{said}");
        world.audit.refused("grpc.test", "no_rule").await;
    }
    let record = world
        .audit
        .find("the record of a call that failed upstream", |event| {
            event["kind"] == "request" && event["url.path"] == "/test.Echo/Failing"
        })
        .await;
    assert_eq!(record["network.protocol.name"], "grpc");
    assert_eq!(record["rpc.grpc.status_code"], 8);
    assert_eq!(record["sluice.rule"], "echo");
    server.stop().await;
    world.end().await;
}

#[tokio::test]
async fn a_websocket_library_finds_its_way() {
    let Some(python) = available::python(&["websockets"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (server, authority) = serve(&python, "websocket_server.py", "ws.test", folder.path()).await;
    let world = World::allowing(&[
        "{host: allowed.test}",
        "{host: ws.test, websocket: true, paths: [/room]}",
    ])
    .pin("ws.test", format!("127.0.0.1:{}", server.port))
    .file("ws.pem", authority.pem())
    .root("ws.pem")
    .start()
    .await;
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, world.control.get("/ca.pem").await.body).unwrap();
    let script = format!("{SCRIPTS}/websocket_client.py");
    let proxy = format!("http://{}", world.sandbox.doors.proxy);

    let said =
        run(&python, &[&script, "wss://ws.test/room", &proxy, ca.to_str().unwrap()], &[]).await;
    assert!(said.starts_with("echoed, pinged, permessage-deflate"), "{said}");
    assert!(said.contains("closed 1000"), "{said}");
    let said =
        run(&python, &[&script, "wss://ws.test/other", &proxy, ca.to_str().unwrap()], &[]).await;
    assert!(said.starts_with("refused 403") && said.contains("no_rule"), "{said}");
    world.audit.refused("ws.test", "no_rule").await;
    server.stop().await;
    world.end().await;
}
