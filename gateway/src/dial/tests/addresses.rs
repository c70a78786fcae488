//! Names and addresses: ATTACKS D5, D6, D7, A10, A13.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use policies::{AddressClass, HostName};

use super::super::resolve::{Resolver, ResolverFuture};
use super::super::{Pin, Pins};
use super::*;

fn dialer(script: &Arc<Script>) -> Dialer {
    let resolver: Arc<dyn Resolver> = Arc::<Script>::clone(script);
    Dialer::asking(resolver, UpstreamSettings::default()).unwrap()
}

async fn addresses(
    dialer: &Dialer,
    permit: &RequestPermit,
    written: &str,
) -> Result<Vec<String>, DialError> {
    let to = to(written);
    let route = dialer.route(Permit::Request(permit), &to).await?;
    Ok(route.addresses.iter().map(|address| address.get().to_string()).collect())
}

fn class(refused: Result<Vec<String>, DialError>) -> AddressClass {
    match refused.unwrap_err() {
        err @ DialError::Forbidden { first, .. } => {
            assert_eq!((err.status(), err.code()), (403, "destination_forbidden"));
            first.class
        }
        err => panic!("refused for another reason: {err}"),
    }
}

/// D6 and A13: whatever name or alias led here, the address decides.
#[tokio::test]
async fn a_name_that_leads_to_our_own_side_is_refused_by_address_class() {
    for (address, expected) in [
        ("127.0.0.1", AddressClass::Loopback),
        ("::1", AddressClass::Loopback),
        ("::ffff:127.0.0.1", AddressClass::Loopback),
        ("10.0.0.1", AddressClass::Private),
        ("192.168.1.1", AddressClass::Private),
        ("fd12:3456::1", AddressClass::Private),
        ("100.64.0.1", AddressClass::SharedNat),
        ("169.254.1.1", AddressClass::LinkLocal),
        ("fe80::1", AddressClass::LinkLocal),
        ("0.0.0.0", AddressClass::Unspecified),
        ("169.254.169.254", AddressClass::Metadata),
        ("168.63.129.16", AddressClass::Metadata),
        ("fd00:ec2::254", AddressClass::Metadata),
        ("64:ff9b::a9fe:a9fe", AddressClass::Metadata),
        ("64:ff9b::a00:1", AddressClass::Private),
        ("2002:7f00:1::", AddressClass::Loopback),
        ("2002:a9fe:a9fe::", AddressClass::Metadata),
    ] {
        let script = Script::new().then("allowed.test", &[address]);
        let refused = addresses(&dialer(&script), &public(), "allowed.test:443").await;
        assert_eq!(class(refused), expected, "{address}");
        assert_eq!(script.asked(), ["allowed.test"], "{address}");
    }
}

/// D5.
#[tokio::test]
async fn a_name_that_changes_its_mind_is_judged_each_time_and_asked_once_each_time() {
    let script =
        Script::new().then("rebind.test", &["93.184.216.34"]).then("rebind.test", &["127.0.0.1"]);
    let dialer = dialer(&script);

    let first = addresses(&dialer, &public(), "rebind.test:443").await;
    assert_eq!(first.unwrap(), ["93.184.216.34:443"]);
    assert_eq!(script.asked(), ["rebind.test"]);

    let second = addresses(&dialer, &public(), "rebind.test:443").await;
    assert_eq!(class(second), AddressClass::Loopback);
    assert_eq!(script.asked(), ["rebind.test", "rebind.test"]);
}

/// D5, the other half.
#[tokio::test]
async fn of_a_mixed_answer_only_what_passed_is_dialled_in_the_order_given() {
    let script = Script::new().then(
        "mixed.test",
        &["10.0.0.1", "93.184.216.34", "127.0.0.1", "2606:2800:220:1::1", "169.254.169.254"],
    );
    let dialer = dialer(&script);
    let found = addresses(&dialer, &public(), "mixed.test:8443").await.unwrap();
    assert_eq!(found, ["93.184.216.34:8443", "[2606:2800:220:1::1]:8443"]);
}

#[tokio::test]
async fn a_rules_ranges_reach_private_addresses_and_never_the_machine_itself() {
    let script = Script::new()
        .then("db.test", &["10.1.2.3"])
        .then("self.test", &["127.0.0.1"])
        .then("meta.test", &["100.100.100.200"]);
    let dialer = dialer(&script);
    let wide = within(&["0.0.0.0/0", "::/0"]);

    assert_eq!(addresses(&dialer, &wide, "db.test:5432").await.unwrap(), ["10.1.2.3:5432"]);
    assert_eq!(class(addresses(&dialer, &wide, "self.test:80").await), AddressClass::Loopback);
    assert_eq!(class(addresses(&dialer, &wide, "meta.test:80").await), AddressClass::Metadata);
}

