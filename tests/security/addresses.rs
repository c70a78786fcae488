//! D: DNS, addresses, and other channels.

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{RData, RecordType};
use tests::authority::Authority;
use tests::sandbox::explanation;
use tests::{Answer, Plan, SocksName, Way, World, code, own_address};

/// D1: a name is a message to whoever runs its zone.
#[tokio::test]
async fn a_question_about_a_name_reaches_nobody() {
    let world = World::new().start().await;
    let secret = "c2stbGl2ZS0xMjM0NTY3ODkw.evil.test";

    for record in [
        RecordType::A,
        RecordType::AAAA,
        RecordType::TXT,
        RecordType::MX,
        RecordType::NULL,
        RecordType::HTTPS,
    ] {
        for over_tcp in [false, true] {
            let answer = match over_tcp {
                false => world.sandbox.look_up(secret, record).await,
                true => world.sandbox.look_up_over_tcp(secret, record).await,
            };
            assert_eq!(answer.metadata.response_code, ResponseCode::NoError, "{record}");
            let addresses: Vec<String> =
                answer.answers.iter().map(|answer| answer.data.to_string()).collect();
            match record {
                RecordType::A => assert_eq!(addresses, ["127.0.0.1"], "the gateway's own"),
                _ => assert!(addresses.is_empty(), "{record}: {addresses:?}"),
            }
            let (_, why) = explanation(&answer).unwrap();
            assert!(why.contains("no_rule"), "{record}: {why}");
        }
    }
    for record in [RecordType::ANY, RecordType::AXFR] {
        let answer = world.sandbox.look_up(secret, record).await;
        assert_eq!(answer.metadata.response_code, ResponseCode::Refused, "{record}");
    }
    let record = world.audit.find("the record of a question", |event| event["kind"] == "dns").await;
    assert_eq!(record["dns.question.name"], secret.to_ascii_lowercase());
    assert_eq!(record["sluice.verdict"], "deny");
    assert_eq!(record["sluice.reason"], "no_rule");

    // The same through every other way in.
    for way in Way::ALL {
        for url in [format!("https://{secret}/"), format!("http://{secret}/")] {
            let reply = world.sandbox.ask("GET", &url).by(way).send().await;
            reply.assert_refused(403, "no_rule");
            world.assert_denied(&secret.to_ascii_lowercase(), "no_rule").await;
        }
    }
    // And a name that is allowed is not looked up before it is used.
    world.sandbox.look_up("allowed.test", RecordType::A).await;
    world.resolver.assert_never_asked();
    world.end().await;
}

/// D1: a stranger's answer is no question, and gets no reply that could loop.
#[tokio::test]
async fn the_name_server_does_not_talk_to_itself() {
    let world = World::new().start().await;
    let answer = world.sandbox.look_up("evil.test", RecordType::A).await;
    assert!(matches!(answer.answers[0].data, RData::A(_)));
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let dns = world.sandbox.doors.dns;
    for noise in [answer.to_vec().unwrap(), vec![], vec![0; 3], vec![0xff; 512]] {
        socket.send_to(&noise, dns).await.unwrap();
    }
    // The next thing that comes back is the answer to a real question.
    let question = world.sandbox.look_up("allowed.test", RecordType::A).await;
    assert_eq!(question.metadata.response_code, ResponseCode::NoError);
    let mut bytes = [0; 512];
    while let Ok(length) = socket.try_recv(&mut bytes) {
        assert!(bytes[2] & 0x80 != 0 && length <= 12, "no more than a refusal comes back");
    }
    world.resolver.assert_never_asked();
    world.end().await;
}

/// D3.
#[tokio::test]
async fn names_cannot_be_asked_for_by_other_means() {
    let world = World::new()
        .policy(
            "version: 1\nextends: [no-exfiltration]\nnet:\n  enabled: true\n  mode: observe\n  \
             allow: [{host: allowed.test}]\n",
        )
        .upstream("dns.google", Plan::echoing())
        .upstream("cloudflare-dns.com", Plan::echoing())
        .start()
        .await;
    // Even while observing, when what no rule names would pass.
    for url in ["https://dns.google/dns-query?dns=AAAB", "https://cloudflare-dns.com/dns-query"] {
        let reply = world.sandbox.get(url).await;
        reply.assert_refused(403, "denied");
        let host = url.split('/').nth(2).unwrap();
        world.assert_denied(host, "denied").await;
    }
    world.end().await;

    // DNS over TLS, and plain DNS to somebody else.
    let world = World::new().start().await;
    for port in [853, 53] {
        let refused = world.sandbox.connect(&format!("allowed.test:{port}")).await.unwrap_err();
        refused.assert_refused(403, "no_rule");
        world.assert_denied("allowed.test", "no_rule").await;
        let resolver = SocksName::Address("8.8.8.8".parse().unwrap());
        assert_eq!(world.sandbox.socks_to(resolver, port).await.unwrap_err(), 2, "not allowed");
        world.assert_denied("8.8.8.8", "no_rule").await;
    }
    // SOCKS can carry UDP, and does not here; nor does it accept connections.
    for command in [2, 3] {
        let anybody = SocksName::Address("0.0.0.0".parse().unwrap());
        let refused = world.sandbox.socks_ask(command, &anybody, 0).await;
        assert_eq!(refused.unwrap_err(), 7, "command not supported");
        world.assert_denied("", "malformed").await;
    }
    world.end().await;
}

