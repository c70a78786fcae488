//! The format, as files: one line per kind in `testdata/v1`.
//!
//! A change here is a change someone's parser will see. `UPDATE_EXPECT=1` writes
//! the files anew, and the diff is for a person to judge.

use std::path::PathBuf;
use std::time::Duration;

use expect_test::expect_file;

use super::*;
use crate::line;
use crate::secret_name::{RecordedSecret, RecordedSecrets};

#[test]
fn todays_code_writes_exactly_the_golden_lines() {
    for kind in EventKind::ALL {
        let mut written = Vec::new();
        line::write(&sample(*kind), &mut written);
        expect_file![golden(*kind)].assert_eq(std::str::from_utf8(&written).unwrap());
    }
}

#[test]
fn todays_code_reads_the_golden_lines_as_what_was_written() {
    for kind in EventKind::ALL {
        let text = std::fs::read_to_string(golden(*kind)).unwrap();
        let event = line::read(text.trim_end().as_bytes()).unwrap();
        assert_eq!(event, sample(*kind));
        assert_eq!(event.what.kind(), *kind);
        assert_eq!(kind.as_str().parse(), Ok(*kind));
    }
}

#[test]
fn a_kind_that_does_not_exist_is_refused_with_the_list() {
    let err = "requests".parse::<EventKind>().unwrap_err();
    expect_test::expect!["`requests` is not a kind of event; write one of: connection, dns, finding, hold, limit, log_closed, log_resumed, log_started, opened, operator, policy_loaded, policy_refused, recovered, request, run_ended, run_started, segment_started"]
        .assert_eq(&err.to_string());
}

