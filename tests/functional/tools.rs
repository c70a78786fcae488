//! curl, by every way in and in both versions of HTTP: allowed for one host and
//! refused for the other, in the same words.

use serde_json::Value;
use tests::tool::{run, run_any};
use tests::{Reply, World, answering_http2, available};

#[tokio::test]
async fn curl_gets_the_same_answer_by_every_way() {
    if !available::is_installed("curl") {
        return;
    }
    let two = answering_http2(|asked| Reply {
        status: 200,
        body: format!("{} {}", asked.method, asked.target).into(),
        ..Reply::default()
    });
    let world = World::allowing(&["{host: allowed.test}", "{host: two.test}"])
        .upstream("two.test", two)
        .start_program()
        .await;
    let ca = world.folder().join("ca.pem");
    std::fs::write(&ca, world.control.get("/ca.pem").await.body).unwrap();
    let doors = world.sandbox.doors.clone();
    let proxy = format!("http://{}", doors.proxy);
    let socks = doors.socks.to_string();
    let captured = format!("::{}", doors.https);
    let ways: [(&str, [&str; 2]); 3] = [
        ("proxy", ["--proxy", &proxy]),
        ("socks", ["--socks5-hostname", &socks]),
        ("captured", ["--connect-to", &captured]),
    ];
    let mut told: Vec<Value> = Vec::new();
    for (way, args) in ways {
        for (version, host) in [("--http1.1", "allowed.test"), ("--http2", "two.test")] {
            let url = format!("https://{host}/page");
            let common = ["-sS", "--max-time", "20", "--cacert", ca.to_str().unwrap(), version];
            let (code, said) = run_any("curl", &[&common[..], &args, &[&url]].concat(), &[]).await;
            assert_eq!(code, Some(0), "{way} {version}: {said}");
            assert!(said.starts_with("GET "), "{way} {version}: {said}");

            let shown =
                ["-w", "\n%{http_code} %{http_connect} %{http_version}", "https://evil.test/"];
            let (_, said) = run_any("curl", &[&common[..], &args, &shown].concat(), &[]).await;
            if way == "proxy" {
                // curl drops the body of a refused CONNECT and prints its status.
                let numbers = said.lines().last().unwrap_or_default();
                assert_eq!(numbers.split(' ').nth(1), Some("403"), "{said}");
                continue;
            }
            let (problem, numbers) = said.rsplit_once('\n').unwrap();
            let (status, spoken) = (&numbers[..3], numbers.rsplit(' ').next().unwrap());
            assert_eq!(status, "403", "{way} {version}: {said}");
            let wanted = if version == "--http2" { "2" } else { "1.1" };
            assert_eq!(spoken, wanted, "{way} {version}");
            let mut problem: Value = serde_json::from_str(problem.trim()).unwrap();
            problem["request_id"].take();
            told.push(problem);
        }
    }
    assert_eq!(told.len(), 4);
    assert!(told.iter().all(|problem| problem == &told[0]), "{told:?}");
    assert_eq!(told[0]["code"], "no_rule");
    world.assert_nobody_was_contacted_but(&["allowed.test", "two.test"]);
    let log = world.end_and_keep().await;
    // What it left is whole to the command that people check it with.
    let command = tests::program().with_file_name("sluice-under-test");
    let folder = log.path().join("audit");
    let said = run(&command, &["audit", "verify", folder.to_str().unwrap()], &[]).await;
    assert!(!said.is_empty());
}