/// D7 and A10.
#[tokio::test]
async fn a_literal_is_never_looked_up_and_always_checked() {
    let script = Script::new();
    let dialer = dialer(&script);
    for (literal, expected) in [
        ("169.254.169.254:80", AddressClass::Metadata),
        ("[::ffff:169.254.169.254]:80", AddressClass::Metadata),
        ("[64:ff9b::a9fe:a9fe]:80", AddressClass::Metadata),
        ("[fd00:ec2::254]:80", AddressClass::Metadata),
        ("[2002:7f00:1::]:80", AddressClass::Loopback),
        ("2130706433:80", AddressClass::Loopback),
        ("127.1:80", AddressClass::Loopback),
        ("[::1]:80", AddressClass::Loopback),
    ] {
        let refused = addresses(&dialer, &public(), literal).await;
        assert_eq!(class(refused), expected, "{literal}");
        // Nor is a kept connection looked for.
        assert!(matches!(
            dialer.http1(&public(), policies::Scheme::Http, &to(literal), false).await,
            Err(DialError::Forbidden { .. })
        ));
    }
    let public = addresses(&dialer, &public(), "93.184.216.34:80").await;
    assert_eq!(public.unwrap(), ["93.184.216.34:80"]);
    assert_eq!(script.asked(), [""; 0]);
}

#[test]
fn a_pin_below_a_name_covers_neither_the_name_nor_a_lookalike() {
    let pin = |port| Pin::new("127.0.0.1".parse().unwrap(), Some(port)).unwrap();
    let name = |text| HostName::parse(text).unwrap();
    let mut pins = Pins::default();
    pins.add_below(name("bench.test"), pin(1));
    pins.add_below(name("b.bench.test"), pin(2));
    pins.add(name("c.bench.test"), pin(3));
    for (asked, found) in [
        ("a.bench.test", Some(1)),
        ("x.b.bench.test", Some(2)),
        ("b.bench.test", Some(1)),
        ("c.bench.test", Some(3)),
        ("bench.test", None),
        ("evilbench.test", None),
    ] {
        assert_eq!(pins.find(&name(asked)).map(|pin| pin.address(9).port()), found, "{asked}");
    }
}

#[tokio::test]
async fn a_pinned_name_is_never_looked_up() {
    let script = Script::new().then("pinned.test", &["93.184.216.34"]);
    let mut settings = UpstreamSettings::default();
    let pin = Pin::new("127.0.0.1".parse().unwrap(), Some(8443)).unwrap();
    settings.hosts.add(HostName::parse("pinned.test").unwrap(), pin);
    let resolver: Arc<dyn Resolver> = Arc::<Script>::clone(&script);
    let dialer = Dialer::asking(resolver, settings).unwrap();

    let found = addresses(&dialer, &public(), "pinned.test:443").await.unwrap();
    assert_eq!(found, ["127.0.0.1:8443"]);
    assert_eq!(script.asked(), [""; 0]);
}

#[tokio::test]
async fn a_name_without_address_is_an_upstream_failure_not_a_refusal() {
    let script = Script::new().then("empty.test", &[]);
    let dialer = dialer(&script);
    for name in ["empty.test:443", "unknown.test:443"] {
        let err = addresses(&dialer, &public(), name).await.unwrap_err();
        assert_eq!((err.status(), err.code()), (502, "upstream_unresolved"), "{name}");
    }
}

#[tokio::test]
async fn more_addresses_than_anyone_would_try_are_cut_off() {
    let many: Vec<String> =
        (0..5_000).map(|n| format!("93.184.{}.{}", n / 250, n % 250 + 1)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let script = Script::new().then("many.test", &many);
    let found = addresses(&dialer(&script), &public(), "many.test:443").await.unwrap();
    assert_eq!(found.len(), 16);
}

/// Never answers.
#[derive(Debug)]
struct Silent;

impl Resolver for Silent {
    fn resolve<'a>(&'a self, _: &'a HostName) -> ResolverFuture<'a> {
        Box::pin(std::future::pending::<Result<Vec<IpAddr>, _>>())
    }
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_never_answers_is_a_timeout() {
    let dialer = Dialer::asking(Arc::new(Silent), UpstreamSettings::default()).unwrap();
    let to = to("slow.test:443");
    let err = dialer.http1(&public(), policies::Scheme::Https, &to, false).await.unwrap_err();
    assert_eq!((err.status(), err.code()), (504, "upstream_timeout"));
    assert_eq!(err.to_string(), "slow.test:443 did not answer within 5s");
    assert!(matches!(err, DialError::Timeout { limit, .. } if limit == Duration::from_secs(5)));
}
