//! Limits under concurrency and across a reload.

use std::thread;

use policies::Size;

use super::*;

fn with_upload(bytes: u64) -> GatewayLimits {
    let configured = Bounds { upload: Some(bytes), ..Bounds::default() };
    GatewayLimits::new(configured, &NetLimits::default())
}

#[test]
fn a_budget_is_spent_to_the_byte_and_not_beyond() {
    let limits = with_upload(10);
    assert_eq!(limits.upload(&HostCount::default(), 10), Ok(()));
    let reached = limits.upload(&HostCount::default(), 1).expect_err("nothing is left");
    assert_eq!(reached.to_string(), "the limit `upload` of 10 is reached");
    assert_eq!((reached.value, reached.reached, reached.retry_after), (10, 11, None));
    assert_eq!(limits.uploaded(), 10);
}

#[test]
fn a_count_that_would_overflow_is_refused_not_wrapped() {
    let limits = GatewayLimits::new(Bounds::default(), &NetLimits::default());
    assert_eq!(limits.download(u64::MAX), Ok(()));
    assert_eq!(limits.download(1).expect_err("it would wrap").limit, LimitKind::Download);
}

#[test]
fn many_threads_together_spend_exactly_the_budget() {
    let limits = with_upload(10_000);
    let sent: u64 = thread::scope(|scope| {
        let spender = || {
            (0..5_000).filter(|_| limits.upload(&HostCount::default(), 1).is_ok()).count() as u64
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(spender)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((sent, limits.uploaded()), (10_000, 10_000));
}

#[test]
fn many_threads_together_get_exactly_the_requests_of_a_minute() {
    let configured = Bounds { requests_per_minute: Some(700), ..Bounds::default() };
    let limits = GatewayLimits::new(configured, &NetLimits::default());
    let now = Instant::now();
    let admitted: usize = thread::scope(|scope| {
        let asker = || (0..500).filter(|_| limits.admit_request_at(now).is_ok()).count();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(asker)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted, 700);
}

#[test]
fn a_reload_changes_the_bounds_and_keeps_the_counts() {
    let limits = GatewayLimits::new(Bounds::default(), &NetLimits::default());
    limits.upload(&HostCount::default(), 80).expect("there is no bound");

    limits.rebind(&NetLimits { upload: Size::from_bytes(100), ..NetLimits::default() });
    assert_eq!(
        limits.upload(&HostCount::default(), 21).expect_err("80 were already sent").reached,
        101
    );
    assert_eq!(limits.upload(&HostCount::default(), 20), Ok(()));

    limits.rebind(&NetLimits::default());
    assert_eq!(
        limits.upload(&HostCount::default(), 1),
        Ok(()),
        "the bound is gone with its policy"
    );
}

#[test]
fn a_policy_cannot_loosen_what_the_operator_set() {
    let limits = with_upload(10);
    limits.rebind(&NetLimits { upload: Size::from_bytes(1000), ..NetLimits::default() });
    assert!(limits.upload(&HostCount::default(), 11).is_err());
}

#[test]
fn a_limit_that_is_reached_is_called_as_in_the_policy() {
    let LimitReached { limit, value, reached, .. } =
        with_upload(1).upload(&HostCount::default(), 2).expect_err("two are too many");
    assert_eq!((limit.to_string().as_str(), value, reached), ("upload", 1, 2));
}

#[test]
fn a_minute_that_is_full_says_its_bound_and_the_request_beyond_it() {
    let configured = Bounds { requests_per_minute: Some(5), ..Bounds::default() };
    let limits = GatewayLimits::new(configured, &NetLimits::default());
    assert!((0..5).all(|_| limits.admit_request().is_ok()));
    let reached = limits.admit_request().expect_err("five are enough");
    assert_eq!(
        (reached.limit, reached.value, reached.reached),
        (LimitKind::RequestsPerMinute, 5, 6)
    );
    assert!(reached.retry_after.is_some());
}

#[test]
fn what_did_not_leave_is_not_counted() {
    let (limits, host) = (with_upload(10), HostCount::default());
    assert_eq!(limits.upload(&host, 10), Ok(()));
    limits.not_uploaded(&host, 4);
    assert_eq!(limits.uploaded(), 6);
    assert_eq!(limits.upload(&host, 4), Ok(()));
}

#[test]
fn what_has_come_is_counted_also_when_it_was_too_much() {
    let configured = Bounds { download: Some(10), ..Bounds::default() };
    let limits = GatewayLimits::new(configured, &NetLimits::default());
    assert_eq!(limits.arrived(10), Ok(()));
    let reached = limits.arrived(3).expect_err("it is too much");
    assert_eq!((reached.limit, reached.value, reached.reached), (LimitKind::Download, 10, 13));
    assert_eq!(limits.downloaded(), 13);
}

#[test]
fn each_bound_is_told_as_it_was_set() {
    let seconds = Duration::from_secs;
    let bounds = Bounds {
        body: Some(1),
        header_bytes: 2,
        headers: 3,
        opening: seconds(4),
        header: seconds(5),
        idle: seconds(6),
        total: Some(seconds(7)),
        drain: seconds(8),
        ..Bounds::default()
    };
    let limits = GatewayLimits::new(bounds, &NetLimits::default());
    assert_eq!(
        (limits.bounds().body, limits.bounds().header_bytes, limits.bounds().headers),
        (Some(1), 2, 3)
    );
    assert_eq!((limits.bounds().opening, limits.bounds().header), (seconds(4), seconds(5)));
    assert_eq!((limits.bounds().idle, limits.bounds().total), (seconds(6), Some(seconds(7))));
    assert_eq!(limits.bounds().drain, seconds(8));
    assert_eq!(limits.bounds(), bounds);
}

#[tokio::test]
async fn an_open_connection_is_counted_once_somebody_is_in_its_room() {
    let limits = GatewayLimits::new(Bounds::default(), &NetLimits::default());
    let room = limits.connection_slot().await;
    assert_eq!(limits.open_connections(), 0);
    let room = room.occupied();
    assert_eq!(limits.open_connections(), 1);
    drop(room);
    assert_eq!(limits.open_connections(), 0);
}

#[test]
fn each_host_has_a_budget_of_its_own_and_all_share_the_whole_one() {
    let configured = Bounds { upload: Some(25), host_upload: Some(10), ..Bounds::default() };
    let limits = GatewayLimits::new(configured, &NetLimits::default());
    let [one, other, third] = ["a.test", "b.test", "c.test"]
        .map(|name| limits.reach(&host(name), 0).expect("hosts are not bound"));
    assert_eq!(limits.upload(&one, 10), Ok(()));
    let reached = limits.upload(&one, 1).expect_err("it has had its ten");
    assert_eq!((reached.limit, reached.reached), (LimitKind::HostUpload, 11));
    assert_eq!(limits.uploaded(), 10, "what was refused was not sent");
    // On another connection it is the same host.
    let again = limits.reach(&host("a.test"), 0).unwrap();
    assert_eq!(limits.upload(&again, 1).unwrap_err().limit, LimitKind::HostUpload);
    limits.not_uploaded(&again, 1);
    assert_eq!(limits.upload(&again, 1), Ok(()));

    assert_eq!(limits.upload(&other, 10), Ok(()));
    let reached = limits.upload(&third, 6).expect_err("25 in all");
    assert_eq!((reached.limit, reached.reached), (LimitKind::Upload, 26));
    assert_eq!(limits.upload(&third, 5), Ok(()));
}

#[test]
fn a_host_is_counted_once_and_a_chosen_name_by_its_bytes() {
    let configured = Bounds { hosts: Some(3), wildcard_names: Some(8), ..Bounds::default() };
    let limits = GatewayLimits::new(configured, &NetLimits::default());
    let reach = |name: &str, chosen| limits.reach(&host(name), chosen).map_err(|err| err.limit);
    assert!(reach("api.test", 0).is_ok());
    assert!(reach("abcde.wide.test", 5).is_ok());
    assert_eq!(reach("fghi.wide.test", 4).unwrap_err(), LimitKind::WildcardNames);
    for _ in 0..3 {
        assert!(reach("abcde.wide.test", 5).is_ok(), "it is known");
    }
    assert!(reach("xyz.wide.test", 3).is_ok());
    assert_eq!(reach("other.test", 0).unwrap_err(), LimitKind::Hosts);
    assert!(reach("api.test", 0).is_ok(), "it is known");
}

#[test]
fn hosts_that_are_not_remembered_share_one_budget() {
    let configured = Bounds { host_upload: Some(10), ..Bounds::default() };
    let limits = GatewayLimits::new(configured, &NetLimits::default());
    for number in 0..4096 {
        limits.reach(&host(&format!("h{number}.test")), 0).unwrap();
    }
    let [one, other] =
        ["one.more.test", "another.test"].map(|name| limits.reach(&host(name), 0).unwrap());
    assert_eq!(limits.upload(&one, 10), Ok(()));
    assert_eq!(limits.upload(&other, 1).unwrap_err().limit, LimitKind::HostUpload);
}

#[test]
fn a_url_is_counted_once() {
    let configured = Bounds { urls: Some(18), ..Bounds::default() };
    let limits = GatewayLimits::new(configured, &NetLimits::default());
    let ask = |to: &str, path, query| {
        limits.ask_url(&Destination::parse(to).unwrap(), path, query).map_err(|err| err.reached)
    };
    for _ in 0..100 {
        assert_eq!(ask("a.test:443", "/index", "q=1"), Ok(()));
    }
    assert_eq!(ask("b.test:443", "/index", "q=1"), Ok(()));
    assert_eq!(ask("a.test:443", "/", ""), Err(19));
    assert_eq!(ask("a.test:443", "/index", "q=1"), Ok(()));
    assert_eq!(ask("a.test:443", "/index", "q=2"), Err(27));
}

fn host(name: &str) -> Host {
    Destination::parse(&format!("{name}:443")).unwrap().host
}
