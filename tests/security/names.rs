//! A: names that are not what they seem.

use std::ffi::CStr;

use tests::{Line, Plan, Reply, SocksName, Way, World, code};

/// Asks the proxy for a tunnel to these bytes.
async fn connect_to(world: &World, target: &[u8]) -> Option<Reply> {
    let mut line = world.sandbox.proxy().await;
    line.send([b"CONNECT ", target, b" HTTP/1.1\r\n\r\n"].concat()).await;
    line.reply_or_end().await
}

/// Asks the proxy for these bytes as a request target, with a fitting Host.
async fn get_absolute(world: &World, target: &str) -> Reply {
    let mut line = world.sandbox.proxy().await;
    line.send(format!("GET {target} HTTP/1.1\r\nHost: allowed.test\r\n\r\n")).await;
    line.reply().await
}

/// A1: a resolver written in C would see `evil.test`, a matcher of suffixes the
/// other name.
#[tokio::test]
async fn a_nul_in_a_socks_name_does_not_hide_the_name_before_it() {
    let world = World::allowing(&["{host: allowed.test}", "\"*.allowed.test\""]).start().await;
    let name = b"evil.test\0.allowed.test";
    let in_c = CStr::from_bytes_until_nul(name).unwrap();
    assert_eq!(in_c.to_bytes(), b"evil.test");

    let refused = world.sandbox.socks_to(SocksName::Bytes(name.to_vec()), 443).await;

    assert_eq!(refused.unwrap_err(), 1, "general failure");
    world.assert_denied("", "bad_authority").await;
    world.end().await;
}

/// A2.
#[tokio::test]
async fn control_bytes_in_a_name_never_reach_an_upstream_line() {
    let world = World::new().start().await;
    for byte in [b'\r', b'\n', b'\t', b' ', 0x7f, 0, 0x80] {
        for name in [
            [b"allowed.test".as_slice(), &[byte], b"X-Injected: 1"].concat(),
            [b"allowed".as_slice(), &[byte], b".test"].concat(),
            [&[byte], b"allowed.test".as_slice()].concat(),
            [b"allowed.test".as_slice(), &[byte]].concat(),
        ] {
            let refused = world.sandbox.socks_to(SocksName::Bytes(name.clone()), 443).await;
            assert_eq!(refused.unwrap_err(), 1, "{byte:#x} in {name:?}");
            world.audit.refused("", "bad_authority").await;

            let target = [name.as_slice(), b":443"].concat();
            let reply = connect_to(&world, &target).await.unwrap();
            assert_eq!(reply.status, 400, "{byte:#x} in {name:?}: {reply:?}");
            assert!(["bad_authority", "malformed"].contains(&reply.code().as_str()), "{reply:?}");
            world.audit.refused("", &reply.code()).await;
        }
    }
    world.upstream("allowed.test").assert_never_contacted();
    world.assert_nobody_was_contacted();
    world.assert_still_serves().await;
    assert!(!world.upstream("allowed.test").received().contains("Injected"));
    world.end().await;
}

