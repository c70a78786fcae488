//! `sluice audit verify`: whatever is done to evidence, it says so and where.

use std::fs;
use std::path::Path;

use audit::{SigningKey, VerdictRecord};
use expect_test::{Expect, expect};

use crate::audit::Asked;
use crate::world::{Ran, World};

fn sealed() -> World {
    let world = World::new();
    let requests: Vec<Asked<'_>> = (0..4)
        .map(|number| Asked(VerdictRecord::Allow, "GET", "api.github.com", "/repos", 200 + number))
        .collect();
    world.record("run-1", &requests);
    fs::write(world.run_folder("run-1").join("run.json"), "{\"command\":[\"true\"]}\n").unwrap();
    world.seal("run-1");
    world
}

fn verify(world: &World) -> Ran {
    world.sluice(&["audit", "verify", "--run", "run-1"])
}

/// The text after the folder's own name.
fn verdict(ran: &Ran) -> String {
    let (_, after) = ran.stdout.split_once("run-1: ").unwrap();
    after.trim_end().to_owned()
}

#[test]
fn untouched_evidence_is_whole() {
    let world = sealed();
    let ran = verify(&world);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let verdict = verdict(&ran);
    assert!(verdict.starts_with("whole: 6 lines in 1 file, sealed 20"), "{verdict}");
    assert!(verdict.ends_with(", 2 files"), "{verdict}");

    let report = world.sluice(&["audit", "verify", "--run", "run-1", "-o", "json"]).json();
    assert_eq!(report[0]["ok"], true);
    assert_eq!((&report[0]["lines"], &report[0]["seal"]["files"]), (&6.into(), &2.into()));
}

#[test]
fn any_byte_of_the_log_that_is_changed_names_its_line() {
    let world = sealed();
    let path = world.run_folder("run-1").join("audit.jsonl");
    let original = fs::read(&path).unwrap();
    let mut tried = 0;
    for (at, line) in places(&original) {
        let mut bytes = original.clone();
        bytes[at] ^= 0x01;
        fs::write(&path, &bytes).unwrap();
        let ran = verify(&world);
        let verdict = verdict(&ran);
        assert_eq!(ran.code, 1, "byte {at}: {verdict}");
        let named = format!("NOT VERIFIED: audit.jsonl, line {line} (byte ");
        assert!(verdict.starts_with(&named), "byte {at} on line {line}: {verdict}");
        tried += 1;
    }
    assert!(tried > 100, "{tried}");
    fs::write(&path, &original).unwrap();
    assert_eq!(verify(&world).code, 0);
}

/// Bytes all over the file, with the lines they are on: the first and the last
/// of every line, and every nineteenth between.
fn places(log: &[u8]) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    let mut start = 0;
    for (number, line) in log.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let end = start + line.len();
        let between = (start..end).step_by(19);
        places.extend(between.chain([end - 2]).map(|at| (at, number + 1)));
        start = end;
    }
    places
}

#[test]
fn any_byte_of_the_seal_or_of_another_file_that_is_changed_names_the_file() {
    let world = sealed();
    for file in ["seal.json", "run.json"] {
        let path = world.run_folder("run-1").join(file);
        let original = fs::read(&path).unwrap();
        for at in (0..original.len()).step_by(13).chain([original.len() - 1]) {
            let mut bytes = original.clone();
            bytes[at] ^= 0x01;
            fs::write(&path, &bytes).unwrap();
            let ran = verify(&world);
            let verdict = verdict(&ran);
            assert_eq!(ran.code, 1, "byte {at} of {file}: {verdict}");
            assert!(verdict.starts_with(&format!("NOT VERIFIED: {file}: ")), "{at}: {verdict}");
        }
        fs::write(&path, &original).unwrap();
    }
    assert_eq!(verify(&world).code, 0);
}