/// D5: the address that was checked is the address that is dialled.
///
/// Needs an address of this machine that is not loopback, because loopback is
/// never dialled for a name.
#[tokio::test]
async fn a_name_that_changes_its_mind_is_dialled_where_it_was_checked() {
    let Some(own) = own_address() else { return };
    let authority = Authority::new();
    let closing = Plan::answering(|asked| asked.echo().header("Connection", "close"));
    let good = closing.clone().start_at((own, 0).into(), "rebind.test", &authority).await;
    let port = good.at.port();
    let trap = closing.start_at(([127, 0, 0, 1], port).into(), "trap", &authority).await;
    let world = World::allowing(&[
        "{host: allowed.test}",
        &format!("{{host: rebind.test, protocol: http, port: {port}, addresses: [{own}/32]}}"),
        &format!("{{host: mixed.test, protocol: http, port: {port}, addresses: [{own}/32]}}"),
    ])
    .start()
    .await;
    let own = own.to_string();

    world.resolver.answer("rebind.test", &[&own]);
    world.resolver.answer("rebind.test", &["127.0.0.1"]);
    let url = format!("http://rebind.test:{port}/");
    world.sandbox.get(&url).await.assert_relayed(200);
    assert_eq!(world.resolver.times_asked("rebind.test"), 1, "no second lookup before dialling");
    assert_eq!(good.connections(), 1);
    let record = world.audit.find("the record", |event| {
        event["kind"] == "request" && event["server.address"] == "rebind.test"
    });
    assert_eq!(record.await["network.peer.address"], own);

    // Now it says 127.0.0.1, where something listens on the same port.
    world.sandbox.get(&url).await.assert_refused(403, "destination_forbidden");
    world.audit.refused("rebind.test", "destination_forbidden").await;

    // A mixed answer: what may be dialled is, and only that.
    world.resolver.answer("mixed.test", &["127.0.0.1", "169.254.169.254", &own, "::1"]);
    for _ in 0..8 {
        world.sandbox.get(&format!("http://mixed.test:{port}/")).await.assert_relayed(200);
    }
    world.resolver.forget("mixed.test");
    world.resolver.answer("mixed.test", &["127.0.0.1", "10.0.0.1", "::1"]);
    let reply = world.sandbox.get(&format!("http://mixed.test:{port}/")).await;
    reply.assert_refused(403, "destination_forbidden");
    trap.assert_never_contacted();
    assert_eq!(good.connections(), 9);
    world.assert_still_serves().await;
    world.end().await;
}

/// D6.
#[tokio::test]
async fn an_alias_leads_no_further_than_an_address() {
    let world = World::allowing(&["{host: allowed.test}", "\"*.alias.test\""]).start().await;
    for (name, alias, address) in [
        ("a.alias.test", "metadata.internal", "10.0.0.5"),
        ("b.alias.test", "metadata.google.internal", "169.254.169.254"),
        ("c.alias.test", "localhost", "127.0.0.1"),
        ("d.alias.test", "router.lan", "192.168.1.1"),
        ("e.alias.test", "carrier.example", "100.64.0.1"),
        ("f.alias.test", "six.internal", "fd00::1"),
    ] {
        world.resolver.alias(name, alias, &[address]);
        let reply = world.sandbox.get(&format!("https://{name}/")).await;
        reply.assert_refused(403, "destination_forbidden");
        assert!(!reply.text().contains(address), "an inside address is not told: {}", reply.text());
        let record = world.audit.refused(name, "destination_forbidden").await;
        assert_eq!(record["sluice.verdict"], "deny");
    }
    world.assert_still_serves().await;
    world.end().await;
}

/// The metadata services of the clouds.
const METADATA: [&str; 8] = [
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "fd00:ec2::254",
    "fd20:ce::254",
];