/// A3.
#[tokio::test]
async fn one_trailing_dot_is_the_same_name_and_two_are_none() {
    let world = World::new().start().await;

    let mut line = world.sandbox.connect("allowed.test.:443").await.unwrap();
    line = world.sandbox.handshake(line, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send("GET /dot HTTP/1.1\r\nHost: allowed.test.\r\n\r\n").await;
    line.reply().await.assert_relayed(200);
    let reply = get_absolute(&world, "http://allowed.test./dot").await;
    reply.assert_relayed(200);
    for received in world.upstream("allowed.test").requests() {
        assert_eq!(received.header("host"), Some("allowed.test"), "the canonical form goes out");
    }
    let named = world.upstream("allowed.test").seen()[0].server_name();
    assert_eq!(named.as_deref(), Some("allowed.test"));

    for target in ["allowed.test..:443", ".allowed.test:443", "allowed..test:443"] {
        connect_to(&world, target.as_bytes()).await.unwrap().assert_refused(400, "bad_authority");
        world.assert_denied("", "bad_authority").await;
    }
    get_absolute(&world, "http://allowed.test../").await.assert_refused(400, "bad_authority");
    world.assert_denied("", "bad_authority").await;

    connect_to(&world, b"evil.test.:443").await.unwrap().assert_refused(403, "no_rule");
    world.assert_denied("evil.test", "no_rule").await;
    world.end().await;
}

/// A4.
#[tokio::test]
async fn letters_have_no_case() {
    let world = World::allowing(&["{host: Allowed.TEST}", "{host: allowed.test, protocol: http}"])
        .start()
        .await;
    for way in Way::ALL {
        let reply = world.sandbox.ask("GET", "https://ALLOWED.test/case").by(way).send().await;
        reply.assert_relayed(200);
        let reply = world.sandbox.ask("GET", "http://ALLOWED.test/case").by(way).send().await;
        reply.assert_relayed(200);
        let reply = world.sandbox.ask("GET", "https://EviL.test/").by(way).send().await;
        reply.assert_refused(403, "no_rule");
        world.assert_denied("evil.test", "no_rule").await;
    }
    for received in world.upstream("allowed.test").requests() {
        assert_eq!(received.header("host"), Some("allowed.test"));
    }
    world.end().await;
}

/// A5.
#[tokio::test]
async fn other_alphabets_do_not_spell_a_name_that_is_allowed() {
    let world = World::new().start().await;
    // The ideographic full stop is a dot, and wide letters are letters.
    for spelled in ["evil\u{3002}test", "\u{ff45}vil.test"] {
        let refused = world.sandbox.socks_to(SocksName::Host(spelled.into()), 8443).await;
        assert_eq!(refused.unwrap_err(), 2, "not allowed: {spelled}");
        world.assert_denied("evil.test", "no_rule").await;
    }
    // Cyrillic letters make another name, and the record can tell it apart.
    let lookalike = "\u{0430}llowed.test";
    let refused = world.sandbox.socks_to(SocksName::Host(lookalike.into()), 8443).await;
    assert_eq!(refused.unwrap_err(), 2, "not allowed");
    world.assert_denied("xn--llowed-2nf.test", "no_rule").await;
    connect_to(&world, b"xn--llowed-2nf.test:443").await.unwrap().assert_refused(403, "no_rule");
    world.assert_denied("xn--llowed-2nf.test", "no_rule").await;

    for invalid in ["xn--a.test", "xn--zzzzzzzzzzz.test", "xn--allowed-.test"] {
        let reply = connect_to(&world, format!("{invalid}:443").as_bytes()).await.unwrap();
        reply.assert_refused(400, "bad_authority");
        world.assert_denied("", "bad_authority").await;
        let refused = world.sandbox.socks_to(SocksName::Host(invalid.into()), 443).await;
        assert_eq!(refused.unwrap_err(), 1, "general failure: {invalid}");
        world.assert_denied("", "bad_authority").await;
    }
    // In HTTP a target is ASCII, whatever it would spell.
    for raw in ["evil\u{3002}test".as_bytes(), lookalike.as_bytes(), b"allowed\xff.test"] {
        let reply = connect_to(&world, &[raw, b":443"].concat()).await.unwrap();
        reply.assert_refused(400, "malformed");
        world.assert_denied("", "malformed").await;
    }
    world.end().await;
}

/// A6.
#[tokio::test]
async fn a_wildcard_ends_at_a_dot() {
    let outside = ["evilwild.test", "wild.test", "wild.test.evil.test", "a.wild.test.evil.test"];
    let mut setup = World::allowing(&["{host: allowed.test}", "\"*.wild.test\""])
        .upstream("a.wild.test", Plan::echoing())
        .upstream("b.a.wild.test", Plan::echoing());
    for name in outside {
        setup = setup.upstream(name, Plan::echoing());
    }
    let world = setup.start().await;

    for name in outside {
        let reply = world.sandbox.get(&format!("https://{name}/")).await;
        reply.assert_refused(403, "no_rule");
        world.assert_denied(name, "no_rule").await;
    }
    for name in ["a.wild.test", "b.a.wild.test"] {
        world.sandbox.get(&format!("https://{name}/")).await.assert_relayed(200);
    }
    for too_wide in ["\"*\"", "\"*.com\"", "\"*.co.uk\"", "{host: \"*.test*\"}", "\"a.*.test\""] {
        let reply = world.reload(&tests::world::policy(&[too_wide])).await;
        assert_eq!(reply.status, 422, "{too_wide}: {}", reply.text());
    }
    world.assert_still_serves().await;
    world.end().await;
}

/// A7.
#[tokio::test]
async fn a_user_name_before_the_host_is_not_read_over() {
    let world = World::new().start().await;
    for target in [
        "http://allowed.test@evil.test/",
        "http://evil.test@allowed.test/",
        "http://allowed.test:80@evil.test/",
        "http://evil.test\\@allowed.test/",
        "http://allowed.test\\@evil.test/",
        "http://allowed.test#@evil.test/",
        "http://evil.test%2f@allowed.test/",
    ] {
        let reply = get_absolute(&world, target).await;
        assert_eq!(reply.status, 400, "{target}: {}", reply.text());
        assert!(["bad_authority", "malformed"].contains(&reply.code().as_str()), "{target}");
        world.audit.refused("", &reply.code()).await;
    }
    let reply = connect_to(&world, b"allowed.test@evil.test:443").await.unwrap();
    reply.assert_refused(400, "bad_authority");
    world.upstream("allowed.test").assert_never_contacted();
    world.assert_denied("", "bad_authority").await;

    // What does go out was put together from parsed parts.
    get_absolute(&world, "http://allowed.test/a?b=c").await.assert_relayed(200);
    let received = world.upstream("allowed.test").requests().pop().unwrap();
    assert_eq!(
        (received.target.as_str(), received.header("host")),
        ("/a?b=c", Some("allowed.test"))
    );
    world.end().await;
}

/// A9: every spelling of 127.0.0.1 is that address, and it is never dialled, even
/// where a rule names it.
#[tokio::test]
async fn an_address_in_odd_digits_is_that_address() {
    let trap = Plan::echoing().start("trap", &tests::authority::Authority::new()).await;
    let port = trap.at.port();
    let rule =
        format!("{{host: 127.0.0.1, protocol: http, port: {port}, addresses: [127.0.0.0/8]}}");
    // Such a rule is refused when it is read, or it allows nothing.
    let world = World::new().start().await;
    let reply = world.reload(&tests::world::policy(&["allowed.test", &rule])).await;
    let named_by_a_rule = reply.status == 200;
    assert!(named_by_a_rule || reply.status == 422, "{}", reply.text());

    for spelled in [
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "0x7f000001",
        "127.0.0.1.",
        "[::ffff:7f00:1]",
    ] {
        let reply = get_absolute_as(&world, &format!("http://{spelled}:{port}/")).await;
        assert!([400, 403].contains(&reply.status), "{spelled}: {}", reply.text());
        world.audit.refused("127.0.0.1", &reply.code()).await;
        trap.assert_never_contacted();
    }
    for nonsense in ["0x7f.0.0.0.1", "256.256.256.256", "127.0.0.08", "1.2.3.4.5"] {
        let reply = get_absolute_as(&world, &format!("http://{nonsense}:{port}/")).await;
        reply.assert_refused(400, "bad_authority");
        world.audit.refused("", "bad_authority").await;
    }
    let reply = connect_to(&world, format!("0x7f.1:{port}").as_bytes()).await.unwrap();
    assert_eq!(reply.status, 403);
    world.audit.refused("127.0.0.1", &reply.code()).await;
    let socks = world.sandbox.socks_to(SocksName::Host("127.1".into()), port).await;
    assert_eq!(socks.unwrap_err(), 2, "not allowed");
    world.audit.refused("127.0.0.1", &reply.code()).await;
    trap.assert_never_contacted();
    // The trap could have been reached: nothing but the gateway is in the way.
    tests::sandbox::open(trap.at).await.send("GET / HTTP/1.1\r\n\r\n").await;
    tests::until("the trap to close", || (trap.connections() == 1).then_some(())).await;

    world.resolver.assert_never_asked();
    world.assert_still_serves().await;
    world.end().await;
}

async fn get_absolute_as(world: &World, target: &str) -> Reply {
    let authority = target.trim_start_matches("http://").trim_end_matches('/');
    let mut line: Line = world.sandbox.proxy().await;
    line.send(format!("GET {target} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await;
    line.reply().await
}

/// A10: an IPv6 address that carries an IPv4 address is judged as that address,
/// and no range that a rule names makes it dialled.
#[tokio::test]
async fn an_address_inside_another_is_judged_as_what_it_carries() {
    let world = World::allowing(&[
        "{host: allowed.test}",
        "{host: six.test, addresses: [\"::/0\", 0.0.0.0/0]}",
    ])
    .start()
    .await;
    for (address, class) in [
        ("::ffff:169.254.169.254", "metadata"),
        ("64:ff9b::a9fe:a9fe", "metadata"),
        ("64:ff9b:1::a9fe:a9fe", "metadata"),
        ("2002:a9fe:a9fe::", "metadata"),
        ("2002:7f00:1::", "loopback"),
        ("2001:0:4136:e378:8000:63bf:80ff:fffe", "loopback"),
        ("::127.0.0.1", "loopback"),
        ("2a00:1:2:3:0:5efe:7f00:1", "loopback"),
        ("::1", "loopback"),
    ] {
        world.resolver.forget("six.test");
        world.resolver.answer("six.test", &[address]);
        let reply = world.sandbox.get("https://six.test/").await;
        reply.assert_refused(403, "destination_forbidden");
        let record = world.audit.refused("six.test", "destination_forbidden").await;
        let detail = record.to_string();
        assert!(detail.contains(class), "{address} is {class}: {detail}");

        let literal = world.sandbox.get(&format!("https://[{address}]/")).await;
        literal.assert_refused(403, "no_rule");
        let by_socks = SocksName::Address(address.parse().unwrap());
        assert_eq!(world.sandbox.socks_to(by_socks, 8080).await.unwrap_err(), 2, "{address}");
    }
    world.assert_still_serves().await;
    world.end().await;
}

/// A13.
#[tokio::test]
async fn a_name_that_encodes_an_address_is_judged_by_where_it_leads() {
    let world = World::allowing(&["{host: allowed.test}", "\"*.nip.test\""]).start().await;
    for (name, address) in [
        ("10-0-0-1.nip.test", "10.0.0.1"),
        ("169-254-169-254.nip.test", "169.254.169.254"),
        ("127-0-0-1.nip.test", "127.0.0.1"),
        ("192-168-0-1.nip.test", "192.168.0.1"),
    ] {
        world.resolver.answer(name, &[address]);
        let reply = world.sandbox.get(&format!("https://{name}/")).await;
        reply.assert_refused(403, "destination_forbidden");
        let record = world.audit.refused(name, "destination_forbidden").await;
        assert_eq!(code(&record), "destination_forbidden");
        assert_eq!(world.resolver.times_asked(name), 1, "asked once, after policy said yes");
    }
    world.assert_still_serves().await;
    world.end().await;
}