fn golden(kind: EventKind) -> PathBuf {
    let file = format!("testdata/v1/{kind}.jsonl");
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// An event of this kind with every field filled in.
pub(crate) fn sample(kind: EventKind) -> Event {
    Event {
        v: FORMAT,
        seq: 42,
        time: "2026-03-01T09:30:00.123456Z".parse().unwrap(),
        id: id(0x42),
        run: "run-7f3a".into(),
        what: what(kind),
        prev: Digest::of(b"the line before"),
    }
}

fn what(kind: EventKind) -> EventBody {
    match kind {
        EventKind::Connection => EventBody::Connection(Box::new(ConnectionFacts {
            outcome: EntryOutcome::Relayed,
            client: client(WayIn::CapturedHttps),
            destination: destination(),
            transport: Some("tcp".into()),
            handling: Some(Handling::Inspect),
            decision: decision(VerdictRecord::Allow),
            tls: tls(),
            requests: Some(3),
            traffic: TrafficRecord { sent: 1200, received: 34_567 },
            timing: timing(),
            failure: FailureRecord::default(),
        })),
        EventKind::Dns => EventBody::Dns(Box::new(DnsFacts {
            outcome: EntryOutcome::Relayed,
            client: client(WayIn::Dns),
            name: Some("api.github.com".into()),
            record: Some("A".into()),
            transport: Some("udp".into()),
            response: Some("NOERROR".into()),
            decision: DecisionRecord::default(),
            timing: Timing { total: Some(ms(90)), ..Timing::default() },
            failure: FailureRecord::default(),
        })),
        EventKind::Finding => EventBody::Finding(Box::new(FindingEvent {
            sighting: Sighting::Secret,
            pattern: Some("injected".into()),
            secret: Some(secret()),
            location: "header:authorization".into(),
            stopped: true,
            entry: Some(id(7)),
            destination: destination(),
            decision: decision(VerdictRecord::Deny),
        })),
        EventKind::Hold => EventBody::Hold(Box::new(Hold {
            state: HoldState::Approved,
            entry: id(7),
            user: Some("ada".into()),
            waited: Some(ms(4_200_000)),
            destination: destination(),
            http: http(),
            decision: decision(VerdictRecord::Ask),
        })),
        EventKind::Limit => EventBody::Limit(Box::new(LimitEvent {
            name: "requests_per_minute".into(),
            value: 600,
            reached: 601,
            entry: Some(id(7)),
            destination: destination(),
        })),
        EventKind::LogClosed => EventBody::LogClosed(LogClosed { lines: 42 }),
        EventKind::LogResumed => EventBody::LogResumed(Box::new(LogResumed {
            paused: ms(61_200_000),
            refused: 17,
            why: "No space left on device (os error 28)".into(),
        })),
        EventKind::LogStarted => EventBody::LogStarted(LogStarted {
            writer: "sluice-gateway 0.1.0".into(),
            previous_seq: Some(41),
            previous_closed: Some(false),
            pins: vec!["up.test=192.0.2.7:8443".into()],
            roots: vec![
                "0.pem=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".into(),
            ],
            unanswered: Some("recorded".into()),
            origin: LogOrigin {
                user: Some("ada".into()),
                host: Some("workstation".into()),
                project: Some("/home/ada/widgets".into()),
                backend: Some("docker".into()),
                version: Some("0.1.0".into()),
            },
        }),
        EventKind::Opened => EventBody::Opened(Box::new(request().opening())),
        EventKind::Operator => EventBody::Operator(Box::new(Operator {
            action: "no_sandbox".into(),
            user: Some("ada".into()),
            accepted: true,
            detail: Some("allowed by overrides".into()),
        })),
        EventKind::PolicyLoaded => EventBody::PolicyLoaded(Box::new(PolicyLoaded {
            hash: "9f86d081884c7d65".into(),
            name: Some("widgets-agent".into()),
            file: Some("sandbox.policy.yaml".into()),
            rules: 12,
            replaced: Some("60303ae22b998861".into()),
        })),
        EventKind::PolicyRefused => EventBody::PolicyRefused(Box::new(PolicyRefused {
            file: Some("sandbox.policy.yaml".into()),
            detail: "3:5: unknown field `alow`; write `allow`".into(),
            kept: Some("9f86d081884c7d65".into()),
        })),
        EventKind::Recovered => {
            EventBody::Recovered(Recovered { bytes: 113, sha256: Digest::of(b"half a line") })
        }
        EventKind::Request => EventBody::Request(Box::new(request())),
        EventKind::RunEnded => EventBody::RunEnded(Box::new(RunEnded {
            exit_code: Some(137),
            signal: Some(9),
            reason: Some("timeout".into()),
            detail: Some("30m were over".into()),
            total: Some(ms(1_800_000_000)),
        })),
        EventKind::RunStarted => EventBody::RunStarted(Box::new(RunStarted {
            executable: "python3".into(),
            args: Some(3),
            backend: Some("namespaces".into()),
            image: Some("debian:12".into()),
            user: Some("ada".into()),
            host: Some("workbench".into()),
            policy: Some("9f86d081884c7d65".into()),
            observe: false,
        })),
        EventKind::SegmentStarted => EventBody::SegmentStarted(SegmentStarted {
            previous: "audit.000001.jsonl".into(),
            previous_sha256: Digest::of(b"the file before"),
        }),
    }
}

fn request() -> RequestFacts {
    let mut secrets = RecordedSecrets::default();
    assert!(secrets.add(secret()));
    RequestFacts {
        outcome: EntryOutcome::Failed,
        connection: Some(id(6)),
        client: client(WayIn::Proxy),
        destination: destination(),
        http: http(),
        decision: decision(VerdictRecord::Allow),
        capability: Some("git.push".into()),
        secrets,
        tls: tls(),
        traffic: TrafficRecord { sent: 512, received: 2048 },
        timing: timing(),
        failure: FailureRecord::new("upstream_reset", "connection reset by peer"),
    }
}

fn client(way_in: WayIn) -> ClientRecord {
    ClientRecord::new("10.209.0.2:40112".parse().unwrap(), way_in)
}

fn destination() -> DestinationRecord {
    let mut destination = DestinationRecord::new("api.github.com", 443);
    destination.dialled(&"140.82.121.6:443".parse::<std::net::SocketAddr>().unwrap().into());
    destination
}

fn http() -> Http {
    Http {
        method: Some("POST".into()),
        scheme: Some("https".into()),
        path: Some("/repos/acme/widgets/issues".into()),
        query: Some("state=open&q=caf\u{e9}".into()),
        status: Some(201),
        protocol: Some("http".into()),
        version: Some("2".into()),
        grpc_status: Some(0),
    }
}

fn decision(verdict: VerdictRecord) -> DecisionRecord {
    DecisionRecord {
        verdict: Some(verdict),
        rule: Some("allow[1]".into()),
        reason: Some(Text::constant("rule")),
        detail: Some("methods: [GET, POST]".into()),
        policy: Some("9f86d081884c7d65".into()),
    }
}

fn tls() -> NegotiatedTls {
    NegotiatedTls {
        version: Some("1.3".into()),
        cipher: Some("TLS_AES_128_GCM_SHA256".into()),
        next_protocol: Some("h2".into()),
        server_name: Some("api.github.com".into()),
        resumed: Some(false),
        server_hash: Some(Digest::of(b"a certificate")),
    }
}

fn timing() -> Timing {
    Timing {
        total: Some(ms(123_456)),
        decide: Some(ms(12)),
        hold: Some(ms(0)),
        resolve: Some(ms(8_000)),
        connect: Some(ms(20_500)),
        tls: Some(ms(21_000)),
        first_byte: Some(ms(80_125)),
    }
}

fn ms(micros: u64) -> crate::Millis {
    Duration::from_micros(micros).into()
}

fn secret() -> RecordedSecret {
    RecordedSecret::parse("GITHUB_TOKEN").unwrap()
}

fn id(n: u8) -> Uuid {
    Uuid::from_bytes([1, 0x95, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, n])
}