/// D7: by name, under a rule that names every range there is.
#[tokio::test]
async fn no_range_is_wide_enough_for_a_metadata_service() {
    let anywhere = "addresses: [0.0.0.0/0, \"::/0\"]";
    let world = World::allowing(&[
        "{host: allowed.test}",
        &format!("{{host: meta.test, protocol: http, {anywhere}}}"),
        &format!("{{host: meta.test, {anywhere}}}"),
        &format!("{{host: meta.test, protocol: tcp, port: 8080, {anywhere}}}"),
    ])
    .start()
    .await;
    for address in METADATA {
        world.resolver.forget("meta.test");
        world.resolver.answer("meta.test", &[address]);
        for url in ["http://meta.test/latest/meta-data/", "https://meta.test/"] {
            let reply = world.sandbox.get(url).await;
            reply.assert_refused(403, "destination_forbidden");
            let record = world.audit.refused("meta.test", "destination_forbidden").await;
            assert!(record.to_string().contains("metadata"), "{address}: {record}");
        }
        let mut line = world.sandbox.connect("meta.test:8080").await.unwrap();
        line.send("GET / HTTP/1.1\r\n\r\n").await;
        line.assert_ends().await;
        world.audit.refused("meta.test", "destination_forbidden").await;
    }
    world.assert_still_serves().await;
    world.end().await;
}

/// D7: by literal, also where a policy was made to allow it.
#[tokio::test]
async fn a_metadata_service_is_not_reached_by_its_address() {
    let world = World::new().start().await;
    for address in METADATA {
        let literal =
            if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        world.sandbox.get(&format!("http://{literal}/")).await.assert_refused(403, "no_rule");
        world.assert_denied(&literal, "no_rule").await;
        let refused = world.sandbox.connect(&format!("{literal}:80")).await.unwrap_err();
        refused.assert_refused(403, "no_rule");
        world.assert_denied(&literal, "no_rule").await;

        let rule =
            format!("{{host: \"{literal}\", protocol: http, addresses: [0.0.0.0/0, \"::/0\"]}}");
        let reloaded = world.reload(&tests::world::policy(&["{host: allowed.test}", &rule])).await;
        match reloaded.status {
            200 => {
                let reply = world.sandbox.get(&format!("http://{literal}/")).await;
                reply.assert_refused(403, "destination_forbidden");
                world.assert_denied(&literal, "destination_forbidden").await;
            }
            status => assert_eq!(status, 422, "{}", reloaded.text()),
        }
        assert_eq!(world.reload(tests::world::ONE_HOST).await.status, 200);
    }
    world.end().await;
}

/// D7: by redirect. Nothing is followed, and what the client follows is judged.
#[tokio::test]
async fn a_redirect_is_the_clients_to_follow_and_ours_to_judge() {
    let plan = Plan::answering(|asked| match asked.target.as_str() {
        "/still-here" => Answer::new(200, ""),
        _ => Answer::new(307, "").header("Location", "http://169.254.169.254/latest/meta-data/"),
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let ask = world.sandbox.ask("POST", "https://allowed.test/").body("payload");
    let reply = ask.send().await;
    reply.assert_relayed(307);
    let next = reply.header("location").unwrap();
    assert_eq!(next, "http://169.254.169.254/latest/meta-data/");
    world.sandbox.get(next).await.assert_refused(403, "no_rule");
    let record = world.assert_denied("169.254.169.254", "no_rule").await;
    assert_eq!(code(&record), "no_rule");
    world.end().await;
}

/// D11: programs that ignore the proxy are captured; raw addresses are refused.
#[tokio::test]
async fn ignoring_the_proxy_changes_nothing() {
    let world = World::new().start().await;
    for url in ["http://allowed.test/direct", "https://allowed.test/direct"] {
        world.sandbox.ask("GET", url).by(Way::Captured).send().await.assert_relayed(200);
    }
    for url in ["http://evil.test/", "https://evil.test/"] {
        let reply = world.sandbox.ask("GET", url).by(Way::Captured).send().await;
        reply.assert_refused(403, "no_rule");
        let record = world.assert_denied("evil.test", "no_rule").await;
        assert!(record["sluice.way_in"].as_str().unwrap().starts_with("captured"), "{record}");
    }
    for host in ["203.0.113.7", "[2001:db8::7]"] {
        let reply = world.sandbox.ask("GET", &format!("http://{host}/")).by(Way::Captured);
        reply.send().await.assert_refused(403, "no_rule");
        world.assert_denied(host, "no_rule").await;
    }
    // Port 443 of an address, where TLS clients send no name.
    let line = world.sandbox.captured_https().await;
    let failed = world.sandbox.handshake(line, "203.0.113.7", &[]).await.unwrap_err();
    assert!(failed.to_string().contains("UnrecognisedName"), "{failed}");
    world.assert_denied("", "no_server_name").await;
    // And something on it that is no TLS at all.
    let mut line = world.sandbox.captured_https().await;
    line.send("SSH-2.0-OpenSSH_9.2\r\n").await;
    let reply = line.reply().await;
    assert_eq!(reply.status, 400, "{}", reply.text());
    world.assert_denied("", &reply.code()).await;
    world.end().await;
}