#[test]
fn every_way_to_lie_has_a_name() {
    let lines = |change: fn(&mut Vec<String>)| {
        move |folder: &Path| {
            let path = folder.join("audit.jsonl");
            let text = fs::read_to_string(&path).unwrap();
            let mut lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
            change(&mut lines);
            fs::write(&path, lines.concat()).unwrap();
        }
    };
    told(
        lines(|lines| drop(lines.remove(2))),
        expect![
            "NOT VERIFIED: audit.jsonl, line 3: lines were deleted before this one: expected seq 3, found 4"
        ],
    );
    told(
        lines(|lines| lines.swap(2, 3)),
        expect!["NOT VERIFIED: audit.jsonl, line 3: lines were reordered: expected seq 3, found 4"],
    );
    told(
        lines(|lines| lines.insert(2, lines[2].clone())),
        expect!["NOT VERIFIED: audit.jsonl, line 4: a line was put in: seq 3 was there already"],
    );
    told(
        lines(|lines| lines.truncate(4)),
        expect![
            "NOT VERIFIED: audit.jsonl, line 4: lines are missing at the end: it ends at seq 4, the seal at 6"
        ],
    );
    told(
        lines(|lines| lines.push(lines[5].clone())),
        expect!["NOT VERIFIED: audit.jsonl, line 7: a line was put in: seq 6 was there already"],
    );
    told(
        lines(Vec::clear),
        expect![
            "NOT VERIFIED: audit.jsonl, line 1: lines are missing at the end: it ends at seq 0, the seal at 6"
        ],
    );
    told(
        |folder| fs::remove_file(folder.join("audit.jsonl")).unwrap(),
        expect!["NOT VERIFIED: audit.jsonl: missing"],
    );
    told(
        |folder| fs::remove_file(folder.join("run.json")).unwrap(),
        expect!["NOT VERIFIED: run.json: missing"],
    );
    told(
        |folder| fs::write(folder.join("extra\u{1b}.txt"), "x").unwrap(),
        expect![[r#"NOT VERIFIED: extra\u{1b}.txt: not in the seal"#]],
    );
    told(
        |folder| fs::write(folder.join("seal.json"), "{}\n").unwrap(),
        expect!["NOT VERIFIED: seal.json: it is not a seal: it has not the three lines of a seal"],
    );
}

#[track_caller]
fn told(lie: impl FnOnce(&Path), expected: Expect) {
    let world = sealed();
    lie(&world.run_folder("run-1"));
    let ran = verify(&world);
    assert_eq!(ran.code, 1);
    ran.assert_harmless();
    // Where a line begins depends on how long ids and times are written.
    let verdict = verdict(&ran);
    let told = match verdict.split_once(" (byte ") {
        Some((before, after)) => format!("{before}{}", after.split_once(')').unwrap().1),
        None => verdict,
    };
    expected.assert_eq(&told);
}

#[test]
fn a_seal_by_somebody_else_counts_for_nothing_unless_trusted() {
    let world = sealed();
    let own = world.state().join("keys/seal.pem");
    let public = SigningKey::load(&own).unwrap().public().to_pem();
    fs::remove_file(&own).unwrap();
    SigningKey::load_or_create(&own).unwrap();
    let ran = verify(&world);
    assert_eq!(ran.code, 1);
    assert!(verdict(&ran).contains("a key this installation does not trust"), "{ran:?}");

    world.write("their.pub.pem", public);
    let trusting = ["audit", "verify", "--run", "run-1", "--key", "their.pub.pem"];
    assert_eq!(world.sluice(&trusting).code, 0);
    world.write("their.pub.pem", "nonsense");
    let ran = world.sluice(&trusting);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.starts_with("error: cannot use their.pub.pem: not an Ed25519"), "{ran:?}");
}

#[test]
fn without_a_seal_it_is_whole_and_says_what_that_is_worth() {
    let world = sealed();
    fs::remove_file(world.run_folder("run-1").join("seal.json")).unwrap();
    let ran = verify(&world);
    assert_eq!(ran.code, 0);
    let expected = "whole: 6 lines in 1 file, not sealed: a changed or missing end would not show";
    assert_eq!(verdict(&ran), expected);
    let ran = world.sluice(&["audit", "verify", "--run", "run-1", "--sealed"]);
    assert_eq!((ran.code, verdict(&ran).as_str()), (1, "NOT VERIFIED: it is not sealed"));
}

#[test]
fn a_path_is_verified_wherever_it_is() {
    let world = sealed();
    let folder = world.run_folder("run-1");
    assert_eq!(world.sluice(&["audit", "verify", folder.to_str().unwrap()]).code, 0);
    let file = folder.join("audit.jsonl");
    assert_eq!(world.sluice(&["audit", "verify", file.to_str().unwrap()]).code, 0);
    let ran = world.sluice(&["audit", "verify", "nowhere"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.starts_with("nowhere: NOT VERIFIED: "), "{ran:?}");
}
