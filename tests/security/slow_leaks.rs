//! E7: what leaves a little at a time, to hosts that are allowed.
//!
//! Each piece is an honest request. What stops it is a budget for all of them together:
//! of chosen names, of URLs, of hosts, and of bytes to one host.

use tests::world::policy;
use tests::{Reply, Way, World};

const RULES: [&str; 3] = [
    "{host: allowed.test, methods: [GET, POST]}",
    "{host: \"*.wide.test\"}",
    "{host: \"*.wide.test\", protocol: http}",
];

async fn world(limits: &str) -> World {
    World::new().policy(&format!("{}  limits: {{{limits}}}\n", policy(&RULES))).start().await
}

/// A key in pieces of eight bytes.
fn pieces(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("{:08x}", 0x9e37_79b9_u32.wrapping_mul(number as u32 + 1)))
}

/// How many of a hundred pieces arrive as queries.
async fn leaked_by_queries(limits: &str) -> (usize, Option<Reply>) {
    let world = world(limits).await;
    let mut refused = None;
    for piece in pieces(100) {
        let reply = world.sandbox.get(&format!("https://allowed.test/?q={piece}")).await;
        if reply.status != 200 {
            world.audit.refused("allowed.test", "budget_spent").await;
            refused = Some(reply);
            break;
        }
        // What was asked for before is nothing new.
        world.sandbox.get("https://allowed.test/still-here").await.assert_relayed(200);
    }
    let seen = world.upstream("allowed.test").requests();
    let arrived = seen.iter().filter(|request| request.target.contains("?q=")).count();
    if refused.is_some() {
        world.assert_still_serves().await;
    }
    world.end().await;
    (arrived, refused)
}

#[tokio::test]
async fn a_key_in_the_queries_of_a_hundred_requests_is_cut_off() {
    let (arrived, refused) = leaked_by_queries("").await;
    assert_eq!(arrived, 100, "without a budget all of it arrives");
    assert!(refused.is_none());

    // `/still-here` has 11 bytes, and so has each query with its path.
    let (arrived, refused) = leaked_by_queries("urls: 128").await;
    assert_eq!(arrived, 10);
    let refused = refused.unwrap();
    refused.assert_refused(403, "budget_spent");
    assert!(refused.problem()["hint"].as_str().unwrap().contains("net.limits.urls"));
}

/// Whoever answers for the suffix learns a name when it is looked up, whatever comes of
/// the request.
#[tokio::test]
async fn a_key_in_names_below_a_wildcard_is_cut_off() {
    for (limits, most) in [("", 12), ("wildcard_names: 40", 5)] {
        let world = world(limits).await;
        let mut looked_up = 0;
        for (number, piece) in pieces(12).enumerate() {
            let name = format!("{piece}.wide.test");
            match Way::ALL.get(number % 4) {
                None => drop(world.sandbox.get(&format!("http://{name}/")).await),
                Some(way) => {
                    // A proxy refuses before there is TLS.
                    if let Ok(mut line) = world.sandbox.tls(*way, &name, &["http/1.1"]).await {
                        line.send(format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n")).await;
                        line.reply().await;
                    }
                }
            }
            looked_up += usize::from(world.resolver.times_asked(&name) > 0);
        }
        assert_eq!(looked_up, most, "{limits}");
        let last = pieces(12).last().unwrap();
        let again = world.sandbox.get(&format!("https://{last}.wide.test/")).await;
        match limits {
            "" => assert_eq!(again.code(), "upstream_unresolved"),
            _ => again.assert_refused(403, "budget_spent"),
        }
        // A name that a rule writes out is nobody's message.
        world.assert_still_serves().await;
        world.end().await;
    }
}

#[tokio::test]
async fn a_run_that_reaches_ever_more_hosts_is_stopped() {
    for (limits, most) in [("", 6), ("hosts: 3", 2)] {
        let world = world(limits).await;
        world.assert_still_serves().await;
        for (number, piece) in pieces(6).enumerate() {
            let name = format!("{piece}.wide.test");
            // In the clear, too.
            let scheme = if number % 2 == 0 { "https" } else { "http" };
            let reply = world.sandbox.get(&format!("{scheme}://{name}/")).await;
            if number < most {
                assert_eq!(reply.code(), "upstream_unresolved", "{limits}");
            } else {
                reply.assert_refused(403, "budget_spent");
            }
            assert_eq!(world.resolver.times_asked(&name) > 0, number < most, "{limits}: {name}");
        }
        // One that it has reached before is not counted again.
        world.assert_still_serves().await;
        world.end().await;
    }
}

/// Over any number of connections.
#[tokio::test]
async fn one_host_gets_no_more_than_its_share() {
    for (limits, most) in [("upload: 1MiB", 5), ("host_upload: 10KiB, upload: 1MiB", 3)] {
        let world = world(limits).await;
        for number in 0..5 {
            let ask = world.sandbox.ask("POST", "https://allowed.test/").body("x".repeat(3000));
            let reply = ask.send().await;
            if number < most {
                reply.assert_relayed(200);
                continue;
            }
            reply.assert_refused(403, "budget_spent");
            let hint = reply.problem()["hint"].as_str().unwrap().to_owned();
            assert!(hint.contains("net.limits.host_upload"), "{hint}");
            world.audit.refused("allowed.test", "budget_spent").await;
        }
        let arrived = world.upstream("allowed.test").received_in_all();
        assert_eq!(arrived <= 10 * 1024, most < 5, "{limits}: {arrived} bytes arrived");
        // What others may get is not spent.
        let other = pieces(1).last().unwrap();
        let other = world.sandbox.get(&format!("https://{other}.wide.test/")).await;
        assert_eq!(other.code(), "upstream_unresolved");
        world.end().await;
    }
}
